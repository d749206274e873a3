"""One run of an actor-critic learner on a task, from what pretraining left.

The reward is seen only by interacting: nothing that pretraining stored is looked at. A transferred
policy first acts unchanged while the critics learn what it earns (the warm-up), for a number of
steps and until returns differ; then it learns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from rover.baselines.bonus import observation_spec
from rover.data import (
    Collector,
    GrowingArray,
    NStepSampler,
    ReplayBuffer,
    StepOutcome,
    check_spaces,
)
from rover.errors import ConfigurationError
from rover.features import input_statistics
from rover.finetuning.components import ComponentChoice
from rover.finetuning.config import FinetuneConfig
from rover.finetuning.curves import Curve
from rover.finetuning.returns import GreedyEvaluator
from rover.finetuning.run_folder import Store
from rover.finetuning.starting import Start
from rover.finetuning.tasks import best_return
from rover.finetuning.watching import Callback
from rover.learners import (
    DiscreteDDPG,
    DiscreteSAC,
    SACConfig,
    learner_encoder_spec,
    n_step_returns,
)
from rover.policies.coverage import CoveragePolicy
from rover.policies.tabulated import TabulatedPolicy
from rover.storage import generator_state, restore_generator
from rover.training.measuring import fresh_copy
from rover.training.pretraining import torch_threads

_LEARNER_FIGURES = ("critic_loss", "q_mean", "policy_entropy")
_PLAIN_STATE = (
    "is_centred",
    "is_warming_up",
    "warmup_end",
    "first_reward",
    "returns_differ",
    "largest_reward",
    "episode_return",
    "recent_returns",
    "latest",
    "wall_seconds",
)
"""Attributes of a run that JSON can hold as they are."""

_EVALUATION_STREAM = 5
"""Of random numbers, next to those of acting and drawing."""


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
        self._latest: dict[str, float | None] = dict.fromkeys(_LEARNER_FIGURES)
        self._wall_seconds = 0.0

    def learn(
        self, total_timesteps: int, *, callback: Callback | None = None, store: Store | None = None
    ) -> None:
        """Continue until `total_timesteps` environment steps have been made in all.

        Args:
            total_timesteps: environment steps.
            callback: called with each record of the curve; returning False stops the run.
            store: given the run's state every ``checkpoint_every`` steps, for :meth:`load_state`.
        """
        began = time.perf_counter() - self._wall_seconds
        with torch_threads(self.config.threads):
            if self._collector.episode < 0:
                self._collector.start_episode()
                self._components.draw(self._rng)
                if not self._evaluate(callback):
                    return
            while self.num_timesteps < total_timesteps:
                self._step()
                due = self.num_timesteps % self.config.evaluate_every == 0
                is_last = self.num_timesteps == total_timesteps
                goes_on = not (due or is_last) or self._evaluate(callback)
                self._wall_seconds = time.perf_counter() - began
                if not goes_on:
                    return
                if self.num_timesteps % self.config.checkpoint_every == 0 and not is_last:
                    # A run that goes on from here evaluates policies anew, so this one does too.
                    self._acting.forget()
                    self._evaluator.forget()
                    if store is not None:
                        store(self.num_timesteps, *self.state())

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
        metrics = self._learner.update(
            windows.batch, returns.returns, returns.discounts, train_actor=learns
        )
        self._latest = {
            "critic_loss": metrics.critic_loss,
            "q_mean": unit * metrics.q_mean,
            "policy_entropy": metrics.policy_entropy,
        }
        if learns:
            self._acting.forget()

    def _evaluate(self, callback: Callback | None) -> bool:
        """Add a record to the curve; whether to go on."""

        def logits(observations: Tensor, rows: Tensor) -> Tensor:
            return self._learner.policy_logits(observations)

        returns = self._evaluator.returns(logits)
        recent, self._recent_returns = self._recent_returns, []
        record = {
            "step": self.num_timesteps,
            "episode": self._collector.episode,
            "greedy_return": float(returns.mean()),
            "training_return": float(np.mean(recent)) if recent else None,
            "observations": len(self._buffer.observations),
            **self._latest,
        }
        self.curve.add(record)
        return callback is None or callback(record) is not False

    def policy_module(self) -> nn.Module:
        """A copy of what learned: observations (n, *shape) to logits (n, A)."""
        return self._learner.policy_module()

    def summary(self) -> dict[str, Any]:
        """What summary.json holds."""
        return {
            **self.curve.summary(),
            "episodes": self._collector.episode + 1,
            "wall_seconds": self._wall_seconds,
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the run depends on: tensors, and what JSON can hold."""
        tensors = {f"learner.{name}": value for name, value in self._learner.state().items()}
        for name, array in self._buffer.arrays().items():
            tensors[f"buffer.{name}"] = torch.from_numpy(array)
        tensors["rewards"] = torch.from_numpy(self._rewards.rows.copy())
        return tensors, {
            **{name: getattr(self, f"_{name}") for name in _PLAIN_STATE},
            "num_timesteps": self.num_timesteps,
            "curve": self.curve.state(),
            "components": self._components.state(),
            "rng": generator_state(self._rng),
            "batch_rng": generator_state(self._batch_rng),
            "episode": self._collector.episode,
            "episode_steps": len(self._collector.episode_actions),
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on where :meth:`state` was taken, in a run that was made with the same arguments.

        Raises:
            ArtefactError: it is not the state of such a run.
            ReplayMismatchError: the environment does not repeat itself.
        """

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self._buffer.load_arrays({k: v.numpy() for k, v in part("buffer.").items()})
        self._rewards.replace(tensors["rewards"].numpy())
        self._learner.load_state(part("learner."))
        for name in _PLAIN_STATE:
            setattr(self, f"_{name}", state[name])
        self.num_timesteps = int(state["num_timesteps"])
        self.curve.load_state(state["curve"])
        self._components.load_state(state["components"])
        self._rng.bit_generator.state = restore_generator(state["rng"]).bit_generator.state
        batches = restore_generator(state["batch_rng"])
        self._batch_rng.bit_generator.state = batches.bit_generator.state
        actions = self._buffer.actions[len(self._buffer) - int(state["episode_steps"]) :]
        self._collector.replay(int(state["episode"]), actions.tolist())


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
