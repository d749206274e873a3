"""Adapting: learn a task by interacting, with the model that pretraining left.

Until a reward is met the agent goes, by the shortest paths in the model, to states that it has not
visited in this task, and where these are exact, then to actions that it has not tried there, since
a reward may be of these; then it plans for the rewards that it has seen. All plans are value
iterations on one model, which takes in every further transition.

Where the world changes with every episode pretraining's policy with its memory is followed. Rewards
that were met are regressed on what was seen, as of :func:`rover.solving.solve_in_contexts`, and
from the next episode on the policy heads for them, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray
from rover.data import Buffer, check_same_spaces
from rover.envs import Environment
from rover.finetuning.config import AdaptConfig
from rover.finetuning.run import OnlineRun
from rover.policies import ContextPolicy, TabulatedPolicy, ValuePolicy
from rover.policies.policy import Probs
from rover.solving.plans import Experience, PlanSettings, planned_policy
from rover.solving.solve import check_rewards
from rover.solving.tasks import Tasks
from rover.storage import RunConfig
from rover.world.neighbours import SPACING
from rover.world.world import World

# Random numbers of the episodes, besides acting, drawing and evaluating.
_EPISODE_STREAM = 6

# Distance up to which a point counts as visited in continuous spaces.
_NEAR = 2.0 * SPACING

# States that are planned on for each step: 200 take some 25 ms.
_STATES_A_STEP = 200

# Share of new transitions from which a plan on landmarks is made anew within an episode.
_GROWTH = 0.05

# Exploration value of actions that leave the data; an unvisited landmark's is 1.
_UNTRIED = 0.1


class _PlannedRun(OnlineRun):
    """Base of the runs whose policy for the task is planned."""

    activity = "adapt"
    config_class = AdaptConfig
    config: AdaptConfig
    _parts = ("_buffer", "_collector")

    def _toss(self) -> None:
        """Choose whether the next episode explores: one in 1 + n after n that exploited, ever fewer
        and without end, so that a better reward is met sooner or later."""
        progress = self._progress
        progress.n_exploited += 1
        progress.explores = bool(self._rng.random() < 1.0 / (1.0 + progress.n_exploited))


class Adaptation(_PlannedRun):
    """One run of adapting to a task, on the transitions of `experience` and the task's own."""

    _plan_class = ValuePolicy
    _acting: TabulatedPolicy

    def __init__(
        self, run_config: RunConfig, experience: Experience, env: Environment, run_dir: Path | None
    ) -> None:
        super().__init__(run_config, env, run_dir)
        check_same_spaces(experience.world.buffer, env.env)
        self._discount = self.config.learner.discount
        self._plan_details = experience.policy_details(("task",), self._discount)
        # Without rewards; what follows in the task is another episode.
        self._all = Buffer.merged([experience.world.buffer])
        self._n_old = len(self._all)
        self._experience = experience._replace(world=World(self._all))
        self._rows: list[int] = []  # of the task's observations, in the table of all
        self._is_exact = True  # states repeat, so that plans are made in milliseconds
        table = self._buffer.observations
        self._acting = TabulatedPolicy(table, lambda seen, _: self._plan(seen))
        self._exploring = TabulatedPolicy(table, lambda seen, _: self._exploration(seen))
        # Observations that the plans know, and pairs, where exploration is for others.
        self._n_visited, self._tried = 0, set[int]()

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        self._replan(0)
        return self._measure()

    def _choose(self) -> int:
        acting = self._exploring if self._progress.explores else self._acting
        return acting.sample(self._collector.observations[0], self._rng)

    def _learn(self, *, done: bool) -> None:
        """Plan anew where there is something new to plan for; toss whether an episode explores."""
        n = self.num_timesteps
        first_reward = self._progress.is_rewarded and self._plan is self._exploration
        if done and self._progress.is_rewarded:
            self._toss()
        is_new = len(self._buffer.observations) > self._n_visited
        if self._tried:
            is_new |= not self._tried.issuperset(self._pairs(self._progress.n_planned, n))
        is_due, since = n % self.config.learner.plan_every == 0, n - self._progress.n_planned
        if self._is_exact:
            # A plan takes as long as there are states, so that a step has its share of one.
            is_new = is_new and since >= len(self._all.observations) / _STATES_A_STEP
        else:
            # A plan on landmarks takes seconds: between episodes, or for a share of new data.
            is_new, is_due = is_new and done, is_due and since >= _GROWTH * len(self._all)
        if first_reward or is_due or is_new:
            self._replan(n)

    def _pairs(self, begin: int, end: int) -> list[int]:
        """The pairs of the task's transitions in these rows."""
        seen, rows = self._buffer, slice(begin, end)
        pairs: list[int] = (seen.inputs[rows] * seen.n_actions + seen.actions[rows]).tolist()
        return pairs

    def _replan(self, n: int) -> None:
        """Plan on the transitions of pretraining and the task's first `n`."""
        with self.stopwatch("improve"):
            seen, table = self._buffer, self._buffer.observations.rows
            for row in range(len(self._rows), len(table)):
                self._rows.append(self._all.observations.intern(table[row]))
            for row in range(len(self._all) - self._n_old, n):
                self._all.add(
                    self._rows[seen.inputs[row]],
                    int(seen.actions[row]),
                    self._rows[seen.successors[row]],
                    bool(seen.terminated[row]),
                    bool(seen.truncated[row]),
                )
            points = self._experience.points()
            self._is_exact = points.exact
            # Exploration is a task of its own: reward 1, and an end, on arrival at what is
            # unvisited; once all that can be reached is, by actions that were not tried.
            starts = [self._rows[row] for row in np.unique(seen.episode_starts)]
            visited = np.union1d(self._all.successors[self._n_old :], np.array(starts, np.int64))
            unvisited = np.ones(len(points.rows), np.bool_)
            unvisited[visited] = False
            if not self._is_exact and len(visited) > 0:
                unvisited = np.asarray(KDTree(points.rows[visited]).query(points.rows)[0] > _NEAR)
            every = self._all
            arrivals, self._tried = unvisited[every.successors], set()
            self._exploration = self._explored(arrivals, _UNTRIED if arrivals.any() else 1.0)
            if self._is_exact and not (
                arrivals.any() and self._exploration.table[0, visited].any()
            ):
                pairs = every.inputs * every.n_actions + every.actions
                self._exploration = self._explored(~np.isin(pairs, pairs[self._n_old :]), 1.0)
                self._tried = set(self._pairs(0, n))
            self._plan = self._exploration
            if self._progress.is_rewarded:
                self._plan = self._planned(*self._reward_model(points.rows, n))
        self._progress.n_planned = n
        self._n_visited = len(seen.observations)
        self._acting.forget()
        self._exploring.forget()

    def _explored(self, aims: BoolArray, sink_value: float) -> ValuePolicy:
        """The plan to any of the transitions that are aims, (n,), or out of the data."""
        return self._planned(aims.astype(np.float64), aims | self._all.terminated, sink_value)

    def _planned(
        self, rewards: FloatArray, ends: BoolArray, sink_value: float | None = None
    ) -> ValuePolicy:
        settings = PlanSettings(self._discount, ridge=0.0, sink_value=sink_value)
        task = Tasks(rewards[:, None], ends[:, None], ("task",))
        return planned_policy(self._experience, task, settings)

    def _reward_model(self, points: FloatArray, n: int) -> tuple[FloatArray, BoolArray]:
        """Reward and termination of every transition, as far as the task has shown."""
        every, first = self._all, self._n_old
        assert self._buffer.rewards is not None
        # Up to the transition that the plan is made from: a resumed run must make the same plan.
        earned = self._buffer.rewards[:n]
        ends = every.terminated[first:].astype(np.float64)
        # The median where the data has no reward: in a sparse task the usual one.
        rewards = np.full(len(every), float(np.median(earned)))
        ended = every.terminated.astype(np.float64)
        # Later keys are more specific: a mean over arrivals, then over those by the same action.
        if self._is_exact:
            for keys in (every.successors, every.actions + every.n_actions * every.successors):
                sums = np.bincount(keys[first:], earned, minlength=int(keys.max()) + 1)
                over = np.bincount(keys[first:], ends, minlength=len(sums))
                tries = np.bincount(keys[first:], minlength=len(sums))
                shown = tries[keys] > 0
                rewards[shown] = (sums / np.maximum(tries, 1))[keys][shown]
                ended[shown] = (over / np.maximum(tries, 1))[keys][shown]
        else:
            arrivals = points[every.successors]
            apart, nearest = KDTree(arrivals[first:]).query(arrivals)
            shown = np.asarray(apart) <= _NEAR
            rewards[shown], ended[shown] = earned[nearest][shown], ends[nearest][shown]
        # What the task itself showed is known, whatever its neighbours say.
        rewards[first:], ended[first:] = earned, ends
        return rewards, ended > 0.5

    def _load_state(self, state: Mapping[str, Any]) -> None:
        super()._load_state(state)
        # Plans are not stored: the same transitions make them in the same bits.
        self._replan(self._progress.n_planned)


