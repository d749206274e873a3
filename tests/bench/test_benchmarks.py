"""Benchmarks and propositions: every script is imported and listed, and worlds are as said."""

import csv
import importlib
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.worlds.small import MAZES, Maze
from experiments.propositions import check_propositions
from rover.wrappers import GoalObservation

ROOT = Path(__file__).parents[2]
SCRIPTS = [path.relative_to(ROOT) for path in sorted(ROOT.glob("benchmarks/**/[a-z]*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_is_imported_and_has_its_line_in_the_index(script):
    importlib.import_module(".".join(script.with_suffix("").parts))
    if script.parts[1] in ("figures", "speed"):
        place = script.relative_to("benchmarks")
        assert f"]({place})" in (ROOT / "benchmarks" / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "n_cells"), [("Maze-50", 1151), ("Decoys8-100", 9461), ("Ladders", 996)]
)
def test_worlds_of_topogym_are_those_published(name, n_cells):
    pytest.importorskip("topogym")
    from benchmarks.worlds.topogym import make

    for view, shape in (("vector", (18,)), ("egocentric", (7, 7))):
        env = make(name, 4000, view)
        assert env.reset(seed=0)[0].shape == shape
        assert env.n_cells == n_cells


def test_every_cell_of_a_maze_is_where_it_lies():
    env = Maze(MAZES["medium"])
    for cell in env.free:
        place = env.reset(seed=0, options={"cell": cell})[0]
        assert Maze.cell(place) == tuple(cell)
    assert Maze.cell(np.zeros(2, np.float32)) is None  # a corner, far from the centre


@pytest.mark.parametrize(("task", "achieved"), [("Reach", (0, 1, 2)), ("Push", (3, 4, 5))])
def test_an_arm_of_fetch_is_seen_as_a_vector_and_a_seed_repeats_its_episode(task, achieved):
    pytest.importorskip("gymnasium_robotics")
    importlib.import_module("benchmarks.worlds.fetch")
    env = gym.make(f"arenas/Fetch{task}-v0")
    view = GoalObservation.within(env)
    assert view is not None
    assert view.achieved == achieved
    assert view.goal_radius == pytest.approx(0.05)

    def played() -> np.ndarray:
        seen = [env.reset(seed=3)[0]]
        seen += [env.step(np.full(4, 0.5, np.float32))[0] for _ in range(3)]
        return np.array(seen)

    np.testing.assert_array_equal(played(), played())


def test_a_seed_repeats_an_episode_of_ogbench_whatever_else_is_drawn():
    pytest.importorskip("ogbench")
    importlib.import_module("benchmarks.worlds.ogbench")
    maze = gym.make("arenas/OGPointMaze-v0", size="teleport")

    def played(seed: int) -> np.ndarray:
        seen = [maze.reset(seed=seed)[0]]
        seen += [maze.step(3 * index % 8)[0] for index in range(40)]
        return np.array(seen)

    first = played(3)
    np.random.seed(7)  # noqa: NPY002
    expected = np.random.random(3)  # noqa: NPY002
    np.random.seed(7)  # noqa: NPY002
    np.testing.assert_array_equal(played(3), first)
    # and whoever draws from the global generator is not disturbed
    np.testing.assert_array_equal(np.random.random(3), expected)  # noqa: NPY002
    assert not np.array_equal(played(4), first)


def test_the_page_of_propositions_says_what_holds_and_what_does_not(tmp_path):
    report = check_propositions(tmp_path, seeds=range(100, 110))
    assert report.files == (tmp_path / "propositions.md", tmp_path / "propositions.csv")
    page = report.files[0].read_text()
    wrong = [line for line in page.splitlines() if "does not hold" in line]
    assert [line.split(" | ")[0].removeprefix("| ") for line in wrong] == [
        "Theorem 2, with M as it is printed, which is that transposed",
        "ballistic",
        "diffusive",
    ]
    assert all("| 1.5 |" in line for line in wrong[1:])
    assert page.count("| holds |") == 11 + 6
    with report.files[1].open() as file:
        lines = list(csv.DictReader(file))
    assert float(lines[0]["measured"]) < 1e-8
    assert {line["claim"]: float(line["measured"]) for line in lines}[
        "energy, ballistic, s = 0.5"
    ] == pytest.approx(0.5, abs=1e-3)
