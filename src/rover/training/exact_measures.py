"""Exact measurements of policies, under known dynamics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.data import Buffer
from rover.envs import Environment, FiniteMDP, horizon_of, map_arrays
from rover.evaluation import FiniteEvaluator, policy_occupancy, sample_trajectories
from rover.evaluation.finite import ENDED, TARGET_COVERAGE
from rover.evaluation.visits import first_steps
from rover.operators import Objective
from rover.policies.policy import Policy
from rover.training.config import AgentConfig
from rover.training.measures import (
    EVALUATION_STREAM,
    RECORD_STREAM,
    REPEATS_STREAM,
    ROUNDING,
    Measures,
    Trial,
)

# Known states up to which every update is measured exactly, and not at evaluation points alone.
_ALWAYS_MEASURED = 500

# In the files of a finished run.
_RECORDED_SNAPSHOTS, _RECORDED_TRAJECTORIES = 4, 50


class ExactMeasures(Measures):
    """Measures every policy exactly, under known dynamics."""

    evaluator: FiniteEvaluator

    def __init__(
        self,
        environment: Environment,
        buffer: Buffer,
        config: AgentConfig,
        problem: FiniteMDP,
        *,
        seed: int,
        objective: Objective,
    ) -> None:
        super().__init__(environment, buffer, config, seed=seed)
        assert config.discount is not None
        self.evaluator = FiniteEvaluator(
            problem,
            discount=config.discount,
            horizon=horizon_of(self._env),
            n_episodes=config.evaluation_episodes,
            objective=objective,
        )
        _ = self.evaluator.optimum  # a solver that fails says so before the first step
        self._largest_objective = self.evaluator.uniform_objective * (1.0 + ROUNDING)
        self._observations = problem.observations
        self._known = np.zeros(0, np.int64)

    @property
    def _states(self) -> NDArray[np.int64]:
        """True state of each observation in the buffer, −1 for none, (N,)."""
        # Only rows that are new since the last call: states are looked up once per observation.
        fresh = self._buffer.observations.rows[len(self._known) :]
        self._known = np.append(self._known, self.evaluator.problem.states_of(fresh))
        return self._known

    def _states_seen(self) -> int:
        states = self._states
        return len(np.unique(states[states >= 0]))

    def _full_coverage(self) -> int | None:
        if self._states_seen() < self.evaluator.n_states:
            return None
        return int(first_steps(self._buffer, self._states).max())

    def is_due(self, step: int) -> bool:
        """True at evaluation points, and always where states are few."""
        return step >= self._progress.next_point or self.evaluator.n_states <= _ALWAYS_MEASURED

    def _measure(self, policy: Policy, step: int, *, is_point: bool) -> dict[str, Any]:
        tables, progress = policy.tables(self._observations), self._progress
        figures, episodes = self.evaluator.report(tables, self._rng(EVALUATION_STREAM, step))
        if progress.target_reached is None and figures["coverage"] >= TARGET_COVERAGE:
            progress.target_reached = step
        if is_point:
            progress.snapshots.append((step, episodes.astype(np.int16)))
            progress.evaluated = self.evaluator.repeated(tables, self._rng(REPEATS_STREAM, step))
        return figures

    def _try_out(self, policy: Policy, step: int) -> Trial:
        evaluator, tables = self.evaluator, policy.tables(self._observations)
        figures: dict[str, Any] = evaluator.repeated(tables, self._rng(REPEATS_STREAM, step))
        # As in the latest metrics line, if that is of this policy.
        latest = self.latest.get("step", step)
        exact, _ = evaluator.report(tables, self._rng(EVALUATION_STREAM, latest))
        objective = exact["objective"]
        return Trial(
            -objective,
            -evaluator.uniform_objective,
            "J",
            figures | exact,
            worse_than_random=objective > self._largest_objective,
        )

    def record(self, policy: Policy) -> dict[str, NDArray[Any]]:
        """Arrays over the S true states, the map where there is one, and the snapshots."""
        evaluator, tables = self.evaluator, policy.tables(self._observations)
        problem, uniform = evaluator.problem, evaluator.uniform_policy
        dynamics, discount, n_states = problem.dynamics, evaluator.discount, evaluator.n_states
        trajectories = sample_trajectories(
            dynamics,
            tables,
            n_episodes=_RECORDED_TRAJECTORIES,
            horizon=evaluator.horizon,
            rng=np.random.default_rng([self._seed, RECORD_STREAM]),
        )
        arrays = {
            "policy_probs": evaluator.marginal(tables),
            "occupancy": policy_occupancy(dynamics, tables, discount=discount),
            "optimal_occupancy": evaluator.optimum.state_occupancy,
            "uniform_occupancy": policy_occupancy(dynamics, uniform, discount=discount),
            "trajectories": trajectories,
            "sampled_visits": np.bincount(trajectories[trajectories != ENDED], minlength=n_states),
            **map_arrays(self._env, self._observations),
            **self._data_arrays,
        }
        buffers = {"": self._buffer}
        if self._references:
            buffers["uniform_"] = self._references[0].buffer
        for whose, buffer in buffers.items():
            states = problem.states_of(buffer.observations.rows)
            # Noise may make one state look like several observations: their visits are added.
            arrays[f"{whose}buffer_visits"] = np.bincount(
                states[states >= 0], buffer.visits()[states >= 0], minlength=n_states
            ).astype(np.int64)
        if self._progress.snapshots:
            steps, episodes = zip(*self._progress.snapshots, strict=True)
            # The steps nearest to an even grid: pictures show a run at equal distances.
            wanted = np.linspace(steps[0], steps[-1], _RECORDED_SNAPSHOTS)
            chosen = np.unique(np.abs(np.subtract.outer(wanted, steps)).argmin(axis=1))
            arrays["snapshot_steps"] = np.array(steps)[chosen]
            arrays["snapshot_trajectories"] = np.stack([episodes[index] for index in chosen])
        return arrays
