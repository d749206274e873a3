"""Tasks as data: an environment, a goal, a sparse or a dense reward, a horizon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from pydantic import BaseModel, ConfigDict

from rover.envs import Environment, GivenEnv, GridWorld, make_env, resolve_goal
from rover.envs.registration import Cell
from rover.errors import ConfigurationError, choose, whole_number


class Task(BaseModel):
    """One problem to be solved with the help of pretraining.

    Attributes:
        env_id: id of the environment.
        env_kwargs: its keyword arguments; ``goal``, ``reward`` and ``horizon`` of the task among
            them. Without a goal the environment has a reward of its own.
        goal_name: the goal's name, or None.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    env_id: str
    env_kwargs: dict[str, Any]
    goal_name: str | None = None

    @staticmethod
    def make(
        env_id: str,
        env_kwargs: Mapping[str, Any] | None = None,
        *,
        goal: str | Cell | None = None,
        reward: str = "sparse",
        horizon: int | None = None,
    ) -> Task:
        """Check the settings of a task.

        Args:
            env_id, env_kwargs: id of the environment, and its keyword arguments.
            goal: a name in :data:`rover.envs.GOALS`, (x, y), ``"x,y"``, or None for the reward of
                the environment itself.
            reward: ``"sparse"`` (−1 per step, 0 at the goal) or ``"dense"`` (minus the distance).
            horizon: steps after which an episode is truncated.

        Raises:
            ConfigurationError: an unknown goal (with the nearest known one), a reward without a
                goal, or a value out of range.
        """
        if goal is None and reward != "sparse":
            raise ConfigurationError(
                f"reward={reward!r} is a distance to a goal, and the task has none; give goal=..."
            )
        choose("reward", reward, ("sparse", "dense"))
        settings, name = dict(env_kwargs or {}), None
        if goal is not None:
            name, settings["goal"] = resolve_goal(env_id, goal)
            settings["reward"] = reward
        if horizon is not None:
            settings["horizon"] = whole_number("horizon", horizon)
        return Task(env_id=env_id, env_kwargs=settings, goal_name=name)

    @staticmethod
    def of(given: GivenEnv) -> Task | None:
        """The task that an environment is; None for one that cannot be made again from its id."""
        environment = Environment.of(given)
        if environment.env_id is None:
            return None
        env_id, kwargs = environment.env_id.rpartition(":")[2], dict(environment.env_kwargs)
        kwargs.pop("render_mode", None)  # no part of the task, and a window on another machine
        name, grid = None, environment.env.unwrapped
        if isinstance(grid, GridWorld) and grid.goal is not None:
            name, kwargs["goal"] = resolve_goal(env_id, grid.goal)
        return Task(env_id=env_id, env_kwargs=kwargs, goal_name=name)

    def opened(self) -> Environment:
        """The environment with the task's goal and reward, as of :meth:`make_env`."""
        return Environment(self.make_env(), self.make_env, self.env_id, self.env_kwargs)

    @property
    def name(self) -> str:
        """The task in a word or two, which can be part of a file's name."""
        goal = self.env_kwargs.get("goal")
        if goal is None:
            return "reward"
        name = self.goal_name or "-".join(map(str, goal))
        return f"{name}-dense" if self.env_kwargs.get("reward") == "dense" else name

    def make_env(self) -> gym.Env[Any, Any]:
        """The environment with the task's goal and reward. ConfigurationError: no such environment,
        a goal that is a wall or outside the map, or cannot be reached in time."""
        env = make_env(self.env_id, self.env_kwargs)
        grid = env.unwrapped
        if isinstance(grid, GridWorld) and grid.goal_state is not None:
            # From the nearest start: a goal that only some episodes can reach is still a task.
            distance = grid.layout.distances(grid.goal_state)[grid.start_states].min()
            if distance > grid.horizon:
                raise ConfigurationError(
                    f"goal {grid.goal} of {self.env_id} is {distance} steps away, but an episode "
                    f"ends after {grid.horizon}; choose a nearer cell or a longer horizon"
                )
        return env
