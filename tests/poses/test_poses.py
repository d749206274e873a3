"""Worlds that hide the position: laws of actions, the map, when it is used, and the policy."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hidden_grid import ROOMS, TURNS_AND_STEP, HiddenGrid
from same_files import assert_same
from small_envs import Small

import rover
from rover import Rover
from rover.errors import ConfigurationError, RoverWarning
from rover.policies import Policy, PosePolicy
from rover.poses.images import _isometries, _placed, _undone
from rover.poses.laws import _AREA, _CENTRE, _NOTHING, _SHIFTS, _TURNS, find_laws

QUICK: dict[str, Any] = {"measure_share": 0.0}


def learned(env: gym.Env[Any, Any], steps: int = 800, **settings: Any) -> Rover:
    with warnings.catch_warnings(action="ignore", category=RoverWarning):
        return Rover(env, seed=0, **{**QUICK, **settings}).learn(steps)


@pytest.fixture(scope="module")
def run():
    env = HiddenGrid()
    return env, learned(env)


def views_of(env: gym.Env[Any, Any], steps: int) -> tuple[Any, Any, Any]:
    """Views before and after random actions, and the actions."""
    rng, (seen, _) = np.random.default_rng(0), env.reset(seed=0)
    rows = []
    for _ in range(steps):
        action = int(rng.integers(env.action_space.n))  # type: ignore[attr-defined]
        reached = env.step(action)[0]
        rows.append((seen.ravel(), action, reached.ravel()))
        seen = reached
    views, actions, after = zip(*rows, strict=True)
    return np.stack(views), np.array(actions), np.stack(after)


def turned(k: int) -> tuple[int, int, int]:
    """A linear isometry about the middle of a window of 5 by 5."""
    row, column = np.array([2, 2]) - _TURNS[k] @ [2, 2]
    return k, int(row), int(column)


@pytest.mark.parametrize("k", range(1, 8))
def test_all_isometries_are_found(k: int) -> None:
    rng = np.random.default_rng(k)
    rooms = ["".join(row) for row in rng.choice(list("..ab"), (40, 40))]
    moves = (turned(k), (0, -1, 0), (0, 0, 1))
    views, actions, after = views_of(HiddenGrid(rooms, moves=moves, limit=1000), 60)
    laws = find_laws(views, actions, after, (5, 5), 3)
    assert laws is not None
    assert laws.moves == moves


@pytest.mark.parametrize("k", [0, 5, 6])
def test_isometries_of_a_map_onto_itself_are_found(k: int) -> None:
    codes, image = np.full(_AREA, _NOTHING, np.uint8), k * _AREA + _CENTRE + 20
    cells = _CENTRE + (np.indices((30, 20)).reshape(2, -1).T - 10) @ _SHIFTS
    there = _placed(image, cells) % _AREA
    codes[cells] = codes[there] = np.random.default_rng(k).choice([1, 1, 1, 0], len(cells))
    drawn = np.flatnonzero(codes != _NOTHING)
    assert sorted(_isometries(codes, drawn, 1)) == sorted([image, _undone(image)])
    codes[there[300]] ^= 1
    assert _isometries(codes, drawn, 1) == []
    codes[drawn] = 1  # an open plain, on which nothing is a feature
    assert _isometries(codes, drawn, 1) == []


# the run


def test_positions_are_inferred_and_every_cell_visited(run: tuple[HiddenGrid, Rover]) -> None:
    env, agent = run
    assert agent.world.kind == "poses"
    assert env.visited == env.free
    assert isinstance(agent.policy, PosePolicy)


def test_a_line_says_what_was_found() -> None:
    with pytest.warns(RoverWarning, match="5×5 window: 2 turn it and 1 lead on; positions are"):
        Rover(HiddenGrid(), seed=0, **QUICK).learn(200)


def test_poses_stand_for_one_place_each(run: tuple[HiddenGrid, Rover]) -> None:
    agent: Any = run[1]
    states = agent._poses.states()
    # A pose shows one view, whenever it is taken.
    poses, views = states[0].buffer.successors, agent.buffer.successors[states[1]]
    assert len(np.unique(np.stack([poses, views], axis=1), axis=0)) == len(np.unique(poses))
    # 38 cells with four headings each, less those that were never needed.
    assert 38 <= len(states[0].buffer.observations) <= 4 * 38
    assert len(states[1]) > 0.9 * len(agent.buffer)


def test_layouts_that_change_are_given_up() -> None:
    with warnings.catch_warnings(record=True, action="always") as said:
        agent = Rover(HiddenGrid(changes=True), seed=0, **QUICK).learn(2000)
    assert "positions are inferred no longer" in str([one.message for one in said])
    assert agent.world.kind != "poses"


class Jumps(HiddenGrid):
    """A mark that leads to the other one of its kind, where the heading is the first one."""

    def move(self, action: Any) -> None:
        began = self.cell
        super().move(action)
        if self.rooms[tuple(self.cell)] == 3 and (self.cell != began).any():
            ends = np.argwhere(self.rooms == 3)
            self.heading, self.cell = 0, ends[int((ends[0] == self.cell).all())]


def test_symbols_that_lead_elsewhere_are_known() -> None:
    rooms = [*ROOMS[:-1], "#a.#.....#", "#..#a#.#.#", "#b.a.#..a#", "##########"]
    poses: Any = learned(Jumps(rooms), 1500)._poses
    assert poses.tracker.leaps == {(2, poses.tracker.names[b"\x03"])}


class Keys(HiddenGrid):
    """The fourth action takes the key (a), then shown in the middle, or opens the door (b)."""

    def begin(self) -> None:
        super().begin()
        self.rooms, self.carried = self.rooms_at_first.copy(), 0

    def move(self, action: Any) -> None:
        ahead = tuple(self.cell + _TURNS[self.heading] @ [-1, 0])
        if action < 2 or (action == 2 and self.rooms[ahead] == 0):
            super().move(action)
        elif action == 3 and (self.rooms[ahead] == 2 or (self.carried and self.rooms[ahead] == 3)):
            self.carried, self.rooms[ahead] = 2, 0

    def look(self) -> Any:
        seen = super().look()
        seen[2, 2] = self.carried
        return seen


def test_keys_and_doors_are_conditions() -> None:
    rooms = [*ROOMS[:5], "#..a#..#.#", "#.#.#....#", ROOMS[7]]
    env = Keys(rooms, moves=(*TURNS_AND_STEP, (0, 0, 0)), limit=120)
    agent = learned(env, 1500)
    assert env.visited == env.free
    env.cell, env.heading = np.array([1, 8]), 0
    steps = played(rover.solve(agent, goal=env.look()), env, 80)
    assert (1, 8) in [(row, column) for _, row, column, _ in steps]


class Rays(Small):
    """Distances to the walls of a square at nine angles: no window on a plane."""

    observation_space = spaces.Box(0, 255, (3, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def begin(self) -> None:
        self.angle = 0.3

    def move(self, action: Any) -> None:
        self.angle += (0.7, -0.4)[int(action)]

    def look(self) -> Any:
        angles = self.angle + np.arange(9) * 0.6
        far = 1.0 / np.maximum(np.abs(np.cos(angles)), np.abs(np.sin(angles)))
        return (100 * far).astype(np.uint8).reshape(3, 3)


def test_perspective_views_have_no_laws() -> None:
    assert learned(Rays(), 400).world.kind != "poses"


class Ahead(HiddenGrid):
    """A view of the cell ahead alone, which is no window."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 3, (1, 1), np.uint8)

    def look(self) -> Any:
        return super().look()[1:2, 2:3]


