"""Worlds with cells and a goal: their record, their suite, and worlds of TopoGym itself."""

import sys
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

from rover.cli.program import answer
from rover.envs import registration
from rover.errors import ConfigurationError
from rover_bench import board, board_page
from rover_bench.board import Entry, RewardFree, Suite, run_entry, verify
from rover_bench.topogym_envs import ExplorationRecord

SUITE = """
first_seed = 4000
worlds = [{ name = "short" }, { name = "long", kwargs = { size = 9 } }]

[scales]
small = { seeds = 2, steps = 1 }
goals = { seeds = 1, steps = 1, ends_at_goal = true }

[each]
env = "fake/Corridor-v0"
group = "corridors"
steps = 1200
seeded = true
metric = "goal_reached"
source = "here"
scales = ["small", "goals"]
"""


class Corridor(gym.Env):
    """Cells in a row; the start is at the left, the goal where the seed puts it."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, world: str, seed: int, size: int = 5, is_board: bool = False):
        assert world in ("short", "long")
        self.layout = SimpleNamespace(free_cells=[(x, 0) for x in range(size)])
        self.size, self.goal = size, size - 1 - seed % 2
        self.observation_space = gym.spaces.Discrete(size)
        if is_board:
            self.observation_space = gym.spaces.Box(0, size, (2, 3), np.int64)

    def info(self):
        return {"position": (self.x, 0), "goal_reached": self.x == self.goal}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = self.age = 0
        return self.seen(), self.info()

    def seen(self):
        return np.full(self.observation_space.shape, self.x, np.int64)[()]

    def step(self, action):
        self.x = int(np.clip(self.x + 2 * action - 1, 0, self.size - 1))
        self.age += 1
        return self.seen(), 0.0, False, self.age == 12, self.info()


def corridor(**keywords):
    return ExplorationRecord(Corridor(**keywords))


class Sweeps:
    """An agent that goes right while it learns, and whose policy turns left or right at first."""

    def __init__(self, env, *, seed):
        self.env = env

    def learn(self, steps):
        while True:
            self.env.reset()
            for _ in range(12):
                self.env.step(1)

    def begin_episode(self, rng):
        self.goes_right = int(rng.integers(2))

    def policy(self, observations):
        raise AssertionError("the policy is followed, and has a memory")

    def act(self, observation, rng):
        return self.goes_right


@pytest.fixture
def suite(tmp_path, monkeypatch):
    (tmp_path / "corridors.toml").write_text(SUITE)
    monkeypatch.setattr(board, "_SUITES", tmp_path)
    # Workers of later tests would import the module of these agents.
    monkeypatch.setattr(registration, "IMPORTED", {})
    gym.register("fake/Corridor-v0", corridor, disable_env_checker=True, order_enforce=False)
    monkeypatch.setitem(sys.modules, "sweeping_agents", sys.modules[__name__])
    monkeypatch.chdir(tmp_path)
    yield
    del gym.registry["fake/Corridor-v0"]


def test_policies_of_boards_are_followed():
    env = corridor(world="short", seed=4000, is_board=True)
    agent, rng = board._OurAgent("rover", env, seed=0), np.random.default_rng(0)
    agent.learn(60)
    agent.begin_episode(rng)
    assert agent.act(env.reset()[0], rng) in (0, 1)


def test_cells_that_a_tide_opens_for_a_time_are_not_counted():
    env = corridor(world="short", seed=4000)
    env.env.layout.free_cells.pop(2)
    env.reset()
    for _ in range(4):
        env.step(1)
    assert (len(env.cells), env.n_cells, env.share, env.is_complete) == (4, 4, 1.0, True)


@pytest.mark.parametrize("word", ["sweeping_agents:Sweeps", "rover"])
def test_a_run_ends_when_nothing_is_left_to_find_and_at_its_goal_where_asked(suite, word):
    entry = run_entry(word, "small", suite="corridors", jobs=1)
    runs = [(one.world, one.seed) for one in entry.results]
    assert runs == [(world, seed) for world in ("short", "long") for seed in (4000, 4001)]
    for one in entry.results:
        size = 5 if one.world == "short" else 9
        assert one.figures["n_cells"] == size
        assert one.figures["share"] == one.figures["share_1000"] == 1.0
        assert one.figures["goal_step"] <= one.figures["steps_made"] < 200
        assert one.step_ms is not None
        if "Sweeps" in word:
            assert one.figures["goal_step"] == size - 1 - one.seed % 2
            assert one.figures["steps_made"] == size  # one more than the last cell needs
    short = run_entry(word, "goals", suite="corridors", jobs=1)
    for one, other in zip(short.results, [entry.results[0], entry.results[2]], strict=True):
        assert one.figures["goal_step"] == other.figures["goal_step"]
        assert one.figures["steps_made"] == one.figures["goal_step"] + 1
        assert "objective" not in one.figures


def test_steps_end_with_the_budget_whatever_is_left():
    env = RewardFree(corridor(world="short", seed=0), 3)
    env.reset()
    for _ in range(3):
        env.step(0)
    with pytest.raises(board.BudgetSpentError):
        env.step(0)
    figures = env.record.figures(1000)
    assert figures["goal_reached"] == 0.0
    assert figures["goal_step"] is None
    assert figures["share"] == 1 / 5
    assert figures["share_1000"] is None


@pytest.mark.parametrize("right", [1.0, 0.5])
def test_j_of_episodes_is_the_closed_form(right):
    class Agent(Sweeps):
        def begin_episode(self, rng):
            self.goes_right = int(rng.random() < right)

    gamma, steps = 0.99, 12
    weights = gamma ** np.arange(steps + 1)
    both = np.zeros((2, 5))
    both[0, 0] = 1.0  # to the left is a wall
    np.add.at(both[1], np.minimum(np.arange(steps + 1), 4), weights / weights.sum())
    mean = (1.0 - right) * both[0] + right * both[1]
    drawn = [
        board._followed(Agent(None, seed=0), corridor(world="short", seed=0), rng)
        for rng in map(np.random.default_rng, range(40 if right < 1.0 else 1))
    ]
    estimates = [figures["objective"] for figures in drawn]
    error = np.std(estimates) / np.sqrt(len(estimates)) if right < 1.0 else 1e-12
    assert abs(np.mean(estimates) - mean @ mean) <= 4 * error
    assert drawn[0]["episodes_share"] == 1.0
    assert drawn[0]["horizon"] == steps
    assert abs(drawn[0]["episodes_goal"] - right) <= 0.3


def test_the_page_of_a_suite_with_goals(suite, capsys):
    asked = ["board", "run", "--suite", "corridors", "--jobs", "1"]
    assert answer([*asked, "--agent", "random", "--out", "a.json"]) == 0
    assert answer([*asked, "--agent", "sweeping_agents:Sweeps", "--out", "b.json"]) == 0
    assert verify("a.json", seed=1, jobs=1) == (1, 1)
    entry = Entry.read("b.json")
    part = entry.model_copy(update={"results": entry.results[:3]}).sealed()
    board.write_json("b.json", part)
    capsys.readouterr()
    assert answer(["board", "table", "a.json", "b.json"]) == 0
    page = capsys.readouterr().out
    assert "| Sweeps | 3 of 3 | 4 | 100.0% |" in page
    assert "| long | 9 |" in page
    assert answer(["board", "table", "a.json", "--picture", "a.png"]) == 2
    assert "suite corridors has no picture" in capsys.readouterr().err


def test_an_unfinished_entry_has_no_rank():
    entry = Entry.read("docs/results/board/random-small.json")
    part = entry.model_copy(update={"results": entry.results[:3]}).sealed()
    with pytest.raises(ConfigurationError, match="random actions has 3 of 66 runs"):
        board_page.board_page([part])


def test_the_advice_where_topogym_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "topogym", None)
    world = Suite.read("topogym-v1")[0].worlds[0]
    with pytest.raises(ConfigurationError, match=r'pip install "\.\[topogym\]"'):
        board._make(world, 4000)


def test_the_worlds_are_those_of_its_roster_and_the_same_in_both_suites():
    benchmarks = pytest.importorskip("topogym.benchmarks")
    names = [world.name for world in Suite.read("topogym-v1")[0].worlds]
    assert len(set(names)) == 63
    families = benchmarks.families("gridworld2d-v1")
    found = {name: benchmarks.declared_family(name.partition("-")[0]) for name in names}
    assert set(found.values()) == set(families)
    for name, family in found.items():
        assert int(name.partition("-")[2] or 0) in families[family]["sizes"]
    small = Suite.read("topogym-v1")[0].runs("small")
    hidden = Suite.read("topogym-v1-egocentric")[0].runs("small")
    assert [(world.name, seed) for world, seed, _ in small] == [
        (world.name, seed) for world, seed, _ in hidden
    ]
    assert len(small) >= len(names) / 5


@pytest.mark.parametrize(
    ("name", "n_cells"), [("Maze-50", 1151), ("Decoys8-100", 9461), ("Ladders", 996)]
)
def test_worlds_of_topogym_are_those_published(name, n_cells):
    pytest.importorskip("topogym")
    for suite, shape in (("topogym-v1", (18,)), ("topogym-v1-egocentric", (7, 7))):
        worlds = {world.name: world for world in Suite.read(suite)[0].worlds}
        if name not in worlds:
            continue
        env = board._make(worlds[name], 4000)
        assert env.reset(seed=0)[0].shape == shape
        assert env.get_wrapper_attr("record").n_cells == n_cells


def test_unknown_worlds_are_named():
    pytest.importorskip("topogym")
    for kwargs, message in (
        ({"world": "Mace-50"}, "did you mean 'Maze-50'"),
        ({"world": "Maze"}, "unknown world"),
        ({"world": "Maze-50", "observation": "vectors"}, "did you mean 'vector'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            gym.make("topogym/World-v0", seed=0, **kwargs)
