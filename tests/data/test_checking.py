"""The checker of environments: what they may not return, and what it warns of."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rover
from rover.data import Buffer, Collector
from rover.envs import Spaces
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning


class Returns(gym.Env[Any, Any]):
    """Two numbers; from the third step on `observation` and `reward`; ten steps an episode."""

    action_space = spaces.Discrete(2)

    def __init__(self, observation: Any, reward: Any = 0.0, *, dtype: Any = np.float32) -> None:
        self.observation_space = spaces.Box(0, 1, (2,), dtype)
        self.given, self.n_steps = (observation, reward), 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.n_steps = 0
        return np.zeros(2, self.observation_space.dtype), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.n_steps += 1
        usual = np.zeros(2, self.observation_space.dtype), 0.0
        given = self.given if self.n_steps > 2 else usual
        return *given, False, self.n_steps == 10, {}


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

    with pytest.warns(RoverWarning, match=r"observation\[1\] is 7\.0, outside 0\.0 to 1\.0"):
        rover.check_env(Outside([0.0, 0.0]))

    class Unseeded(Returns):
        def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
            _, *others = super().step(action)
            return (np.random.default_rng().uniform(0, 1, 2), *others)

    with pytest.warns(RoverWarning, match=r"does not repeat step . of .*self\.np_random"):
        rover.check_env(Unseeded([0.0, 0.0]))
