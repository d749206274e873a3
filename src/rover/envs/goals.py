"""Goal environments (gymnasium-robotics' ``GoalEnv``) as environments of vectors."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.errors import ConfigurationError, UnsupportedSpaceError, abridge

_PARTS = {"observation", "achieved_goal", "desired_goal"}
_BISECTIONS = 40


class GoalObservation(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """A goal environment seen as the vector ``observation``, without its goal.

    The achieved goal is a part of the vector; where the environment's own ``observation`` lacks
    it, it is put in front. `rover.solve` then takes a ``desired_goal`` as it is.

    Args:
        env: an environment whose observations are dictionaries of ``observation``,
            ``achieved_goal`` and ``desired_goal``, with sparse rewards. It is reset twice.

    Attributes:
        achieved: the places of the achieved goal in the vector.
        goal_radius: largest distance between achieved and desired goal that earns the reward of
            success.
        desired_goal: of the current episode.

    Raises:
        UnsupportedSpaceError: other observations.
        ConfigurationError: rewards that are not sparse.

    Example:
        >>> env = GoalObservation(gym.make("FetchReach-v4"))
        >>> agent = rover.Rover(env, seed=0).learn(2000)
        >>> _, info = env.reset(seed=1)
        >>> policy = rover.solve(agent, goal=env.desired_goal)
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not (isinstance(space, spaces.Dict) and set(space.spaces) == _PARTS):
            raise UnsupportedSpaceError(
                f"GoalObservation is for dictionaries of {', '.join(sorted(_PARTS))}, and this "
                f"environment has {abridge(space)}: leave it out"
            )
        seen = [env.reset(seed=seed)[0] for seed in (0, 1)]
        self._is_within = True
        columns = []
        for number in range(seen[0]["achieved_goal"].size):
            same = [one["observation"] == one["achieved_goal"][number] for one in seen]
            found = np.flatnonzero(np.logical_and(*same))
            self._is_within &= len(found) == 1
            columns.append(int(found[0]) if len(found) else -1)
        self.achieved = tuple(columns if self._is_within else range(len(columns)))
        part, goal = space["observation"], space["achieved_goal"]
        assert isinstance(part, spaces.Box)
        assert isinstance(goal, spaces.Box)
        low, high = part.low, part.high
        if not self._is_within:
            low, high = np.concatenate([goal.low, low]), np.concatenate([goal.high, high])
        self.observation_space = spaces.Box(low, high, dtype=part.dtype.type)
        self.goal_radius = self._radius(seen[0]["achieved_goal"])
        self.desired_goal = np.array(seen[1]["desired_goal"])

    @classmethod
    def within(cls, env: gym.Env[Any, Any] | None) -> GoalObservation | None:
        """The goal view that an environment is, or wraps; None of others."""
        while isinstance(env, gym.Wrapper):
            if isinstance(env, cls):
                return env
            env = env.env
        return None

    def _radius(self, goal: NDArray[Any]) -> float:
        """The radius of success, by bisection on the environment's reward."""
        world: Any = self.env.unwrapped

        def earned(distance: float) -> float:
            return float(world.compute_reward(goal + distance * np.eye(goal.size)[0], goal, {}))

        near, far, success = 0.0, 1.0, earned(0.0)
        while earned(far) == success and far < 1e6:
            far *= 2.0
        for _ in range(_BISECTIONS):
            middle = (near + far) / 2.0
            near, far = (middle, far) if earned(middle) == success else (near, middle)
        if not 1e-6 < near < 1e6:
            raise ConfigurationError(
                "the environment's rewards depend on the distance to the goal everywhere: make it "
                "with reward_type='sparse'"
            )
        return near

    def observation(self, observation: Any) -> NDArray[Any]:
        """The vector, of the environment's dictionary."""
        self.desired_goal = np.array(observation["desired_goal"])
        vector = np.array(observation["observation"])
        if self._is_within:
            return vector
        return np.concatenate([observation["achieved_goal"], vector]).astype(vector.dtype)
