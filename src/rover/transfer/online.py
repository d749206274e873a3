"""Fine-tuning: learn a task by interacting, from a pretrained policy or from scratch.

The reward is seen only by interacting: nothing that pretraining stored is looked at. A transferred
policy first acts unchanged while the critics learn what it earns (the warm-up), for a number of
steps and until returns differ; then it learns.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rover.agents import CoveragePolicy, NetworkPolicy
from rover.agents.acting import TabulatedPolicy
from rover.agents.bonus import observation_spec
from rover.agents.measuring import fresh_copy
from rover.agents.policy import Policy
from rover.agents.pretraining import torch_threads
from rover.collection import (
    Collector,
    GrowingArray,
    NStepSampler,
    ReplayBuffer,
    StepOutcome,
    check_spaces,
)
from rover.errors import ConfigurationError
from rover.learners import (
    ActorCriticMetrics,
    DiscreteDDPG,
    DiscreteSAC,
    PolicyNetwork,
    SACConfig,
    learner_encoder_spec,
    n_step_returns,
)
from rover.representation import input_statistics
from rover.transfer.components import ComponentActor, ComponentChoice
from rover.transfer.config import FinetuneConfig, make_finetune_config
from rover.transfer.curves import Curve
from rover.transfer.returns import GreedyEvaluator
from rover.transfer.run_folder import TransferConfig, carry_out
from rover.transfer.starting import Start, make_start
from rover.transfer.tasks import best_return, task_of
from rover.transfer.watching import Callback, watched
from rover.version import __version__

_EVALUATION_STREAM = 5
"""Of random numbers, next to those of acting and drawing."""


@dataclass(frozen=True)
class Finetuned:
    """What fine-tuning leaves.

    Attributes:
        actor: the module that learned, in evaluation mode: observations (n, *shape) to logits
            (n, A).
        policy: the same as a policy that can be saved; None for a module of the user's own.
        curve: one record per evaluation.
        summary: steps to the first success and to the best return, the area under the curve.
    """

    actor: nn.Module
    policy: Policy | None
    curve: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]


def finetune(
    policy: Policy | nn.Module | None,
    env: gym.Env[Any, Any],
    *,
    total_timesteps: int = 50_000,
    algorithm: str = "ddpg",
    preset: str = "fast",
    transfer: str = "policy",
    freeze: Collection[str] | None = None,
    seed: int = 0,
    evaluation_env: gym.Env[Any, Any] | None = None,
    run_dir: str | Path | None = None,
    source: str | None = None,
    progress_bar: bool = False,
    tensorboard: bool = False,
    callback: Callback | None = None,
    **overrides: Any,
) -> Finetuned:
    """Learn the task that `env` rewards.

    Args:
        policy: from :func:`rover.load_policy` or an agent's ``policy``; or any torch module from
            observations (n, *shape) to logits (n, A); None: from scratch.
        env: the task: a Gymnasium environment with its reward.
        total_timesteps: environment steps, > 0.
        algorithm: ``"ddpg"`` or ``"sac"``.
        preset: ``"fast"``, small networks for a laptop, or ``"paper"``.
        transfer: ``"policy"``, ``"encoder"`` or ``"both"``: :func:`rover.transfer.make_start`.
        freeze: which of ``"policy"`` and ``"encoder"`` never learn; None: what suits the policy.
        seed: everything random follows from it.
        evaluation_env: a second instance of the task, for evaluations; None: made from the spec.
        run_dir: folder for the run's files, which must not hold any; None leaves none.
        source: where the policy came from, which the run's files will say.
        progress_bar: draw a progress bar with the greedy return.
        tensorboard: write scalars to the run folder for TensorBoard.
        callback: called with each record of the curve; returning False stops the run.
        overrides: single settings of :class:`rover.transfer.FinetuneConfig`.

    Raises:
        ConfigurationError: a policy for other observations or actions, or wrong settings.
        NonFiniteError: a reward, loss or gradient that is not finite.
        StorageError: the run folder cannot be written.
    """
    if total_timesteps < 1:
        raise ConfigurationError(f"total_timesteps must be positive, not {total_timesteps}")
    config = make_finetune_config(algorithm, preset, overrides)
    start = make_start(policy, env, transfer=transfer, freeze=freeze)
    run = Finetuning(env, start, config, seed=seed, evaluation_env=evaluation_env)
    watching = watched(
        callback,
        label="finetune",
        total=total_timesteps,
        progress_bar=progress_bar,
        tensorboard=tensorboard,
        run_dir=run_dir,
    )

    def describe() -> TransferConfig:
        task = task_of(env)
        return TransferConfig(
            version=__version__,
            kind="online",
            algorithm=algorithm,
            preset=preset,
            method="scratch" if policy is None else _details(policy).get("method"),
            source=source,
            transfer=None if policy is None else transfer,
            seed=seed,
            task=None if task is None else task.model_dump(mode="json"),
            amount=total_timesteps,
            settings=config.model_dump(mode="json"),
        )

    return carry_out(
        lambda note: run.learn(total_timesteps, callback=note),
        lambda: run.result(policy),
        describe,
        run_dir=run_dir,
        watching=watching,
    )


class Finetuning:
    """One run of an actor-critic learner on a task.

    Args:
        env: the task.
        start: what actor and critics begin as.
        config: settings.
        seed: everything random follows from it.
        evaluation_env: a second instance of the task; None: made from the spec of `env`.

    Raises:
        ConfigurationError: nothing makes a second instance of `env`.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        start: Start,
        config: FinetuneConfig[Any],
        *,
        seed: int,
        evaluation_env: gym.Env[Any, Any] | None = None,
    ) -> None:
        self.config = config
        self.num_timesteps = 0
        self._start = start
        shape, dtype, n_actions = check_spaces(env)
        self._buffer = ReplayBuffer(shape, dtype, n_actions)
        self._rewards = GrowingArray((), np.float64)
        self._collector = Collector(env, self._buffer, seed=seed, rewards=self._rewards)
        self._sampler = NStepSampler(self._buffer, n_steps=config.n_steps)
        acting, drawing = np.random.SeedSequence([seed, 0]).spawn(2)
        self._rng = np.random.default_rng(acting)
        self._batch_rng = np.random.default_rng(drawing)
        self._learner = _make_learner(env, start, config, seed=seed)
        self._acting = TabulatedPolicy(self._buffer.observations, self._logits)
        self._components = ComponentChoice(self._learner.actor)
        spec = observation_spec(env)
        self._is_centred = spec.is_categorical or start.critic_encoder is not None
        second = fresh_copy(env) if evaluation_env is None else evaluation_env
        if second is None:
            raise ConfigurationError(
                "nothing makes a second instance of this environment, which evaluations need: "
                "pass evaluation_env="
            )
        self._evaluator = GreedyEvaluator(
            second,
            seed=int(np.random.SeedSequence([seed, _EVALUATION_STREAM]).generate_state(1)[0]),
            n_episodes=config.evaluation_episodes,
        )
        self._is_warming_up = start.actor is not None
        self._warmup_end = 0
        self._first_reward: float | None = None
        self._returns_differ = False
        self._largest_reward = 0.0
        self.curve = Curve(best=best_return(env))
        self._episode_return = 0.0
        self._recent_returns: list[float] = []
        self._metrics: ActorCriticMetrics | None = None
        self._began = time.perf_counter()

    def learn(self, total_timesteps: int, *, callback: Callback | None = None) -> None:
        """Continue until `total_timesteps` environment steps have been made in all."""
        with torch_threads(self.config.threads):
            if self._collector.episode < 0:
                self._collector.start_episode()
                self._components.draw(self._rng)
                if not self._evaluate(callback):
                    return
            while self.num_timesteps < total_timesteps:
                self._step()
                due = self.num_timesteps % self.config.evaluate_every == 0
                if (due or self.num_timesteps == total_timesteps) and not self._evaluate(callback):
                    return

    def _step(self) -> None:
        outcome = self._collector.step(self._choose())
        self.num_timesteps += 1
        reward, config = float(self._rewards.rows[-1]), self.config
        self._episode_return += reward
        self._largest_reward = max(self._largest_reward, abs(reward))
        self._note_difference(reward, outcome)
        if outcome.done:
            self._end_episode(outcome)
        warm = self.num_timesteps >= config.seed_steps + config.warmup_steps
        if self._is_warming_up and warm and self._returns_differ:
            self._is_warming_up, self._warmup_end = False, self.num_timesteps
            self._components.settle(self._rng)
            self._acting.forget()
        if (
            self.num_timesteps > config.seed_steps
            and self.num_timesteps % config.learner.update_every == 0
        ):
            self._update()

    def _note_difference(self, reward: float, outcome: StepOutcome) -> None:
        """Whether there is anything to prefer: until then a policy can only get worse."""
        if self._first_reward is None:
            self._first_reward = reward
        if reward != self._first_reward or (outcome.terminated and reward != 0.0):
            self._returns_differ = True

    def _choose(self) -> int:
        config, step = self.config, self.num_timesteps
        if self._start.actor is None and step < config.seed_steps:
            return int(self._rng.integers(self._buffer.n_actions))
        # A transferred policy explores by itself until it begins to learn.
        if not self._is_warming_up and self._rng.random() < self._epsilon(step - self._warmup_end):
            return int(self._rng.integers(self._buffer.n_actions))
        return self._acting.sample(self._collector.observation, self._rng)

    def _logits(self, observations: Tensor, rows: Tensor) -> Tensor:
        return self._learner.policy_logits(observations, rows=rows)

    def _epsilon(self, elapsed: int) -> float:
        config = self.config
        share = min(1.0, elapsed / config.exploration_steps)
        return config.exploration_start + share * (
            config.exploration_end - config.exploration_start
        )

    def _end_episode(self, outcome: StepOutcome) -> None:
        if outcome.terminated and self.curve.best is not None:
            self.curve.note_success(self.num_timesteps)
        self._recent_returns.append(self._episode_return)
        self._components.note(self._episode_return)
        self._episode_return = 0.0
        if self._is_warming_up and self._components.draw(self._rng):
            self._acting.forget()

    def _update(self) -> None:
        config = self.config
        if not self._is_centred:
            # Once, so that what the networks have learned is not moved under them.
            self._learner.set_centering(*input_statistics(self._buffer.observations.rows))
            self._is_centred = True
        windows = self._sampler.sample(config.learner.batch_size, self._batch_rng)
        unit = config.reward_unit(self._largest_reward)
        rewards = torch.from_numpy(self._rewards.rows[windows.rows] / unit).float()
        returns = n_step_returns(
            rewards, windows.terminated, windows.truncated, discount=config.learner_discount
        )
        # Not on the step that ends the warm-up: it was made by the policy as it was.
        learns = not (self._is_warming_up or self._start.is_kept)
        learns = learns and self.num_timesteps > self._warmup_end
        self._metrics = self._learner.update(
            windows.batch, returns.returns, returns.discounts, train_actor=learns
        )
        if learns:
            self._acting.forget()

    def _evaluate(self, callback: Callback | None) -> bool:
        """Add a record to the curve; whether to go on."""

        def logits(observations: Tensor, rows: Tensor) -> Tensor:
            return self._learner.policy_logits(observations)

        returns = self._evaluator.returns(logits)
        recent, self._recent_returns = self._recent_returns, []
        metrics, unit = self._metrics, self.config.reward_unit(self._largest_reward)
        record = {
            "step": self.num_timesteps,
            "episode": self._collector.episode,
            "greedy_return": float(returns.mean()),
            "training_return": float(np.mean(recent)) if recent else None,
            "observations": len(self._buffer.observations),
            "critic_loss": None if metrics is None else metrics.critic_loss,
            "q_mean": None if metrics is None else unit * metrics.q_mean,
            "policy_entropy": None if metrics is None else metrics.policy_entropy,
        }
        self.curve.add(record)
        return callback is None or callback(record) is not False

    def result(self, policy: Policy | nn.Module | None) -> Finetuned:
        """What was learned so far."""
        actor = self._learner.policy_module()
        return Finetuned(
            actor,
            _package(actor, policy),
            tuple(self.curve.records),
            {
                **self.curve.summary(),
                "episodes": self._collector.episode + 1,
                "wall_seconds": time.perf_counter() - self._began,
            },
        )


