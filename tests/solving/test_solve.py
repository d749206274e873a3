"""Any reward at first sight, from agents, run folders and buffers."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_envs import Small, bytes_place
from walks import Walk, collected
from walled_points import ARENAS, WalledPoint, success

import rover
from rover.cli import main
from rover.data import Buffer, relabel
from rover.envs import GridWorld
from rover.envs.wrappers import FunctionReward
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, RoverWarning
from rover.evaluation import greedy_episodes
from rover.policies import ValuePolicy, load_policy
from rover.solving import PointGoal, goal_regret, goal_states, reward_regret
from rover.solving.tasks import reward_task
from rover.storage import read_run_config
from rover.training.agent import Agent

pytestmark = pytest.mark.filterwarnings("ignore:.*too few for a policy update")

MAP = "S...\n.#.#\n...."
SETTINGS: dict[str, Any] = {"policy_every": 100, "evaluation_episodes": 1, "mirror_steps": 5}


def pretrained(observation: str = "state", steps: int = 150, **options: Any) -> Agent[Any]:
    env = GridWorld(MAP, observation=observation, horizon=30)
    return rover.make_agent("rover", env, seed=0, **SETTINGS, **options).learn(steps)


@pytest.fixture(scope="module")
def agent():
    return pretrained()


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_every_goal_at_the_best_return(observation):
    agent = pretrained(observation)
    policy = rover.solve(agent, goals="all")
    found = goal_regret(policy, agent.env)
    assert policy.n_components == 10
    assert found.solved == 10
    np.testing.assert_allclose(found.returns, found.best)


def test_the_value_is_the_discounted_chance_of_arriving(agent):
    policy = rover.solve(agent, goal=(3, 2), discount=0.9)
    world = agent.env.unwrapped
    state = int(np.flatnonzero((world.layout.cells == (3, 2)).all(axis=1))[0])
    distance = world.layout.distances(state).astype(float)
    expected = np.where(distance > 0, 0.9 ** (distance - 1), policy.value(np.array([state])))
    np.testing.assert_allclose(policy.value(np.arange(10)), expected, rtol=1e-6)


def test_forms_of_one_reward_agree(agent):
    buffer, world = agent.buffer, agent.env.unwrapped
    goal = world.finite_mdp.observations[9]
    arrived = buffer.observations.rows[buffer.successors] == goal
    by_goal = rover.solve(agent, goal=goal)
    by_predicate = rover.solve(agent, goal=lambda seen: seen == goal)
    by_function = rover.solve(agent, lambda o, a, n: ((n == goal).astype(float), n == goal))
    by_array = rover.solve(agent, arrived.astype(float), discount=0.99)
    table = by_goal.probs(np.arange(10))
    np.testing.assert_array_equal(by_predicate.probs(np.arange(10)), table)
    np.testing.assert_array_equal(by_function.probs(np.arange(10)), table)
    before = np.arange(9)  # an array does not show where a task ends
    np.testing.assert_array_equal(by_array.probs(before), table[before])


def test_regret_where_episodes_end_elsewhere():
    """On slippery ice with holes: no goal has more than its best return."""
    lake = rover.make_agent("random", "FrozenLake-v1", seed=0).learn(3000)
    policy = rover.solve(lake, goals="all")
    found = goal_regret(policy, lake.env)
    np.testing.assert_array_equal(goal_states(policy, lake.env), [int(t) for t in policy.tasks])
    assert (found.returns <= found.best + 1e-9).all()
    assert found.best[policy.tasks.index("4")] == pytest.approx(-2.0)
    with pytest.raises(ConfigurationError, match="no single state"):
        goal_states(rover.solve(lake, goal=lambda seen: seen > 3), lake.env)


def test_an_environments_own_reward(agent):
    env = GridWorld(MAP, goal=(3, 2), horizon=30)
    policy = rover.solve(agent, env)
    found = reward_regret(policy, env)
    assert found.returns == pytest.approx(found.best)
    assert float(found.best[0]) == greedy_episodes(env, policy, seed=0, n_episodes=1)[0]


def test_a_reward_is_told_by_playing_the_run_again():
    class Bonus(gym.RewardWrapper[Any, Any]):
        def reward(self, reward: Any) -> float:
            return float(reward) + 1.0

    env = Bonus(gym.make("CartPole-v1"))
    agent = rover.make_agent("random", env, seed=3).learn(200)
    task = reward_task(agent.buffer, env, seed=3)
    np.testing.assert_array_equal(task.rewards, 2.0)  # one of each step, and the bonus
    np.testing.assert_array_equal(task.ends[:, 0], agent.buffer.terminated)
    moved = gym.wrappers.TransformObservation(env, lambda seen: seen + 1, env.observation_space)
    with pytest.raises(ConfigurationError, match="led elsewhere"):
        rover.solve(agent, moved)


def test_one_policy_for_many_goals(agent):
    policy = rover.solve(agent, goals=[(0, 2), (3, 0)])
    assert policy.tasks == ("0,2", "3,0")
    for k in range(2):
        alone = policy.single(k)
        np.testing.assert_array_equal(
            alone.tables(np.arange(10))[0], policy.tables(np.arange(10))[k]
        )
        assert alone.tasks == (policy.tasks[k],)


def _line(dtype: type) -> Buffer:
    """Three places on a line, of which action 0 leads to the next; nothing is tried at the last."""
    buffer = Buffer((2,), dtype, 3)
    rows = [buffer.observations.intern(np.array([2 * x, 0], dtype)) for x in range(3)]
    for x in (0, 1):
        for action in range(3):
            buffer.add(rows[x], action, rows[x + (action == 0)], False, False)
    return buffer


class _Gusts(Small):
    """A cart in gusts between two walls: −0.01 a step, and −10 at a wall, which ends."""

    observation_space, action_space = gym.spaces.Box(-9.0, 9.0, (2,)), gym.spaces.Discrete(3)
    limit = 100

    def begin(self) -> None:
        self.at = self.np_random.uniform(-0.3, 0.3), 0.0

    def move(self, action: Any) -> Any:
        speed = 0.9 * self.at[1] + 0.05 * (action - 1) + 0.03 * self.np_random.normal()
        self.at = self.at[0] + speed, speed
        crashes = bool(abs(self.at[0]) > 1.0)
        return -10.0 if crashes else -0.01, crashes

    def look(self) -> Any:
        return np.array(self.at, np.float32)


@pytest.mark.filterwarnings("ignore:the dynamics model leaves")
def test_doubt_is_no_worse_than_a_crash():
    policy = rover.solve(rover.make_agent("random", _Gusts(), seed=0).learn(1500), _Gusts())
    assert greedy_episodes(_Gusts(), policy, seed=0, n_episodes=20).mean() > -4.0


def test_what_was_never_seen_gets_every_action_alike_where_there_is_no_metric():
    policy = rover.solve(_line(np.uint8), goal=np.array([4, 0], np.uint8))
    far = np.array([[50, 3]], np.uint8)
    np.testing.assert_allclose(policy.probs(far), 1.0 / 3.0)
    assert policy.value(far)[0] == 0.0
    assert policy.probs(np.array([[2, 0]], np.uint8))[0, 0] == pytest.approx(1.0)


def test_an_unseen_vector_is_acted_on_as_the_nearest_that_were_seen(tmp_path):
    policy = rover.solve(_line(np.float32), goal=np.array([4.0, 0.0], np.float32))
    policy.save(tmp_path / "policy.safetensors")
    near, seen = np.array([[2.01, 0.0], [-50.0, 3.0]]), np.array([[2.0, 0.0]])
    for each in (policy, load_policy(tmp_path / "policy.safetensors")):
        assert isinstance(each, ValuePolicy)
        # A tenth of the actions is uniform where nothing was seen.
        np.testing.assert_allclose(each.probs(near)[:, 0], [1.0, 0.9 + 0.1 / 3.0])
        np.testing.assert_array_equal(each.value(near[:1]), each.value(seen))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:a law of motion misses")  # walls, which the plan knows of
@pytest.mark.parametrize("name", ARENAS)
def test_plans_hold_from_perturbed_starts(name):
    buffer = collected(ARENAS[name](), 8000, seed=3, rewards=True).buffer  # so many reach the goal
    policy = rover.solve(buffer, buffer.rewards)
    make = ARENAS[name]
    exact, *perturbed = (success(make(perturbation=by), policy) for by in (0.0, 0.01, 0.03))
    assert exact == 1.0
    assert min(perturbed) >= 0.8


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, "give one of"),
        ({"goal": "room7"}, "unknown goal 'room7'"),
        ({"goal": (1, 1)}, "no free cell"),
        ({"goal": [3, 2]}, r"\(3, 2\) for the cell, or np.array\(\[3, 2\]"),
        ({"goal": np.zeros((2, 2))}, "no observation of shape"),
        ({"goal": lambda seen: seen}, "must return bool"),
        ({"goals": "some"}, "'all', 'named' or several"),
        ({"goals": "named"}, "no named goals"),
        ({"reward": np.zeros(3)}, "not one number for each"),
        ({"reward": lambda o, a, n: np.zeros(len(a))}, "as good as any other"),
        ({"reward": GridWorld(MAP)}, "no goal"),
        ({"goal": (3, 2), "discount": 1.0}, "discount"),
    ],
)
def test_what_cannot_be_solved_is_one_line(agent, wanted, message):
    with pytest.raises(ConfigurationError, match=message) as caught:
        rover.solve(agent, **wanted)
    assert "\n" not in str(caught.value)


def test_rewards_that_are_not_finite(agent):
    bad = np.zeros(len(agent.buffer))
    bad[7] = np.nan
    with pytest.raises(NonFiniteError, match="transition 7"):
        rover.solve(agent, bad)
    with pytest.raises(NonFiniteError):
        rover.solve(agent, lambda o, a, n: np.full(len(a), np.inf))
    floats = rover.make_agent("random", "MountainCar-v0", seed=0).learn(60)
    with pytest.raises(NonFiniteError, match="goal must be finite"):
        rover.solve(floats, goal=np.array([np.nan, 0.0]))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"goal": (3, 2)}, "no transition arrives at the goal 3,2: collect more steps"),
        ({"goal": np.array([9, 8])}, "no transition arrives at the goal: collect"),
        ({"goal": lambda seen: seen > 7}, "no transition arrives at the goal <lambda>: collect"),
        ({"reward": GridWorld(MAP, goal=(3, 2))}, "the data never reached what the reward is for"),
    ],
)
def test_what_was_never_reached_cannot_be_planned_for(wanted, message):
    early = rover.make_agent("random", GridWorld(MAP, horizon=30), seed=0).learn(12)
    with pytest.raises(ConfigurationError, match=message):
        rover.solve(early, **wanted)


def test_sources_without_transitions(agent, tmp_path):
    agent.policy.save(tmp_path / "policy.safetensors")
    with pytest.raises(ConfigurationError, match="does not show where"):
        rover.solve(agent.policy, goal=(3, 2))
    with pytest.raises(ArtefactError):
        rover.solve(tmp_path, goal=(3, 2))
    with pytest.raises(ConfigurationError, match="empty"):
        rover.solve(Buffer((), np.int64, 2), goal=np.int64(0))
    with pytest.raises(ConfigurationError, match="no grid world"):
        rover.solve(agent.buffer, goal=(3, 2))


def test_functions_of_bytes_are_given_numbers_that_can_be_subtracted():
    """n − o of bytes is 255 where it should be −1: the plan would go down for a reward of up."""
    buffer = Buffer((1,), np.uint8, 2)
    rows = [buffer.observations.intern(np.array([x], np.uint8)) for x in range(6)]
    buffer.add_start(rows[0])
    for x in range(6):
        for action, reached in enumerate((max(x - 1, 0), min(x + 1, 5))):
            buffer.add(rows[x], action, rows[reached], False, True)
    seen = np.arange(6, dtype=np.uint8)[:, None]
    rise = rover.solve(buffer, lambda o, a, n: (n - o)[:, 0].astype(float) + (n[:, 0] == 5))
    np.testing.assert_allclose(rise.probs(seen)[:, 1], 1.0)
    near = rover.solve(buffer, goal=lambda seen: np.abs(seen[:, 0] - 4) < 2)
    assert near.value(seen)[2] == pytest.approx(1.0)
    task = relabel(buffer, lambda o, a, n: ((n - o)[:, 0].astype(float), n[:, 0] == 9))
    assert task.rewards.min() == -1.0
    env = FunctionReward(bytes_place(), lambda o, a, n: [float((n - o).min())])
    env.reset(seed=0)
    assert all(env.step(0)[1] >= -1.0 for _ in range(3))


GRID = "rover/TwoRooms-v0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs, each of which is too short to see the second room's end."""
    folder = tmp_path_factory.mktemp("runs")
    paths = [folder / f"seed{seed}" for seed in range(3)]
    with warnings.catch_warnings(action="ignore"):
        for seed, path in enumerate(paths):
            rover.make_agent("random", GRID, seed=seed, run_dir=path).learn(250 + seed)
    return paths


