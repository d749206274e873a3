"""Scores that mean the same on every task of a study, and what all tasks together say.

Runs are compared on tasks: environments, with their goal where one is learned. What else is varied
is compared: agents, starts, learners, settings.
"""

from __future__ import annotations

import io
import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from rover import plots
from rover.plots import Interval, MeanCurve
from rover.sweeps.files import agent_styles
from rover.sweeps.measure import known_problem
from rover.sweeps.report import Report, Result, markdown_table

_THRESHOLDS: Final = np.linspace(0.0, 1.0, 101)

Method = tuple[str, ...]
"""The options that a run has of the axes that are compared."""

Scores = Mapping[Method, list[NDArray[np.float64]]]
"""By method, and on each task, of its runs (n_k,)."""

Kind = Literal["title", "caption"]

_SAID: Final = """\
Every run counts once, all tasks together. Intervals are 95% percentile bootstraps of the runs \
within each task: they say what other seeds would change, and nothing of other tasks."""
_ROW: Final = """\
Probability of improvement: how likely a run of the line scores more than one of the column on the \
same task, mean over tasks; ties count one half. In bold: above ½ in the whole interval."""
_NONE: Final = """\
Nothing can be said: no two agents or settings have a score that means the same on a task that \
both were run on. Such scores are J*/J and the coverage of policies, where the dynamics are known, \
and the returns of tasks with a sparse goal."""


@dataclass(frozen=True)
class Score:
    """A score in [0, 1] that compares across tasks; larger is better.

    Attributes:
        heading: its name.
        meaning: in a sentence.
        of: the score of a run; None where it has none.
    """

    heading: str
    meaning: str
    of: Callable[[Result], float | None]


def _optimality(result: Result) -> float | None:
    ratio = result.figures.get("optimality_ratio")
    return None if ratio is None else 1.0 / ratio


def _rescaled(figure: str) -> Callable[[Result], float | None]:
    """A return of a sparse goal, −1 per step, between never reaching it and the shortest path."""

    def of(result: Result) -> float | None:
        case, learn = result.case, result.case.learn
        value, best = (result.figures.get(name) for name in (figure, "best_possible_return"))
        if learn is None or learn.goal is None or learn.reward != "sparse":
            return None
        known = known_problem(case.env, json.dumps(case.env_kwargs))
        if known is None or value is None or best is None:
            return None
        worst = -float(known[1])
        return (value - worst) / (best - worst)

    return of


_SCALE = "as a share of the way from never reaching the goal (0) to the shortest path (1)"
SCORES: Final = (
    Score(
        "J*/J",
        "Optimum of the objective over that of the last policy, exact under the true dynamics.",
        _optimality,
    ),
    Score(
        "Coverage",
        "Expected share of the states that 20 episodes of the last policy visit.",
        lambda result: result.figures.get("mean_coverage"),
    ),
    Score(
        "Final return", f"Return of the last greedy policy, {_SCALE}.", _rescaled("greedy_return")
    ),
    Score(
        "Return while learning",
        f"Greedy return averaged over the steps of learning, {_SCALE}: quicker learning is more.",
        _rescaled("area_under_curve"),
    ),
)


def across_tasks(report: Report, rng: np.random.Generator) -> tuple[str, dict[str, bytes]]:
    """What the runs say of all tasks together, in Markdown, and its pictures by name.

    Args:
        report: of a study.
        rng: draws the bootstrap samples.
    """
    parts, pictures = list[str](), dict[str, bytes]()
    for score in SCORES:
        axes, tasks, scores = comparable(report, score)
        if len(scores) < 2 or not tasks:
            continue
        names = {method: _name(report, axes, method) for method in scores}
        rows = []
        for method, strata in scores.items():
            n_runs = " or ".join(map(str, sorted({len(runs) for runs in strata})))
            mean = plots.interquartile_mean(strata, rng)
            rows.append([names[method], n_runs, _shown(mean, 3)])
        picture = f"profiles-{len(pictures)}.png"
        pictures[picture] = _profiles(report, score, axes, scores, rng)
        parts += [f"### {score.heading}", f"{score.meaning} Tasks: {', '.join(tasks)}."]
        parts += [markdown_table(["", "runs of each task", "interquartile mean"], rows)]
        parts += [f"![performance profiles]({picture})", _ROW]
        parts += [markdown_table(["", *names.values()], _improvements(names, scores, rng))]
    text = [_SAID, *parts] if parts else [_NONE]
    return "\n\n".join(["## All tasks together", *text]), pictures


