"""What is measured of a finished run: the figures that tables show, by name."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.envs import FiniteMDP, finite_dynamics, make_env
from rover.errors import ArtefactError
from rover.evaluation import covered_shares, sample_steps_to_full_coverage, sample_trajectories
from rover.evaluation.finite import TARGET_COVERAGE
from rover.plots import RunFiles
from rover.policies import load_policy
from rover.storage import read_json
from rover.training.measures import horizon_of
from rover.training.run_folder import load_run_buffer

if TYPE_CHECKING:
    from rover.sweeps.study import Run

FloatArray = NDArray[np.float64]
Curve = tuple[FloatArray, FloatArray]
Unit = Literal["steps", "count", "ratio", "seconds", "percent", "nats", "return"]

_REPEATS = 100


@dataclass(frozen=True)
class Figure:
    """One measured quantity.

    Attributes:
        heading: of its column.
        unit: how it is printed. "steps" may be infinite, where an event did not happen.
        meaning: what a legend says of it; empty where its heading says all.
        limit: steps after which an event was no longer waited for; None: those of the run.
    """

    heading: str
    unit: Unit
    meaning: str = ""
    limit: int | None = None

    def format(self, value: float, limit: int) -> str:
        """A value as people read it; an infinite one did not happen within `limit` steps."""
        if math.isinf(value):
            return f"not by {limit:,}"
        if self.unit == "seconds":
            return f"{value:.1f} s" if value < 100 else f"{value:,.0f} s"
        if self.unit == "return":
            digits = 0 if float(value).is_integer() else 1
            return f"{value:z.{digits}f}".replace("-", "−")
        forms = {"nats": "{:.3f}", "ratio": "{:.4f}", "percent": "{:.1%}"}
        return forms.get(self.unit, "{:,.0f}").format(value)


_SNAPSHOTS: Final[Mapping[str, tuple[str, Unit, bool]]] = {
    "optimality_ratio": ("J/J*", "ratio", False),
    "coverage": ("coverage", "percent", True),
    "renyi2_entropy": ("Rényi-2", "nats", True),
    "shannon_entropy": ("Shannon", "nats", True),
}
"""Figures of every snapshot of a policy: heading, unit, and whether more is better."""

FIGURES: Final[Mapping[str, Figure]] = {
    name: Figure(**described)
    for name, described in tomllib.loads(
        Path(__file__).with_name("figures.toml").read_text("utf-8")
    ).items()
} | {
    f"{which}_{name}": Figure(f"{heading}, {which}", unit)
    for name, (heading, unit, _) in _SNAPSHOTS.items()
    for which in ("best", "last", "drop")
}
"""All figures (figures.toml); a run has those that apply to it."""


def measure(run: Run) -> tuple[dict[str, float], Curve | None]:
    """Measure a finished run.

    Returns:
        Its figures by name, infinite where an event did not happen, without those that do not
        apply; and for a run that learned a task steps (T,) and greedy returns (T,).

    Raises:
        ArtefactError: a file of the run is missing or damaged.
    """
    summary, files = read_json(run.folder / "summary.json"), RunFiles.read(run.folder)
    try:
        if run.case.learn is None:
            return _pretraining_figures(run, summary, files.records), None
        figures = _task_figures(run, summary)
    except (KeyError, TypeError) as error:
        raise ArtefactError(
            f"{run.folder} lacks a figure ({error!r}): another version wrote it; delete that "
            "folder and run the study again"
        ) from error
    curve = files.series("greedy_return")
    if len(curve[0]) == 0:
        raise ArtefactError(
            f"{run.folder} holds no greedy return; delete that folder and run the study again"
        )
    return figures, curve


def _pretraining_figures(
    run: Run, summary: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    if summary["states_total"] is None:
        terminated = np.flatnonzero(load_run_buffer(run.folder).terminated)
        return {
            "wall_seconds": float(summary["wall_seconds"]),
            "observations": float(summary["observations"]),
            "first_arrival": float(terminated[0] + 1) if len(terminated) else math.inf,
            "arrivals": float(len(terminated)),
        }
    figures = _known_figures(
        summary, events=("steps_to_full_coverage", "steps_to_95_in_20_episodes")
    )
    figures.pop("observations")  # as many as states
    for name, (_, _, more_is_better) in _SNAPSHOTS.items() if records else ():
        values = [float(record[name]) for record in records]
        best = max(values) if more_is_better else min(values)
        figures |= {f"best_{name}": best, f"last_{name}": values[-1]}
        figures[f"drop_{name}"] = abs(best - values[-1])
    kept = math.inf
    for record in reversed(records):
        if record["coverage"] < TARGET_COVERAGE:
            break
        kept = float(record["step"])
    figures["steps_to_keep_95_in_20_episodes"] = kept
    known = known_problem(run.case.env, json.dumps(run.case.env_kwargs))
    assert known is not None  # the run knew the number of its states
    policy = load_policy(run.folder / "policy.safetensors")
    figures["uniform_coverage"] = known.uniform_coverage
    steps = sample_steps_to_full_coverage(
        known.problem.dynamics,
        policy.tables(known.problem.observations),
        horizon=known.horizon,
        max_steps=FIGURES["resampling_steps"].limit or 0,
        n_repeats=_REPEATS,
        rng=np.random.default_rng([run.seed, 5]),  # a stream beside those of the run
    )
    # The upper of the two middle values: their mean would be infinite with either.
    middle = np.sort(np.where(steps < 0, math.inf, steps))[len(steps) // 2]
    return figures | {"resampling_steps": float(middle)}


def _task_figures(run: Run, summary: Mapping[str, Any]) -> dict[str, float]:
    learn, best = run.case.learn, summary["best_possible_return"]
    assert learn is not None
    events = ["steps_to_best_return", "steps_to_stay_at_best"] if best is not None else []
    if best is not None and not learn.offline:  # no first success where nothing is tried
        events.append("steps_to_first_success")
    figures = _known_figures(summary, events=events)
    if best is not None:
        figures["at_best"] = float(summary["greedy_return"] >= best - 1e-6)
        if learn.reward == "sparse":  # −1 per step, and 0 at the goal
            figures["goal_distance"] = float(round(1.0 - best))
    if "labelled_goals" in figures:
        figures["goal_in_data"] = float(figures["labelled_goals"] > 0)
    return figures


def _known_figures(summary: Mapping[str, Any], *, events: Sequence[str]) -> dict[str, float]:
    """The figures that a summary holds; infinite for events that it says did not come."""
    figures = {name: float(summary[name]) for name in FIGURES if summary.get(name) is not None}
    figures["wall_seconds"] = float(summary["wall_seconds"])
    return figures | {name: math.inf for name in events if summary[name] is None}


class _KnownProblem(NamedTuple):
    """An environment whose dynamics are known.

    Attributes:
        problem: its states, their observations and its dynamics.
        horizon: episodes are truncated after so many steps.
        uniform_coverage: share of the states that the uniform policy visits in 20 episodes.
    """

    problem: FiniteMDP
    horizon: int
    uniform_coverage: float


@lru_cache
def known_problem(env_id: str, env_kwargs: str) -> _KnownProblem | None:
    """The finite problem behind an environment; None where its states are unknown.

    Args:
        env_id: id of the environment.
        env_kwargs: its keyword arguments, as JSON.

    Raises:
        ConfigurationError: no such environment, or wrong keyword arguments.
    """
    env = make_env(env_id, json.loads(env_kwargs))
    problem, horizon = finite_dynamics(env), horizon_of(env)
    env.close()
    if problem is None:
        return None
    dynamics = problem.dynamics
    trajectories = sample_trajectories(
        dynamics,
        np.full((dynamics.n_states, dynamics.n_actions), 1.0 / dynamics.n_actions),
        n_episodes=20 * _REPEATS,
        horizon=horizon,
        rng=np.random.default_rng([0, 4]),  # a stream beside those of runs
    )
    shares = covered_shares(trajectories.reshape(_REPEATS, -1), dynamics.n_states)
    return _KnownProblem(problem, horizon, float(shares.mean()))
