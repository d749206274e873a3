"""Wrappers: finite sets of actions, goal environments as vectors, observations as stored."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, SupportsIndex

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.envs.spaces import Spaces
from rover.errors import ConfigurationError, UnsupportedSpaceError, abridge, whole_number

_MOST_ACTIONS = 1000
_PARTS = {"observation", "achieved_goal", "desired_goal"}
_BISECTIONS = 40


class DiscreteActions(gym.ActionWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """An environment with continuous actions, as one with a finite set of them: a grid.

    The policy that is pretrained chooses an index; :meth:`action` is the same action in the
    environment's own space.

    Args:
        env: an environment with bounded ``Box`` actions.
        levels: evenly spaced values of each number, ≥ 2, the ends included: the strongest actions
            are what most control problems need, and Gymnasium's ``DiscretizeAction`` lacks them.

    Attributes:
        actions: (A, *action shape), the finite set, the last number changing fastest.

    Raises:
        UnsupportedSpaceError: the actions are no ``Box``, or unbounded.
        ConfigurationError: `levels` out of range, or more than 1,000 actions.

    Example:
        >>> env = DiscreteActions(gym.make("Pendulum-v1"), levels=5)
        >>> agent = Rover(gym.wrappers.RepeatAction(env, 2), seed=0).learn(2000)
        >>> torque = env.action(agent.policy.act(observation, rng))
    """

    def __init__(self, env: gym.Env[Any, Any], levels: int = 3) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, levels=levels)
        gym.ActionWrapper.__init__(self, env)
        space = env.action_space
        if not (isinstance(space, spaces.Box) and space.low.size and space.is_bounded()):
            raise UnsupportedSpaceError(
                "DiscreteActions is for bounded Box actions, and this environment has "
                f"{abridge(space)}"
            )
        count, size = whole_number("levels", levels, least=2), space.low.size
        if count**size > _MOST_ACTIONS:
            raise ConfigurationError(
                f"levels={count} makes more than the {_MOST_ACTIONS:,} actions that can be "
                f"explored, of {size} numbers each: give fewer levels"
            )
        low, high = (end.astype(np.float64).ravel() for end in (space.low, space.high))
        grid = itertools.product(*np.linspace(low, high, count, axis=1))
        self.actions = np.array(list(grid)).reshape(-1, *space.shape).astype(space.dtype)
        self.action_space: spaces.Space[Any] = spaces.Discrete(len(self.actions))

    def action(self, action: SupportsIndex) -> NDArray[Any]:
        """The action with an index from 0 to A − 1, of the policy or of Stable-Baselines3, in the
        environment's own space: a copy, since some environments change what they are given."""
        return np.array(self.actions[int(action)])


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
                f"environment has {abridge(space)}"
            )
        seen = [env.reset(seed=seed)[0] for seed in (0, 1)]
        # Where both goals are: one place might hold the same number by accident.
        same = [one["achieved_goal"][:, None] == one["observation"] for one in seen]
        found = np.logical_and(*same)
        self._is_within = bool((found.sum(axis=1) == 1).all())
        self.achieved = tuple(
            found.argmax(axis=1).tolist() if self._is_within else range(len(found))
        )
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


class StoredObservations(
    gym.ObservationWrapper[NDArray[Any], Any, Any], gym.utils.RecordConstructorArgs
):
    """An environment whose observations are returned as ROVER stores them.

    Agents and policies of ROVER take observations as they are; this is for others that have to see
    what a policy of ROVER sees, such as Stable-Baselines3. The errors are `Spaces.of`'s.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.ObservationWrapper.__init__(self, env)
        self._spaces = Spaces.of(env)
        self.observation_space: gym.Space[Any] = self._spaces.observation

    def observation(self, observation: Any) -> NDArray[Any]:
        """The observation as it is stored."""
        return self._spaces.read(observation, "the environment")


class FunctionReward(gym.Wrapper[Any, Any, Any, Any]):
    """An environment with the reward of a function, as of :func:`rover.solve`, in place of its own,
    which may end its episodes, too."""

    def __init__(self, env: gym.Env[Any, Any], reward: Callable[..., Any]) -> None:
        super().__init__(env)
        self._function, self._spaces = reward, Spaces.of(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(**options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step, which earns what the function says."""
        begin, taken = self._read(), np.array([action])
        self._seen, _, terminated, truncated, info = self.env.step(action)
        returned = self._function(begin, taken, self._read())
        rewards, ends = returned if isinstance(returned, tuple) else (returned, [False])
        return self._seen, float(rewards[0]), terminated or bool(ends[0]), truncated, info

    def _read(self) -> Any:
        # Copies: the environment may change its arrays, and the function what it is given.
        return self._spaces.form.elements(self._spaces.read(self._seen, "the environment")[None])
