"""The page of a study as one HTML file: no network, no script, no other file is needed."""

from __future__ import annotations

import base64
import html
import io
import json
import math
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
import pandas as pd
from markdown_it import MarkdownIt
from numpy.typing import NDArray

from rover.baselines import preset_of
from rover.errors import ArtefactError
from rover.plots import MeanCurve
from rover.storage import flatten, replace_file
from rover.storage.files import read_file
from rover_bench.files import agent_styles, read_report
from rover_bench.measure import finite_problem
from rover_bench.pictures import make_profile_figure
from rover_bench.report import NOTHING, Report, markdown_table
from rover_bench.statistics import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)
from rover_bench.study import SCRATCH, Case, Study

_PICTURES: Final = {".png": "image/png", ".svg": "image/svg+xml"}
# Boxes of their own for what may be wider than a phone; and the line breaks of tables' cells.
_BOXES: Final = {
    "<table>": '<div class="wide" tabindex="0"><table>',
    "</table>": "</table></div>",
    "<p><img ": '<p class="wide picture" tabindex="0"><img ',
    "&lt;br&gt;": "<br>",
}


def write_html(study: Study, folder: Path) -> Path:
    """Write NAME.html beside the page of a study, from that page, its CSV files and its pictures.

    It has what the page says, and statistics over all tasks and the configuration.

    Raises:
        ArtefactError: a file is missing, or is not of this study.
        StorageError: the file cannot be written.
    """
    report, path = read_report(study, folder), folder / f"{study.name}.md"
    # Statistics and configuration stand between what was measured and how it was made.
    shown, heading, made = read_file(path).decode(errors="replace").partition("## How it was made")
    # A fixed generator: the same page gives the same file.
    scores, pictures = _across_tasks(report, np.random.default_rng(0))
    text = "\n\n".join([shown, scores, _configuration(report), heading + made])
    file = path.with_suffix(".html")
    replace_file(file, _render(text, study.title, folder, pictures).encode())
    return file


