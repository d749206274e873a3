"""Tasks: named goals, best returns by exact induction, and what cannot be a task."""

import gymnasium as gym
import pytest
from transfer_cases import corridor

from rover.baselines import make_agent
from rover.envs import GOALS, make_env
from rover.errors import ConfigurationError
from rover.finetuning import Task, finetune, train_offline
from rover.finetuning.run import _is_deterministic
from rover.finetuning.tasks import best_return

ROOMS = "rover/MultiRooms-v0"
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


def test_best_returns_of_all_named_goals_are_those_of_shortest_paths():
    assert {(env_id, name) for env_id, named in GOALS.items() for name in named} == set(BEST)
    for (env_id, goal), expected in BEST.items():
        assert best_return(Task.make(env_id, goal=goal).make_env()) == expected


def test_best_return_with_slips_is_the_value_of_the_best_policy():
    """Two free cells beside each other: every step succeeds with probability 1 − 3s/4."""
    slip, horizon = 0.4, 50
    env = make_env(
        "rover/Grid-v0", {"layout": "S.", "goal": (1, 0), "slip": slip, "horizon": horizon}
    )
    success = 1.0 - slip + slip / 4.0
    expected = sum(-((1.0 - success) ** k) for k in range(1, horizon + 1))
    assert best_return(env) == pytest.approx(expected, rel=1e-12)


def test_the_best_return_is_known_where_dynamics_and_rewards_are():
    task = Task.make("rover/Grid-v0", {"layout": "S...."}, goal="4,0", reward="dense")
    assert best_return(task.make_env()) == -(3 + 2 + 1)
    assert best_return(gym.make("FrozenLake-v1")) == pytest.approx(0.744, abs=1e-3)
    scaled = gym.wrappers.TransformReward(task.make_env(), lambda reward: 2.0 * float(reward))
    for env in (make_env("rover/TwoRooms-v0"), gym.make("CartPole-v1"), scaled):
        assert best_return(env) is None


def test_where_one_episode_is_exact():
    exact = corridor().make_env()
    assert _is_deterministic(exact)
    for env in (
        make_env("rover/Corridor-v0", {"goal": (0, 0), "slip": 0.1}),
        make_env("rover/Corridor-v0", {"goal": (0, 0), "start": "random"}),
        make_env("CartPole-v1"),
        gym.wrappers.StickyAction(exact, 0.5),
    ):
        assert not _is_deterministic(env)


def test_task_of_an_environment_makes_it_again():
    for goal in ("room5", "21,4", (21, 4)):
        task = Task.make("rover/MultiRooms-v0", {"observation": "onehot"}, goal=goal)
        assert (task.env_kwargs["goal"], task.name) == ([21, 4], "room5")
        assert Task.model_validate_json(task.model_dump_json()) == task
    kwargs = {"observation": "onehot", "rooms": 4}
    task = Task.make(ROOMS, kwargs, goal="room2", reward="dense", horizon=77)
    env = task.make_env()
    found = Task.of(env)
    assert found is not None
    again = found.make_env()
    assert (again.spec, found.name) == (env.spec, "room2-dense")
    assert Task.of(gym.wrappers.TransformReward(env, lambda reward: 2.0 * reward)) is None
    assert Task.of(make_env("FrozenLake-v1", {"is_slippery": False})) == Task(
        env_id="FrozenLake-v1", env_kwargs={"map_name": "4x4", "is_slippery": False}
    )
    grid = make_env("rover/Grid-v0", {"layout": "S...G", "goal": "marked"})
    assert Task.of(grid) == Task(
        env_id="rover/Grid-v0", env_kwargs={"layout": "S...G", "goal": [4, 0]}
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Task.make(ROOMS, goal="rom5"), f"unknown goal 'rom5' of {ROOMS}: .*room5"),
        (lambda: Task.make(ROOMS, reward="dense"), "distance to a goal, and the task has none"),
        (lambda: Task.make(ROOMS, goal="room5", horizon=26), "27 steps away, but .* ends after 26"),
        (lambda: Task.make("FrozenLake-v1", goal="1,1"), "unexpected keyword argument .goal."),
    ],
)
def test_what_is_no_task(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make().make_env()


def test_a_task_that_was_forgotten_is_an_error_before_the_first_step(tmp_path):
    bare = make_env("rover/MultiRooms-v0", {"observation": "onehot"})
    buffer = make_agent("random", bare, seed=0, policy_every=10).learn(20).buffer
    named = r"no reward until it has a goal.*--task goal=.*\(room1, room2, .*any cell as X,Y\)"
    with pytest.raises(ConfigurationError, match=named):
        finetune(None, bare, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError, match=named):
        train_offline(buffer, bare, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    shaped = gym.wrappers.TransformReward(bare, lambda reward: float(reward))
    with pytest.raises(ConfigurationError, match="a wrapper may change the rewards"):
        train_offline(buffer, shaped)
