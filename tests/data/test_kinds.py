"""Environments that return or say something else than what happened, and arrays of others."""

import contextlib
import copy
import itertools
import re
import warnings
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from small_envs import Small, number_maps

import rover
from rover.data import Buffer, Collector
from rover.data.kinds import kinds_of
from rover.envs import Spaces
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning


class Row(Small):
    """A row of 12 places, walked left and right, as a vector; a subclass changes one thing.

    Begins at place 2 or 3, by the seed. Truncated after `limit` steps.
    """

    action_space = spaces.Discrete(2)
    observation_space: spaces.Space[Any] = spaces.Box(0, 11, (2,), np.float32)
    limit = 30

    def begin(self) -> None:
        self.place = 2 + int(self.np_random.integers(2))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.place = min(max(self.place + 2 * int(action) - 1, 0), 11)
        self.age += 1
        return self.look(), 0.0, *self.flags(), {}

    def look(self) -> Any:
        return np.array([self.place, 0], np.float32)

    def flags(self) -> tuple[bool, bool]:
        return False, self.age == self.limit


def a(base: type[Row], **changed: Any) -> type[Row]:
    """A kind: a subclass with other methods or attributes."""
    return type("A" + base.__name__, (base,), changed)


def stepping(base: type[Row], action: Any) -> type[Row]:
    """A kind that takes another action than it is given, a function of itself and that."""
    return a(base, step=lambda self, given: base.step(self, action(self, given)))


def picture(env: Row) -> Any:
    image = np.zeros((12, 12, 3), np.uint8)
    image[env.place] = 200
    return image


def old_reset(env: Row, **options: Any) -> tuple[Any, dict[str, Any]]:
    before = env.look() if hasattr(env, "place") else None
    now, info = Row.reset(env, **options)
    return now if before is None else before, info


def turning(env: Row, action: Any) -> Any:
    env.place += (0.3 + 0.1 * env.np_random.random()) * (2 * int(action) - 1)
    env.age += 1
    return env.look(), 0.0, *env.flags(), {}


def unseeded_reset(env: Row, *, seed: int | None = None, **options: Any) -> Any:
    ignored_reset(env)
    env.place = int(np.random.default_rng(seed).integers(12)) if seed else env.place
    return env.look(), {}


def ignored_reset(env: Row, **_: Any) -> Any:
    Row.reset(env)
    env.place = next(COUNT) % 12
    return env.look(), {}


def end_of_transition(env: Row, action: Any) -> Any:
    """Walking against the wall ends, and arriving there does not."""
    is_end = env.place == 0 and int(action) == 0
    observation, reward, _, truncated, info = Row.step(env, action)
    return observation, reward, is_end, truncated, info


ARRAY, COUNT = np.zeros(2, np.float32), itertools.count()


def in_one_buffer(env: Row) -> Any:
    ARRAY[0] = env.place
    return ARRAY


def fine(env: Row, *widths: float) -> Any:
    """Places that never come back."""
    return np.array([env.place, 0] + np.array(widths) * env.np_random.random(2), np.float32)


class Resets(Row):
    """Resets itself; places are 0 to 11, far from the first at an end."""

    limit, name = 40, ""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        # Walks right more often, so that ends are far from where episodes begin.
        observation, *others, info = super().step(1 if self.age % 2 else action)
        if others[2]:
            last, (observation, _) = observation, self.reset()
            info = {self.name: last} if self.name else {}
        return observation, *others, info


