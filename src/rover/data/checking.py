"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from rover.data.buffer import Buffer
from rover.data.kinds import OUTSIDE
from rover.data.rollout import Collector, RunningEpisode, not_repeated
from rover.envs import Environment, GivenEnv, Spaces
from rover.envs.spaces import misfit
from rover.errors import warn

UNSEEDED = (
    "reset(seed=...) does not decide all: draw random numbers from self.np_random, after "
    "super().reset(seed=seed), and let nothing of the episode before remain"
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
        NonFiniteError: NaN or infinity in an observation, or a reward that is no single finite
            number.

    Warns:
        RoverWarning: what Gymnasium's checker does not let pass, steps that the seed does not
            repeat, and each kind of ``rover.data.kinds``.
    """
    environment = Environment.of(env, env_kwargs)
    made, other = environment.env, environment.another()
    seen, rng = _Witness(made), np.random.default_rng(seed)
    buffer = Buffer.of(Spaces.of(seen), rewards=True)
    collector = Collector(seen, buffer, seed=seed)
    collector.start_episode()
    for _ in range(n_steps):
        collector.step(int(rng.integers(buffer.n_actions)))
    named = collector.kinds()
    if seen.outside:
        named.setdefault(OUTSIDE, f"{OUTSIDE}: {seen.outside}")
    begun = [RunningEpisode(made, seed=one).observation for one in (0, 1, 0, 1)]
    is_zero = np.array_equal(begun[1], begun[3]) and not np.array_equal(begun[0], begun[2])
    faults = [_ZERO_SEED] if is_zero else []
    faults += not_repeated(buffer, made, UNSEEDED, seed=seed)
    if other is not None and not faults:
        faults = not_repeated(buffer, other, DRAWN_WHEN_MADE, seed=seed)
    found = [*named.values(), *faults]
    try:
        with warnings.catch_warnings(action="ignore"):
            gymnasium_check(made, skip_render_check=True, skip_close_check=True)
    except Exception as error:  # of whatever it asserts, or what the environment raises
        found.append(f"Gymnasium's checker of environments: {error}")
    for message in found:
        warn(message, stacklevel=2)


class _Witness(gym.ObservationWrapper[Any, Any, Any]):
    """An environment whose observations are looked at as they are returned."""

    outside = ""

    @property
    def unwrapped(self) -> gym.Env[Any, Any]:
        """Itself, so that nothing is written on the environment."""
        return self

    def observation(self, observation: Any) -> Any:
        """The observation, where the first number outside the space is noted."""
        self.outside = self.outside or misfit(observation, self.observation_space)
        return observation