class Sensor(Ahead):
    """The cells where the agent is and on three sides of it, as a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 3, (4,), np.uint8)

    def look(self) -> Any:
        return HiddenGrid.look(self)[[2, 1, 2, 2], [2, 2, 1, 3]]


@pytest.mark.parametrize("without_a_window", [Ahead, Sensor])
def test_without_a_window_a_line_says_that_something_stays_hidden(
    without_a_window: type[HiddenGrid],
) -> None:
    with pytest.warns(RoverWarning, match="The policy does not see what is hidden"):
        agent = Rover(without_a_window(), seed=0, **QUICK).learn(800)
    assert agent.world.kind != "poses"


class Grey(HiddenGrid):
    """Views whose symbols are shades, a little lighter or darker at every look."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (5, 5), np.float32)

    def look(self) -> Any:
        noise = self.np_random.uniform(0.0, 0.01, (5, 5))
        return (super().look() / 4 + noise).astype(np.float32)


def test_continuous_views_are_no_windows() -> None:
    assert learned(Grey(), 200).world.kind not in ("poses", "states")


@pytest.mark.parametrize("settings", [{"kind": "states"}, {"contexts": False}])
def test_settings_that_say_what_is_planned_on_leave_it_off(settings: dict[str, Any]) -> None:
    assert learned(HiddenGrid(), 200, **settings).world.kind != "poses"