def _render(text: str, title: str, folder: Path, pictures: Mapping[str, bytes]) -> str:
    """A Markdown page as one HTML document; HTML in it is shown as text, but for line breaks."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens, contents = reader.parse(text), ""
    for number, token in enumerate(tokens):
        for image in (child for child in token.children or () if child.type == "image"):
            path = (folder / unquote(source := str(image.attrs["src"]))).resolve()
            if path.suffix not in _PICTURES or not path.is_relative_to(folder.resolve()):
                raise ArtefactError(
                    f"the page in {folder} shows {source}, which is no png or svg file in it: "
                    "write the page anew with `rover sweep STUDY.toml --redraw`"
                )
            content = base64.b64encode(pictures.get(path.name) or read_file(path)).decode()
            image.attrs["src"] = f"data:{_PICTURES[path.suffix]};base64,{content}"
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = f"part-{number}"
            name = html.escape(tokens[number + 1].content)
            contents += f'<a href="#part-{number}">{name}</a>'
    body = reader.renderer.render(tokens, reader.options, {})
    for before, after in _BOXES.items():
        body = body.replace(before, after)
    body = body.replace("</h1>\n", f"</h1>\n<nav>{contents}</nav>\n", 1)
    document = Path(__file__).with_name("report.html").read_text("utf-8")
    # Plain text that is put in: a template language would read signs of its own in the page.
    parts = {"TITLE": html.escape(title), "BODY": body}
    # both at once: what the one brings may hold the sign of the other
    return re.sub("TITLE|BODY", lambda sign: parts[sign[0]], document)


def _configuration(report: Report) -> str:
    """Settings of the study, in Markdown; seeds are with the runs."""
    agents = dict.fromkeys((c.agent, c.preset) for c in report.cases if c.agent != SCRATCH)
    presets = dict.fromkeys(f"{agent} {preset_of(agent, preset)}" for agent, preset in agents)
    lines = [["all runs", "", _settings(report.study.run)]]
    for axis, options in report.study.axes.items():
        used = dict.fromkeys(case.labels[axis] for case in report.cases if axis in case.labels)
        lines += [[axis, option, _settings(options[option])] for option in used]
    said = f"What is not listed is as in the presets: {', '.join(presets)}."
    table = markdown_table(["axis", "option", "settings"], lines, left=3)
    return "\n\n".join(["## Configuration", said, table])


def _settings(values: Mapping[str, Any]) -> str:
    """Settings by dotted names."""
    shown = {k: v for k, v in flatten(values).items() if k not in ("title", "caption", "seeds")}
    texts = (f"`{name} = {json.dumps(value, ensure_ascii=False)}`" for name, value in shown.items())
    return "<br>".join(texts).replace("|", "\\|") or NOTHING


# --- scores that mean the same on every task of a study -------------------------------------------

_SCORES: Final = {
    "J*/J": "Optimal objective over the last policy's, under the true dynamics.",
    "Coverage": "Share of the states that a set of episodes of the last policy is to visit.",
    "Final return": "Return of the last greedy policy: 1 on the shortest path, 0 without the goal.",
    "Return while learning": "The same, averaged over the steps of learning: sooner is more.",
}
"""Meaning of the scores, by their names; all are in [0, 1], and larger ones are better."""

_BEST: Final = "best_possible_return"
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


def _scores(report: Report) -> pd.DataFrame:
    """The :data:`SCORES` of every run; NaN where a run has none."""
    names = ("optimality_ratio", "mean_coverage", "greedy_return", "area_under_curve", _BEST)
    runs = report.runs.reindex(columns=names)
    # A step costs 1, so an episode without success returns minus the horizon: that is score 0.
    horizons = pd.Series({case.name: _horizon(case) for case in report.cases}, dtype=float)
    horizon = horizons.reindex(runs.index)
    best = runs[_BEST] + horizon
    return pd.DataFrame(
        {
            "J*/J": 1.0 / runs["optimality_ratio"],
            "Coverage": runs["mean_coverage"],
            "Final return": (runs["greedy_return"] + horizon) / best,
            "Return while learning": (runs["area_under_curve"] + horizon) / best,
        }
    )


def _horizon(case: Case) -> float:
    """Steps of an episode of a task with a sparse goal on known states; NaN for other cases."""
    if not (case.learn and case.learn.goal and case.learn.reward == "sparse"):
        return math.nan
    problem = finite_problem(case.problem)
    return problem[1] if problem else math.nan


def _comparable(report: Report, score: str) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Score of each run, by what is compared and by those tasks that all of it was run on."""
    study = report.study
    scores = _scores(report)[score].dropna()
    by_name = {case.name: case for case in report.cases}
    # In the order of the runs: a study that was read from its page has its options by the alphabet.
    cases = [by_name[name] for name in scores.index.unique()]
    varied = [axis for axis in study.axes if len({case.labels.get(axis) for case in cases}) > 1]
    # An axis that changes the problem says on which task a run was, any other what is compared.
    varied.sort(key=lambda axis: axis not in ("agent", "start"))  # these come first in names
    options = {axis: study.axes[axis].values() for axis in varied}
    words = {a: {w for o in options[a] for w in (*o, *o.get("learn", ()))} for a in varied}
    is_task = {a: bool(words[a] & {"env", "env_kwargs", "goal", "reward"}) for a in varied}

    def name_of(case: Case, *, tasks: bool) -> str:
        axes = [axis for axis in varied if axis in case.labels and is_task[axis] == tasks]
        return "-".join(study.title_of(axis, case.labels[axis], "caption") for axis in axes)

    by_agent: dict[str, dict[str, NDArray[np.float64]]] = {}
    for case in cases:
        by_task = by_agent.setdefault(name_of(case, tasks=False), {})
        task = name_of(case, tasks=True) or case.env_name
        by_task[task] = np.append(by_task.get(task, []), scores[[case.name]])
    # Scores are aggregated over tasks that nobody lacks: else the tasks would be compared.
    every = dict.fromkeys(task for by_task in by_agent.values() for task in by_task)
    shared = [task for task in every if all(task in by_task for by_task in by_agent.values())]
    if len(by_agent) < 2 or not shared:
        return {}
    return {name: {task: by_task[task] for task in shared} for name, by_task in by_agent.items()}


def _across_tasks(report: Report, rng: np.random.Generator) -> tuple[str, dict[str, bytes]]:
    """Statistics over all tasks together, in Markdown, and their pictures by name."""
    parts, pictures = list[str](), dict[str, bytes]()
    for score, meaning in _SCORES.items():
        by_agent = _comparable(report, score)
        if not by_agent:
            continue
        strata = {agent: [*by_task.values()] for agent, by_task in by_agent.items()}
        means, profiles, wins = [], {}, dict[tuple[str, str], str]()
        for agent, runs in strata.items():
            counts = " or ".join(map(str, sorted({len(one) for one in runs})))
            means.append([agent, counts, _shown(3, *interquartile_mean(runs, rng))])
            curve = performance_profile(runs, _THRESHOLDS, rng)
            profiles[agent] = MeanCurve(_THRESHOLDS, *curve, sum(map(len, runs)))
        # Each pair once: P(Y beats X) is 1 − P(X beats Y), with the ends of its interval swapped.
        for x, y in combinations(strata, 2):
            value, low, high = probability_of_improvement(strata[x], strata[y], rng)
            wins[x, y] = _shown(2, value, low, high, than=0.5)
            wins[y, x] = _shown(2, 1.0 - value, 1.0 - high, 1.0 - low, than=0.5)
        figure = make_profile_figure(profiles, score, agent_styles(report.cases))
        figure.savefig(stream := io.BytesIO(), format="png", dpi=120)
        name = f"profiles-{len(pictures)}.png"
        pictures[name] = stream.getvalue()
        tasks = "; ".join(next(iter(by_agent.values())))
        parts += [
            f"### {score}",
            f"{meaning} Tasks: {tasks}.",
            f"![Performance profiles by agent: {score}]({name})",
        ]
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