Pictures = a(Row, observation_space=spaces.Box(0, 255, (12, 12, 3), np.uint8), look=picture)
Clock = a(Row, flags=lambda self: (self.age == self.limit, False))
HalfSeeded = stepping(
    a(Row, limit=60),
    lambda self, given: given if self.age < 20 else np.random.default_rng().integers(2),
)
# A wall is drawn when it is made.
Drawn = stepping(
    a(Row, __init__=lambda self: setattr(self, "wall", 5 + next(COUNT) % 4)),
    lambda self, given: given if self.place < self.wall else 0,
)
Black = a(Pictures, look=lambda self: picture(self) * (self.age < self.limit))
Rounded = a(
    Row,
    observation_space=spaces.Box(0, 1.1, (2,), np.float64),
    look=lambda self: np.array([self.place / 10 + 4e-16 * (self.place == 11), 0.0]),
)
Counted = a(
    Row,
    observation_space=spaces.Dict({"bottles": spaces.MultiBinary(3), "at": spaces.Discrete(12)}),
    look=lambda self: {
        "bottles": np.array([0, 1, 2 * (self.place > 3)], np.int8),
        "at": self.place,
    },
)
Narrow = a(Row, observation_space=spaces.Box(0, 9, (2,), np.float32))
OUTSIDE = r"observations are outside their space: .* (10|11)\.0"
BOTH = "both flags at once: .* return "
KINDS = [
    (Clock, "a time limit says 'terminated'"),
    (a(Clock, look=lambda self: fine(self, 0.0, 10.0)), "a time limit says 'terminated'"),
    (a(Row, flags=lambda self: (self.age == 30,) * 2), f"{BOTH}truncated=True alone"),
    (a(Row, limit=200, flags=lambda self: (self.place == 0,) * 2), f"{BOTH}terminated=True alone"),
    (a(Row, step=end_of_transition), "ends belong to transitions"),
    (a(Pictures, reset=old_reset), "the first observation of an episode is old"),
    (Black, "the last observation of an episode is nothing"),
    (Resets, "the environment resets itself: .* that never happened"),
    (a(Resets, look=lambda self: fine(self, 0.1, 0.0)), "the environment resets itself: .* never"),
    (Narrow, OUTSIDE),
    (a(Narrow, limit=10**6), OUTSIDE),  # in a single episode, too
    (
        a(
            Row,
            observation_space=spaces.Box(0, 99, (2,), np.float32),
            look=lambda self: np.array([self.place, self.age], np.float32),
        ),
        "a number only grows: 1 of the observation changed in 100%",
    ),
    (
        a(
            Row,
            observation_space=spaces.Box(-9, 9, (2,), np.float32),
            step=turning,
            look=lambda self: np.array([(self.place + 3.0) % 6.0, 0.1 * self.place], np.float32),
        ),
        r"a number wraps around: 0 of the observation jumped by its whole range in \d+ steps",
    ),
]
KINDS += [
    (HalfSeeded, r"the seed does not repeat step [2-6]\d of episode 0"),
    (Drawn, "drawn when it is made"),
    (a(Row, look=in_one_buffer), "one buffer for ever"),
    (a(Resets, name="final_obs"), "the true one is taken from info"),
]
# Runs take no seed of 0, and rounding harms none.
AT_THE_DOOR = [
    (a(Row, reset=unseeded_reset), r"reset\(seed=0\) begins elsewhere"),
    (Rounded, r"\[0\] is 1\.1000000000000005, outside 0\.0 to 1\.1"),
]


