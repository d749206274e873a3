"""Adapting where the world changes with every episode.

Each episode is followed by a policy with its memory: at first pretraining's, which explores a
layout that was never seen. The rewards that were met are regressed on what was seen, as of
:func:`rover.solving.solve_in_contexts`, and from the next episode on the policy goes for them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rover.data import Buffer
from rover.evaluation import followed_episodes
from rover.finetuning.adaptation import PlanningRun, TaskPlanner
from rover.operators.support import FloatArray
from rover.policies import ContextPolicy
from rover.policies.policy import Probs
from rover.solving.contexts import check_rewards, reward_policy
from rover.solving.experience import Experience
from rover.solving.solve import policy_details
from rover.storage import RunConfig
from rover.training.run_folder import START_FILE

# Random numbers of the episodes, next to those of acting, drawing and evaluating.
_EPISODE_STREAM = 6


class _RewardPlanner(TaskPlanner):
    """Plans in layouts that were never seen.

    Args:
        start: the policy of pretraining, which is the plan before a reward was met.
        seen: the task's transitions so far, with rewards.
        discount: γ of the regression.
    """

    plan_class = ContextPolicy
    exploit: ContextPolicy

    def __init__(self, start: ContextPolicy, seen: Buffer, discount: float) -> None:
        self._start, self._seen, self._discount = start, seen, discount
        self.details = policy_details(Experience(seen, start), ("task",), discount)
        self.exploit = start
        self.n_planned = 0

    def plan(self, n: int) -> None:
        """Plan for the rewards of the task's first `n` transitions, some of which are above 0."""
        rewards = self._seen.rewards
        assert rewards is not None
        ends = self._seen.terminated[:n].astype(np.float64)
        self.exploit = reward_policy(self._start, self._seen, rewards[:n], ends, self._discount)
        self.exploit.details = self.details
        self.n_planned = n


class ContextAdaptation(PlanningRun):
    """One run of adapting to a task in worlds that change with every episode.

    Args:
        run_config, env, evaluation_env, run_dir: as of :class:`~rover.finetuning.run.OnlineRun`.
        start: the policy of pretraining, which is kept in the run folder.
    """

    _learner: _RewardPlanner

    def __init__(
        self,
        run_config: RunConfig,
        start: ContextPolicy,
        env: gym.Env[Any, Any],
        *,
        evaluation_env: gym.Env[Any, Any] | None = None,
        run_dir: str | Path | None = None,
    ) -> None:
        super().__init__(run_config, env, evaluation_env=evaluation_env, run_dir=run_dir)
        start.check_fits(env)
        self._start = start
        self._learner = _RewardPlanner(start, self._buffer, self.config.learner.discount)

    def _prepare_folder(self, folder: Path) -> None:
        self._start.save(folder / START_FILE)

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        self._probs = self._episode()
        return self._measure()

    def _episode(self) -> Probs:
        """Policy of the current episode, asked for each of its observations in order."""
        # By the episode's number, so that a resumed run can follow it again from its beginning.
        seed = self.run_config.seed, _EPISODE_STREAM, self._collector.episode
        policy = self._start if self._explores else self._learner.exploit
        return policy.sample_component(np.random.default_rng(seed))

    def _choose(self) -> int:
        seen = self._buffer.observations.rows[[self._collector.observation]]
        return int(self._probs(seen).argmax())

    def _learn(self, *, done: bool) -> None:
        """Between episodes plan for what was earned, and toss whether the next one explores."""
        assert self._buffer.rewards is not None
        check_rewards(self._buffer.rewards[-1:])
        if not done:
            return
        n = self.num_timesteps
        if self.is_rewarded:
            self._toss()
            if n - self._learner.n_planned >= self.config.learner.plan_every:
                with self.stopwatch("improve"):
                    self._learner.plan(n)
        self._probs = self._episode()

    def _forget_tables(self) -> None:
        """Do nothing: an episode is followed to its end."""

    def _returns(self) -> FloatArray:
        returns, _ = followed_episodes(
            self._evaluation_env,
            self._learner.exploit.sample_component,
            seed=self._evaluation_seed,
            n_episodes=self._evaluation_episodes,
        )
        return returns

    def _load_state(self, state: Mapping[str, Any]) -> None:
        super()._load_state(state)
        # Neither is stored: the regression of the same transitions ends in the same bits, and
        # the memory of the episode follows from what it has shown.
        if self._learner.n_planned > 0:
            self._learner.plan(self._learner.n_planned)
        self._probs = self._episode()
        done = np.flatnonzero(self._buffer.terminated | self._buffer.truncated)
        first = 1 + int(done[-1]) if len(done) else 0
        for row in self._buffer.inputs[first:]:
            self._probs(self._buffer.observations.rows[[row]])
