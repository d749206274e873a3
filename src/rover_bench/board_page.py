"""The page of the board: tables and the picture of several agents' entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure
from numpy.typing import NDArray

from rover.baselines import agent_class, agent_names
from rover.errors import ConfigurationError
from rover.plots import make_figure
from rover.plots.curves import MeanCurve, draw_curve
from rover.plots.style import TICK_SIZE, AgentStyle, Styles, assign_styles, label_axes
from rover_bench.board import FIRST_SEED, Entry, Result, Suite, World
from rover_bench.report import markdown_table
from rover_bench.statistics import (
    Aggregate,
    Interval,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)

_UNITS: Mapping[str, str] = {
    "optimality_ratio": ", J/J\\*",
    "states_seen": ", states seen",
    "cells": ", cells over random's",
}
_THRESHOLDS = np.linspace(0.0, 0.999, 200)


def board_page(entries: Sequence[Entry], picture: str | None = None) -> str:
    """Tables of entries of one suite and scale, as Markdown, below the picture of
    :func:`board_figure` at the address `picture`. ConfigurationError: entries of several suites or
    scales, two of one agent, or an unfinished one of a suite without goals.
    """
    if _has_goals(entries[0]):
        return _goal_page(entries)
    ranked, worlds = _ranked(entries)
    first, exact = entries[0], _exact(worlds)
    n_seeds = len(first.of(worlds[0].name))
    lines = [
        f"Suite `{first.suite}`, scale {first.scale}: {len(worlds)} worlds, {n_seeds} seeds from "
        f"{FIRST_SEED} on. Intervals are 95% bootstraps over the seeds.",
    ]
    if picture is not None:
        alt = f"{_LEFT} of {len(ranked)} agents, and {_RIGHT[0].lower()}{_RIGHT[1:]}"
        lines += ["", f"![{alt}]({picture})"]
    lines += [
        "",
        f"**All worlds with an exact optimum** ({len(exact)}): interquartile mean of J\\*/J, 1 is "
        "the optimum; and the share of worlds and seeds on which the agent does better than "
        "uniformly random actions (ties count half).",
        "",
    ]
    uniform = next((one for one in entries if one.agent == "random"), None)
    rows = []
    for name, entry in ranked.items():
        row = [name, _interval(_mean_score(entry, exact))]
        if uniform is not None:
            ours, random = ([_scores(one, world) for world in worlds] for one in (entry, uniform))
            better = probability_of_improvement(ours, random, np.random.default_rng([0, 7]))
            row.append("" if entry is uniform else _interval(better))
        rows.append(row)
    heads = ["agent", "J\\*/J", *(["better than random actions"] if uniform else [])]
    lines.append(markdown_table(heads, rows))
    for group in dict.fromkeys(world.group for world in worlds):
        inside = [world for world in worlds if world.group == group]
        heads = ["agent", *(f"{world.name}{_UNITS[world.metric]}" for world in inside)]
        table = [[name, *(_cell(one, world) for world in inside)] for name, one in ranked.items()]
        lines += ["", f"**{group}**", "", markdown_table(heads, table)]
    asked = {world.name: world.metric for world in worlds}
    if any(one.figures[asked[one.world]] is None for entry in entries for one in entry.results):
        lines += [
            "",
            "–: the agent refused to learn in a world that it is not for, and has 0 there.",
        ]
    minutes = (
        f"{name} {sum(result.seconds for result in entry.results) / 60:.1f}"
        for name, entry in ranked.items()
    )
    return "\n".join([*lines, "", f"CPU minutes: {', '.join(minutes)}."]) + "\n"


_LEFT = "Interquartile mean of J*/J with its 95% interval"
_RIGHT = "Share of worlds and seeds with a higher J*/J"


def board_figure(entries: Sequence[Entry]) -> Figure:
    """Picture of entries on the worlds with an exact optimum: means, and profiles of all scores.
    ConfigurationError: as of :func:`board_page`, or a suite without exact optima.
    """
    if _has_goals(entries[0]):
        raise ConfigurationError(f"suite {entries[0].suite} has no picture: leave out --picture")
    ranked, worlds = _ranked(entries)
    exact = _exact(worlds)
    looks = assign_styles(ranked, _styles(ranked))
    figure = make_figure(10.5, 1.6 + 0.3 * max(8, len(ranked)))
    left, right = figure.subplots(1, 2, width_ratios=[1.0, 1.15])
    for place, (name, entry) in enumerate(ranked.items()):
        value, low, high = _mean_score(entry, exact)
        # Drawn as on the right, where the line's pattern tells agents of one colour apart.
        left.plot([0.0, value], [place, place], **looks[name].line, linewidth=1.0)
        left.hlines(place, low, high, colors=looks[name].colour, linewidth=2.0)
        left.plot([value], [place], "o", color=looks[name].colour, markersize=6)
        strata = [_scores(entry, world) for world in exact]
        profile = performance_profile(strata, _THRESHOLDS, np.random.default_rng([0, 6]))
        draw_curve(right, MeanCurve(_THRESHOLDS, *profile, len(strata)), looks[name], opacity=0.0)
    left.set_yticks(range(len(ranked)), list(ranked), fontsize=TICK_SIZE)
    left.set_ylim(len(ranked) - 0.5, -0.5)
    left.set_xlim(0.0, 1.03)
    label_axes(left, x=_LEFT, grid=True)
    right.set(xlim=(0.0, 1.0), ylim=(0.0, 1.03))
    right.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    label_axes(right, x="J*/J; 1 is the optimum", y=_RIGHT, grid=True)
    return figure


def _has_goals(entry: Entry) -> bool:
    return Suite.read(entry.suite)[0].worlds[0].metric == "goal_reached"


def _goal_page(entries: Sequence[Entry]) -> str:
    """Tables of a suite of worlds with cells and a goal; entries may be unfinished."""
    by_name, worlds = _by_name(entries)
    suite, _ = Suite.read(entries[0].suite)
    n_runs = len(suite.runs(entries[0].scale))
    shares = [name for name in entries[0].results[0].figures if name.startswith("share_")]
    heads = [
        "agent",
        "goals reached",
        "steps to the goal (median)",
        *(f"cells after {int(name.partition('_')[2]):,} steps" for name in shares),
        "cells of 50 episodes",
        "J times cells",
        "CPU ms a step",
    ]
    table = []
    for name, entry in sorted(by_name.items(), key=lambda item: -_n_goals(item[1])):
        uneven = [
            None if None in (x, y) else x * y  # type: ignore[operator]
            for x, y in zip(_all(entry, "objective"), _all(entry, "n_cells"), strict=True)
        ]
        table.append(
            [
                name,
                f"{_n_goals(entry)} of {len(entry.results)}",
                _median_step(entry.results),
                *(_mean(_all(entry, share), "{:.1%}") for share in shares),
                _mean(_all(entry, "episodes_share"), "{:.1%}"),
                _mean(uneven, "{:.2f}"),
                _mean([one.step_ms for one in entry.results], "{:.2f}"),
            ]
        )
    lines = [
        f"Suite `{entries[0].suite}`, scale {entries[0].scale}: {n_runs} runs, each group's "
        "smallest worlds first; shares, J and times are means over the runs made. –: not measured, "
        "or for steps: most runs did not reach the goal.",
        "",
        markdown_table(heads, table),
        "",
        "Steps to the goal, medians over the seeds:",
        "",
        markdown_table(
            ["world", "cells", *by_name],
            [
                [
                    world.name,
                    _mean([one.figures.get("n_cells") for one in made], "{:,.0f}"),
                    *(_median_step(entry.of(world.name)) for entry in by_name.values()),
                ]
                for world in worlds
                if (made := max((entry.of(world.name) for entry in entries), key=len))
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def _n_goals(entry: Entry) -> int:
    return sum(one.figures["goal_reached"] == 1.0 for one in entry.results)


def _all(entry: Entry, figure: str) -> list[float | None]:
    return [one.figures.get(figure) for one in entry.results]


def _mean(values: Sequence[float | None], form: str) -> str:
    known = [x for x in values if x is not None]
    return form.format(np.mean(known)) if known and len(known) == len(values) else "–"


def _median_step(results: Sequence[Result]) -> str:
    """Median of the steps to the goal, where a run that did not reach it comes last."""
    steps = [one.figures.get("goal_step") for one in results]
    median = np.median([np.inf if step is None else step for step in steps]) if steps else np.inf
    return f"{median:,.0f}" if np.isfinite(median) else "–"


def _by_name(entries: Sequence[Entry]) -> tuple[dict[str, Entry], list[World]]:
    """Entries by their shown names, and the worlds of their scale."""
    if len({(one.suite_digest, one.scale) for one in entries}) != 1:
        raise ConfigurationError("a table is of one suite and one scale: give entries of one each")
    by_name = {_shown_name(one, entries): one for one in entries}
    if len(by_name) < len(entries):
        raise ConfigurationError("an agent has two entries: give one of each")
    suite, _ = Suite.read(entries[0].suite)
    return by_name, [world for world in suite.worlds if entries[0].scale in world.scales]


def _ranked(entries: Sequence[Entry]) -> tuple[dict[str, Entry], list[World]]:
    """Whole entries by their shown names, the best first, and the worlds of their scale."""
    by_name, worlds = _by_name(entries)
    n_runs = len(Suite.read(entries[0].suite)[0].runs(entries[0].scale))
    for entry in entries:
        if len(entry.results) < n_runs:
            raise ConfigurationError(
                f"the entry of {entry.label} has {len(entry.results)} of {n_runs} runs: rover "
                "board run continues it"
            )
    exact = _exact(worlds)
    # By the mean over the worlds that have an optimum: other figures have no common scale.
    names = sorted(by_name, key=lambda name: -float(_mean_score(by_name[name], exact).value))
    return {name: by_name[name] for name in names}, worlds


def _exact(worlds: Sequence[World]) -> list[World]:
    return [world for world in worlds if world.metric == "optimality_ratio"]


def _styles(ranked: Mapping[str, Entry]) -> Styles:
    """Styles that rover's agents declare, by shown names."""
    known = {name: entry.agent.partition(":")[0] for name, entry in ranked.items()}
    return {
        shown: AgentStyle(shown, agent_class(name).colour, agent_class(name).dashes)
        for shown, name in known.items()
        if name in agent_names()
    }


