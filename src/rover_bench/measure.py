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
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path
from scipy.special import softmax

from rover.arrays import FloatArray
from rover.baselines import agent_class
from rover.data import Buffer
from rover.envs import FiniteMDP, finite_dynamics, horizon_of, make_env
from rover.errors import ArtefactError
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.evaluation.finite import TARGET_COVERAGE, sample_steps_to_full_coverage
from rover.operators import Objective, growing_steps, mirror_descend
from rover.plots import RunFiles
from rover.policies import load_policy
from rover.training.run_folder import load_run_buffer
from rover.transitions import merge_transitions
from rover.version import __version__
from rover.world.rows import Rows
from rover_bench.metrics import METRICS
from rover_bench.study import Learning, Run

_Curve = tuple[FloatArray, FloatArray]

_REPEATS = 100


def measure(run: Run, *, matched: bool = False) -> tuple[dict[str, float], _Curve | None]:
    """Measure a finished run; where it is to be `matched`, one of pretraining on its way too, as
    far as its states are known (:func:`_matched_figures`).

    Returns its figures by name, infinite where an event did not happen, without those that do not
    apply; and for a run that learned a task steps (T,) and greedy returns (T,). ArtefactError: a
    file of the run is missing or damaged.
    """
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
            finite = finite_problem(run.case.problem)
            figures |= _pretraining_figures(run, files, finite)
            if matched and finite is not None:
                figures |= _matched_figures(files, load_run_buffer(run.folder), finite[0])
            return figures, None
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


def _pretraining_figures(
    run: Run, files: RunFiles, finite: tuple[FiniteMDP, int] | None
) -> dict[str, float]:
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
    steps = sample_steps_to_full_coverage(
        problem.dynamics,
        load_policy(run.folder / "policy.safetensors").tables(problem.observations),
        horizon=horizon,
        max_steps=METRICS["resampling_steps"].limit or 0,
        n_repeats=_REPEATS,
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
    """The finite problem behind an environment, its id and keyword arguments as JSON
    (:attr:`Case.problem`), and the steps of its episodes; None where its states are unknown.
    ConfigurationError: no such environment, or wrong keyword arguments.
    """
    env = make_env(*json.loads(environment))
    problem, horizon = finite_dynamics(env), horizon_of(env)
    env.close()
    return None if problem is None else (problem, horizon)


# --- where, when and with which code a run is made -----------------------------------------------


def provenance(*, jobs: int) -> dict[str, Any]:
    """Commit, machine and versions of this process, with the runs allowed side by side: a line of a
    run's ``provenance.jsonl``.

    ``began`` is in UTC, ISO 8601; ``commit`` the source's, with "+" if files of it were changed
    since, "unknown" outside a checkout; ``cores`` those that the process may use.
    """
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


# --- whose merit coverage is, the data's or the policy's ------------------------------------------

_PERCENTAGES = (50, 90, 100)
_RIDGE = 1e-6


def _matched_figures(files: RunFiles, buffer: Buffer, problem: FiniteMDP) -> dict[str, float]:
    """The agent's policy and ROVER's plan on its data, when so many of all states were seen.

    Args:
        files: of the run.
        buffer: all its transitions.
        problem: what it ran on, with one start and no end.

    Returns:
        For 50, 90 and 100 percent: steps_to, the step at which the buffer first holds so many
        states, infinite for never; own_ratio, J/J* of the agent's policy at the next update;
        planned_ratio, J/J* of ROVER's plan on the transitions until then; detour, the mean over
        these states of the shortest way from the start in the transitions over the shortest there
        is.
    """
    dynamics, states = problem.dynamics, problem.states_of(buffer.observations.rows)
    start, discount = int(dynamics.start.argmax()), float(files.settings["discount"])
    optimum = optimal_occupancy(dynamics, discount=discount).objective
    inputs, successors = states[buffer.inputs], states[buffer.successors]
    # Steps at which a state was seen for the first time; the start is seen at 0.
    firsts = np.sort(np.unique(np.append(start, successors), return_index=True)[1])
    updates, ratios = files.series("optimality_ratio")
    ways = dynamics.steps_to_states()
    figures: dict[str, float] = {}
    for percent in _PERCENTAGES:
        # Agents are compared at equal coverage, not at equal steps.
        needed = math.ceil(percent / 100 * dynamics.n_states)
        steps = int(firsts[needed - 1]) if len(firsts) >= needed else 0
        figures[f"steps_to_{percent}"] = steps or math.inf
        if not steps:
            continue
        # None where the run ended before its next update.
        for own in ratios[updates >= steps][:1].tolist():
            figures[f"own_ratio_{percent}"] = own
        # ROVER's plan on the agent's transitions up to then, with exact states: what the same data
        # would have given another planner.
        rows = slice(steps)
        counts = merge_transitions(
            inputs[rows], buffer.actions[rows], successors[rows], buffer.terminated[rows]
        )
        begin = np.eye(dynamics.n_states)[start]
        rows_ = Rows.of_counts(counts, begin, n_actions=buffer.n_actions, ridge=_RIDGE)
        operator = rows_.operator()
        descent = mirror_descend(
            operator,
            operator.start,
            discount=discount,
            objective=Objective(sink_norm=1.0),
            n_steps=150,
            step_rule=growing_steps(10.0),
            tolerance=1e-5,
        )
        values = operator.action_values(descent.dual).numpy()[: dynamics.n_states]
        probs = softmax(-discount * values, axis=1)
        occupancy = policy_occupancy(dynamics, probs, discount=discount)
        figures[f"planned_ratio_{percent}"] = float(occupancy @ occupancy) / optimum
        # Shortest ways in the data over the shortest there are: data may cover all states and know
        # only long ways to them.
        graph = csr_array((counts.counts, (counts.inputs, counts.successors)), ways.shape * 2)
        reached = np.setdiff1d(counts.successors, [start])
        known = shortest_path(graph, unweighted=True, indices=start)
        figures[f"detour_{percent}"] = float(np.mean(known[reached] / ways[reached]))
    return figures
