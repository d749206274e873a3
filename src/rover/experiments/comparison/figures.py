"""What is read off each run of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rover.envs import FiniteMDP, finite_dynamics, make_env
from rover.errors import ArtefactError
from rover.experiments.results import Column, Measurement
from rover.experiments.results.measurements import (
    RESAMPLING_LIMIT,
    RESAMPLING_REPEATS,
    resampling_steps,
)
from rover.policies.loading import load_policy
from rover.storage import JsonLines, read_json
from rover.training.measuring import horizon_of

Records = Sequence[Mapping[str, Any]]

SNAPSHOT_FIGURES: Final[Mapping[str, bool]] = {
    "optimality_ratio": False,
    "coverage": True,
    "renyi2_entropy": True,
    "shannon_entropy": True,
}
"""Figures of every snapshot of a policy, and whether more is better."""

FIGURES: Final[tuple[Column, ...]] = (
    Column(
        "states_seen",
        "states seen",
        "count",
        "true states in the replay buffer at the end of the run",
    ),
    Column(
        "observations",
        "observations seen",
        "count",
        "distinct observations in the replay buffer at the end of the run",
    ),
    Column(
        "steps_to_full_coverage",
        "steps to see every state, pretraining",
        "steps",
        "environment steps until every state was visited by the run itself",
    ),
    Column(
        "resampling_steps",
        "steps to see every state, resampling",
        "steps",
        "environment steps until the final policy, sampled anew, has visited every state; median "
        f"of {RESAMPLING_REPEATS} repeats, each given up after {RESAMPLING_LIMIT:,} steps",
    ),
    Column(
        "steps_to_95_in_20_episodes",
        "steps to 95% in 20 episodes",
        "steps",
        "environment steps until a snapshot of the policy for the first time visits 95% of all "
        "states in 20 sampled episodes",
    ),
    Column(
        "optimality_ratio",
        "J/J*",
        "ratio",
        "exact objective of the final policy under the true dynamics over the true optimum; "
        "1 is perfect",
    ),
    Column(
        "coverage",
        "coverage in 20 episodes",
        "percent",
        "share of the states that the final policy visits in 20 sampled episodes",
    ),
    Column(
        "renyi2_entropy",
        "Rényi-2 entropy",
        "nats",
        "of the final policy's exact discounted occupancy, in nats",
    ),
    Column(
        "shannon_entropy",
        "Shannon entropy",
        "nats",
        "of the final policy's exact discounted occupancy, in nats",
    ),
    Column("wall_seconds", "wall time", "seconds", "seconds that the run's own clock counted"),
)
"""Figures of the end of a run."""

_SHORT: Final = {
    "coverage": "coverage",
    "renyi2_entropy": "Rényi-2",
    "shannon_entropy": "Shannon",
}
_WHICH: Final = {
    "best": "of the best snapshot of the run",
    "last": "of the last snapshot of the run",
    "drop": "how much worse the last snapshot is than the best one",
}


def _snapshot_columns() -> tuple[Column, ...]:
    by_name = {column.name: column for column in FIGURES}
    columns = []
    for name in SNAPSHOT_FIGURES:
        column = by_name[name]
        heading = _SHORT.get(name, column.heading)
        columns += [
            Column(f"{which}_{name}", f"{heading}, {which}", column.unit, meaning)
            for which, meaning in _WHICH.items()
        ]
    return tuple(columns)


SNAPSHOT_COLUMNS: Final = _snapshot_columns()
"""The best and the last snapshot of a run, and the drop between them: what oscillation costs."""


@dataclass(frozen=True, eq=False)
class KnownProblem:
    """The exact problem behind an environment, and when its episodes are cut."""

    problem: FiniteMDP
    horizon: int


def known_problem(env_id: str, env_kwargs: Mapping[str, Any]) -> KnownProblem | None:
    """The finite problem behind an environment; None where its states are unknown.

    Raises:
        ConfigurationError: no such environment, or wrong keyword arguments.
    """
    env = make_env(env_id, env_kwargs)
    problem = finite_dynamics(env)
    horizon = horizon_of(env)
    env.close()
    return None if problem is None else KnownProblem(problem, horizon)


def measure_run(folder: Path, seed: int, known: KnownProblem | None) -> Measurement:
    """Read every figure off the finished run in `folder`.

    Args:
        folder: the run folder.
        seed: of the run.
        known: the problem, where its states are known.

    Raises:
        ArtefactError: a file of the run is missing or damaged.
    """
    summary = read_json(folder / "summary.json")
    try:
        values = {"wall_seconds": float(summary["wall_seconds"])}
        if summary["states_total"] is None or known is None:
            return Measurement(seed, {**values, "observations": float(summary["observations"])})
        values["states_seen"] = float(summary["states_seen"])
        for name in ("steps_to_full_coverage", "steps_to_95_in_20_episodes"):
            values[name] = math.inf if summary[name] is None else float(summary[name])
        values |= {
            name: float(summary[name]) for name in SNAPSHOT_FIGURES if summary[name] is not None
        }
        metrics = folder / "metrics.jsonl"  # not there if the policy was never updated
        values |= snapshot_figures(JsonLines.read(metrics).records if metrics.exists() else ())
    except (KeyError, TypeError) as error:
        raise ArtefactError(
            f"{folder} lacks a figure of the comparison ({error!r}); delete it and run the "
            "comparison again"
        ) from error
    tables = load_policy(folder / "policy.safetensors").tables(known.problem.observations)
    values["resampling_steps"] = resampling_steps(
        known.problem.dynamics, tables, horizon=known.horizon, seed=seed
    )
    return Measurement(seed, values)


def snapshot_figures(records: Records) -> dict[str, float]:
    """Best, last, and the drop between them, of each figure of the snapshots of one run.

    Args:
        records: the lines of metrics.jsonl, one per snapshot; each has every figure. None at all
            give no figures.
    """
    figures: dict[str, float] = {}
    if not records:
        return figures
    for name, more_is_better in SNAPSHOT_FIGURES.items():
        values = [float(record[name]) for record in records]
        best = max(values) if more_is_better else min(values)
        figures[f"best_{name}"] = best
        figures[f"last_{name}"] = values[-1]
        figures[f"drop_{name}"] = abs(best - values[-1])
    return figures
