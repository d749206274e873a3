"""Every space that environments have: stored, explored, saved and acted in as it comes."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.spaces import flatten
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate
from hypothesis import given
from hypothesis import strategies as st
from small_envs import Place, Small
from walled_points import Arena

import rover
from rover.data import Buffer
from rover.envs import Spaces, StoredObservations, action_set
from rover.envs.spaces import StoredForm, described_space, description_of
from rover.envs.wrappers import FunctionReward
from rover.errors import ConfigurationError, NonFiniteError, UnsupportedSpaceError

GREY = spaces.Box(0, 255, (9, 12), np.uint8)
RGB = spaces.Box(0, 255, (9, 12, 3), np.uint8)
NUMBERS, TWO = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

# The space, and the shape and dtype that it is stored in.
OBSERVATIONS: list[tuple[spaces.Space[Any], tuple[int, ...], str]] = [
    (spaces.Discrete(9), (), "int64"),
    (spaces.Discrete(9, start=-4), (), "int64"),
    (spaces.Discrete(9, dtype=np.int32), (), "int64"),
    (spaces.MultiBinary((2, 3)), (6,), "int64"),
    (spaces.MultiDiscrete([[3, 4], [2, 2]], start=[[1, 0], [-1, 5]]), (11,), "int64"),
    (NUMBERS, (2,), "float32"),
    (spaces.Box(-1, 1, (2,), np.float64), (2,), "float64"),
    (spaces.Box(-1, 1, (2,), np.float16), (2,), "float32"),
    (spaces.Box(-np.inf, np.inf, ()), (1,), "float32"),
    (spaces.Box(-9, 9, (3,), np.int8), (3,), "int64"),
    (spaces.Box(0, 1, (3,), np.bool_), (3,), "int64"),
    (spaces.Box(0, 3, (4, 4), np.int32), (16,), "int64"),
    (spaces.Box(0, 1, (4, 4, 16), np.uint8), (256,), "uint8"),
    (spaces.Box(0, 2, (9, 9), np.uint8), (81,), "uint8"),
    (GREY, (9, 12, 1), "uint8"),
    (RGB, (9, 12, 3), "uint8"),
    (spaces.Box(0, 255, (3, 9, 12), np.uint8), (9, 12, 3), "uint8"),
    (spaces.Box(0, 1, (9, 12, 3)), (9, 12, 3), "uint8"),
    (spaces.Box(0, 1, (1, 9, 12), np.float64), (9, 12, 1), "uint8"),
    (spaces.Box(0, 255, (36, 40, 9), np.uint8), (36, 40, 9), "uint8"),
    (spaces.Box(0, 255, (2, 36, 40), np.uint8), (36, 40, 2), "uint8"),
    (spaces.Box(0, 255, (4, 48, 52, 3), np.uint8), (48, 52, 12), "uint8"),
    (spaces.Box(0, 255, (3, 3, 36, 40), np.uint8), (36, 40, 9), "uint8"),
    (spaces.Box(0, 1, (10, 10, 7)), (700,), "float32"),
    (spaces.Dict({"a": NUMBERS, "b": spaces.Discrete(3), "c": NUMBERS}), (7,), "float64"),
    (spaces.Tuple((spaces.Discrete(3, start=1), spaces.MultiBinary(2))), (5,), "int64"),
    (
        spaces.Dict({"in": spaces.Dict({"x": NUMBERS}), "t": spaces.Tuple((NUMBERS,))}),
        (4,),
        "float32",
    ),
]
ACTIONS: list[tuple[spaces.Space[Any], int]] = [
    (spaces.Discrete(3), 3),
    (spaces.Discrete(3, start=1), 3),
    (spaces.MultiDiscrete([[2, 3], [1, 2]]), 12),
    (spaces.MultiDiscrete([2, 3], start=[1, -1]), 6),
    (spaces.MultiBinary((2, 2)), 16),
    (spaces.Box(-1, 1, ()), 5),
    (spaces.Box(-1, 1, (2,)), 9),
    (spaces.Box(0, 1, (1, 3), np.float64), 8),
]


class Walk(Small):
    """Ten places in a row, each of which looks like an element of the space; actions move on."""

    limit = 20

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions
        self._looks: list[Any] = []

    def begin(self) -> None:
        self._set, self._place = action_set(self.action_space), 0
        if not self._looks:
            self.observation_space.seed(1)
            self._looks = [self.observation_space.sample() for _ in range(10)]

    def move(self, action: Any) -> Any:
        space = self.action_space
        assert space.contains(action)
        assert (action.dtype, action.shape) == (space.dtype, space.shape)
        which = np.sum(action)
        if self._set is not None:
            which = (self._set == action).reshape(len(self._set), -1).all(axis=1).argmax()
        self._place = (self._place + int(which)) % 10
        return float(self._place == 7), False

    def look(self) -> Any:
        return deepcopy(self._looks[self._place])


def batched(space: spaces.Space[Any], element: Any) -> Any:
    """An element as vector environments of one return it."""
    return concatenate(space, [element], create_empty_array(space, 1))


@pytest.mark.parametrize(("space", "shape", "dtype"), OBSERVATIONS, ids=lambda one: str(one)[:60])
def test_observations_are_stored_and_described(space, shape, dtype):
    form = StoredForm.of(space)
    stored, again = form.space, StoredForm.of(described_space(description_of(form.observed)))
    spaces_of = Spaces.of(Walk(space, spaces.Discrete(2)))
    assert (spaces_of.shape, str(spaces_of.dtype)) == (shape, dtype)
    space.seed(0)
    rows = []
    for _ in range(20):
        element = space.sample()
        row = spaces_of.read(element, "here")
        assert isinstance(stored, spaces.Discrete) or stored.contains(row)
        np.testing.assert_array_equal(again.row(element), row)
        rows.append((element, row))
    for element, row in rows:  # different elements stay different, but for an image's shades
        for other, its in rows:
            assert np.array_equal(row, its) == data_equivalence(element, other, exact=True)


STACK = spaces.Box(0, 255, (84, 84, 24), np.uint8)


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (TWO, spaces.Discrete(10**9)),
        (TWO, spaces.Box(0, 2, (6, 6))),
        (TWO, spaces.Box(-np.inf, np.inf, (2,))),
        (spaces.Box(-1, 1, (0,)), TWO),
        (spaces.Text(5), TWO),
        (spaces.Dict({"image": STACK, "goal": NUMBERS}), TWO),
        (spaces.Dict({"seen": RGB, "where": spaces.Tuple((NUMBERS,))}), TWO),
        (spaces.Dict({"seen": GREY, "mission": spaces.Sequence(TWO)}), TWO),
    ],
    ids=str,
)
def test_spaces_without_a_form_are_refused(observations, actions):
    with pytest.raises(UnsupportedSpaceError, match=r"space .* is not supported: wrap the env"):
        Spaces.of(Walk(observations, actions))


@pytest.mark.parametrize("colours_first", [False, True])
def test_frames_of_a_stack_become_channels_in_their_order(colours_first):
    frames = np.random.default_rng(0).integers(0, 256, (3, 36, 40, 3), np.uint8)
    stack = np.moveaxis(frames, 3, 1) if colours_first else frames
    image = StoredForm.of(spaces.Box(0, 255, stack.shape, np.uint8)).row(stack)
    for number, frame in enumerate(frames):
        np.testing.assert_array_equal(image[..., 3 * number : 3 * number + 3], frame)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", [one for one, *_ in OBSERVATIONS], ids=lambda one: str(one)[:60])
def test_agents_and_policies_take_what_environments_return(space, tmp_path):
    env = Walk(space, spaces.Discrete(3))
    how: dict[str, Any] = {"seed": 0, "measure_share": 0.0, "policy_every": 20}
    agent = rover.Rover(env, run_dir=tmp_path / "run", **how).learn(60)
    policy = rover.load_policy(tmp_path / "run/policy.safetensors")
    observation, _ = env.reset(seed=0)
    rng = np.random.default_rng(0)
    assert policy.act(observation, rng) in (0, 1, 2)
    action, _ = policy.predict(observation, deterministic=True)
    assert action in (0, 1, 2)
    probs = policy.probs(batched(space, observation))
    np.testing.assert_allclose(
        probs, agent.policy.tables(agent.buffer.observations.rows[:1]).mean(0)
    )
    rover.Rover.resume(tmp_path / "run", env=env).learn(20)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("space", "n_actions"), ACTIONS, ids=lambda one: str(one)[:60])
def test_actions_are_sent_as_their_space_has_them(space, n_actions, tmp_path):
    env = Walk(spaces.Discrete(10), space)
    env._looks = list(range(10))
    agent = rover.Rover(env, run_dir=tmp_path / "run", seed=0, measure_share=0.0).learn(150)
    assert agent.buffer.n_actions == n_actions
    policy, rng = rover.load_policy(tmp_path / "run/policy.safetensors"), np.random.default_rng(0)
    observation, _ = env.reset(seed=0)
    assert space.contains(policy.act(observation, rng))
    actions, _ = policy.predict(np.array([observation, observation]))
    assert all(space.contains(one) for one in actions)

    def reward(before, taken, reached):
        assert all(space.contains(one) for one in taken)
        return (reached == 7).astype(float)

    solved = rover.solve(tmp_path / "run", reward, env=env)
    assert space.contains(solved.act(observation, rng))


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.MultiDiscrete([3, 4]), np.array([3, 0])),
        (spaces.MultiBinary(2), np.array([0, 2])),
        (spaces.Discrete(3, start=1), 0),
        (spaces.Dict({"a": NUMBERS}), {"b": np.zeros(2)}),
        (spaces.Tuple((NUMBERS, NUMBERS)), (np.zeros(2),)),
        (spaces.Dict({"a": NUMBERS}), np.zeros(2)),
        (GREY, np.zeros((9, 11), np.uint8)),
        (spaces.Dict({"a": NUMBERS}), {"a": np.array([0.0, np.nan], np.float32)}),
    ],
    ids=lambda one: str(one)[:40],
)
def test_what_is_not_of_the_space_is_named(space, wrong):
    words = r"here: .* (not of its observation space|NaN)"
    with pytest.raises((ConfigurationError, NonFiniteError), match=words):
        Spaces.of(Walk(space, spaces.Discrete(2))).read(wrong, "here")


def test_others_see_what_a_policy_sees():
    env = StoredObservations(
        Walk(spaces.Dict({"a": NUMBERS, "b": spaces.Discrete(3)}), spaces.Discrete(2))
    )
    seen, _ = env.reset(seed=0)
    assert env.observation_space.contains(seen)
    rover.check_env(env)


def test_goals_are_given_as_the_environment_returns_them():
    space = spaces.Dict({"on": spaces.MultiBinary(3), "at": spaces.Discrete(4)})
    env = Walk(space, spaces.Discrete(3))
    agent = rover.Rover(env, seed=0, measure_share=0.0).learn(200)
    policy = rover.solve(agent, goals=[env._looks[7]])
    observation, _ = env.reset(seed=0)
    for _ in range(20):
        observation, reward, *_ = env.step(policy.predict(observation, deterministic=True)[0])
        if reward:
            return
    raise AssertionError("the goal was not reached")


@pytest.mark.filterwarnings("ignore:.*outcomes depend on earlier")  # two places look alike
@pytest.mark.parametrize("space", [one for one, *_ in OBSERVATIONS[-3:]], ids=lambda s: str(s)[:40])
def test_functions_get_observations_as_they_are_of_nested_spaces(space, tmp_path):
    env, given = Walk(space, spaces.Discrete(3)), []
    agent = rover.Rover(env, seed=0, measure_share=0.0).learn(200)
    agent.buffer.save(tmp_path / "buffer.safetensors")
    expected = [gym.spaces.flatten(space, look) for look in env._looks]

    def rows_of(observations):
        given.append(observations)
        return np.array(
            [flatten(space, one) for one in iterate(batch_space(space, 1), observations)]
        )

    def is_seventh(observations):
        return (rows_of(observations) == expected[7]).all(axis=1)

    def reward(observations, actions, reached):
        return is_seventh(reached).astype(float)

    for source in (agent, Buffer.load(tmp_path / "buffer.safetensors")):
        by_goal = rover.solve(source, goal=is_seventh)
        by_reward = rover.solve(source, reward=reward)
        assert by_goal.n_actions == by_reward.n_actions == 3
    assert {type(one) for one in given} <= {dict, tuple}
    targeted = {"target": lambda seen: is_seventh(seen) + 0.1, "measure_share": 0.0}
    rover.Rover(env, seed=0, **targeted).learn(60)
    cover = {"cover": lambda seen: rows_of(seen)[:, :2], "measure_share": 0.0}
    rover.Rover(env, seed=0, **cover).learn(60)
    task = FunctionReward(env, reward)
    task.reset(seed=0)
    assert task.step(np.int64(1))[1] in (0.0, 1.0)


def test_small_numbers_are_explored_alike_however_they_are_spelled():
    n = 5
    boxes = spaces.Dict(a=spaces.Box(0, n - 1, (2,), np.int32), b=spaces.Box(0, 1, (1,), np.int64))
    parts = spaces.Dict(a=spaces.MultiDiscrete([n, n]), b=spaces.Discrete(2))
    spelled = [
        (spaces.MultiDiscrete([n, n, 2]), lambda x, y, k: np.array([x, y, k])),
        (boxes, lambda x, y, k: {"a": np.array([x, y]), "b": np.array([k])}),
        (parts, lambda x, y, k: {"a": np.array([x, y]), "b": np.int64(k)}),
        (spaces.Tuple(parts.values()), lambda x, y, k: (np.array([x, y]), np.int64(k))),
    ]
    seen = []
    for space, look in spelled:
        env = Place(space, lambda x, y, look=look: look(x, y, x % 2))
        agent = rover.Rover(env, seed=0, measure_share=0.0).learn(150)
        policy = agent.policy.probs(batched(env.observation_space, env.look_at(1, 2)))
        seen.append((agent.buffer.actions, agent.buffer.observations.rows, policy))
    for others in seen[1:]:
        for one, other in zip(seen[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


class Cart(Arena):
    """Notes what moves it."""

    action_space = spaces.Box(-1.0, np.float32([1.0, 0.5]), (2,), np.float32)

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[np.ndarray] = []

    def move(self, action):
        assert self.action_space.contains(action)
        self.taken.append(action)
        return super().move(action)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    env = Cart()
    folder = tmp_path_factory.mktemp("runs") / "cart"
    agent = rover.Rover(env, seed=1, run_dir=folder, measure_share=0.0).learn(300)
    return env, agent, folder


@given(
    size=st.integers(1, 8),
    low=st.floats(-4.0, 0.0, width=32),
    width=st.floats(0.125, 4.0, width=32),
)
def test_a_set_holds_the_extremes_of_every_number_and_repeats_nothing(size, low, width):
    space = spaces.Box(low, np.float32(low + width), (size,), np.float32)
    actions = action_set(space)
    assert all(space.contains(action) for action in actions)
    assert len(np.unique(actions, axis=0)) == len(actions) <= 32
    assert np.array_equal(actions.min(axis=0), space.low)
    assert np.array_equal(actions.max(axis=0), space.high)
    assert np.array_equal(actions, action_set(spaces.Box(low, np.float32(low + width), (size,))))


@pytest.mark.parametrize("size", [9, 12, 32])
def test_many_numbers_are_moved_alone_and_together(size):
    space = spaces.Box(-1.0, 2.0, (size,), np.float32)
    actions = action_set(space)
    assert len(actions) == max(32, 1 + 3 * size)
    assert ((actions != 0.0).sum(axis=1)[: 1 + 2 * size] == [0] + [1] * 2 * size).all()
    assert np.isin(actions[1 + 2 * size :], [-1.0, 2.0]).all()
    assert np.array_equal(actions, action_set(space))


def test_whole_numbers_and_too_many_numbers_have_no_set():
    assert action_set(spaces.Discrete(3)) is action_set(spaces.Box(0, 5, (2,), np.int64)) is None
    assert action_set(spaces.Box(-1.0, 1.0, (33,))) is None


def test_the_environment_is_told_numbers_and_the_buffer_keeps_which(run):
    env, agent, _ = run
    taken, of_buffer = np.array(env.taken), agent.buffer.taken(agent.buffer.actions)
    assert np.array_equal(taken[-300:], of_buffer)
    assert Spaces.of(env).n_actions == agent.buffer.n_actions == 9
    assert np.array_equal(agent.buffer.controls.max(axis=0), [1.0, 0.5])


@pytest.mark.filterwarnings("ignore:the dynamics model leaves")  # after few steps
def test_a_policy_acts_in_the_environments_own_space_wherever_it_comes_from(run, tmp_path):
    env, agent, folder = run
    observation, rng = env.reset(seed=0)[0], np.random.default_rng(0)
    solved = rover.solve(agent, goal=lambda rows: rows[:, 0] > 0.9)
    by_buffer = rover.solve(folder, goal=lambda rows: rows[:, 0] > 0.9)
    agent.policy.save(tmp_path / "policy.safetensors")
    for policy in (agent.policy, rover.load_policy(tmp_path / "policy.safetensors"), solved):
        assert env.action_space.contains(policy.act(observation, rng))
        policy.check_fits(env)
    assert np.array_equal(solved.action_set, by_buffer.action_set)
    assert repr(agent.policy).endswith(
        "Policy(9 actions, observations (2,), agent='rover', seed=1)"
    )
    for _ in range(60):
        observation = env.step(solved.act(observation, rng))[0]
    assert observation[0] > 0.85  # and the planned torques lead there
    other = Cart()
    other.action_space = spaces.Box(-2.0, 2.0, (2,), np.float32)
    with pytest.raises(ConfigurationError, match="make it with"):
        agent.policy.check_fits(other)
