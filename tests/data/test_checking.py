"""The checker of environments: its advice can be pasted, and what it lets pass, agents take."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rover
from rover.data import Buffer, Collector
from rover.envs import Spaces
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning, UnsupportedSpaceError


class Sampled(gym.Env[Any, Any]):
    """Observations and actions of any spaces, drawn from the first one; ten steps an episode."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions
        self.n_steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.n_steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.n_steps += 1
        return self.observation_space.sample(), 0.0, False, self.n_steps == 10, {}


class Mission(spaces.Space[str]):
    """Text of MiniGrid's kind: it does not say that it cannot be flattened, it raises."""

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        return "go"

    def __repr__(self) -> str:  # in the name of a test, which no address may be
        return "Mission()"


PIXELS = spaces.Box(0, 255, (20, 16, 3), np.uint8)
OBSERVATIONS: list[spaces.Space[Any]] = [
    spaces.Dict({"direction": spaces.Discrete(4), "image": PIXELS, "mission": Mission()}),
    spaces.Dict({"mission": spaces.Sequence(spaces.Discrete(2)), "place": spaces.Box(-1, 1, (2,))}),
    spaces.Dict({"left": PIXELS, "right": PIXELS}),  # two images
    spaces.Text(5),
]
LARGE = spaces.Dict({f"{k}": spaces.Sequence(spaces.Box(0, 1, (k + 1,))) for k in range(600)})
ACTIONS: list[spaces.Space[Any]] = [
    spaces.Box(-np.inf, np.inf, (2,)),
]


@pytest.mark.parametrize(
    ("observations", "actions", "words"),
    [
        (spaces.Discrete(3), spaces.Discrete(10**9), "choose among at most 65536 actions"),
        (spaces.Box(-1, 1, (0,)), spaces.Discrete(3), r"Box.*\(0,\).* not supported"),
        (object(), spaces.Discrete(3), r"give one of gymnasium\.spaces"),
        (spaces.Discrete(3), spaces.Box(0, 2, (6, 6)), "of up to 32 bounded numbers"),
        (LARGE, spaces.Discrete(3), r"^.{150,400}$"),  # a space that prints as hundreds of lines
    ],
)
def test_spaces_that_no_line_makes_usable_are_named(observations, actions, words):
    with pytest.raises(UnsupportedSpaceError, match=words):
        Spaces.of(Sampled(observations, actions))


@pytest.mark.parametrize(
    ("observations", "actions"),
    [(space, spaces.Discrete(2)) for space in OBSERVATIONS]
    + [(spaces.Discrete(3), space) for space in ACTIONS],
    ids=str,
)
def test_the_line_that_a_refusal_gives_works(observations, actions):
    env = Sampled(observations, actions)
    with pytest.raises(UnsupportedSpaceError) as caught:
        rover.check_env(env)
    line = str(caught.value).rpartition(" with ")[2]
    names = {"env": env, "numpy": np, "gymnasium": gym, "rover": __import__("rover.wrappers")}
    wrapped = eval(line, names)
    rover.check_env(wrapped, n_steps=200)
    rover.Rover(wrapped, seed=0)


class Returns(Sampled):
    """Two numbers; from the third step on `observation` and `reward`."""

    def __init__(self, observation: Any, reward: Any = 0.0, *, dtype: Any = np.float32) -> None:
        super().__init__(spaces.Box(0, 1, (2,), dtype), spaces.Discrete(2))
        self.given = observation, reward

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, *others = super().step(action)
        return (*(self.given if self.n_steps > 2 else (observation, reward)), *others)


@pytest.mark.parametrize(
    ("env", "error", "words"),
    [
        (Returns([0.5, np.nan]), NonFiniteError, "step 3 of episode 0: .*NaN"),
        (Returns([0.5, 1e300]), NonFiniteError, "step 3 of episode 0: .*infinity"),
        (Returns(np.zeros(1)), ConfigurationError, r"shape \(1,\).*correct one of them"),
        (Returns([0.5, 0.5], np.inf), NonFiniteError, "reward 'inf', which is no finite number"),
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


@pytest.mark.filterwarnings("ignore:Gymnasium.s checker")
def test_bounds_and_seeds_that_do_not_hold_are_warned_of():
    class Outside(Returns):
        def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
            super().reset(**options)
            return np.array([0.0, 7.0], np.float32), {}

    with pytest.warns(RoverWarning, match=r"reset\(\)` is not within the observation space"):
        rover.check_env(Outside([0.0, 0.0]))

    class Unseeded(Returns):
        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            _, *others = super().step(action)
            return (np.random.default_rng().uniform(0, 1, 2), *others)

    with pytest.warns(RoverWarning, match=r"gave something else: .*self\.np_random"):
        rover.check_env(Unseeded([0.0, 0.0]))
