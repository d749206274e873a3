"""What is read off a finished run: the columns of the results table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import FiniteDynamics, finite_dynamics
from rover.errors import ArtefactError
from rover.evaluation import sample_steps_to_full_coverage, sample_trajectories, visit_counts
from rover.experiments.results.rows import ResultRow
from rover.storage import JsonLines, read_arrays, read_json
from rover.training.measuring import TARGET_COVERAGE, horizon_of

COVERAGE_EPISODES = 20
UNIFORM_REPEATS = 100
RESAMPLING_REPEATS = 100
RESAMPLING_LIMIT = 10_000
"""Samples after which a resampling is given up: the axis of the paper's figure."""

_UNIFORM_STREAM, _RESAMPLING_STREAM = 4, 5  # streams of random numbers next to those of a run

Unit = Literal["steps", "count", "ratio", "seconds", "percent", "nats"]


@dataclass(frozen=True)
class Column:
    """One measured quantity.

    Attributes:
        name: key in csv files and in :attr:`Measurement.values`.
        heading: heading of the table.
        unit: how it is printed; "steps" may be infinite, where an event did not happen.
        meaning: one sentence for the legend.
    """

    name: str
    heading: str
    unit: Unit
    meaning: str


COLUMNS: tuple[Column, ...] = (
    Column(
        "steps_to_95_in_20_episodes",
        "steps to 95% in 20 episodes",
        "steps",
        "environment steps until the policy planned from the start, measured at each of its "
        "updates, for the first time visits 95% of all states in 20 sampled episodes",
    ),
    Column(
        "steps_to_keep_95_in_20_episodes",
        "steps to keep 95% in 20 episodes",
        "steps",
        "environment steps from which on every update of that policy does so",
    ),
    Column(
        "steps_to_full_coverage",
        "steps to see every state",
        "steps",
        "environment steps until every state was visited by the run itself",
    ),
    Column(
        "optimality_ratio",
        "J/J* at the end",
        "ratio",
        "exact objective of the last policy under the true dynamics over the true optimum; "
        "1 is perfect",
    ),
    Column(
        "wall_seconds",
        "wall time",
        "seconds",
        "seconds that the run's own clock counted while it collected, represented, estimated, "
        "improved, evaluated (the exact measurements above, at every update) and stored "
        "(checkpoints included); starting the interpreter and importing packages is not in it",
    ),
    Column(
        "coverage",
        "coverage in 20 episodes",
        "percent",
        "share of the states that the last policy visits in 20 sampled episodes",
    ),
    Column(
        "uniform_coverage",
        "the same, uniform policy",
        "percent",
        f"share of the states that the uniform policy visits in 20 episodes, mean of "
        f"{UNIFORM_REPEATS} repeats",
    ),
    Column(
        "resampling_steps",
        "samples to see every state again",
        "steps",
        f"environment steps until the last policy, sampled anew, has visited every state; median "
        f"of {RESAMPLING_REPEATS} repeats, each given up after {RESAMPLING_LIMIT:,} steps",
    ),
    Column(
        "first_arrival",
        "first arrival at the flag",
        "steps",
        "environment steps until the first transition that terminated its episode",
    ),
    Column("arrivals", "arrivals", "count", "transitions that terminated their episode"),
)


@dataclass(frozen=True)
class Measurement:
    """One run, measured.

    Attributes:
        seed: seed of the run.
        values: by name of the column; infinite where an event did not happen. A column that does
            not apply to the environment is absent.
    """

    seed: int
    values: Mapping[str, float]


def measure_run(row: ResultRow, seed: int, folder: Path) -> Measurement:
    """Read the columns off the finished run in `folder`.

    Raises:
        ArtefactError: a file of the run is missing, damaged, or does not fit the row.
    """
    summary = read_json(folder / "summary.json")
    try:
        values = {"wall_seconds": float(summary["wall_seconds"])}
        if summary["states_total"] is None:
            values |= _arrivals(folder)
        else:
            values |= {
                "steps_to_95_in_20_episodes": _or_never(summary["steps_to_95_in_20_episodes"]),
                "steps_to_keep_95_in_20_episodes": math.inf
                if summary["coverage"] is None
                else _steps_to_keep_coverage(folder),
                "steps_to_full_coverage": _or_never(summary["steps_to_full_coverage"]),
            }
            # A run that was shorter than the wait for its first policy update has neither.
            values |= {
                name: float(summary[name])
                for name in ("optimality_ratio", "coverage")
                if summary[name] is not None
            }
            values |= _resampled(row, seed, folder)
    except (KeyError, TypeError) as error:
        raise ArtefactError(
            f"{folder / 'summary.json'} lacks a figure of the results table ({error!r}); delete "
            f"{folder} and run the row again"
        ) from error
    return Measurement(seed, values)