def test_the_transitions_of_several_buffers_are_one_after_the_other(runs):
    buffers = [Buffer.load(path / "buffer.safetensors") for path in runs]
    merged, first = Buffer.merged(buffers), 0
    for buffer in buffers:
        rows = slice(first, first + len(buffer))
        for name in ("inputs", "successors"):
            np.testing.assert_array_equal(
                merged.observations.rows[getattr(merged, name)[rows]],
                buffer.observations.rows[getattr(buffer, name)],
            )
        np.testing.assert_array_equal(merged.actions[rows], buffer.actions)
        np.testing.assert_array_equal(merged.terminated[rows], buffer.terminated)
        np.testing.assert_array_equal(merged.truncated[rows][:-1], buffer.truncated[:-1])
        assert merged.truncated[rows][-1] or merged.terminated[rows][-1]
        first += len(buffer)
    n_episodes = np.count_nonzero(merged.is_end)
    assert len(merged.episode_starts) == n_episodes
    assert len(merged.observations) == len(np.unique(merged.observations.rows))


def test_a_plan_on_several_runs_reaches_what_none_of_them_reaches_alone(runs):
    seen = [set(Buffer.load(path / "buffer.safetensors").observations.rows) for path in runs]
    together = rover.solve(runs, goals="all")
    every = Buffer.merged([Buffer.load(path / "buffer.safetensors") for path in runs])
    assert set(every.observations.rows) == set().union(*seen) > max(seen, key=len)
    assert len(together.tasks) > len(rover.solve(runs[0], goals="all").tasks)


