"""Offline learning: a task from the transitions that pretraining stored, without a further step.

Here, and only here, stored transitions are labelled with the task's reward. What the data does not
show cannot be learned: this measures the data, where fine-tuning measures the policy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from rover.baselines.bonus import observation_spec
from rover.data import (
    NStepSampler,
    ReplayBuffer,
    check_spaces,
    label,
)
from rover.envs import reward_function
from rover.errors import ConfigurationError
from rover.features import input_statistics
from rover.finetuning.config import OfflineConfig, make_offline_config
from rover.finetuning.curves import Curve
from rover.finetuning.returns import GreedyEvaluator
from rover.finetuning.run_folder import TransferConfig, carry_out
from rover.finetuning.tasks import best_return, task_of
from rover.finetuning.watching import Callback, watched
from rover.learners import (
    CQLConfig,
    DiscreteCQL,
    DiscreteDDPG,
    PolicySpec,
    learner_encoder_spec,
    n_step_returns,
)
from rover.policies.coverage import Policy
from rover.policies.greedy import GreedyPolicy
from rover.policies.network import NetworkPolicy
from rover.training.pretraining import torch_threads
from rover.types import RewardFunction
from rover.version import __version__


@dataclass(frozen=True)
class OfflineTrained:
    """What offline learning leaves.

    Attributes:
        policy: greedy in the values (CQL), or the actor (DDPG).
        curve: one record per evaluation, ``step`` counting updates.
        summary: the final greedy return, and when the best one was reached.
    """

    policy: Policy
    curve: tuple[Mapping[str, Any], ...]
    summary: Mapping[str, Any]


def train_offline(
    buffer: ReplayBuffer,
    env: gym.Env[Any, Any],
    *,
    reward: RewardFunction | None = None,
    updates: int = 15_000,
    algorithm: str = "cql",
    preset: str = "fast",
    seed: int = 0,
    run_dir: str | Path | None = None,
    source: str | None = None,
    progress_bar: bool = False,
    tensorboard: bool = False,
    callback: Callback | None = None,
    **overrides: Any,
) -> OfflineTrained:
    """Learn a task from a fixed buffer.

    Args:
        buffer: transitions, collected without a reward.
        env: the task, for evaluations only.
        reward: labels the transitions; None: the reward of `env`, which must be a grid world.
        updates: gradient steps, > 0.
        algorithm: ``"cql"`` or ``"ddpg"``.
        preset: ``"fast"``, small networks for a laptop, or ``"paper"``.
        seed: everything random follows from it.
        run_dir: folder for the run's files, which must not hold any; None leaves none.
        source: where the buffer came from, which the run's files will say.
        progress_bar: draw a progress bar with the greedy return.
        tensorboard: write scalars to the run folder for TensorBoard.
        callback: called with each record of the curve; returning False stops the run.
        overrides: single settings of :class:`rover.finetuning.OfflineConfig`.

    Raises:
        ConfigurationError: an empty buffer, one of other observations or actions than the task's,
            or wrong settings.
        NonFiniteError: a reward, loss or gradient that is not finite.
        StorageError: the run folder cannot be written.
    """
    if updates < 1:
        raise ConfigurationError(f"updates must be positive, not {updates}")
    config = make_offline_config(algorithm, preset, overrides)
    check_buffer_fits(buffer, env)
    run = OfflineTraining(
        buffer, env, reward_function(env) if reward is None else reward, config, seed=seed
    )
    watching = watched(
        callback,
        label="offline",
        total=updates,
        progress_bar=progress_bar,
        tensorboard=tensorboard,
        run_dir=run_dir,
    )

    def describe() -> TransferConfig:
        task = task_of(env)
        return TransferConfig(
            version=__version__,
            kind="offline",
            algorithm=algorithm,
            preset=preset,
            source=source,
            transfer=None,
            seed=seed,
            task=None if task is None else task.model_dump(mode="json"),
            amount=updates,
            settings=config.model_dump(mode="json"),
        )

    return carry_out(
        lambda note, _: run.learn(updates, callback=note),
        run.result,
        describe,
        run_dir=run_dir,
        watching=watching,
    )


def check_buffer_fits(buffer: ReplayBuffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions.

    Raises:
        ConfigurationError: it is empty, or they are others.
    """
    shape, dtype, n_actions = check_spaces(env)
    if len(buffer) == 0:
        raise ConfigurationError("the buffer is empty: there is nothing to learn from")
    found = (buffer.observations.shape, buffer.observations.dtype, buffer.n_actions)
    if found != (shape, dtype, n_actions):
        raise ConfigurationError(
            f"the buffer holds observations {found[0]} of {found[1]} and {found[2]} actions, the "
            f"task has {shape} of {dtype} and {n_actions}: it was collected on another environment"
        )


