"""Offline learning: a task from the transitions that pretraining stored, without a further step.

Here, and only here, stored transitions are labelled with the task's reward. What the data does not
show cannot be learned: this measures the data, where fine-tuning measures the policy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rover.data import Buffer, check_same_spaces, relabel
from rover.envs import Environment, RewardFunction, reward_function
from rover.features import input_statistics
from rover.finetuning.config import OfflineConfig
from rover.finetuning.run import TaskRun
from rover.finetuning.tasks import check_rewarded
from rover.learners import DiscreteCQL, DiscreteDDPG
from rover.storage import RunConfig


class OfflineTraining(TaskRun):
    """One run of a learner on a buffer, labelled by a reward function or else by the task's."""

    activity = "offline"
    config_class = OfflineConfig
    config: OfflineConfig
    _learner: DiscreteCQL | DiscreteDDPG

    def __init__(
        self,
        run_config: RunConfig,
        start: tuple[Buffer, RewardFunction | None],
        environment: Environment,
        run_dir: Path | None,
    ) -> None:
        (buffer, reward), env = start, environment.env
        check_same_spaces(buffer, env)
        check_rewarded(env, by_observations=reward is None)
        super().__init__(run_config, env, env, run_dir)
        self._buffer = relabel(buffer, reward_function(env) if reward is None else reward)
        # One reward everywhere, and no end, prefers no policy to any other.
        rewards = self._buffer.rewards
        assert rewards is not None
        differ = bool((rewards != rewards[0]).any())
        self._progress.is_rewarded = differ or bool(self._buffer.terminated.any())
        self._batch_rng = np.random.default_rng([run_config.seed, 1])
        learner: Any = DiscreteCQL if run_config.algorithm == "cql" else DiscreteDDPG
        self._learner = learner(
            self.config.learner.encoder(self._observations),
            n_actions=buffer.n_actions,
            config=self.config.learner,
            generator=torch.Generator().manual_seed(run_config.seed),
        )
        # One-hot vectors and states are compared, not measured: nothing to centre.
        if not self._observations.is_categorical:
            self._learner.set_centering(*input_statistics(buffer.observations.rows))

    def _begin(self) -> None:
        return None

    def _step(self, *, is_last: bool) -> dict[str, Any] | None:
        with self.stopwatch("improve"):
            batch, unit = self._draw()
            metrics = self._learner.update(*batch)
        self.num_timesteps += 1
        if not (is_last or self.num_timesteps % self.config.evaluate_every == 0):
            return None
        return self._evaluate(
            {"critic_loss": metrics["critic_loss"], "q_mean": unit * metrics["q_mean"]}
        )

    def _figures(self) -> dict[str, Any]:
        return {
            **super()._figures(),
            "labelled_goals": int(self._buffer.terminated.sum()),
            "transitions": len(self._buffer),
        }
