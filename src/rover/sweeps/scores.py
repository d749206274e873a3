"""Scores that mean the same on every task of a study, and what all tasks together say.

A task is an environment, with its goal where one is learned; what else a study varies is compared.
"""

from __future__ import annotations

import io
import json
import math
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rover.plots import statistics
from rover.plots.curves import make_profile_figure
from rover.plots.figures import MeanCurve
from rover.sweeps.files import agent_styles
from rover.sweeps.measure import known_problem
from rover.sweeps.report import Report, Result, markdown_table

SCORES: Final = {
    "J*/J": "Optimum of the objective over that of the last policy, under the true dynamics.",
    "Coverage": "Share of the states that 20 episodes of the last policy are expected to visit.",
    "Final return": "Return of the last greedy policy: 1 on the shortest path, 0 without the goal.",
    "Return while learning": "The same, averaged over the steps of learning: sooner is more.",
}
"""What the scores mean, by their names; all are in [0, 1], and larger ones are better."""

_THRESHOLDS: Final = np.linspace(0.0, 1.0, 101)
_SAID: Final = """\
Every run counts once. Intervals are 95% percentile bootstraps of the runs within each task: they \
say what other seeds would change, and nothing of other tasks."""
_WINS: Final = """\
Probability of improvement: how likely a run of the line scores more than one of the column on the \
same task, mean over tasks; ties count one half. In bold: above ½ in the whole interval."""
_NONE: Final = """\
Nothing can be said: no two agents or settings have a score that means the same on a task that \
both were run on. Such scores are J\\*/J and coverage where the dynamics are known, and returns of \
sparse goals."""


def scores_of(result: Result) -> dict[str, float]:
    """The :data:`SCORES` that a run has."""
    case, figures, scores = result.case, result.figures, dict[str, float]()
    if "optimality_ratio" in figures:
        scores["J*/J"] = 1.0 / figures["optimality_ratio"]
    if "mean_coverage" in figures:
        scores["Coverage"] = figures["mean_coverage"]
    if case.learn and case.learn.goal and case.learn.reward == "sparse":  # −1 per step
        known, best = known_problem(case.env, json.dumps(case.env_kwargs)), "best_possible_return"
        returns = {"Final return": "greedy_return", "Return while learning": "area_under_curve"}
        for score, figure in returns.items():
            if known and {figure, best} <= figures.keys():
                scores[score] = (figures[figure] + known[1]) / (figures[best] + known[1])
    return scores


def comparable(report: Report, score: str) -> dict[str, dict[str, NDArray[np.float64]]]:
    """A score of each run, by what is compared and by those tasks that all of it was run on."""
    study, found = report.study, dict[str, dict[str, list[float]]]()
    scored = [(result.case, scores_of(result)) for result in report.results]
    known = [(case, scores[score]) for case, scores in scored if score in scores]
    varied = [axis for axis in study.axes if len({case.labels.get(axis) for case, _ in known}) > 1]
    varied.sort(key=lambda axis: axis not in ("agent", "start"))  # these come first in names
    options = {axis: study.axes[axis].values() for axis in varied}
    words = {a: {w for o in options[a] for w in (*o, *o.get("learn", ()))} for a in varied}
    is_task = {a: bool(words[a] & {"env", "env_kwargs", "goal", "reward"}) for a in varied}
    for case, value in known:
        names: dict[bool, list[str]] = {True: [], False: []}
        for axis in [axis for axis in varied if axis in case.labels]:
            names[is_task[axis]].append(study.title_of(axis, case.labels[axis], "caption"))
        by_task = found.setdefault("-".join(names[False]), {})
        by_task.setdefault("-".join(names[True]) or case.env_name, []).append(value)
    every = dict.fromkeys(task for by_task in found.values() for task in by_task)
    shared = [task for task in every if all(task in by_task for by_task in found.values())]
    if len(found) < 2 or not shared:
        return {}
    return {name: {t: np.array(by_task[t]) for t in shared} for name, by_task in found.items()}


def across_tasks(report: Report, rng: np.random.Generator) -> tuple[str, dict[str, bytes]]:
    """What the runs say of all tasks together, in Markdown, and its pictures by name."""
    parts, pictures = list[str](), dict[str, bytes]()
    for score, meaning in SCORES.items():
        found = comparable(report, score)
        if not found:
            continue
        strata = {method: [*by_task.values()] for method, by_task in found.items()}
        means, profiles, wins = [], {}, dict[tuple[str, str], str]()
        for method, runs in strata.items():
            counts = " or ".join(map(str, sorted({len(one) for one in runs})))
            means.append([method, counts, _shown(3, *statistics.interquartile_mean(runs, rng))])
            curve = statistics.performance_profile(runs, _THRESHOLDS, rng)
            profiles[method] = MeanCurve(_THRESHOLDS, *curve, sum(map(len, runs)))
        for x, y in combinations(strata, 2):
            value, low, high = statistics.probability_of_improvement(strata[x], strata[y], rng)
            wins[x, y] = _shown(2, value, low, high, than=0.5)
            wins[y, x] = _shown(2, 1.0 - value, 1.0 - high, 1.0 - low, than=0.5)
        figure = make_profile_figure(profiles, score, agent_styles(report.cases))
        figure.savefig(stream := io.BytesIO(), format="png", dpi=120)
        name = f"profiles-{len(pictures)}.png"
        pictures[name] = stream.getvalue()
        tasks = "; ".join(next(iter(found.values())))
        parts += [f"### {score}", f"{meaning} Tasks: {tasks}.", f"![profiles]({name})"]
        parts += [markdown_table(["", "runs of each task", "interquartile mean"], means), _WINS]
        lines = ([x, *(wins.get((x, y), "") for y in strata)] for x in strata)
        parts += [markdown_table(["", *strata], lines)]
    text = [_SAID, *parts] if parts else [_NONE]
    return "\n\n".join(["## All tasks together", *text]), pictures


def _shown(digits: int, value: float, low: float, high: float, *, than: float = math.inf) -> str:
    """An estimate with its interval, if it has one; in bold where it is surely larger."""
    text = f"{value:.{digits}f}"
    text += "" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"**{text}**" if low > than else text
