"""Tasks as data: an environment, a goal, a sparse or a dense reward, a horizon.

Goals have names (:data:`rover.envs.GOALS`), those of the ROVER paper among them. The best return of
a task is computed from the exact dynamics, so that "as good as possible" is a number and not a
matter of taste.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveInt
from scipy.sparse.csgraph import dijkstra

from rover.envs import GOALS, Cell, GridWorld, id_and_kwargs, make_env
from rover.errors import ConfigurationError
from rover.training.config import choose, validate_settings


class Task(BaseModel):
    """One problem to be solved with the help of pretraining.

    Attributes:
        env_id: id of the environment.
        env_kwargs: its keyword arguments, the goal's not among them.
        goal: (x, y), or None for the reward that the environment has of its own.
        goal_name: the goal's name, or None.
        reward: ``"sparse"`` or ``"dense"``; of grid worlds with a goal.
        horizon: steps after which an episode is truncated; None: the environment's own.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    env_id: str
    env_kwargs: dict[str, Any]
    goal: Cell | None = None
    goal_name: str | None = None
    reward: Literal["sparse", "dense"] = "sparse"
    horizon: PositiveInt | None = None

    @staticmethod
    def of(env: gym.Env[Any, Any]) -> Task | None:
        """The task that an environment is; None for one that cannot be made again from its id."""
        found = id_and_kwargs(env)
        if found is None:
            return None
        env_id, kwargs = found
        settings = {k: v for k, v in kwargs.items() if k != "render_mode"}
        grid = env.unwrapped
        if not isinstance(grid, GridWorld) or grid.goal is None:
            return Task(env_id=env_id, env_kwargs=settings)
        registered = gym.registry[env_id].kwargs
        own = {
            k: v
            for k, v in settings.items()
            if k not in ("goal", "reward", "horizon") and registered.get(k) != v
        }
        horizon = settings.get("horizon")
        return make_task(env_id, own, goal=grid.goal, reward=grid.reward, horizon=horizon)

    @property
    def name(self) -> str:
        """The task in a word or two, which can be part of a file's name."""
        goal = self.goal_name or (
            "reward" if self.goal is None else f"{self.goal[0]}-{self.goal[1]}"
        )
        return goal if self.reward == "sparse" else f"{goal}-{self.reward}"

    def make_env(self) -> gym.Env[Any, Any]:
        """The environment with the task's goal and reward.

        Raises:
            ConfigurationError: no such environment, or the goal cannot be reached in time.
            LayoutError: the goal is a wall or outside the map.
        """
        settings = dict(self.env_kwargs)
        if self.goal is not None:
            if not isinstance(make_env(self.env_id, settings).unwrapped, GridWorld):
                raise ConfigurationError(
                    f"{self.env_id} has no map, so it takes no goal; leave the goal out to learn "
                    "from the environment's own reward"
                )
            settings |= {"goal": self.goal, "reward": self.reward}
        if self.horizon is not None:
            settings["horizon"] = self.horizon
        env = make_env(self.env_id, settings)
        _check_reachable(env, self)
        return env


def make_task(
    env_id: str,
    env_kwargs: Mapping[str, Any] | None = None,
    *,
    goal: str | Cell | None = None,
    reward: str = "sparse",
    horizon: int | None = None,
) -> Task:
    """Check the settings of a task.

    Args:
        env_id: id of the environment.
        env_kwargs: its keyword arguments.
        goal: a name in :data:`rover.envs.GOALS`, (x, y), ``"x,y"``, or None for the environment's
            own reward.
        reward: ``"sparse"`` (−1 per step, 0 at the goal) or ``"dense"`` (minus the distance).
        horizon: steps after which an episode is truncated.

    Raises:
        ConfigurationError: an unknown goal (with the nearest known one), a goal or reward for an
            environment without a map, or a value out of range.
    """
    if goal is None and reward != "sparse":
        raise ConfigurationError(
            f"reward={reward!r} is a distance to a goal, and the task has none; give goal=..."
        )
    choose("reward", reward, ("sparse", "dense"))
    name, cell = (None, None) if goal is None else _resolve_goal(env_id, goal)
    settings = {
        "env_id": env_id,
        "env_kwargs": dict(env_kwargs or {}),
        "goal": cell,
        "goal_name": name,
        "reward": reward,
        "horizon": horizon,
    }
    return validate_settings(Task, settings)


def _resolve_goal(env_id: str, goal: str | Cell) -> tuple[str | None, Cell]:
    named = GOALS.get(env_id.rpartition(":")[2], {})
    if isinstance(goal, str):
        if goal in named:
            return goal, named[goal]
        words = goal.split(",")
        try:
            x, y = (int(word) for word in words)
        except ValueError:
            close = difflib.get_close_matches(goal, named, n=1)
            known = f"; named goals are {', '.join(named)}" if named else ""
            hint = f"; did you mean {close[0]!r}?" if close else known
            raise ConfigurationError(
                f"unknown goal {goal!r} of {env_id}: give a cell as x,y{hint}"
            ) from None
    else:
        x, y = goal
    cell = (x, y)
    return next((name for name, known in named.items() if known == cell), None), cell


def best_return(env: gym.Env[Any, Any]) -> float | None:
    """The greatest expected undiscounted return of an episode, exactly; None where it is unknown.

    Known for grid worlds with a goal, by backward induction over the horizon:
    V_k(x) = max_a Σ_y P(y|x, a) (r(y) + [y not terminal] V_{k−1}(y)).
    """
    grid = env.unwrapped
    if not isinstance(grid, GridWorld) or grid.goal is None:
        return None
    dynamics, rewards = grid.dynamics(), grid.arrival_reward
    values = np.zeros(dynamics.n_states)
    for _ in range(grid.horizon):
        arrival = rewards + np.where(dynamics.terminal, 0.0, values)
        values = np.max([matrix @ arrival for matrix in dynamics.transition], axis=0)
    return float(dynamics.start @ values)


def _check_reachable(env: gym.Env[Any, Any], task: Task) -> None:
    grid = env.unwrapped
    if not isinstance(grid, GridWorld) or grid.goal_state is None:
        return
    dynamics = grid.dynamics()
    steps = sum(dynamics.transition[1:], start=dynamics.transition[0])
    starts = np.flatnonzero(dynamics.start > 0)
    # Maps with cells that no path leads to are refused where they are read.
    distances = dijkstra(steps > 0, unweighted=True, indices=starts, min_only=True)
    distance = int(distances[grid.goal_state])
    if distance > grid.horizon:
        raise ConfigurationError(
            f"goal {task.goal} of {task.env_id} is {distance} steps away, but an episode ends "
            f"after {grid.horizon}; choose a nearer cell or a longer horizon"
        )
