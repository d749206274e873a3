"""Methods beside each other: what is drawn where, from arrays and from run folders."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from run_folders import (
    CELLS,
    FREE,
    N_STATES,
    finite_records,
    grid_arrays,
    unknown_records,
    vector_arrays,
    write_run,
)

from rover.errors import ArtefactError, ConfigurationError
from rover.plots import (
    BarValue,
    Behaviour,
    SnapshotEpisodes,
    draw_behaviour,
    draw_coverage_bars,
    draw_snapshots,
    make_figure,
    method_style,
    plot_comparison,
    plot_run,
    read_run_files,
)

RNG = np.random.default_rng(0)
WALKS = RNG.integers(N_STATES, size=(3, 6))
METHODS = ("rover", "rnd", "smm", "rover-paper")


def snapshots(n: int = 4) -> SnapshotEpisodes:
    return SnapshotEpisodes(100 * np.arange(1, n + 1), RNG.integers(N_STATES, size=(n, 3, 6)))


def bar(value: float = 300.0, **changes: object) -> BarValue:
    return replace(BarValue(value, 200.0, 400.0, (200.0, 400.0)), **changes)


def test_each_method_has_its_policy_above_its_samples_on_one_scale() -> None:
    behaviours = {
        name: Behaviour(WALKS, np.full(N_STATES, 10 ** (number + 1)))
        for number, name in enumerate(METHODS)
    }
    used = draw_behaviour(make_figure(9, 6), behaviours, CELLS, FREE)
    assert [axes.get_title() for axes in used[::2]] == [method_style(m).label for m in METHODS]
    assert used[0].get_ylabel() == "policy"
    assert used[1].get_ylabel() == "samples"
    images = [axes.images[-1] for axes in used[1::2]]
    assert {(image.norm.vmin, image.norm.vmax) for image in images} == {(1.0, 1e4)}
    assert [float(image.get_array().max()) for image in images] == [10.0, 100.0, 1000.0, 10_000.0]
    # the map is wide: three methods in a row, and the fourth below the first
    assert used[6].get_subplotspec().rowspan.start == 2
    assert used[6].get_subplotspec().colspan.start == 0


def test_snapshots_say_after_which_step_and_what_share_they_visit() -> None:
    few = SnapshotEpisodes(np.array([7]), np.array([[[0, 1, 2, -1]]]))
    used = draw_snapshots(make_figure(9, 6), {"rnd": few, "rover": snapshots()}, CELLS, FREE)
    assert used[0].get_title() == f"RND\nstep 7: {3 / N_STATES:.0%}"
    assert used[2].get_title().startswith("step 200: ")
    assert len(used) == 5


def test_many_methods_on_a_square_map_stand_in_two_blocks() -> None:
    free = np.ones((3, 3), np.bool_)
    cells = np.argwhere(free)[:, ::-1].copy()
    taken = {name: snapshots() for name in METHODS}
    used = draw_snapshots(make_figure(9, 6), taken, cells, free)
    places = [used[4 * number].get_subplotspec() for number in range(4)]
    assert [(p.rowspan.start, p.colspan.start) for p in places] == [(0, 0), (1, 0), (0, 4), (1, 4)]


def test_bars_have_their_methods_colour_and_lower_bounds_are_hatched() -> None:
    panels = {"one": {"rnd": bar(), "rover": bar(n_censored=1)}, "two": {"rover": bar(0.0)}}
    one, two = draw_coverage_bars(make_figure(9, 4), panels)
    sure, bound = one.patches
    assert to_hex(sure.get_facecolor()).upper() == method_style("rnd").colour
    assert sure.get_hatch() is None
    assert bound.get_hatch() == "///"
    assert sure.get_width() == 300.0
    assert [text.get_text() for text in one.texts] == ["300", "> 300"]
    assert [tick.get_text() for tick in one.get_yticklabels()] == ["RND", "ROVER"]
    assert two.patches[0].get_y() == bound.get_y()
    draw_coverage_bars(make_figure(9, 4), {"one": {"rnd": bar(low=math.nan, points=(300.0,))}})


def test_what_cannot_be_drawn_is_refused() -> None:
    figure = make_figure(9, 6)
    with pytest.raises(ConfigurationError, match="no methods to draw"):
        draw_behaviour(figure, {}, CELLS, FREE)
    with pytest.raises(ConfigurationError, match="no methods to draw"):
        draw_snapshots(figure, {}, CELLS, FREE)
    with pytest.raises(ConfigurationError, match="rnd has 0 steps for 4 snapshots"):
        draw_snapshots(figure, {"rnd": replace(snapshots(), steps=np.zeros(0))}, CELLS, FREE)
    for panels in ({}, {"one": {}}):
        with pytest.raises(ConfigurationError, match="no bars to draw"):
            draw_coverage_bars(figure, panels)
    with pytest.raises(ConfigurationError, match="bar of rnd is inf"):
        draw_coverage_bars(figure, {"one": {"rnd": bar(math.inf)}})


def test_another_preset_has_the_methods_colour_and_other_dashes() -> None:
    for method in ("rnd", "cic"):
        own, paper = method_style(method), method_style(f"{method}-paper")
        assert own.colour == paper.colour
        assert own.dashes != paper.dashes
        assert paper.label == f"{own.label} (paper)"
    assert method_style("rnd-paper").dashes != method_style("cic-paper").dashes


def with_snapshots() -> dict[str, np.ndarray]:
    taken = snapshots()
    return grid_arrays() | {
        "snapshot_steps": taken.steps,
        "snapshot_trajectories": taken.trajectories.astype(np.int16),
    }


def run(folder: Path, method: str, **options: object):
    options = {"records": finite_records(), "arrays": with_snapshots(), **options}
    return read_run_files(write_run(folder, method=method, **options))


def test_a_run_with_snapshots_has_a_picture_of_them(tmp_path: Path) -> None:
    run(tmp_path / "run", "rover")
    assert "snapshots" in [path.stem for path in plot_run(tmp_path / "run", dpi=40)]


def test_a_comparison_on_a_map_has_every_picture(tmp_path: Path) -> None:
    runs = {
        "rover": [run(tmp_path / "a", "rover"), run(tmp_path / "b", "rover", seed=1)],
        "rnd": [run(tmp_path / "c", "rnd")],
    }
    written = plot_comparison(
        runs, {"one": {"rover": bar(), "rnd": bar()}}, tmp_path / "out", dpi=40
    )
    names = ["learning_curves", "coverage_bars", "behaviour", "visits", "snapshots"]
    assert [path.name for path in written] == [f"{name}.png" for name in names]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_unknown_states_have_curves_only(tmp_path: Path) -> None:
    car = run(
        tmp_path / "a", "rnd", records=unknown_records(), arrays=vector_arrays(), env_id="Car-v0"
    )
    written = plot_comparison({"rnd": [car]}, {}, tmp_path / "out", formats=("svg",))
    assert [path.name for path in written] == ["learning_curves.svg"]


def test_runs_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    moved = with_snapshots()
    moved["cells"] = moved["cells"][::-1].copy()
    runs = {
        "rover": [run(tmp_path / "a", "rover")],
        "rnd": [run(tmp_path / "b", "rnd", arrays=moved)],
    }
    with pytest.raises(ArtefactError, match="rnd ran on another map than the methods before it"):
        plot_comparison(runs, {}, tmp_path / "out")
    with pytest.raises(ArtefactError, match="at least one finished run of each method"):
        plot_comparison({}, {}, tmp_path / "out")
