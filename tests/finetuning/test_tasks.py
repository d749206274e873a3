"""Tasks: named goals, best returns by exact induction, and what cannot be a task."""

import gymnasium as gym
import pytest

import rover.envs  # noqa: F401 - registers the environments
from rover.envs import GOALS, make_env, parse_layout
from rover.errors import ConfigurationError, LayoutError
from rover.finetuning.tasks import Task, best_return, make_task

# What the paper's tables read for a goal at distance d: −(d − 1).
BEST = {
    ("rover/TwoRooms-v0", "room1"): -11.0,
    ("rover/TwoRooms-v0", "room2"): -17.0,
    ("rover/TwoRooms-v0", "room2-door"): -13.0,
    ("rover/MultiRooms-v0", "room1"): -6.0,
    ("rover/MultiRooms-v0", "room2"): -11.0,
    ("rover/MultiRooms-v0", "room3"): -16.0,
    ("rover/MultiRooms-v0", "room4"): -21.0,
    ("rover/MultiRooms-v0", "room5"): -26.0,
    ("rover/Maze-v0", "marked"): -36.0,
    ("rover/Maze-v0", "centre"): -20.0,
    ("rover/Maze-v0", "east"): -11.0,
    ("rover/Maze-v0", "north"): -18.0,
}


@pytest.mark.parametrize(("env_id", "goal"), BEST)
def test_best_returns_are_those_of_shortest_paths(env_id: str, goal: str) -> None:
    env = make_task(env_id, goal=goal).make_env()
    assert best_return(env) == BEST[env_id, goal]


def test_every_named_goal_has_its_best_return_tested() -> None:
    assert {(env_id, name) for env_id, named in GOALS.items() for name in named} == set(BEST)


def test_best_return_with_slips_is_the_value_of_the_best_policy() -> None:
    """Two free cells beside each other: every step succeeds with probability 1 − 3s/4."""
    slip, horizon = 0.4, 50
    env = make_env(
        "rover/Grid-v0", {"layout": "S.", "goal": (1, 0), "slip": slip, "horizon": horizon}
    )
    success = 1.0 - slip + slip / 4.0
    expected = sum(-((1.0 - success) ** k) for k in range(1, horizon + 1))
    assert best_return(env) == pytest.approx(expected, rel=1e-12)


def test_dense_best_return_sums_the_distances_of_a_shortest_path() -> None:
    task = make_task("rover/Grid-v0", {"layout": "S...."}, goal="4,0", reward="dense")
    assert best_return(task.make_env()) == -(3 + 2 + 1)


def test_the_best_return_is_known_where_dynamics_and_rewards_are() -> None:
    assert best_return(make_env("rover/TwoRooms-v0")) is None
    assert best_return(gym.make("CartPole-v1")) is None
    assert best_return(gym.make("FrozenLake-v1")) == pytest.approx(0.744, abs=1e-3)


@pytest.mark.parametrize("goal", ["room5", "21,4", (21, 4)])
def test_goals_by_name_or_cell_are_the_same_task(goal: object) -> None:
    task = make_task("rover/MultiRooms-v0", {"observation": "onehot"}, goal=goal)  # type: ignore[arg-type]
    assert (task.env_kwargs["goal"], task.goal_name, task.name) == ([21, 4], "room5", "room5")
    assert Task.model_validate_json(task.model_dump_json()) == task


def test_task_of_an_environment_makes_it_again() -> None:
    task = make_task(
        "rover/MultiRooms-v0",
        {"observation": "onehot", "rooms": 4},
        goal="room2",
        reward="dense",
        horizon=77,
    )
    env = task.make_env()
    found = Task.of(env)
    assert found is not None
    again = found.make_env()
    assert (again.spec, found.name) == (env.spec, "room2-dense")
    assert Task.of(gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward)) is None
    assert Task.of(make_env("FrozenLake-v1", {"is_slippery": False})) == Task(
        env_id="FrozenLake-v1", env_kwargs={"map_name": "4x4", "is_slippery": False}
    )
    grid = make_env("rover/Grid-v0", {"layout": parse_layout("S...G"), "goal": "marked"})
    assert Task.of(grid) == Task(
        env_id="rover/Grid-v0", env_kwargs={"layout": "S...G", "goal": [4, 0]}
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"goal": "rom5"},
            "unknown goal 'rom5' of rover/MultiRooms-v0: give a cell as x,y; did you mean 'room5'",
        ),
        ({"goal": "1,2,3"}, "give a cell as x,y"),
        (
            {"goal": "room5", "reward": "shaped"},
            "unknown reward 'shaped'; choose one of sparse, dense",
        ),
        ({"reward": "dense"}, "is a distance to a goal, and the task has none"),
        ({"goal": "room5", "horizon": 0}, "horizon must be a positive whole number, not 0"),
    ],
)
def test_what_is_no_task(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_task("rover/MultiRooms-v0", **settings)  # type: ignore[arg-type]


def test_goals_in_walls_and_out_of_reach() -> None:
    with pytest.raises(LayoutError, match=r"\(0, 1\)"):
        make_task("rover/MultiRooms-v0", goal="0,1").make_env()
    with pytest.raises(LayoutError, match=r"\(99, 0\)"):
        make_task("rover/MultiRooms-v0", goal="99,0").make_env()
    with pytest.raises(LayoutError, match="cannot be reached from the start"):
        make_task("rover/Grid-v0", {"layout": "S#."}, goal="2,0").make_env()
    with pytest.raises(ConfigurationError, match=r"27 steps away, but an episode ends after 26"):
        make_task("rover/MultiRooms-v0", goal="room5", horizon=26).make_env()
    with pytest.raises(ConfigurationError, match="FrozenLake-v1 has no map"):
        make_task("FrozenLake-v1", goal="1,1").make_env()