def test_runs_of_different_environments_are_refused(runs):
    other = rover.make_agent("random", "rover/Maze-v0", seed=0).learn(20)
    with pytest.raises(ConfigurationError, match=r"different environments, .*TwoRooms.*Maze"):
        rover.solve([runs[0], other], goals="all")
    cart = rover.make_agent("random", "CartPole-v1", seed=0).learn(20)
    with pytest.raises(ConfigurationError, match=r"source 1 holds observations of shape \(4,\)"):
        rover.solve([Buffer.load(runs[0] / "buffer.safetensors"), cart.buffer], goals="all")
    with pytest.raises(ConfigurationError, match="at least one"):
        rover.solve([], goals="all")


def test_offline_learning_takes_several_runs(runs, tmp_path):
    words = ["finetune", "--offline", *map(str, runs), "--task", "goal=2,0", "--steps", "20"]
    with warnings.catch_warnings(action="ignore"):
        assert main([*words, "--run-dir", str(tmp_path / "learned")]) == 0
    assert read_run_config(tmp_path / "learned").source == ", ".join(map(str, runs))
    env = gym.make(GRID, goal=(2, 0))
    assert rover.load_policy(tmp_path / "learned" / "policy.safetensors").check_fits(env) is None


class NoisyWall(WalledPoint):
    """Steps that are disturbed beside the wall."""

    def moved(self, change):
        return super().moved(change + self.np_random.normal(0.0, 0.02, 2))