class ContextAdaptation(_PlannedRun):
    """One run of adapting to a task in procedurally generated environments, from the policy of
    pretraining, `start`, which is kept in the run folder."""

    _plan_class = ContextPolicy
    _start: ContextPolicy
    _plan: ContextPolicy

    def __init__(
        self, run_config: RunConfig, start: ContextPolicy, env: Environment, run_dir: Path | None
    ) -> None:
        super().__init__(run_config, env, run_dir)
        start.check_fits(env.env)
        self._start = self._plan = start
        experience, discount = Experience(World(self._buffer), start), self.config.learner.discount
        self._plan_details = experience.policy_details(("task",), discount)

    def _begin(self) -> dict[str, Any]:
        self._collector.start_episode()
        self._probs = self._episode()
        return self._measure()

    def _episode(self) -> Probs:
        """Policy of the current episode, asked for each of its observations in order."""
        # By the episode's number, so that a resumed run can follow it again from its beginning.
        seed = self.run_config.seed, _EPISODE_STREAM, self._collector.episodes[0]
        policy = self._start if self._progress.explores else self._plan
        return policy.sample_component(np.random.default_rng(seed))

    def _choose(self) -> int:
        seen = self._buffer.observations.rows[self._collector.observations]
        return int(self._probs(seen).argmax())

    def _learn(self, *, done: bool) -> None:
        """Between episodes plan for what was earned, and toss whether the next one explores."""
        assert self._buffer.rewards is not None
        check_rewards(self._buffer.rewards[-1:])
        if not done:
            return
        if self._progress.is_rewarded:
            self._toss()
            n = self.num_timesteps
            if n - self._progress.n_planned >= self.config.learner.plan_every:
                self._replan(n)
        self._probs = self._episode()

    def _replan(self, n: int) -> None:
        rewards, ends = self._buffer.rewards, self._buffer.terminated[:n].astype(np.float64)
        assert rewards is not None
        with self.stopwatch("improve"):
            discount = self.config.learner.discount
            self._plan = self._start.with_rewards(self._buffer, rewards[:n], ends, discount)
        self._plan.details = dict(self._plan_details)
        self._progress.n_planned = n

    def _load_state(self, state: Mapping[str, Any]) -> None:
        super()._load_state(state)
        if self._progress.n_planned:
            self._replan(self._progress.n_planned)
        # The memory of the episode follows from what it has shown.
        self._probs = self._episode()
        for row in self._buffer.inputs[self._buffer.rows_of(self._collector.episodes[0])]:
            self._probs(self._buffer.observations.rows[[row]])
