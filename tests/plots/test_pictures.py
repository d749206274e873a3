"""Run folders and their pictures: what is read, what is drawn, and what is refused."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from run_folders import (
    CELLS,
    FREE,
    N_STATES,
    TASK,
    finite_arrays,
    finite_records,
    grid_arrays,
    read_run,
    write_run,
    write_task_run,
)

from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.plots import (
    AgentStyle,
    GridMap,
    MapPanel,
    RunFiles,
    draw_panels,
    make_figure,
    pictures,
    plot_runs,
)

pytestmark = pytest.mark.slow

CURVES = ["learning_curves", "sink_mass"]
BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def grid_run(tmp_path):
    return write_run(tmp_path / "run", records=finite_records(), arrays=grid_arrays())


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn, by name; nothing is written."""
    found: dict[str, Figure] = {}
    keep: Callable[..., list[Path]] = lambda drawn, *_, **__: found.update(drawn) or []  # noqa: E731
    monkeypatch.setattr(pictures, "write_pictures", keep)
    return found


def test_grid_world_has_every_picture(grid_run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = plot_runs([grid_run], dpi=40)
    names = [*CURVES, "trajectories", "occupancy", "policy", "visits"]
    assert written == [grid_run / "pictures" / f"{name}.png" for name in names]
    drawn = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in plot_runs([grid_run], dpi=40)] == drawn


def test_pictures_of_a_grid_world_show_its_arrays(tmp_path, figures):
    run = read_run(tmp_path / "run")
    plot_runs([run.path])
    shown = [axes.images[-1].get_array() for axes in figures["occupancy"].axes[:3]]
    for values, image in zip(
        (run.arrays["occupancy"], run.sampled_occupancy(), run.arrays["optimal_occupancy"]),
        shown,
        strict=True,
    ):
        assert image[CELLS[:, 1], CELLS[:, 0]].filled(0.0) == pytest.approx(values)
    seen = len(np.unique(run.arrays["snapshot_trajectories"][0])) / N_STATES
    assert figures["snapshots"].axes[0].get_title() == f"step 100: {seen:.0%}"


def test_values_lie_in_their_cells_and_marks_are_drawn():
    grid = GridMap(CELLS, FREE, marks=np.array([(*CELLS[2], ord("★")), (*CELLS[1], ord("●"))]))
    values = np.arange(1, N_STATES + 1)
    (axes,) = draw_panels(make_figure(6, 4), [MapPanel(values=values)], grid)
    image = axes.images[-1].get_array()
    assert image[CELLS[:, 1], CELLS[:, 0]].tolist() == values.tolist()
    assert {text.get_text() for text in axes.texts} == {"★", "●"}


def test_arrows_point_where_actions_lead_as_long_as_these_are_probable():
    # up, down, left, right, with y down
    for action, (x, y) in enumerate([(0, -1), (0, 1), (-1, 0), (1, 0)]):
        probs = np.tile(0.1 + 0.6 * np.eye(4)[action], (N_STATES, 1))
        panel = MapPanel(policy_probs=probs)
        (axes,) = draw_panels(make_figure(6, 4), [panel], GridMap(CELLS, FREE))
        arrows = next(found for found in axes.collections if isinstance(found, Quiver))
        lengths = np.hypot(arrows.U, arrows.V)
        longest = lengths > 0.9 * lengths.max()
        assert longest.sum() == N_STATES
        assert (set(np.sign(arrows.U[longest])), set(np.sign(arrows.V[longest]))) == ({x}, {y})
        assert lengths.max() / lengths.min() == pytest.approx(7.0)


def test_finite_problem_without_a_map_has_bars(tmp_path, figures):
    arrays = finite_arrays(16)
    plot_runs(
        [write_run(tmp_path / "run", records=finite_records(), arrays=arrays, env_id="Other")]
    )
    assert list(figures) == [*CURVES, "occupancy"]
    (axes,) = figures["occupancy"].axes
    assert [bar.get_height() for bar in axes.patches] == arrays["occupancy"].tolist()
    assert axes.lines[1].get_ydata().tolist() == arrays["optimal_occupancy"].tolist()