class OfflineTraining:
    """One run of a learner on a labelled buffer.

    Args:
        buffer: the transitions.
        env: the task, for evaluations only.
        reward: labels the transitions.
        config: settings.
        seed: everything random follows from it.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        env: gym.Env[Any, Any],
        reward: RewardFunction,
        config: OfflineConfig[Any],
        *,
        seed: int,
    ) -> None:
        self.config = config
        self.n_updates = 0
        self._labels = label(buffer, reward)
        self._sampler = NStepSampler(buffer, n_steps=config.n_steps, labels=self._labels)
        self._reward_unit = config.reward_unit(float(np.abs(self._labels.rewards).max()))
        self._rng = np.random.default_rng([seed, 1])
        spec = observation_spec(env)
        self._encoder_spec = learner_encoder_spec(
            spec.shape,
            observation_dtype=spec.dtype,
            n_states=spec.n_states,
            one_hot=spec.one_hot,
            width=config.learner.hidden_sizes[0],
        )
        generator = torch.Generator().manual_seed(seed)
        learner = DiscreteCQL if isinstance(config.learner, CQLConfig) else DiscreteDDPG
        self._learner: DiscreteCQL | DiscreteDDPG = learner(
            self._encoder_spec,
            n_actions=buffer.n_actions,
            config=config.learner,
            generator=generator,
        )
        if not spec.is_categorical:
            self._learner.set_centering(*input_statistics(buffer.observations.rows))
        self._evaluator = GreedyEvaluator(env, seed=seed, n_episodes=config.evaluation_episodes)
        self.curve = Curve(best=best_return(env))
        self._began = time.perf_counter()

    def learn(self, updates: int, *, callback: Callback | None = None) -> None:
        """Make `updates` further updates."""
        last = self.n_updates + updates
        with torch_threads(self.config.threads):
            while self.n_updates < last:
                metrics = self._update()
                due = self.n_updates % self.config.evaluate_every == 0
                if not (due or self.n_updates == last):
                    continue
                record = {
                    "step": self.n_updates,
                    "greedy_return": float(self._evaluator.returns(self._values).mean()),
                    "critic_loss": metrics.critic_loss,
                    "q_mean": self._reward_unit * metrics.q_mean,
                }
                self.curve.add(record)
                if callback is not None and callback(record) is False:
                    break

    def _update(self) -> Any:
        config = self.config
        windows = self._sampler.sample(config.learner.batch_size, self._rng)
        rewards = torch.from_numpy(self._labels.rewards[windows.rows] / self._reward_unit).float()
        returns = n_step_returns(
            rewards, windows.terminated, windows.truncated, discount=config.learner_discount
        )
        self.n_updates += 1
        return self._learner.update(windows.batch, returns.returns, returns.discounts)

    def _values(self, observations: Tensor, rows: Tensor) -> Tensor:
        """What is greatest for the greedy action, (n, A)."""
        if isinstance(self._learner, DiscreteCQL):
            return self._learner.q_values(observations).amin(dim=0)
        return self._learner.policy_logits(observations)

    def result(self) -> OfflineTrained:
        """What was learned so far."""
        learner = self._learner
        policy: Policy
        if isinstance(learner, DiscreteCQL):
            sizes = self.config.learner.hidden_sizes[1:]
            spec = PolicySpec(
                encoder=self._encoder_spec, n_actions=learner.n_actions, hidden_sizes=sizes
            )
            policy = GreedyPolicy(learner.q_module(), spec)
        else:
            policy = NetworkPolicy([learner.policy_module()])  # type: ignore[list-item]
        summary = {
            **self.curve.summary(),
            "labelled_goals": int(self._labels.terminated.sum()),
            "transitions": len(self._labels.rewards),
            "wall_seconds": time.perf_counter() - self._began,
        }
        return OfflineTrained(policy, tuple(self.curve.records), summary)