def _or_never(steps: int | None) -> float:
    return math.inf if steps is None else float(steps)


def _steps_to_keep_coverage(folder: Path) -> float:
    """Step of the first update after which no coverage is below the target; ∞ if there is none."""
    kept = math.inf
    for record in JsonLines.read(folder / "metrics.jsonl").records:
        if record["coverage"] < TARGET_COVERAGE:
            kept = math.inf
        elif math.isinf(kept):
            kept = float(record["step"])
    return kept


def _arrivals(folder: Path) -> dict[str, float]:
    terminated = read_arrays(folder / "buffer.h5", kind="buffer").arrays["terminated"]
    arrivals = np.flatnonzero(terminated)
    first = float(arrivals[0] + 1) if len(arrivals) else math.inf
    return {"first_arrival": first, "arrivals": float(len(arrivals))}


def _resampled(row: ResultRow, seed: int, folder: Path) -> dict[str, float]:
    policy_probs = read_arrays(folder / "evaluation.h5", kind="evaluation").arrays["policy_probs"]
    problem = _known_problem(row.env_id, tuple(sorted(row.env_kwargs.items())))
    return {
        "uniform_coverage": problem.uniform_coverage,
        "resampling_steps": resampling_steps(
            problem.dynamics, policy_probs, horizon=problem.horizon, seed=seed
        ),
    }


def resampling_steps(
    dynamics: FiniteDynamics, policy_probs: NDArray[np.float64], *, horizon: int, seed: int
) -> float:
    """Environment steps until a policy, sampled anew, has visited every state.

    Args:
        dynamics: the finite problem.
        policy_probs: (S, A), or (K, S, A) for a mixture.
        horizon: episodes are truncated after so many steps.
        seed: of the run that the policy comes from.

    Returns:
        The median of 100 repeats; infinite where half of them do not end within 10,000 steps.
    """
    steps = sample_steps_to_full_coverage(
        dynamics,
        policy_probs,
        horizon=horizon,
        max_steps=RESAMPLING_LIMIT,
        n_repeats=RESAMPLING_REPEATS,
        rng=np.random.default_rng([seed, _RESAMPLING_STREAM]),
    )
    # The upper of the two middle values: their mean would be infinite with either.
    return float(np.sort(np.where(steps < 0, math.inf, steps))[len(steps) // 2])


@dataclass(frozen=True, eq=False)
class _KnownProblem:
    dynamics: FiniteDynamics
    horizon: int
    uniform_coverage: float


@lru_cache
def _known_problem(env_id: str, env_kwargs: tuple[tuple[str, Any], ...]) -> _KnownProblem:
    env = gym.make(env_id, **dict(env_kwargs))
    problem = finite_dynamics(env)
    assert problem is not None  # the run knew the number of its states
    horizon = horizon_of(env)
    coverage = uniform_coverage(
        problem.dynamics,
        n_episodes=COVERAGE_EPISODES,
        horizon=horizon,
        n_repeats=UNIFORM_REPEATS,
        rng=np.random.default_rng([0, _UNIFORM_STREAM]),
    )
    return _KnownProblem(problem.dynamics, horizon, coverage)


def uniform_coverage(
    dynamics: FiniteDynamics,
    *,
    n_episodes: int,
    horizon: int,
    n_repeats: int,
    rng: np.random.Generator,
) -> float:
    """Share of the states that the uniform policy visits in `n_episodes`, mean of `n_repeats`."""
    shape = (dynamics.n_states, dynamics.n_actions)
    uniform: NDArray[np.float64] = np.full(shape, 1.0 / dynamics.n_actions)
    trajectories = sample_trajectories(
        dynamics, uniform, n_episodes=n_episodes * n_repeats, horizon=horizon, rng=rng
    )
    seen = [
        np.count_nonzero(visit_counts(repeat, dynamics.n_states))
        for repeat in trajectories.reshape(n_repeats, -1)
    ]
    return float(np.mean(seen)) / dynamics.n_states
