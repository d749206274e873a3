"""Tasks, and learning them from labelled transitions or with the model of pretraining."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from transfer_cases import BEST, LENGTH, OFFLINE, Stopped, corridor, stop_at, walked

import rover
from rover.baselines import make_agent
from rover.data import Buffer
from rover.envs import GOALS, finite_dynamics, make_env
from rover.errors import ConfigurationError
from rover.evaluation import best_return, greedy_episodes
from rover.finetuning import Task, TaskResult, finetune, resume_task, train_offline
from rover.policies import GreedyPolicy, NetworkPolicy, load_policy
from rover.storage import is_complete, read_run_config

pytestmark = pytest.mark.filterwarnings("ignore:.*too few for a policy update")

MAP = "S....\n.#.#.\n....."
KEYWORDS: dict[str, Any] = {"layout": MAP, "horizon": 40}
QUICK = {"evaluate_every": 20, "checkpoint_every": 15}


def grid(**keywords: Any) -> gym.Env[Any, Any]:
    return make_env("rover/Grid-v0", KEYWORDS | keywords)


def explored(env: gym.Env[Any, Any], steps: int, run_dir: Path | None = None) -> Any:
    return rover.make_agent("random", env, seed=0, run_dir=run_dir).learn(steps)


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_the_best_return_as_soon_as_the_goal_was_met(observation):
    agent = explored(grid(observation=observation), 400)
    task = grid(observation=observation, goal=(4, 2))
    learned = rover.adapt(agent, task, total_timesteps=80, **QUICK)
    summary = learned.summary
    assert summary["policy_return"] == summary["best_possible_return"] == -5.0
    # 13 states, each left for the nearest one that was not visited: no way back is longer than 4
    assert summary["steps_to_first_success"] <= 30
    assert learned.policy.details["tasks"] == ["task"]


def test_what_pretraining_did_not_try_is_tried():
    """From a buffer of five steps the rest of the map is found by the task's own steps."""
    agent = explored(grid(), 5)
    learned = rover.adapt(agent, grid(goal=(4, 2)), total_timesteps=400, **QUICK)
    assert learned.summary["policy_return"] == -5.0


class Courier(gym.Env[Any, Any]):
    """Moves on a grid, takes a parcel at the right end of the first row, and drops it at the right
    end of the last one, which ends a task that pays; the parcel of a single row is in hand."""

    def __init__(self, width: int, height: int, *, pays: bool) -> None:
        self.pays = pays
        self.size, self.action_space = np.array([width, height]), gym.spaces.Discrete(6)
        self.observation_space = gym.spaces.Discrete(2 * width * height + 1)

    def seen(self) -> int:
        return int(2 * (self.at @ (1, self.size[0])) + self.has)

    def reset(self, **_: Any) -> tuple[int, dict[str, Any]]:
        self.at, self.has = np.zeros(2, int), self.size[1] == 1
        return self.seen(), {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        moves = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (0, 0), (0, 0)])
        self.at = np.clip(self.at + moves[action], 0, self.size - 1)
        at_end = self.at[0] == self.size[0] - 1
        self.has |= action == 4 and at_end and self.at[1] == 0
        over = self.pays and bool(action == 5 and self.has and (self.at == self.size - 1).all())
        return 2 * self.size.prod() if over else self.seen(), float(over), over, False, {}


@pytest.mark.slow
@pytest.mark.parametrize(("size", "n_pairs", "seeds"), [((12, 1), 72, 6), ((9, 6), 648, 1)])
def test_a_reward_of_an_action_is_found_within_twice_the_pairs(size, n_pairs, seeds):
    for seed in range(seeds):
        plain, paid = (gym.wrappers.TimeLimit(Courier(*size, pays=x), 200) for x in (False, True))
        agent = rover.make_agent("random", plain, seed=seed).learn(30 * n_pairs)
        learned = rover.adapt(agent, paid, total_timesteps=2 * n_pairs, seed=seed)
        assert learned.summary["policy_return"] == 1.0


def test_the_return_of_a_drawn_task_is_measured_on_episodes_that_nothing_was_chosen_on():
    env = make_env("FrozenLake-v1")
    settings = {"total_timesteps": 1000, "evaluation_episodes": 2, "seed": 1}
    learned = rover.adapt(explored(env, 1000), env, **settings)
    low, high = learned.summary["policy_interval"]
    true = greedy_episodes(env, learned.policy, seed=7, n_episodes=200).mean()
    assert low <= true <= high < learned.summary["best_greedy_return"] == 1.0


@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_fine_tuning_starts_from_the_plan_where_the_data_shows_the_reward():
    env = gym.wrappers.TimeLimit(Courier(12, 1, pays=True), 200)
    for steps, first in ((5, 0.0), (3000, 1.0)):
        tuned = finetune(explored(env, steps), env, total_timesteps=5)
        assert tuned.curve[0]["greedy_return"] == first
    with pytest.raises(ConfigurationError, match="cannot be computed from observations"):
        finetune(explored(env, 5).buffer, env, total_timesteps=5)


@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_a_source_that_is_gone_is_given(tmp_path):
    agent, stop = explored(grid(), 100), {"callback": stop_at(20), "total_timesteps": 60, **QUICK}
    with pytest.raises(Stopped):
        rover.adapt(agent, grid(goal=(4, 2)), run_dir=tmp_path / "run", **stop)
    with pytest.raises(ConfigurationError, match=r"resume_task\(run_dir, start=\.\.\.\)"):
        resume_task(tmp_path / "run")
    resume_task(tmp_path / "run", start=agent.buffer)
    assert is_complete(tmp_path / "run")