def _shown_name(entry: Entry, entries: Sequence[Entry]) -> str:
    """The label of an entry, with its preset where several are of one label."""
    alike = [one for one in entries if one.label == entry.label]
    return entry.label if len(alike) == 1 else f"{entry.label} ({entry.agent.partition(':')[2]})"


def _scores(entry: Entry, world: World) -> NDArray[np.float64]:
    """Scores of the seeds on a world, (n,); larger is better, J*/J is at most 1, and 0 means that
    the agent refused the world."""
    # J/J* has no upper bound, so that one bad seed would outweigh all others; its inverse has one.
    is_ratio = world.metric == "optimality_ratio"
    figures = [one.figures[world.metric] for one in entry.of(world.name)]
    return np.array([(1.0 / x if is_ratio else x) if x else 0.0 for x in figures])


def _mean_score(entry: Entry, worlds: Sequence[World]) -> Interval:
    strata = [_scores(entry, world) for world in worlds]
    return interquartile_mean(strata, np.random.default_rng([0, 6]))


def _cell(entry: Entry, world: World) -> str:
    figures = [one.figures[world.metric] for one in entry.of(world.name)]
    values = tuple(x for x in figures if x is not None)
    if len(values) < len(figures):
        return "–" if not values else f"– in {len(figures) - len(values)} of {len(figures)}"
    estimate = Aggregate(values).estimate("iqm")
    if world.metric == "states_seen":
        return f"{estimate.value:.0%}"
    digits = 3 if estimate.value < 10 else 1
    return f"{estimate.value:.{digits}f}"


def _interval(estimate: Interval) -> str:
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"
