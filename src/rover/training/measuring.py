"""How good a run's policies are, as far as it can be known.

On a finite problem with known dynamics every policy is measured exactly; elsewhere only what was
seen is counted, and nothing is estimated in the place of what is unknown.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from torch import Tensor

from rover.data import ReplayBuffer
from rover.envs import FiniteMDP, finite_dynamics
from rover.errors import RoverWarning
from rover.evaluation import (
    FiniteEvaluator,
    StateLookup,
    record_finite,
    record_grid,
    record_vectors,
)
from rover.policies.coverage import Policy
from rover.training.snapshots import Snapshots

TARGET_COVERAGE = 0.95
DEFAULT_HORIZON = 200
MAX_EVALUATED_STATES = 3000
"""States up to which every policy update is measured exactly (J* is a quadratic program)."""

FULL_COVERAGE = "steps_to_full_coverage"
TARGET_REACHED = "steps_to_95_in_20_episodes"


class Measures:
    """The measurements of one run.

    Args:
        env: the environment.
        buffer: the run's buffer.
        seed: seed of the run; measuring draws from generators of its own.
        discount: γ of the exact occupancy.
        n_episodes: episodes of each coverage figure.

    Attributes:
        evaluator: measures policies exactly; None where the states are unknown.
        milestones: steps to what was reached, None where it was not.
        latest: the last metrics line.
    """

    def __init__(
        self,
        env: gym.Env[Any, Any],
        buffer: ReplayBuffer,
        *,
        seed: int,
        discount: float,
        n_episodes: int,
    ) -> None:
        self._env = env
        self._buffer = buffer
        self._seed = seed
        self._n_episodes = n_episodes
        self.milestones: dict[str, int | None] = {FULL_COVERAGE: None, TARGET_REACHED: None}
        self.latest: dict[str, Any] = {}
        self.evaluator = _make_evaluator(
            finite_dynamics(env),
            discount=discount,
            horizon=horizon_of(env),
            n_episodes=n_episodes,
        )
        self._states = (
            None
            if self.evaluator is None
            else StateLookup(self.evaluator.problem, buffer.observations.dtype)
        )
        self._snapshots = Snapshots()
        self._seen: set[int] = set()
        self._matched = 0

    @property
    def states_seen(self) -> int | None:
        """Distinct true states in the buffer; None where the states are unknown."""
        if self._states is None:
            return None
        table = self._buffer.observations.rows
        if len(table) > self._matched:
            fresh = self._states(table[self._matched :])
            self._seen.update(int(state) for state in fresh if state >= 0)
            self._matched = len(table)
        return len(self._seen)

    def note(self, step: int) -> None:
        """Take note of full coverage after environment step number `step`."""
        if self.evaluator is None or self.milestones[FULL_COVERAGE] is not None:
            return
        if self.states_seen == self.evaluator.n_states:
            self.milestones[FULL_COVERAGE] = step

    def measure(
        self, policy: Policy, learned: Mapping[str, Any], *, step: int, episode: int
    ) -> dict[str, Any]:
        """The metrics line of a policy update: nothing in it depends on the clock."""
        record: dict[str, Any] = {
            "step": step,
            "episode": episode,
            "observations": len(self._buffer.observations),
            "states_seen": self.states_seen,
        }
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, 2, step])
            tables = policy.tables(self.evaluator.problem.observations)
            report = self.evaluator.report(tables, rng)
            self._snapshots.append(step, report.trajectories)
            record |= {
                "coverage": report.coverage,
                "objective": report.objective,
                "optimality_ratio": report.optimality_ratio,
                "renyi2_entropy": report.renyi2_entropy,
                "shannon_entropy": report.shannon_entropy,
            }
            if report.coverage >= TARGET_COVERAGE and self.milestones[TARGET_REACHED] is None:
                self.milestones[TARGET_REACHED] = step
        self.latest = record | dict(learned)
        return self.latest

    def summary(self) -> dict[str, Any]:
        """The part of summary.json that says how good the policy is."""
        evaluator = self.evaluator
        return {
            "states_total": None if evaluator is None else evaluator.n_states,
            "states_seen": self.states_seen,
            "observations": len(self._buffer.observations),
            **self.milestones,
            "coverage": self.latest.get("coverage"),
            "objective": self.latest.get("objective"),
            "optimum": None if evaluator is None else evaluator.optimum.objective,
            "optimality_ratio": self.latest.get("optimality_ratio"),
            "renyi2_entropy": self.latest.get("renyi2_entropy"),
            "shannon_entropy": self.latest.get("shannon_entropy"),
            "uniform_ratio": None if evaluator is None else evaluator.uniform_ratio,
            "sink_mass": self.latest.get("sink_mass"),
        }

    def record(self, policy: Policy) -> dict[str, Any]:
        """The arrays of evaluation.h5; empty where there is nothing that can be drawn."""
        table, visits = self._buffer.observations.rows, self._buffer.visits()
        if self.evaluator is not None:
            rng = np.random.default_rng([self._seed, 3])
            tables = policy.tables(self.evaluator.problem.observations)
            arrays = record_finite(self.evaluator, tables, table, visits, rng)
            return arrays | self._snapshots.record() | record_grid(self._env)
        if table.ndim != 2:
            return {}
        fresh = fresh_copy(self._env)
        arrays = record_vectors(
            fresh,
            policy.sample_component,
            table,
            visits,
            horizon=horizon_of(self._env),
            n_episodes=self._n_episodes,
            seed=self._seed,
        )
        if fresh is not None:
            fresh.close()
        return arrays

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able state of a checkpoint."""
        tensors, snapshots = self._snapshots.state()
        return tensors, {
            "milestones": self.milestones,
            "latest": self.latest,
            "snapshots": snapshots,
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self.milestones = dict(state["milestones"])
        self.latest = dict(state["latest"])
        self._snapshots.load_state(tensors, state["snapshots"])


def horizon_of(env: gym.Env[Any, Any]) -> int:
    """Steps after which episodes of the environment are truncated; 200 if it does not say."""
    own = getattr(env.unwrapped, "horizon", None)
    limits = [own, None if env.spec is None else env.spec.max_episode_steps]
    return min((limit for limit in limits if isinstance(limit, int)), default=DEFAULT_HORIZON)


def fresh_copy(env: gym.Env[Any, Any]) -> gym.Env[Any, Any] | None:
    """Another, silent instance of an environment; None if nothing makes it again."""
    if env.spec is None:
        return None
    silent = {"render_mode": None} if "render_mode" in env.spec.kwargs else {}
    try:
        return gym.make(env.spec, **silent)
    except (gym.error.Error, ValueError):  # a wrapper that does not record how it was made
        return None


def _make_evaluator(
    problem: FiniteMDP | None, *, discount: float, horizon: int, n_episodes: int
) -> FiniteEvaluator | None:
    if problem is None:
        return None
    if problem.dynamics.n_states > MAX_EVALUATED_STATES:
        warnings.warn(
            f"{problem.dynamics.n_states} states are too many to measure every policy exactly "
            f"(limit {MAX_EVALUATED_STATES}); coverage and optimality are not reported",
            RoverWarning,
            stacklevel=2,
        )
        return None
    return FiniteEvaluator(problem, discount=discount, horizon=horizon, n_episodes=n_episodes)