def test_several_copies_say_that_no_position_is_inferred() -> None:
    with pytest.warns(RoverWarning, match="inferred with num_envs=1 alone"):
        Rover(HiddenGrid, seed=0, num_envs=2)


def played(policy: Policy, env: HiddenGrid, steps: int, seed: int = 0) -> list[tuple[Any, ...]]:
    """Actions, cells and views of an episode."""
    rng, (seen, _) = np.random.default_rng(seed), env.reset(seed=seed)
    policy.reset()
    found = []
    for _ in range(steps):
        action = policy.act(seen, rng)
        seen = env.step(action)[0]
        found.append((action, *env.cell.tolist(), seen.ravel()))
    return found


def test_the_policy_covers_and_is_the_same_from_its_file(
    run: tuple[HiddenGrid, Rover], tmp_path: Path
) -> None:
    env, agent = run
    agent.policy.save(tmp_path / "policy.safetensors")
    again = rover.load_policy(tmp_path / "policy.safetensors")
    first, second = (played(policy, env, 80) for policy in (agent.policy, again))
    assert [step[:3] for step in first] == [step[:3] for step in second]


def test_a_policy_with_a_map_learns_no_task(run: tuple[HiddenGrid, Rover]) -> None:
    with pytest.raises(ConfigurationError, match="a PosePolicy has nothing that could learn"):
        rover.finetune(run[1].policy, run[0], total_timesteps=50)


def test_goals_and_rewards_as_functions_of_views(run: tuple[HiddenGrid, Rover]) -> None:
    env, agent = run
    rewarded = rover.solve(agent, reward=lambda x, a, y: (y[:, 12] == 3).astype(float))
    for mark, policy in ((2, rover.solve(agent, goal=lambda x: x[:, 12] == 2)), (3, rewarded)):
        cells = [tuple(cell) for _, *cell, _ in played(policy, env, 40)]
        assert tuple(np.argwhere(env.rooms == mark)[0]) in cells


def made() -> HiddenGrid:
    return HiddenGrid()


def test_a_run_goes_on_to_the_bit(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**QUICK, "policy_every": 50, "checkpoint_every": 100}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    with warnings.catch_warnings(action="ignore", category=RoverWarning):
        Rover(made, seed=0, run_dir=whole, **settings).learn(500)
        begun = Rover(made, seed=0, run_dir=parts, **settings)
        begun.total_timesteps = 500
        begun.finish(callback=lambda record: record["step"] < 330)
        Rover.resume(parts, env=made).finish()
    assert_same(whole, parts, "buffer.safetensors", "policy.safetensors", "metrics.jsonl")
    solved = rover.solve(parts, goal=lambda views: views[:, 12] == 2, env=made)
    assert isinstance(solved, PosePolicy)
