"""Fine-tuning: learn a task by interacting, from a pretrained policy or from scratch.

The reward is seen only by interacting: nothing that pretraining stored is looked at. A transferred
policy first acts unchanged while the critics learn what it earns (the warm-up), for a number of
steps and until returns differ; then it learns.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rover.data import Buffer, Collector, check_spaces
from rover.errors import ConfigurationError, RoverWarning
from rover.features import input_statistics
from rover.finetuning.config import FinetuneConfig
from rover.finetuning.run import REMEDY, TaskRun
from rover.finetuning.start import ComponentActor, best_component, initialise_from
from rover.finetuning.tasks import check_rewarded
from rover.learners import DiscreteDDPG, DiscreteSAC, PolicyNetwork
from rover.policies import CoveragePolicy, NetworkPolicy, Policy, TabulatedPolicy, ValuePolicy
from rover.training.environments import fresh_copy
from rover.training.run_folder import START_FILE, RunConfig


class OnlineRun(TaskRun):
    """Base of the runs that learn a task by interacting with it.

    A subclass chooses the actions (:meth:`_choose`), learns from each transition (:meth:`_learn`),
    and sets ``_acting``, the policy by which it acts.
    """

    # Attributes that a state holds as they are.
    _plain_state: ClassVar[tuple[str, ...]] = ("_episode_return", "_recent_returns", "_latest")

    _acting: TabulatedPolicy

    def __init__(
        self,
        run_config: RunConfig,
        env: gym.Env[Any, Any],
        *,
        evaluation_env: gym.Env[Any, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        shape, dtype, n_actions = check_spaces(env)
        check_rewarded(env)
        # An evaluation in the middle of an episode would end it.
        second = fresh_copy(env) if evaluation_env is None else evaluation_env
        if second is None:
            raise ConfigurationError(
                "nothing makes a second instance of this environment, which evaluations need: "
                "pass evaluation_env="
            )
        super().__init__(run_config, env, second, run_dir)
        # Empty, and with rewards: what pretraining stored has none, and is not looked at.
        self._buffer = Buffer(shape, dtype, n_actions, rewards=True)
        self._collector = Collector(env, self._buffer, seed=run_config.seed)
        # Two streams: how often batches are drawn must not change how the agent acts.
        acting, drawing = np.random.SeedSequence([run_config.seed, 0]).spawn(2)
        self._rng = np.random.default_rng(acting)
        self._batch_rng = np.random.default_rng(drawing)
        self._learns_from = 0  # the first step at which the policy may change
        self._episode_return = 0.0
        self._recent_returns: list[float] = []
        self._latest: dict[str, float | None] = {}  # figures of the latest update

    @abstractmethod
    def _choose(self) -> int:
        """The action on the collector's observation."""

    @abstractmethod
    def _learn(self, *, done: bool) -> None:
        """Learn from the buffer's latest transition, `done` if it ended its episode."""

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        return self._measure()

    def _step(self, *, is_last: bool) -> dict[str, Any] | None:
        with self.stopwatch("collect"):
            done = self._collector.step(self._choose())
        self.num_timesteps += 1
        rewards, terminated = self._rewards, self._buffer.terminated
        self._episode_return += float(rewards[-1])
        # Until there is anything to prefer a policy can only get worse.
        self.is_rewarded |= bool(rewards[-1] != rewards[0] or (terminated[-1] and rewards[-1]))
        # A fifth of the budget is early enough to stop a run that learns nothing, and choose
        # another.
        is_late = self.num_timesteps == max(self.total_timesteps // 5, self._learns_from)
        if is_late and not self.is_rewarded:
            warnings.warn(
                f"no reward was seen in {self.num_timesteps:,} steps ({self._collector.episode} "
                f"episodes): every step earned {rewards[0]:g}; if it stays so, {REMEDY}",
                RoverWarning,
                stacklevel=2,
            )
        if done:
            if self.first_success is None and terminated[-1]:
                # An end that earns more than any step before it: a goal, and not a fall.
                before = rewards[~terminated].max(initial=-np.inf)
                self.first_success = self.num_timesteps if rewards[-1] > before else None
            self._recent_returns.append(self._episode_return)
            self._episode_return = 0.0
        self._learn(done=done)
        is_due = is_last or self.num_timesteps % self.config.evaluate_every == 0
        return self._measure() if is_due else None

    def _measure(self) -> dict[str, Any]:
        # A run that goes on from here tabulates the policy anew, so this one does too.
        self._acting.forget()
        recent, self._recent_returns = self._recent_returns, []
        return self._evaluate(
            {
                "episode": self._collector.episode,
                "training_return": float(np.mean(recent)) if recent else None,
                "observations": len(self._buffer.observations),
                **self._latest,
            }
        )

    def _state(self) -> dict[str, Any]:
        return {
            **super()._state(),
            "buffer": self._buffer.state(),
            "collector": self._collector.state(),
            "rng": self._rng.bit_generator.state,
            "progress": {name: getattr(self, name) for name in self._plain_state},
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        super()._load_state(state)
        self._buffer.load_state(state["buffer"])
        self._collector.load_state(state["collector"])
        self._rng.bit_generator.state = state["rng"]
        for name in self._plain_state:
            setattr(self, name, state["progress"][name])


class Finetuning(OnlineRun):
    """One run of an actor-critic learner on a task, from `policy` or, without one, from scratch."""

    activity = "finetune"
    config_class = FinetuneConfig
    config: FinetuneConfig
    _learner: DiscreteDDPG | DiscreteSAC
    _plain_state = (
        *OnlineRun._plain_state,
        *("_is_centred", "_is_warming_up", "_warmup_end", "_component_returns"),
    )

    def __init__(
        self,
        run_config: RunConfig,
        policy: nn.Module | None,
        env: gym.Env[Any, Any],
        *,
        evaluation_env: gym.Env[Any, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        super().__init__(run_config, env, evaluation_env=evaluation_env, run_dir=run_dir)
        config, freeze = self.config, run_config.freeze
        transfer = "policy" if run_config.transfer is None else run_config.transfer
        actor, encoder = initialise_from(policy, env, transfer=transfer, freeze=freeze)
        # Tables of logits have a step size of their own; all else of a policy is a network.
        is_table = isinstance(actor, CoveragePolicy | ValuePolicy)
        tables = dict.fromkeys(("actor.weights", "actor.table"), config.coverage_learning_rate)
        learner: Any = DiscreteSAC if run_config.algorithm == "sac" else DiscreteDDPG
        self._learner = learner(
            self._encoder_config(),
            n_actions=self._buffer.n_actions,
            config=config.learner,
            generator=torch.Generator().manual_seed(run_config.seed),
            actor=actor,
            actor_learning_rates=tables if is_table else None,
            critic_encoder=encoder,
        )
        self._origin = policy
        self._acting = TabulatedPolicy(self._buffer.observations, self._learner.policy_logits)
        self._is_from_scratch = actor is None
        self._is_kept = transfer != "encoder" and "policy" in (freeze or ())
        self._is_centred = self._observations.is_categorical or encoder is not None
        self._is_warming_up = actor is not None
        self._learns_from = config.seed_steps + config.warmup_steps
        # Component and return of each episode of the warm-up, of a set of several policies.
        self._component_returns: list[tuple[int, float]] = []
        self._draw_component()
        # The curve has the same columns before the first update.
        self._latest = dict.fromkeys(("critic_loss", "q_mean", "policy_entropy"))

    def _prepare_folder(self, folder: Path) -> None:
        if isinstance(self._origin, Policy):
            self._origin.save(folder / START_FILE)

    def _choose(self) -> int:
        config, step = self.config, self.num_timesteps
        if self._is_from_scratch and step < config.seed_steps:
            return int(self._rng.integers(self._buffer.n_actions))
        # A transferred policy explores by itself until it begins to learn.
        if not self._is_warming_up:
            decayed = min(1.0, (step - self._warmup_end) / config.exploration_steps)
            start, end = config.exploration_start, config.exploration_end
            if self._rng.random() < start + decayed * (end - start):
                return int(self._rng.integers(self._buffer.n_actions))
        return self._acting.sample(self._collector.observation, self._rng)

    def _draw_component(self) -> None:
        """Choose the policy of the next episode of the warm-up, of a set of several."""
        actor = self._learner.actor
        if isinstance(actor, ComponentActor) and actor.policy.n_components > 1:
            actor.component.fill_(actor.policy.draw_component(self._rng))

    def _learn(self, *, done: bool) -> None:
        """End the warm-up and update when due."""
        config, actor, step = self.config, self._learner.actor, self.num_timesteps
        if self._is_warming_up:
            self._warmup_end = step
            # Each episode of the warm-up tries one policy of a set; the best of them learns.
            if done and isinstance(actor, ComponentActor):
                self._component_returns.append((int(actor.component), self._recent_returns[-1]))
                self._draw_component()
                self._acting.forget()
            if self.is_rewarded and step >= self._learns_from:
                self._is_warming_up = False
                if self._component_returns and isinstance(actor, ComponentActor):
                    actor.component.fill_(best_component(self._component_returns, self._rng))
                self._acting.forget()
        if step <= config.seed_steps or step % config.learner.update_every != 0:
            return
        # Critics learn during the warm-up, so that the first step of the actor has values to climb;
        # not on the step that ends it, which was made by the policy as it was.
        train_actor = step > self._warmup_end and not self._is_kept
        with self.stopwatch("improve"):
            if not self._is_centred:
                # Once, so that what the networks have learned is not moved under them.
                self._learner.set_centering(*input_statistics(self._buffer.observations.rows))
                self._is_centred = True
            batch, unit = self._draw()
            metrics = self._learner.update(*batch, train_actor=train_actor)
        self._latest = {
            "critic_loss": metrics["critic_loss"],
            "q_mean": unit * metrics["q_mean"],
            "policy_entropy": metrics["policy_entropy"],
        }
        if train_actor:
            self._acting.forget()

    def _package(self, module: nn.Module) -> nn.Module:
        if isinstance(module, ComponentActor):  # which had to choose among several while it learned
            module = module.policy.single(int(module.component))
        if isinstance(module, PolicyNetwork):
            details = self._origin.details if isinstance(self._origin, Policy) else {}
            module = NetworkPolicy([module], None, details)
        return module.eval()
