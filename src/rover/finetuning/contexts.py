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
from torch import nn

from rover.evaluation.returns import followed_episodes
from rover.finetuning.adaptation import PlanningRun
from rover.operators.support import FloatArray
from rover.policies import ContextPolicy
from rover.policies.policy import Probs
from rover.solving.contexts import check_rewards
from rover.solving.experience import Experience
from rover.storage import RunConfig

# Random numbers of the episodes, besides acting, drawing and evaluating.
_EPISODE_STREAM = 6


class ContextAdaptation(PlanningRun):
    """One run of adapting to a task in procedurally generated environments.

    Args:
        run_config, env, evaluation_env, run_dir: as of :class:`~rover.finetuning.run.OnlineRun`.
        start: the policy of pretraining, which is kept in the run folder.
    """

    plan_class = ContextPolicy
    _plan: ContextPolicy
    _start: ContextPolicy

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
        self._start = self._plan = start
        experience, discount = Experience(self._buffer, start), self.config.learner.discount
        self._details = experience.policy_details(("task",), discount)

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        self._probs = self._episode()
        return self._measure()

    def _episode(self) -> Probs:
        """Policy of the current episode, asked for each of its observations in order."""
        # By the episode's number, so that a resumed run can follow it again from its beginning.
        seed = self.run_config.seed, _EPISODE_STREAM, self._collector.episode
        policy = self._start if self._explores else self._plan
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
            if n - self._n_planned >= self.config.learner.plan_every:
                self._replan(n)
        self._probs = self._episode()

    def _replan(self, n: int) -> None:
        if n == 0:
            return  # no reward was met yet
        rewards, ends = self._buffer.rewards, self._buffer.terminated[:n].astype(np.float64)
        assert rewards is not None
        with self.stopwatch("improve"):
            self._plan = self._start.with_rewards(
                self._buffer, rewards[:n], ends, self.config.learner.discount
            )
        self._plan.details = self._details
        self._n_planned = n

    def _returns(self, actor: nn.Module) -> FloatArray:
        assert isinstance(actor, ContextPolicy)
        returns, _ = followed_episodes(
            self._evaluation_env,
            actor.sample_component,
            seed=self._evaluation_seed,
            n_episodes=self._evaluation_episodes,
        )
        return returns

    def _load_state(self, state: Mapping[str, Any]) -> None:
        super()._load_state(state)
        # The memory of the episode follows from what it has shown.
        self._probs = self._episode()
        first = len(self._buffer) - self._collector.state()["episode_steps"]
        for row in self._buffer.inputs[first:]:
            self._probs(self._buffer.observations.rows[[row]])