def test_stopped_run_has_curves_and_says_so(tmp_path):
    run = write_run(tmp_path / "run", records=finite_records(), arrays=None, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step":999')  # what a killed process leaves
    with pytest.warns(RoverWarning, match="has not ended.*drew the curves only; continue it"):
        assert [path.stem for path in plot_runs([run], formats="svg")] == CURVES
    assert "200 of 400 steps (not finished)" in (run / "pictures/sink_mass.svg").read_text()


def test_task_runs_are_averaged_over_seeds_by_task_start_and_learner(tmp_path, figures):
    near = {**TASK, "env_kwargs": {"goal": [6, 4], "reward": "dense"}, "goal_name": None}
    runs = [
        write_task_run(tmp_path / "a", (-300.0, -26.0)),
        write_task_run(tmp_path / "b", (-300.0, -28.0), seed=1),
        write_task_run(tmp_path / "c", algorithm="sac", transfer="both"),
        write_task_run(tmp_path / "d", agent="scratch", source=None, transfer=None),
        write_task_run(tmp_path / "e", task=near),
    ]
    plot_runs(runs, out=tmp_path / "out")
    far, dense = figures["task_curves"].axes
    assert [line.get_label() for line in far.lines] == [
        "ROVER, DDPG",
        "ROVER's policy and encoder, SAC",
        "from scratch, DDPG",
        "best possible return",
    ]
    assert far.lines[0].get_ydata().tolist() == [-300.0, -27.0]
    assert far.lines[-1].get_ydata()[0] == -26.0
    assert len(dense.lines) == 2


def test_one_run_keeps_its_picture_and_counts_updates_offline(tmp_path):
    run = write_task_run(tmp_path / "a", kind="offline", algorithm="cql", transfer=None, task=None)
    (picture,) = plot_runs([run], formats="svg")
    assert picture == run / "pictures" / "task_curves.svg"
    assert "updates" in picture.read_text()
    written = plot_runs([run], out=tmp_path / "out", formats=list(BEGINNINGS), dpi=40)
    assert written == [tmp_path / "out" / f"task_curves.{kind}" for kind in BEGINNINGS]
    for path in written:
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix[1:]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"n_steps": 1, "learner": {"batch_size": 8}}}, r"learner\.batch_size \(64 a"),
        ({"preset": "paper"}, r"would be one curve, but differ in preset \(fast and paper\)"),
        ({"seed": 0}, "are both of seed 0: leave one of them out"),
        ({"kind": "offline"}, "is a run of `rover finetune`, and others are not"),
    ],
)
def test_runs_that_cannot_be_one_curve(changes, message, tmp_path):
    runs = [
        write_task_run(tmp_path / "a"),
        write_task_run(tmp_path / "b", **{"seed": 1, **changes}),
    ]
    with pytest.raises(ConfigurationError, match=message):
        plot_runs(runs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_task_runs_that_cannot_be_drawn_are_refused(tmp_path, grid_run):
    run = write_task_run(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="the picture of 2 runs belongs to none of them"):
        plot_runs([run, run])
    with pytest.raises(ArtefactError, match="holds no run that learned a task"):
        plot_runs([grid_run, run], out=tmp_path)
    with pytest.raises(ArtefactError, match="stopped before its policy was measured"):
        plot_runs([write_task_run(tmp_path / "short", ())])
    (run / "manifest.json").unlink()  # a run that has not ended is not sealed yet
    (run / "summary.json").write_text("[]")
    with pytest.raises(ArtefactError, match=r"summary\.json is damaged: its best possible return"):
        plot_runs([run])
    (run / "metrics.jsonl").write_text('{"step":5,"greedy_return":"much"}\n')
    with pytest.raises(ArtefactError, match=r"metrics\.jsonl is damaged: a record of"):
        plot_runs([run])


def test_a_run_says_what_it_started_from_and_what_it_learned(tmp_path):
    run = read_run(tmp_path / "run", style={"label": "Mine", "colour": "red"})
    assert (run.is_task, run.is_complete, run.agent) == (False, True, "rover")
    assert run.environment == "rover/TwoRooms-v0"
    assert RunFiles.styles_of({"rover": [run]}) == {"rover": AgentStyle("Mine", "red")}
    run = RunFiles.read(write_task_run(tmp_path / "a"))
    assert (run.is_task, run.agent, run.environment) == (True, "rover", "MultiRooms-v0, goal room5")
    assert run.settings["learner.batch_size"] == 64
    near = {**TASK, "env_kwargs": {"goal": [6, 4], "reward": "dense"}, "goal_name": None}
    run = RunFiles.read(write_task_run(tmp_path / "b", task=near, transfer="both"))
    assert (run.agent, run.environment) == (
        "rover-both",
        "MultiRooms-v0, goal (6, 4), dense reward",
    )
    unnamed = write_task_run(tmp_path / "c", agent=None, source=None, transfer="encoder", task=None)
    run = RunFiles.read(unnamed)
    assert (run.agent, run.environment) == ("own policy-encoder", "an environment without an id")


def test_the_agent_is_read_from_the_source_where_the_run_does_not_say_it(tmp_path):
    source = tmp_path / "apt-run"
    write_task_run(tmp_path / "a", agent=None, source=str(source))
    assert RunFiles.read(tmp_path / "a").agent == "apt-run"
    style = {"label": "APT", "colour": "red"}
    write_run(source, "apt", records=[], arrays=None, style=style)
    run = RunFiles.read(tmp_path / "a")
    assert run.agent == "apt"
    assert RunFiles.styles_of({"apt": [run]})["apt"].label == "APT"


def test_sampled_occupancy_weighs_time_and_stops_at_the_end(tmp_path):
    arrays = grid_arrays() | {"trajectories": np.array([[0, 1, 1], [0, 2, -1]])}
    run = read_run(tmp_path / "a", arrays=arrays, settings={"discount": 0.5})
    expected = np.array([2.0, 0.5 + 0.25, 0.5, *[0.0] * 6])
    assert run.sampled_occupancy() == pytest.approx(expected / expected.sum())


def test_damaged_files_are_named(tmp_path):
    run = write_run(tmp_path / "a", records=finite_records(), arrays=grid_arrays())
    evaluation = run / "evaluation.safetensors"
    evaluation.write_bytes(evaluation.read_bytes()[:-10])
    with pytest.raises(ArtefactError, match=r"holds no run: it has no config\.json"):
        RunFiles.read(tmp_path)
    with pytest.raises(ArtefactError, match="is not the file that this run wrote"):
        RunFiles.read(run)
    (run / "manifest.json").unlink()  # as of a run that was stopped
    with pytest.raises(ArtefactError, match=r"evaluation\.safetensors is not a file of rover"):
        RunFiles.read(run)
