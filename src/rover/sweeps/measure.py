"""What is measured of a finished run: the figures that tables show, by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rover.envs import FiniteMDP, finite_dynamics, make_env
from rover.errors import ArtefactError
from rover.evaluation import sample_steps_to_full_coverage
from rover.evaluation.finite import TARGET_COVERAGE
from rover.plots import FIGURES, RunFiles
from rover.policies import load_policy
from rover.storage import read_json
from rover.training.measures import horizon_of
from rover.training.run_folder import load_run_buffer

if TYPE_CHECKING:
    from rover.sweeps.study import Learning, Run

FloatArray = NDArray[np.float64]
Curve = tuple[FloatArray, FloatArray]

_REPEATS = 100


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
        figures = {name: float(summary[name]) for name in FIGURES if summary.get(name) is not None}
        if "states_seen" in figures:
            del figures["observations"]  # as many as states
        if run.case.learn is None:
            return figures | _pretraining_figures(run, summary, files), None
        figures |= _task_figures(run.case.learn, summary)
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


def _pretraining_figures(run: Run, summary: Mapping[str, Any], files: RunFiles) -> dict[str, float]:
    """What a summary does not say of pretraining."""
    figures = {"policy_updates": float(len(files.records))}
    for name, figure in FIGURES.items():
        values = files.series(name)[1].tolist() if figure.best else []
        if values:
            best = max(values) if figure.best == "largest" else min(values)
            figures |= {f"best_{name}": best, f"last_{name}": values[-1]}
            figures[f"drop_{name}"] = abs(best - values[-1])
    known = known_problem(run.case.env, json.dumps(run.case.env_kwargs))
    if summary["states_total"] is None or known is None:
        terminated = np.flatnonzero(load_run_buffer(run.folder).terminated)
        first = float(terminated[0] + 1) if len(terminated) else math.inf
        return figures | {"first_arrival": first, "arrivals": float(len(terminated))}
    figures |= _missing(summary, "steps_to_full_coverage", "steps_to_95_in_20_episodes")
    kept = math.inf
    for record in reversed(files.records):
        if record["coverage"] < TARGET_COVERAGE:
            break
        kept = float(record["step"])
    figures |= {"steps_to_keep_95_in_20_episodes": kept}
    problem, horizon = known
    steps = sample_steps_to_full_coverage(
        problem.dynamics,
        load_policy(run.folder / "policy.safetensors").tables(problem.observations),
        horizon=horizon,
        max_steps=FIGURES["resampling_steps"].limit or 0,
        n_repeats=_REPEATS,
        rng=np.random.default_rng([run.seed, 5]),  # a stream beside those of the run
    )
    # The upper of the two middle values: their mean would be infinite with either.
    middle = np.sort(np.where(steps < 0, math.inf, steps))[len(steps) // 2]
    return figures | {"resampling_steps": float(middle)}


def _task_figures(learn: Learning, summary: Mapping[str, Any]) -> dict[str, float]:
    """What a summary does not say of a task."""
    goals, best = summary.get("labelled_goals"), summary["best_possible_return"]
    figures = {} if goals is None else {"goal_in_data": float(goals > 0)}
    if best is None:
        return figures
    if not learn.offline:  # no first success where nothing is tried
        figures |= _missing(summary, "steps_to_first_success")
    if learn.reward == "sparse":  # −1 per step, and 0 at the goal
        figures["goal_distance"] = float(round(1.0 - best))
    figures["at_best"] = float(summary["greedy_return"] >= best - 1e-6)
    return figures | _missing(summary, "steps_to_best_return", "steps_to_stay_at_best")


def _missing(summary: Mapping[str, Any], *events: str) -> dict[str, float]:
    """Infinity for those events that a summary says did not come."""
    return {name: math.inf for name in events if summary[name] is None}


@lru_cache
def known_problem(env_id: str, env_kwargs: str) -> tuple[FiniteMDP, int] | None:
    """The finite problem behind an environment; None where its states are unknown.

    Args:
        env_id: id of the environment.
        env_kwargs: its keyword arguments, as JSON.

    Returns:
        The problem, and the steps after which its episodes are truncated.

    Raises:
        ConfigurationError: no such environment, or wrong keyword arguments.
    """
    env = make_env(env_id, json.loads(env_kwargs))
    problem, horizon = finite_dynamics(env), horizon_of(env)
    env.close()
    return None if problem is None else (problem, horizon)
