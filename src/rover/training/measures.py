"""How good a run's policies are, as far as it can be known.

On a finite problem with known dynamics every policy is measured exactly; elsewhere policies are
rolled out now and then beside random actions.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer
from rover.envs import finite_dynamics
from rover.errors import RoverWarning
from rover.evaluation import FiniteEvaluator, RolloutEvaluator, record_finite, record_vectors
from rover.evaluation.finite import TARGET_COVERAGE
from rover.evaluation.rollouts import MAX_ROLLOUT_STEPS
from rover.policies.policy import Policy
from rover.training.environments import fresh_copy, horizon_of, is_disproved, warn_of_limits

MAX_SNAPSHOTS, RECORDED_SNAPSHOTS = 12, 4
MAX_EVALUATED_STATES = 3000
"""States up to which every policy update is measured exactly (J* is a quadratic program)."""

FULL_COVERAGE = "steps_to_full_coverage"
TARGET_REACHED = "steps_to_95_in_20_episodes"
_LATEST_FIGURES = (
    *("coverage", "objective", "optimality_ratio", "renyi2_entropy", "shannon_entropy"),
    "sink_mass",
)
EVALUATION_GROWTH = 1.5
"""Least ratio of the steps of two evaluation points."""
MAX_MEASURED_STEPS = 500
"""Environment steps of a set of roll-outs, but for the rest of its last episode."""
MEASURED_SETS = 5
"""Sets of roll-outs of random actions, and of the policy that is handed over; one of all others."""
LARGEST_UNSEEN_START_MASS = 0.3
"""Probability of starts that were not seen above which a run warns."""
_FEWEST_EPISODES = 10
"""Episodes from which this probability is estimated."""

_EVALUATED = (
    *("mean_coverage", "p_coverage_95", "uniform_coverage", "uniform_p_coverage_95"),
    *("optimal_coverage", "optimal_p_coverage_95", "second_coverage", "second_p_coverage_95"),
    *("cells", "uniform_cells", "cell_radius", "knn_entropy", "uniform_knn_entropy"),
    *("cells_error", "uniform_cells_error", "knn_entropy_error", "uniform_knn_entropy_error"),
)
_EVALUATION_STREAM, _RECORD_STREAM, _REPEATS_STREAM = 2, 3, 6
"""Of random numbers, next to those of acting and learning."""
_REFERENCE_SEED = 7
"""Of the episodes of random actions: the same in every run, so that cells can be compared."""


class Measures:
    """The measurements of one run.

    Args:
        env: the environment.
        buffer: the run's buffer.
        seed: seed of the run; measuring draws from generators of its own.
        discount: γ of the exact occupancy.
        n_episodes: episodes of each coverage figure.
        every: steps between the costlier figures; None: half as many again each time.
        second_horizon: steps of other episodes that the mean coverage is measured with too.

    Attributes:
        evaluator: measures policies exactly; None where the states are unknown.
        milestones: steps to what was reached, None where it was not.
        latest: the last metrics line.
        evaluated: the costlier figures, of the last evaluation point or of the run's end.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: Buffer,
        *,
        seed: int,
        discount: float,
        n_episodes: int,
        every: int | None = None,
        second_horizon: int | None = None,
    ) -> None:
        self._every = every
        self._second_horizon = second_horizon
        self._env = env
        self._buffer = buffer
        self._seed = seed
        self._n_episodes = n_episodes
        self.milestones: dict[str, int | None] = {FULL_COVERAGE: None, TARGET_REACHED: None}
        self.latest: dict[str, Any] = {}
        self.evaluator: FiniteEvaluator | None = None
        self._next_point = 1
        self.evaluated: dict[str, Any] = {}
        self._states: list[int] = []  # of every row of the table of observations, −1 for none
        problem = finite_dynamics(env)
        warn_of_limits(env, problem, horizon_of(env))
        if problem is not None and problem.dynamics.n_states > MAX_EVALUATED_STATES:
            warnings.warn(
                f"{problem.dynamics.n_states} states are too many to measure every policy exactly "
                f"(limit {MAX_EVALUATED_STATES}); coverage and optimality are not reported",
                RoverWarning,
                stacklevel=2,
            )
        elif problem is not None:
            self.evaluator = FiniteEvaluator(
                problem, discount=discount, horizon=horizon_of(env), n_episodes=n_episodes
            )
            self._state_of = problem.lookup(buffer.observations.dtype)
            _ = self.evaluator.optimum  # a solver that fails says so before the first step
        self._snapshots = _Snapshots()
        self._seen: set[int] = set()
        self._matched = 0

    @cached_property
    def rollouts(self) -> RolloutEvaluator | None:
        """Measures policies by roll-outs; None where nothing makes the environment again."""
        fresh = fresh_copy(self._env)
        if fresh is None:
            return None
        return RolloutEvaluator(
            fresh,
            self._buffer.n_actions,
            horizon=min(horizon_of(self._env), MAX_ROLLOUT_STEPS),
            n_episodes=max(2, self._n_episodes),
            max_steps=MAX_MEASURED_STEPS,
            n_sets=MEASURED_SETS,
            rng=np.random.default_rng(_REFERENCE_SEED),
        )

    def note(self, step: int) -> None:
        """Count the true states in the buffer after environment step number `step`."""
        table = self._buffer.observations.rows
        if self.evaluator is None or len(table) == self._matched:
            return
        for row in table[self._matched :]:
            state = self._state_of.get(row.tobytes(), -1)
            self._states.append(state)
            if state >= 0:
                self._seen.add(state)
        self._matched = len(table)
        if len(self._seen) == self.evaluator.n_states and self.milestones[FULL_COVERAGE] is None:
            self.milestones[FULL_COVERAGE] = step

    def measure(
        self, policy: Policy, learned: Mapping[str, Any], *, step: int, episode: int
    ) -> dict[str, Any]:
        """The metrics line of a policy update: nothing in it depends on the clock."""
        if self.evaluator is not None and self.evaluator.problem.unproven:
            self._test_claims(self.evaluator)
        record: dict[str, Any] = {
            "step": step,
            "episode": episode,
            "observations": len(self._buffer.observations.rows),
            "states_seen": None if self.evaluator is None else len(self._seen),
        }
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, _EVALUATION_STREAM, step])
            tables = policy.tables(self.evaluator.problem.observations)
            figures, trajectories = self.evaluator.report(tables, rng)
            self._snapshots.append(step, trajectories)
            record |= figures
            if figures["coverage"] >= TARGET_COVERAGE and self.milestones[TARGET_REACHED] is None:
                self.milestones[TARGET_REACHED] = step
        if step >= self._next_point:
            # Where a policy is rolled out, that takes no more steps than were made in between.
            cost = self._evaluate(policy, step, n_sets=1)
            regular = math.ceil(EVALUATION_GROWTH * step)
            if self._every is not None:
                regular = (step // self._every + 1) * self._every
            self._next_point = max(regular, step + cost)
            record |= self.evaluated
        self.latest = record | dict(learned)
        return self.latest

    def _evaluate(self, policy: Policy, step: int, *, n_sets: int | None = None) -> int:
        """Measure the costlier figures of the policy after `step` steps; returns steps made.

        Args:
            policy: is measured.
            step: environment steps of the run so far.
            n_sets: of roll-outs; None: as many as of random actions.
        """
        rng, cost = np.random.default_rng([self._seed, _REPEATS_STREAM, step]), 0
        if self.evaluator is not None:
            tables = policy.tables(self.evaluator.problem.observations)
            mean, probability = self.evaluator.repeated(tables, rng)
            self.evaluated = {"mean_coverage": mean, "p_coverage_95": probability}
            if self._second_horizon is not None:
                longer = copy.copy(self.evaluator)
                longer.horizon = self._second_horizon
                mean, probability = longer.repeated(tables, rng)
                self.evaluated |= {"second_coverage": mean, "second_p_coverage_95": probability}
        elif self.rollouts is not None:
            self.evaluated, cost = self.rollouts.report(policy.sample_component, rng, n_sets=n_sets)
        return cost

    def starts(self) -> tuple[int, float | None]:
        """Different initial states that were seen, and the probability of all others.

        A cell of the roll-outs' net counts as one where the states are unknown; the probability is
        None where they are and nothing makes the environment again.
        """
        rows = self._buffer.episode_starts
        if self.evaluator is not None:
            states = np.array(self._states, np.int64)
            return self.evaluator.starts(states[rows[rows < len(states)]])
        if self.rollouts is None or len(rows) == 0:
            return len(np.unique(rows)), None
        observations = self._buffer.observations.rows[rows]
        return self.rollouts.starts(observations, np.random.default_rng(_REFERENCE_SEED))

    def conclude(self, policy: Policy) -> None:
        """Measure the policy that is handed over, and warn of what the run has not seen."""
        self._evaluate(policy, self.latest.get("step", 0))
        (count, mass), n_episodes = self.starts(), len(self._buffer.episode_starts)
        if mass is None or mass <= LARGEST_UNSEEN_START_MASS:
            return
        if self.evaluator is not None or n_episodes >= _FEWEST_EPISODES:
            about = "" if self.evaluator is not None else "about "
            warnings.warn(
                f"{n_episodes} episodes began in {count} different states, and {about}{mass:.0%} "
                "of further episodes will begin in others, for which the policy was not planned: "
                "run more steps, or give the environment fewer starts or shorter episodes",
                RoverWarning,
                stacklevel=2,
            )

    def _test_claims(self, evaluator: FiniteEvaluator) -> None:
        """Give up exact figures where a wrapper turns out to change what is known."""
        states = np.array(self._states, np.int64)
        if is_disproved(evaluator.problem, self._buffer, states, evaluator.horizon):
            self.evaluator, self.evaluated = None, {}
            self.milestones = dict.fromkeys(self.milestones)

    def summary(self) -> dict[str, Any]:
        """The part of summary.json that says how good the policy is."""
        known, (starts_seen, unseen_start_mass) = self.evaluator, self.starts()
        return {
            "states_total": None if known is None else known.n_states,
            "states_seen": None if known is None else len(self._seen),
            "observations": len(self._buffer.observations),
            **self.milestones,
            **{name: self.latest.get(name) for name in _LATEST_FIGURES},
            "optimum": None if known is None else known.optimum.objective,
            "uniform_ratio": None if known is None else known.uniform_ratio,
            **dict.fromkeys(_EVALUATED),
            **self.evaluated,
            **({} if known is None else known.references),
            "starts_seen": starts_seen,
            "unseen_start_mass": unseen_start_mass,
        }

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """The arrays of evaluation.safetensors; empty where nothing can be drawn."""
        table, visits = self._buffer.observations.rows, self._buffer.visits()
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, _RECORD_STREAM])
            tables = policy.tables(self.evaluator.problem.observations)
            arrays = record_finite(self._env, self.evaluator, tables, table, visits, rng)
            return arrays | self._snapshots.record()
        if table.ndim != 2:
            return {}
        return record_vectors(
            None if self.rollouts is None else self.rollouts.env,
            policy.sample_component,
            table,
            visits,
            horizon=horizon_of(self._env),
            n_episodes=self._n_episodes,
            seed=self._seed,
        )

    def state(self) -> dict[str, Any]:
        """Everything that the next measurement depends on."""
        return {
            "milestones": self.milestones,
            "latest": self.latest,
            "evaluated": self.evaluated,
            "next_point": self._next_point,
            "snapshots": self._snapshots.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.latest = dict(state["latest"])
        self.note(int(self.latest["step"]))
        if self.evaluator is not None and self.evaluator.problem.unproven:
            self._test_claims(self.evaluator)
        self.milestones = dict(state["milestones"])
        self.evaluated = dict(state["evaluated"])
        self._next_point = int(state["next_point"])
        self._snapshots.load_state(state["snapshots"])


class _Snapshots:
    """Keeps the episodes of at most twelve policies, spread evenly over all updates so far.

    Whenever there are more, every other one is forgotten, and from then on only every second as
    many are kept: what is kept follows from the number of updates alone, and not from how long the
    run is going to be. The latest policy is always there.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, NDArray[np.int16]]] = []
        self._n_seen = 0
        self._stride = 1

    def append(self, step: int, trajectories: NDArray[np.int64]) -> None:
        """Note the episodes (E, H + 1) of the policy after environment step number `step`."""
        if self._entries and (self._n_seen - 1) % self._stride:
            self._entries.pop()  # was there as the latest only
        self._entries.append((step, trajectories.astype(np.int16)))
        if self._n_seen % self._stride == 0 and len(self._entries) > MAX_SNAPSHOTS:
            self._entries = self._entries[::2]
            self._stride *= 2
        self._n_seen += 1

    def record(self) -> dict[str, NDArray[Any]]:
        """snapshot_steps (n,) and snapshot_trajectories (n, E, H + 1), n ≤ 4; empty before any."""
        if not self._entries:
            return {}
        steps = np.array([step for step, _ in self._entries])
        wanted = np.linspace(steps[0], steps[-1], RECORDED_SNAPSHOTS)
        chosen = np.unique(np.abs(steps[None, :] - wanted[:, None]).argmin(axis=1))
        return {
            "snapshot_steps": steps[chosen],
            "snapshot_trajectories": np.stack([self._entries[index][1] for index in chosen]),
        }

    def state(self) -> dict[str, Any]:
        """Everything that is kept."""
        return {
            "steps": [step for step, _ in self._entries],
            "trajectories": [trajectories for _, trajectories in self._entries],
            "n_seen": self._n_seen,
            "stride": self._stride,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._entries = list(zip(state["steps"], state["trajectories"], strict=True))
        kinds = {(episodes.shape, episodes.dtype) for _, episodes in self._entries}
        if len(kinds) > 1 or not all(isinstance(step, int) for step, _ in self._entries):
            raise ValueError("its snapshots do not fit each other")
        self._n_seen, self._stride = int(state["n_seen"]), int(state["stride"])