class MovingGoal(Small):
    """A row of 9 places; a reward, which is not shown, waits at either end in turn."""

    observation_space, action_space = gym.spaces.Discrete(9), gym.spaces.Discrete(2)
    limit = 60

    def begin(self):
        self.place, self.goal = 4, 8

    def look(self):
        return self.place

    def move(self, action):
        self.place = min(max(self.place + 2 * int(action) - 1, 0), 8)
        reward = float(self.place == self.goal)
        self.goal = 8 - self.goal if reward else self.goal
        return reward, False


def test_a_reward_that_moves_unseen_is_named_and_a_factory_spares_the_own_environment():
    agent, own = rover.Rover(MovingGoal, seed=0).learn(600), MovingGoal()
    with pytest.warns(RoverWarning, match="the reward was another than when the same was done"):
        rover.solve(agent, MovingGoal)
    assert not hasattr(own, "place")
    with pytest.warns(RoverWarning, match="the reward was another"):
        rover.solve(agent, own)
    assert own.age == 60  # in which all episodes were played again


@pytest.mark.parametrize("form", [PointGoal, np.array, lambda at: lambda seen: seen[:, 0] > at[0]])
def test_every_form_of_a_goal_says_that_motion_is_unexplained(form):
    buffer = collected(NoisyWall(perturbation=0.05), 1500).buffer
    goal = form([0.4, 0.5], [0, 1], 0.1) if form is PointGoal else form([0.4, 0.5])
    goal = goal.astype(np.float32) if isinstance(goal, np.ndarray) else goal
    with pytest.warns(RoverWarning, match="of the motion unexplained"):
        rover.solve(buffer, goal=goal)


def test_few_tries_of_a_pair_are_feared_where_a_ridge_says_so():
    """The better of two actions in either state was tried ten times, and a third cost much."""
    rng, walk = np.random.default_rng(0), Walk(Buffer((), np.int64, 3))
    actions = rng.permutation(np.repeat([0, 1, 2], [20, 200, 20]))
    walk.begin(np.int64(0))
    for number, action in enumerate(actions.tolist()):
        walk.step(action, np.int64(rng.integers(2)), False, number == len(actions) - 1)
    policy = rover.solve(walk.buffer, np.array([2.0, 1.0, -50.0])[actions])
    assert policy.probs(np.arange(2)).argmax(axis=1).tolist() == [0, 0]
    fearful = rover.solve(
        walk.buffer, np.array([2.0, 1.0, -50.0])[actions], sink_value=-1e4, ridge=0.02
    )
    assert fearful.probs(np.arange(2)).argmax(axis=1).tolist() == [1, 1]