def comparable(report: Report, score: Score) -> tuple[list[str], list[str], Scores]:
    """Scores on the tasks that all methods were run on.

    Returns:
        The axes that are compared and differ, the names of the tasks, and the scores.
    """
    study, found = report.study, dict[Method, dict[Method, list[float]]]()
    results = [(result.case.labels, score.of(result)) for result in report.results]
    known = [(labels, value) for labels, value in results if value is not None]
    kinds: dict[bool, list[str]] = {True: [], False: []}
    for axis, options in study.axes.items():
        if len({labels.get(axis) for labels, _ in known}) > 1:
            kinds[any(map(_sets_a_task, options.values()))].append(axis)
    for labels, value in known:
        method, task = (tuple(labels.get(axis, "") for axis in kinds[k]) for k in (False, True))
        found.setdefault(method, {}).setdefault(task, []).append(value)
    every = dict.fromkeys(task for by_task in found.values() for task in by_task)
    tasks = [task for task in every if all(task in by_task for by_task in found.values())]
    names = [_name(report, kinds[True], task, "title") for task in tasks]
    scores = {m: [np.array(by_task[t]) for t in tasks] for m, by_task in found.items()}
    return kinds[False], [name or report.cases[0].env_name for name in names], scores


def _sets_a_task(option: Mapping[str, Any]) -> bool:
    """Whether an option of an axis says on which task is run."""
    own, learning = {"env", "env_kwargs"}, {"goal", "reward"}
    return not (own.isdisjoint(option) and learning.isdisjoint(option.get("learn", ())))


def _name(report: Report, axes: Iterable[str], options: Method, kind: Kind = "caption") -> str:
    """What tables or pictures call some options."""
    labels = zip(axes, options, strict=True)
    return ", ".join(report.study.title_of(*label, kind) for label in labels if label[1])


def _profiles(
    report: Report, score: Score, axes: Sequence[str], scores: Scores, rng: np.random.Generator
) -> bytes:
    """The picture of the performance profiles of all methods."""
    main = next((axis for axis in ("start", "agent") if axis in axes), axes[-1])
    profiles = {}
    for method, strata in scores.items():
        labels = dict(zip(axes, method, strict=True))
        key = _name(report, [main], (labels.pop(main),))
        rest = _name(report, labels, tuple(labels.values()))
        curve = plots.performance_profile(strata, _THRESHOLDS, rng)
        profiles[key, rest] = MeanCurve(_THRESHOLDS, *curve, sum(map(len, strata)))
    figure = plots.make_profile_figure(profiles, x=score.heading, styles=agent_styles(report.cases))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=120)
    return stream.getvalue()


def _improvements(
    names: Mapping[Method, str], scores: Scores, rng: np.random.Generator
) -> list[list[str]]:
    """A line per method with its probability of improvement over each."""
    found = {}
    for x, y in itertools.combinations(scores, 2):
        found[x, y] = value, low, high = plots.probability_of_improvement(scores[x], scores[y], rng)
        found[y, x] = Interval(1.0 - value, 1.0 - high, 1.0 - low)
    cells = {pair: _shown(wins, 2) for pair, wins in found.items()}
    bold = {pair: f"**{cells[pair]}**" for pair, wins in found.items() if wins.low > 0.5}
    return [[names[x], *((cells | bold).get((x, y), "") for y in scores)] for x in scores]


def _shown(found: Interval, digits: int) -> str:
    """An estimate with its interval, if it has one."""
    value, low, high = (f"{number:.{digits}f}" for number in found)
    return value if math.isnan(found.low) else f"{value} [{low}, {high}]"