def _make_learner(
    env: gym.Env[Any, Any], start: Start, config: FinetuneConfig[Any], *, seed: int
) -> DiscreteDDPG | DiscreteSAC:
    spec = observation_spec(env)
    settings = config.learner
    # W holds logits; whatever else of the policy learns is a network.
    is_coverage = isinstance(start.actor, CoveragePolicy)
    rates = {"weights": config.coverage_learning_rate} if is_coverage else None
    if start.actor is None and start.critic_encoder is not None:
        # One encoder was transferred, and both read it.
        settings = settings.model_copy(update={"share_encoder": True})
    learner = DiscreteSAC if isinstance(settings, SACConfig) else DiscreteDDPG
    return learner(
        learner_encoder_spec(
            spec.shape,
            observation_dtype=spec.dtype,
            n_states=spec.n_states,
            one_hot=spec.one_hot,
            width=settings.hidden_sizes[0],
        ),
        n_actions=int(env.action_space.n),  # type: ignore[attr-defined] # checked by check_spaces
        config=settings,
        generator=torch.Generator().manual_seed(seed),
        actor=start.actor,
        actor_learning_rates=rates,
        critic_encoder=start.critic_encoder,
    )


def _package(actor: nn.Module, policy: Policy | nn.Module | None) -> Policy | None:
    """The learned actor as a policy that can be saved."""
    if isinstance(actor, ComponentActor):
        return actor.package()
    if isinstance(actor, PolicyNetwork):
        return NetworkPolicy([actor], None, _details(policy))
    if isinstance(actor, CoveragePolicy):
        return actor
    return None


def _details(policy: object) -> dict[str, Any]:
    """What a policy says it was trained on; nothing for a module of the user's own."""
    return dict(getattr(policy, "details", {}))