def warnings_of(check: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check()
    return [str(one.message) for one in caught if one.category is RoverWarning]


@pytest.mark.parametrize(("kind", "words"), [*KINDS, *AT_THE_DOOR])
def test_the_checker_names_the_kind(kind, words):
    said = warnings_of(lambda: rover.check_env(kind, n_steps=1000))
    matching = [one for one in said if re.search(words, one)]
    assert len(matching) == 1, said


# A ray that is cut at one place, nearly a flag, which is no angle.
Ray = a(
    Row,
    observation_space=spaces.Box(0, 12, (2,), np.float32),
    look=lambda self: fine(self, 0.1, 0.1) + np.float32([0, 0.1 if self.place == 5 else 1]),
)

# A sonar that sees nothing at the first place alone, and says 0 there.
Sonar = a(
    Row,
    observation_space=spaces.Box(0, 13, (2,), np.float32),
    look=lambda self: (
        fine(self, 0.1, 0.1) * [1, self.place > 0] + [0, 12 - self.place if self.place else 0]
    ).astype(np.float32),
)


@pytest.mark.parametrize(
    "env",
    [Row, Ray, Sonar, Pictures, "FrozenLake-v1", "CliffWalking-v1", "CartPole-v1", "Blackjack-v1"],
)
def test_nothing_is_said_of_sound_environments(env):
    rover.check_env(env)


def test_what_falls_more_and_more_surely_has_no_clock():
    lengths = np.repeat([4, 5, 6, 7, 8, 9], [4, 11, 16, 12, 6, 4])  # InvertedDoublePendulum's
    ended = np.zeros(lengths.sum(), np.bool_)
    ended[lengths.cumsum() - 1] = True
    seen = np.random.default_rng(0).normal(size=(len(ended) + len(lengths), 3))
    taken = np.zeros(len(ended), np.int64)
    buffer = Buffer.from_arrays(seen, taken, None, ended, np.zeros_like(ended))
    assert kinds_of(buffer) == []


@pytest.mark.parametrize(("kind", "words"), KINDS)
def test_learning_names_the_kind_once(kind, words):
    agent = rover.make_agent("random", kind, seed=0, policy_every=400)
    for times in (1, 0):
        said = warnings_of(lambda: agent.learn(800))
        assert sum(bool(re.search(words, one)) for one in said) == times


@pytest.mark.parametrize("is_instance", [True, False])
def test_learning_names_what_the_seed_does_not_decide(is_instance, monkeypatch):
    """Where states and dynamics are known, too."""
    number_maps(monkeypatch, 0)
    lake = {"map_name": None, "is_slippery": False}
    given = HalfSeeded() if is_instance else "FrozenLake-v1"
    agent = rover.make_agent("random", given, env_kwargs={} if is_instance else lake, seed=0)
    (said,) = (one for one in warnings_of(lambda: agent.learn(800)) if "does not repeat" in one)
    assert ("drawn when it is made" in said) != is_instance


def test_a_seed_that_is_ignored_is_not_said_to_be_zero():
    said = warnings_of(lambda: rover.check_env(a(Row, reset=ignored_reset)))
    assert not any("seed=0" in one for one in said)
    assert any("reset(seed=...) does not decide all" in one for one in said)


def costly(env: Row, action: Any) -> Any:
    """Each step costs, and a hole at place 0 more; place 11 is where to go."""
    observation, _, _, truncated, info = Row.step(env, action)
    ended = {0: -1.0, 11: 1.0}.get(env.place, -0.1)
    return observation, ended, env.place in (0, 11), truncated, info


@pytest.mark.parametrize(("actions", "first"), [([0] * 12, False), ([0] * 4 + [1] * 20, True)])
def test_a_fall_is_no_arrival_at_a_reward(actions, first):
    env = a(Row, limit=200, step=costly)()
    collector = Collector(env, Buffer.of(Spaces.of(env)), seed=0)
    collector.start_episode()
    for action in actions:
        collector.step(action)
    rows = collector.buffer.observations.rows[collector.buffer.successors]
    reached = np.flatnonzero(rows[:, 0] == 11)
    assert collector.arrival.within(len(actions))[1] == (reached[0] + 1 if first else None)


@pytest.mark.filterwarnings("ignore:the environment resets itself")
@pytest.mark.parametrize("name", ["final_obs", "final_observation", "terminal_observation"])
def test_the_observation_of_an_end_is_the_true_one(name):
    agent = rover.make_agent(
        "random", a(Resets, name=name)(), seed=0, measure_share=0.0, policy_every=200
    )
    buffer = agent.learn(400).buffer
    rows = buffer.observations.rows
    assert np.abs(rows[buffer.successors] - rows[buffer.inputs]).max() == 1
    assert buffer.truncated.sum() == 10


@pytest.mark.filterwarnings("ignore")
def test_environments_are_not_copied(tmp_path):
    def copied(env: Row, *_: Any) -> Any:
        raise AssertionError("nobody copies an environment")

    env = a(Row, __deepcopy__=copied, __copy__=copied, __reduce_ex__=copied)()
    rover.check_env(env)
    agent = rover.Rover(env, seed=0, run_dir=tmp_path / "run", policy_every=50).learn(200)
    rover.solve(agent, reward=lambda x, a, y: y[:, 0])
    rover.Rover.resume(tmp_path / "run", env=env).learn(50)
    with pytest.raises(AssertionError):
        copy.deepcopy(env)


@pytest.mark.parametrize("chance", [0.0, 0.1])
def test_glued_episodes_are_named_and_cut(chance):
    """Of 30 walks to the right, in places that come back or not."""
    rng, seen, none = np.random.default_rng(0), [], np.zeros(6000, bool)
    taken = (rng.random((30, 200)) < 0.6).astype(int)
    for actions in taken:
        place = float(rng.integers(2))
        for action in actions:
            seen.append([place, chance * rng.random()])
            place = min(max(place + 2 * action - 1, 0), 60)
    arrays = [*seen, [place, 0.0]], taken.ravel(), None, none, none
    with pytest.warns(RoverWarning, match="episodes look glued together: .*episode_length=200"):
        glued = Buffer.from_arrays(*arrays)
    assert glued.n_episodes == 1
    with warnings.catch_warnings(action="error"):
        cut = Buffer.from_arrays(*arrays, episode_length=200)
    assert (cut.n_episodes, len(cut)) == (30, 6000 - 29)
    rows = cut.observations.rows
    assert np.abs(rows[cut.successors] - rows[cut.inputs])[:, 0].max() == 1
    assert cut.truncated.sum() == 30


def test_a_fall_back_to_the_start_is_not_glue():
    env = gym.make("CliffWalking-v1", is_slippery=True)
    agent = rover.make_agent("random", env, seed=0, policy_every=1000).learn(3000)
    made, nothing = agent.buffer, np.zeros(3000, bool)
    rows = made.observations.rows[[*made.inputs, made.successors[-1]]]
    with warnings.catch_warnings(action="error"):
        Buffer.from_arrays(rows, made.actions, None, nothing, nothing)


def test_arrays_are_transitions():
    seen, taken = np.array([3, 1, 2, 0, 1]), np.array([0, 1, 1])
    ends = np.array([False, True, False])
    buffer = Buffer.from_arrays(seen, taken, [0, 1, 2], ends, np.zeros(3, bool))
    rows = buffer.observations.rows
    assert rows[buffer.inputs].tolist() == [3, 1, 0]
    assert rows[buffer.successors].tolist() == [1, 2, 1]
    assert rows[buffer.episode_starts].tolist() == [3, 0]
    assert buffer.rewards.tolist() == [0, 1, 2]
    assert buffer.truncated.tolist() == [False, False, True]
    policy = rover.solve(buffer, reward=buffer.rewards)
    assert policy.n_actions == 2


NONE = np.zeros(2, bool)


@pytest.mark.parametrize(
    ("seen", "taken", "earned", "ended", "words"),
    [
        ([0, 1], [0, 1], None, NONE, "2 observations of 2 steps in 1 episodes"),
        ([0, 1, 2], [0], None, NONE, "1 actions and flags .* are no transitions"),
        ([0, 1, 2], [0, 1], None, [0, 1], "are no transitions: give actions and two arr"),
        ([[0.0], [np.nan], [1.0]], [0, 1], None, NONE, r"observation 1: .*\[0\] is nan"),
        ([0, 1, 2], [0, 1], [0, np.inf], NONE, "some are NaN or infinite"),
    ],
)
def test_arrays_that_are_no_transitions(seen, taken, earned, ended, words):
    with pytest.raises(rover.errors.RoverError, match=words):
        Buffer.from_arrays(np.array(seen), np.array(taken), earned, ended, NONE)


def test_what_is_outside_is_shown_and_not_the_beginning_of_a_dictionary():
    words = r"observation\['bottles'\]\[2\] is 2, outside 0 to 1; correct one"
    for door in (rover.check_env, lambda env: rover.Rover(env, seed=0).learn(200)):
        with pytest.raises(ConfigurationError, match=words):
            door(Counted())


class WrongTable(Row):
    """A row whose table says that places are three steps apart."""

    observation_space = spaces.Discrete(12)

    def __init__(self) -> None:
        self.initial_state_distrib = np.eye(12)[2:4].sum(axis=0) / 2
        self.P = {
            place: {a: [(1.0, (place + 2 * a - 1) % 12, 0.0, False)] for a in (0, 1)}
            for place in range(12)
        }

    def look(self) -> Any:
        return self.place


@pytest.mark.filterwarnings("ignore:.*too few")
def test_a_table_that_steps_contradict_is_dropped(tmp_path):
    with pytest.warns(RoverWarning, match="contradicts its own steps .*are not exact"):
        agent = rover.Rover(WrongTable(), seed=0, run_dir=tmp_path / "run").learn(300)
    assert agent.measures.evaluator is None
    assert agent.summary()["optimality_ratio"] is None
    with pytest.warns(RoverWarning, match="contradicts its own steps"):
        again = rover.Rover.resume(tmp_path / "run", env=WrongTable())
    assert again.measures.evaluator is None


@pytest.mark.parametrize(("n", "kept"), [(100, 100), (600, 256)])
@pytest.mark.parametrize("is_told", [True, False])
def test_continuous_actions_of_others_are_the_buffers_own(n, kept, is_told):
    rng = np.random.default_rng(0)
    taken = rng.uniform(-1.0, 1.0, size=(n, 2)).astype(np.float32)
    seen = rng.normal(size=(n + 1, 3)).astype(np.float32)
    env = SimpleNamespace(
        observation_space=gym.spaces.Box(-np.inf, np.inf, (3,), np.float32),
        action_space=gym.spaces.Box(-1.0, 1.0, (2,), np.float32),
    )
    none = np.zeros(n, bool)
    expected = pytest.warns(RoverWarning, match=r"600 different .* rounded to 256, which leaves")
    with expected if n > kept else contextlib.nullcontext():
        buffer = Buffer.from_arrays(seen, taken, None, none, none, env=env if is_told else None)
    assert buffer.n_actions == kept
    apart = np.abs(buffer.taken(buffer.actions) - taken).max()
    assert apart < 0.2 if n > kept else apart == 0.0


class Returns(Small):
    """Two numbers; from the third step on `observation` and `reward`; ten steps an episode."""

    action_space, limit = spaces.Discrete(2), 10

    def __init__(self, observation: Any, reward: Any = 0.0, *, dtype: Any = np.float32) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), dtype)
        self.observation, self.reward, self.age = observation, reward, 0

    def begin(self) -> None:
        pass

    def look(self) -> Any:
        return self.observation if self.age > 2 else np.zeros(2, self.observation_space.dtype)

    def move(self, action: Any) -> Any:
        return self.reward if self.age > 2 else 0.0, False


@pytest.mark.parametrize(
    ("env", "error", "words"),
    [
        (Returns([0.5, np.nan]), NonFiniteError, "step 3 of episode 0: .*NaN"),
        (Returns([0.5, 1e300]), NonFiniteError, "step 3 of episode 0: .*infinity"),
        (Returns(np.zeros(1)), ConfigurationError, r"shape \(1,\).*correct one of them"),
        (Returns([0.5, 0.5], np.inf), NonFiniteError, "'inf', which is not one finite number"),
        (Returns([0, 300], dtype=np.uint8), ConfigurationError, "which is not of"),
    ],
)
def test_what_an_environment_may_not_return(env, error, words):
    with pytest.raises(error, match=words):
        rover.check_env(env)


def test_observations_in_float64_become_those_of_the_space():
    env = Returns(np.array([0.1, 0.2]))
    before = set(vars(env))
    rover.check_env(env)
    assert set(vars(env)) - before <= {"_np_random", "_np_random_seed"}  # is not written on
    buffer = Buffer.of(Spaces.of(env))
    Collector(env, buffer, seed=0).start_episode()
    assert buffer.observations.rows.dtype == np.float32
