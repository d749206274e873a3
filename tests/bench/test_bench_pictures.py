"""Pictures of many runs: agents side by side, bars, and steps by distance."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import run_folders
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from run_folders import N_STATES, grid_arrays, read_run

from rover.plots import AgentStyle, make_figure
from rover_bench.pictures import comparison_figures, draw_coverage_bars
from rover_bench.statistics import Aggregate

STYLES = {name: AgentStyle(**style) for name, style in run_folders.STYLES.items()}
BAR = Aggregate((200.0, 400.0))
BARS = {"one": dict.fromkeys(("rover", "rnd"), BAR)}


def titles(figure: Figure) -> list[str]:
    return [axes.get_title() for axes in figure.axes if axes.get_title()]


def colour(line: Any) -> str:
    return to_hex(line.get_color()).upper()


def test_each_agent_has_its_policy_above_its_samples(tmp_path: Path) -> None:
    agents = ("rover", "rnd", "smm", "rover-paper")
    runs = {name: [read_run(tmp_path / name, name)] for name in agents}
    runs["rnd"] *= 2
    runs["smm"] = [read_run(tmp_path / "early", "smm", arrays=grid_arrays())]  # no snapshots yet
    figures = dict(comparison_figures(runs, BARS))
    drawn = ["learning_curves", "coverage_bars", "behaviour", "visits", "snapshots"]
    assert list(figures) == drawn
    assert titles(figures["behaviour"]) == ["ROVER", "RND", "smm", "ROVER (paper)"]
    twice = figures["visits"].axes[1]
    assert twice.get_title() == "RND (2 runs)"
    assert float(twice.images[-1].get_array().max()) == 2.0 * (N_STATES - 1)


def test_bars_have_their_agents_colour_and_lower_bounds_are_hatched() -> None:
    bound = Aggregate((200.0, math.inf), limit=400.0)
    panels = {"one": {"rnd": BAR, "rover": bound}, "two": {"rover": Aggregate((0.0,))}}
    figure = make_figure(9, 4)
    one, _ = draw_coverage_bars(figure, panels, styles=STYLES)
    sure, bound = one.patches
    assert to_hex(sure.get_facecolor()).upper() == STYLES["rnd"].colour
    assert sure.get_hatch() is None
    assert bound.get_hatch() == "///"
    assert sure.get_width() == 300.0
    assert [text.get_text() for text in one.texts] == ["300", "> 300"]
    assert [tick.get_text() for tick in one.get_yticklabels()] == ["RND", "ROVER"]
