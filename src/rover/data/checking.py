"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check
from gymnasium.utils.env_checker import data_equivalence

from rover.data.buffer import Buffer
from rover.data.kinds import kinds_of
from rover.data.rollout import LAST_OBSERVATIONS, Collector, RunningEpisode, differences
from rover.envs import Environment, GivenEnv, Spaces
from rover.envs.spaces import misfit
from rover.errors import warn

UNSEEDED = (
    "reset(seed=...) does not decide all: draw random numbers from self.np_random, after "
    "super().reset(seed=seed), and not from numpy.random"
)
_ZERO_SEED = "reset(seed=0) begins elsewhere each time: compare the seed with None, not with False"
DRAWN_WHEN_MADE = (
    "another instance is another environment, since something is drawn when it is made: draw it "
    "in reset(), or give it as an argument"
)


def check_env(
    env: GivenEnv, *, env_kwargs: Mapping[str, Any] | None = None, n_steps: int = 500, seed: int = 0
) -> None:
    """Check that an agent can work with an environment, by its spaces and some random steps.

    The same steps are taken twice from one seed, and must return the same; in another instance,
    too, where an id or a function makes one. Gymnasium's checker is asked, too. The environment is
    left in the middle of an episode.

    Args:
        env: the environment: its id, a function that makes it, or an instance.
        env_kwargs: keyword arguments of an id.
        n_steps: steps to take, over as many episodes as that takes, ≥ 1.
        seed: of the resets and the actions.

    Raises:
        UnsupportedSpaceError: spaces that no agent can work with; the message says how to wrap it.
        ConfigurationError: no single environment, another interface than Gymnasium's, or an
            observation that is not of its space.
        NonFiniteError: NaN or infinity in an observation, or a reward that is no finite number.

    Warns:
        RoverWarning: what Gymnasium's checker does not let pass, steps that the seed does not
            repeat, and each kind of ``rover.data.kinds``.

    Example:
        >>> check_env("MountainCar-v0")
    """
    environment = Environment.of(env, env_kwargs)
    made, other = environment.env, environment.another()
    seen, rng = _Witness(made), np.random.default_rng(seed)
    buffer = Buffer.of(Spaces.of(seen), rewards=True)
    collector = Collector(seen, buffer, seed=seed)
    collector.start_episode()
    for _ in range(n_steps):
        collector.step(int(rng.integers(buffer.n_actions)))
    found = [*kinds_of(buffer), *seen.found.values()]
    faults = []
    first, _, again = (RunningEpisode(made, seed=one).observation for one in (0, 1, 0))
    if not np.array_equal(first, again):
        faults.append(_ZERO_SEED)
    faults += not_repeated(buffer, made, UNSEEDED, seed=seed)
    if other is not None and not faults:
        faults = not_repeated(buffer, other, DRAWN_WHEN_MADE, seed=seed)
    found += faults
    try:
        with warnings.catch_warnings(action="ignore"):
            gymnasium_check(made, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # of whatever it asserts, or what the environment raises
        found.append(f"Gymnasium's checker of environments: {error}")
    for message in found:
        warn(message, stacklevel=2)


class _Witness(gym.Wrapper[Any, Any, Any, Any]):
    """An environment whose returned objects are looked at, which a buffer does not hold."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self._last: Any = None
        self._copy: Any = None
        self.found: dict[str, str] = {}

    @property
    def unwrapped(self) -> gym.Env[Any, Any]:
        """Itself, so that nothing is written on the environment."""
        return self

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(**options)
        self._look_at(observation)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._look_at(observation)
        is_over = terminated or truncated
        if is_over and any(info.get(name) is not None for name in LAST_OBSERVATIONS):
            self.found["resets"] = (
                "the environment resets itself, and returns the next start as the observation of "
                "an end; the true one is taken from info"
            )
        return observation, reward, terminated, truncated, info

    def _look_at(self, observation: Any) -> None:
        if observation is self._last and not data_equivalence(observation, self._copy, exact=True):
            self.found["buffer"] = (
                "observations are one buffer for ever, which each step overwrites: return "
                "copies (ROVER makes its own)"
            )
        self._last, self._copy = observation, deepcopy(observation)
        if "outside" not in self.found and (words := misfit(observation, self.observation_space)):
            self.found["outside"] = f"observations are outside their space: {words}"


def not_repeated(
    buffer: Buffer, env: gym.Env[Any, Any], reason: str, *, seed: int, most: int = 500
) -> list[str]:
    """A message with the reason that names a step of a run of a seed, played again for `most`
    steps, that comes out otherwise; none: there is no such step."""
    found = differences(env, buffer, seed=seed, most=most)
    return [
        f"the seed does not repeat step {step} of episode {episode}: {reason}. Runs cannot be "
        "resumed or evaluated otherwise"
        for episode, (step, _, is_close) in found
        if not is_close
    ][:1]