def test_what_cannot_be_adapted():
    agent, task = explored(grid(), 50), grid(goal=(4, 2))
    other = grid(goal=(4, 2), observation="onehot")
    for source, env, settings, words in (
        (agent, other, {}, "with the observations of pretraining"),
        (agent.policy, task, {}, "does not show where"),
        (agent, task, {"learner": {"batch_size": 3}}, "learner"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            rover.adapt(source, env, **settings)


def quick(buffer: Buffer, updates: int = 600, **changes: Any) -> TaskResult:
    learning_rate = {"critic_learning_rate": 5e-3}
    if changes.get("algorithm") == "ddpg":
        learning_rate = {"actor_learning_rate": 5e-3, "critic_learning_rate": 5e-3}
    settings = {**OFFLINE, "learner": {**OFFLINE["learner"], **learning_rate}}
    env = changes.pop("env", None) or corridor().make_env()
    return train_offline(buffer, env, updates=updates, **{**settings, **changes})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no reward was seen")
@pytest.mark.parametrize(("algorithm", "kind"), [("cql", GreedyPolicy), ("ddpg", NetworkPolicy)])
def test_the_corridor_is_learned_from_random_walks(algorithm, kind, tmp_path):
    result = quick(walked(), 500, algorithm=algorithm, run_dir=tmp_path, source="runs/random")
    assert result.summary["best_possible_return"] == BEST
    assert result.summary["greedy_return"] == BEST
    assert result.summary["labelled_goals"] > 0
    assert isinstance(result.policy, kind)
    observations = np.eye(LENGTH, dtype=np.float32)
    stored = load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(stored.probs(observations), result.policy.probs(observations))
    assert result.policy.probs(observations)[1:5].argmax(axis=1).tolist() == [2, 2, 2, 2]
    assert read_run_config(tmp_path).kind == "offline"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_the_buffer_is_left_alone_by_any_seed():
    before = {name: array.copy() for name, array in walked().state().items()}
    first = quick(walked(), 60, seed=3, evaluate_every=30)
    assert first.curve != quick(walked(), 60, seed=4, evaluate_every=30).curve
    for name, array in walked().state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_tables_of_gymnasium_label_what_was_stored():
    env = make_env("FrozenLake-v1", {"is_slippery": False})
    buffer = make_agent("random", env, seed=0, policy_every=500).learn(3000).buffer
    result = quick(buffer, 600, env=env)
    assert result.summary["best_greedy_return"] == 1.0
    slippery = make_env("FrozenLake-v1")
    other = make_agent("random", slippery, seed=0, policy_every=50).learn(100).buffer
    with pytest.raises(ConfigurationError, match="transitions of the data are none of this env"):
        quick(other, 10, env=env)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:no reward was seen")
def test_refused_buffers_and_settings():
    blank = Buffer((LENGTH,), np.dtype(np.float32), 4)
    with pytest.raises(ConfigurationError, match="the buffer is empty"):
        quick(blank)
    with pytest.raises(ConfigurationError, match="the buffer was collected on another environment"):
        quick(walked(), env=corridor("state").make_env())
    with pytest.raises(ConfigurationError, match="choose one of cql, ddpg"):
        train_offline(walked(), corridor().make_env(), algorithm="sac")


ROOMS = "rover/MultiRooms-v0"
# What the paper's tables read for a goal at distance d: −(d − 1).
BEST_RETURNS = {
    "rover/TwoRooms-v0": {"room1": -11.0, "room2": -17.0, "room2-door": -13.0},
    ROOMS: {f"room{number}": -1.0 - 5.0 * number for number in range(1, 6)},
    "rover/Maze-v0": {"marked": -36.0, "centre": -20.0, "east": -11.0, "north": -18.0},
}


def best_of(env: gym.Env) -> tuple[float | None, bool]:
    return best_return(env, finite_dynamics(env))


def test_best_returns_of_all_named_goals_are_those_of_shortest_paths():
    found = {
        env_id: {goal: best_of(Task.make(env_id, goal=goal).make_env())[0] for goal in goals}
        for env_id, goals in GOALS.items()
    }
    assert found == BEST_RETURNS


def test_best_return_with_slips_is_the_value_of_the_best_policy():
    """Two free cells beside each other: every step succeeds with probability 1 − 3s/4."""
    slip, horizon = 0.4, 50
    env = make_env(
        "rover/Grid-v0", {"layout": "S.", "goal": (1, 0), "slip": slip, "horizon": horizon}
    )
    success = 1.0 - slip + slip / 4.0
    expected = sum(-((1.0 - success) ** k) for k in range(1, horizon + 1))
    assert best_of(env)[0] == pytest.approx(expected, rel=1e-12)


def test_the_best_return_is_known_where_dynamics_and_rewards_are():
    task = Task.make("rover/Grid-v0", {"layout": "S...."}, goal="4,0", reward="dense")
    assert best_of(task.make_env())[0] == -(3 + 2 + 1)
    assert best_of(gym.make("FrozenLake-v1"))[0] == pytest.approx(0.744, abs=1e-3)
    scaled = gym.wrappers.TransformReward(task.make_env(), lambda reward: 2.0 * float(reward))
    for env in (make_env("rover/TwoRooms-v0"), gym.make("CartPole-v1"), scaled):
        assert best_of(env)[0] is None


def test_where_one_episode_is_exact():
    exact = corridor().make_env()
    assert best_of(exact)[1]
    for env in (
        make_env("rover/Corridor-v0", {"goal": (0, 0), "slip": 0.1}),
        make_env("rover/Corridor-v0", {"goal": (0, 0), "start": "random"}),
        make_env("CartPole-v1"),
        gym.wrappers.StickyAction(exact, 0.5),
    ):
        assert not best_of(env)[1]


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
