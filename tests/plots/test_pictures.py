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
    MOVES,
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
from rover.plots import GridMap, MapPanel, RunFiles, map_figure, pictures, plot_runs

pytestmark = pytest.mark.slow

CURVES = ["learning_curves"]


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
        written = plot_runs([grid_run])
    names = [*CURVES, "visits", "trajectories", "occupancy", "policy"]
    assert written == [grid_run / "pictures" / f"{name}.png" for name in names]
    drawn = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in plot_runs([grid_run])] == drawn


def test_pictures_of_a_grid_world_show_its_arrays(tmp_path, figures):
    run = read_run(tmp_path / "run")
    plot_runs([run.path])
    shown = [axes.images[-1].get_array() for axes in figures["occupancy"].axes[:3]]
    names = ("occupancy", "uniform_occupancy", "optimal_occupancy")
    for values, image in zip((run.arrays[name] for name in names), shown, strict=True):
        assert image[CELLS[:, 1], CELLS[:, 0]].filled(0.0) == pytest.approx(values)
    seen = len(np.unique(run.arrays["snapshot_trajectories"][0])) / N_STATES
    assert figures["snapshots"].axes[0].get_title() == f"step 100: {seen:.0%}"


def test_marks_are_drawn_and_arrows_point_where_actions_lead_as_long_as_these_are_probable():
    grid = GridMap(CELLS, FREE, MOVES, np.array([(*CELLS[2], ord("★")), (*CELLS[1], ord("●"))]))
    for action, (x, y) in enumerate(MOVES):
        probs = np.tile(0.1 + 0.6 * np.eye(4)[action], (N_STATES, 1))
        panel = MapPanel(policy_probs=probs)
        (axes,) = map_figure(grid, [panel]).axes
        assert {text.get_text() for text in axes.texts} == {"★", "●"}
        arrows = next(found for found in axes.collections if isinstance(found, Quiver))
        lengths = np.hypot(arrows.U, arrows.V)
        longest = lengths > 0.9 * lengths.max()
        assert longest.sum() == N_STATES - 2  # none on a mark
        assert (set(np.sign(arrows.U[longest])), set(np.sign(arrows.V[longest]))) == ({x}, {y})
        assert lengths.max() / lengths.min() == pytest.approx(7.0)


def test_finite_problem_without_a_map_has_curves_alone(tmp_path, figures):
    arrays = finite_arrays(16)
    plot_runs(
        [write_run(tmp_path / "run", records=finite_records(), arrays=arrays, env_id="Other")]
    )
    assert list(figures) == CURVES


def visited(n: int, width: int, whose: str = "") -> dict[str, np.ndarray]:
    rows = np.random.default_rng(n).normal(size=(n, width))
    return {
        f"{whose}observations": rows,
        f"{whose}visits": np.ones(n, np.int64),
        f"{whose}first_steps": np.arange(n),
    }


@pytest.mark.parametrize(
    ("width", "settings", "names"),
    [
        (4, {}, ["observation[0]", "observation[1]"]),
        (4, {"cover": [2, 3]}, ["observation[2]", "observation[3]"]),
    ],
)
def test_vectors_are_drawn_in_a_plane_beside_random_actions(
    width, settings, names, tmp_path, figures
):
    arrays = visited(30, width) | visited(20, width, "uniform_")
    settings = {"discount": 0.9, **settings}
    run = write_run(tmp_path / "run", records=[], arrays=arrays, settings=settings)
    plot_runs([run])
    assert list(figures) == ["visits"]
    ours, theirs, bar = figures["visits"].axes
    assert [ours.get_xlabel(), ours.get_ylabel()] == names
    assert bar.get_ylabel() == "step of the first visit"
    assert [len(axes.collections[0].get_offsets()) for axes in (ours, theirs)] == [30, 20]
    first = ours.collections[0]
    assert first.norm is theirs.collections[0].norm  # one colour is one step in both


def test_runs_of_pretraining_share_a_figure_by_agent_and_preset(tmp_path, figures):
    def made(name: str, agent: str, **changes):
        arrays = grid_arrays() | {"visited_steps": np.arange(3), "visited": np.array([1, 2, 4])}
        return write_run(tmp_path / name, agent, records=finite_records(), arrays=arrays, **changes)

    runs = [made("a", "rover"), made("b", "rover", seed=4), made("c", "rnd")]
    plot_runs(runs, out=tmp_path)
    labels = [line.get_label() for line in figures["learning_curves"].axes[0].lines]
    assert labels[:2] == ["ROVER (2 runs)", "RND"]
    other = made("d", "rnd", preset="published")
    plot_runs([*runs, other], out=tmp_path)
    labels = [line.get_label() for line in figures["learning_curves"].axes[0].lines]
    assert labels[:3] == ["ROVER (2 runs)", "RND (fast)", "RND (published)"]
    elsewhere = made("e", "rnd", env_id="rover/Maze-v0")
    with pytest.raises(ConfigurationError, match="ran on rover/TwoRooms-v0 and"):
        plot_runs([*runs, elsewhere], out=tmp_path)


def test_stopped_run_has_curves_and_says_so(tmp_path):
    run = write_run(tmp_path / "run", records=finite_records(), arrays=None, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step":999')  # what a killed process leaves
    with pytest.warns(RoverWarning, match="has not ended.*drew the curves only; continue it"):
        assert [path.stem for path in plot_runs([run], formats=["svg"])] == CURVES
    assert "200 of 400 steps (not finished)" in (run / "pictures/learning_curves.svg").read_text()


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
    (picture,) = plot_runs([run], formats=["svg"])
    assert picture == run / "pictures" / "task_curves.svg"
    assert "updates" in picture.read_text()
    written = plot_runs([run], out=tmp_path / "out", formats=["png", "pdf"])
    assert written == [tmp_path / "out" / f"task_curves.{kind}" for kind in ("png", "pdf")]
    assert all(path.stat().st_size for path in written)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "paper"}, "would be one curve, but differ in their settings"),
        ({"seed": 0}, "are both of seed 0: leave one of them out"),
        ({"kind": "offline"}, "is a run of `rover finetune`, and .* is not"),
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
    with pytest.raises(ConfigurationError, match=r"is a run of `rover pretrain`, and .* is not"):
        plot_runs([grid_run, run], out=tmp_path)
    with pytest.raises(ArtefactError, match="stopped before its policy was measured"):
        plot_runs([write_task_run(tmp_path / "short", ())])


@pytest.mark.parametrize(
    ("changes", "agent", "environment"),
    [
        ({}, "rover", "MultiRooms-v0, goal room5"),
        (
            {"agent": None, "source": None, "transfer": "encoder", "task": None},
            "own policy-encoder",
            "an environment without an id",
        ),
    ],
)
def test_a_task_run_names_its_start_and_its_task(changes, agent, environment, tmp_path):
    run = RunFiles.read(write_task_run(tmp_path / "a", **changes))
    assert run.config.kind != "pretrain"
    assert (run.agent, run.environment) == (agent, environment)
