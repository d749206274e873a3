"""Metrics of a run by name, and where it was made."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from rover.arrays import FloatArray
from rover.baselines import agent_class
from rover.envs import FiniteMDP, finite_dynamics, horizon_of, make_env
from rover.errors import ArtefactError
from rover.evaluation.finite import TARGET_COVERAGE, PolicyChain
from rover.plots import RunFiles
from rover.policies import load_policy
from rover.training.run_folder import load_run_buffer
from rover.version import __version__
from rover_bench.metrics import METRICS
from rover_bench.study import Learning, Run

_Curve = tuple[FloatArray, FloatArray]

_REPEATS = 100


def measure(run: Run) -> tuple[dict[str, float], _Curve | None]:
    """The figures of a finished run by name, infinite where an event did not happen; and of a run
    that learned a task steps (T,) and greedy returns (T,). ArtefactError: a file is damaged."""
    files = RunFiles.read(run.folder)
    summary = files.summary
    try:
        figures = {name: float(summary[name]) for name in METRICS if summary.get(name) is not None}
        # As many as states, or nearly as many as steps, whoever made these.
        if summary.get("visited_unit") in ("states", "cells"):
            figures.pop("observations", None)
        if summary.get("visited_unit") == "states":
            figures.pop("uniform_observations", None)
        # A mean of steps to different returns would have no meaning.
        if summary.get("best_return_kind") == "reached":  # each run has a best of its own
            for name in ("steps_to_best_return", "steps_to_stay_at_best"):
                figures.pop(name, None)
        if run.case.learn is None:
            return figures | _pretraining_figures(run, files), None
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


def _pretraining_figures(run: Run, files: RunFiles) -> dict[str, float]:
    """Metrics of pretraining that its summary does not have."""
    learns = agent_class(run.case.agent).learns
    figures = {"policy_updates": float(len(files.records))} if learns else {}
    for name, figure in METRICS.items():
        values = files.series(name)[1].tolist() if figure.best else []
        if values:
            worst, best = sorted((min(values), max(values)), reverse=figure.best == "smallest")
            figures |= {f"best_{name}": best, f"worst_{name}": worst, f"last_{name}": values[-1]}
            figures[f"drop_{name}"] = abs(best - values[-1])
    if files.summary.get("sparse_reward"):
        figures |= _missing(files.summary, "first_arrival")
    finite = finite_problem(run.case.problem)
    if files.summary["states_total"] is None or finite is None:
        arrivals = float(np.count_nonzero(load_run_buffer(run.folder).terminated))
        return figures | {"arrivals": arrivals}
    figures |= _missing(files.summary, "steps_to_full_coverage", "steps_to_95_in_20_episodes")
    # Backwards from the end: the first policy after which none fell below the target again.
    kept = math.inf
    for record in reversed(files.records):
        if record["coverage"] < TARGET_COVERAGE:
            break
        kept = float(record["step"])
    figures |= {"steps_to_keep_95_in_20_episodes": kept}
    if "buffer_visits" in files.arrays:
        figures["buffer_entropy"] = float(stats.entropy(files.arrays["buffer_visits"]))
    steps_at, shares = files.series("p_coverage_95")
    if files.config.settings.get("evaluation_every") is not None and len(shares):
        likely = steps_at[shares >= 0.5].tolist()
        figures["steps_to_p_95"] = likely[0] if likely else math.inf
    problem, horizon = finite
    # The paper's figure: steps of the final policy, sampled anew, until every state was visited.
    tables = load_policy(run.folder / "policy.safetensors").tables(problem.observations)
    steps = PolicyChain(problem.dynamics, tables).steps_to_full_coverage(
        _REPEATS,
        horizon=horizon,
        max_steps=METRICS["resampling_steps"].limit or 0,
        rng=np.random.default_rng([run.seed, 5]),  # a stream besides the run's
    )
    # The upper of the two middle values: their mean would be infinite with either.
    middle = np.sort(np.where(steps < 0, math.inf, steps))[len(steps) // 2]
    return figures | {"resampling_steps": float(middle)}


def _task_figures(learn: Learning, summary: Mapping[str, Any]) -> dict[str, float]:
    """Metrics of a task that its summary does not have."""
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
def finite_problem(environment: str) -> tuple[FiniteMDP, int] | None:
    """The finite problem behind an environment, given as :attr:`Case.problem`, and the steps of its
    episodes; None where its states are unknown."""
    env = make_env(*json.loads(environment))
    problem, horizon = finite_dynamics(env), horizon_of(env)
    env.close()
    return None if problem is None else (problem, horizon)


# --- where, when and with which code a run is made -----------------------------------------------


def provenance(*, jobs: int) -> dict[str, Any]:
    """Commit, machine and versions of this process, with the runs allowed side by side: a line of a
    run's ``provenance.jsonl``. A commit has "+" if files of it were changed since."""
    packages = ("torch", "numpy", "scipy", "gymnasium", "clarabel")
    # What a figure may depend on: the code, the arithmetic below it, and how busy the machine was.
    return {
        **machine(),
        "commit": _commit(),
        "jobs": jobs,
        "versions": {
            "python": platform.python_version(),
            "rover": __version__,
            **{name: version(name) for name in packages},
        },
    }


def machine() -> dict[str, Any]:
    """Part of :func:`provenance` that depends on where and when a run is made."""
    # In a container or a job of Slurm a process may use fewer cores than the machine has.
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu_model(),
        "cores": len(affinity(0)) if affinity else os.cpu_count() or 1,
    }


def describe_provenance(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Machine, versions, commits and dates of many sittings, each fact once, as sentences."""
    every = sorted(records, key=lambda record: str(record["began"]))
    if not every:
        return []
    machines = dict.fromkeys(f"{record['cpu']}, {record['cores']} cores" for record in every)
    jobs = dict.fromkeys(str(record["jobs"]) for record in every)
    commits = dict.fromkeys(record["commit"] for record in every)
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in sorted(record["versions"].items()))
        for record in every
    )
    dates = dict.fromkeys((every[0]["began"][:10], every[-1]["began"][:10]))
    return [
        f"Machine: {'; '.join(machines)}.",
        f"Runs side by side: {' or '.join(jobs)}, one thread each.",
        f"Dates (UTC): {' to '.join(dates)}.",
        f"Commit{'s' if len(commits) > 1 else ''}: {', '.join(commits)}.",
        f"Versions: {'; '.join(versions)}.",
    ]


def _commit() -> str:
    """Commit of the checkout that rover lies in; only changes below src/ make it "changed"."""
    options: dict[str, Any] = {"cwd": Path(__file__).parent, "text": True, "timeout": 30}
    options["stderr"] = subprocess.DEVNULL
    try:
        words = ["git", "rev-parse", "--short=12", "HEAD"]
        commit = subprocess.check_output(words, **options).strip()
        words = ["git", "status", "--porcelain", "--", ":/src", ":/pyproject.toml"]
        changed = subprocess.check_output(words, **options).strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+" if changed else str(commit)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine() or "unknown processor")
