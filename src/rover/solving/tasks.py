"""Tasks on the transitions of a buffer, and goals of any form as such."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.data import Buffer
from rover.envs import GOALS, GoalObservation, GridWorld, Spaces, goal_state
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.world.points import Points
from rover.world.rows import Rows


@dataclass(frozen=True)
class PointGoal:
    """A goal as a point: some numbers of an observation vector are within a distance of a target.

    Attributes:
        target: (c,) finite.
        columns: (c,) the landmarks of these numbers in the vector.
        radius: largest Euclidean distance at which the goal is reached, > 0.

    Example:
        >>> rover.solve(agent, goal=PointGoal([1.3, 0.7, 0.5], columns=[0, 1, 2], radius=0.05))
    """

    target: Sequence[float] | NDArray[Any]
    columns: Sequence[int]
    radius: float

    def distances(self, observations: NDArray[Any]) -> FloatArray:
        """Distances (n,) of observations (n, d), in units of the radius."""
        part = observations[:, list(self.columns)].astype(np.float64)
        return np.asarray(np.linalg.norm(part - np.asarray(self.target), axis=1) / self.radius)


Goal = (
    str | tuple[int, int] | NDArray[Any] | int | PointGoal | Callable[[NDArray[Any]], NDArray[Any]]
)
"""A goal: the name or the cell (x, y) of a grid world's, an observation, several (m, *shape), a
:class:`PointGoal`, the desired goal of an environment in
:class:`~rover.wrappers.GoalObservation`, or a function of observations (n, *shape), as they are
stored, that says which are goals (n,)."""

GOAL_RADIUS = 0.5
"""Distance at which a goal counts as reached where states do not repeat, in units of what five
steps change."""

_MOST_SHOWN = 8
"""Numbers of an observation whose ranges a message can show."""

_SHARES = np.arange(1, 7)[:, None, None] / 6.0  # of the displacement of repeated actions


@dataclass(frozen=True)
class Tasks:
    """K tasks on the n transitions of a buffer.

    Attributes:
        rewards: (n, K).
        ends: (n, K) whether the task terminates on arrival.
        names: K names.
        goals: (N, K) observations that are goals, where the tasks are to arrive at them; else None.
        passing: (n·A, K) step from which on the row of a plan on landmarks is predicted to be in
            the goal, 0 where it does not pass; None, or empty: rewards say all.
        stays: whether goals are worth 1 at every step rather than once, and end nothing.
    """

    rewards: FloatArray
    ends: BoolArray
    names: tuple[str, ...]
    goals: BoolArray | None = None
    passing: IntArray | None = None
    stays: bool = False

    @classmethod
    def single(cls, rewards: FloatArray, ends: BoolArray, name: str) -> Tasks:
        """One task of rewards and ends (n,)."""
        return cls(rewards[:, None].astype(np.float64), ends[:, None], (name,))

    @property
    def rows(self) -> IntArray:
        """The observation's row that each task is to arrive at (K,), −1 where it is no single
        one."""
        if self.goals is None:
            return np.full(len(self.names), -1)
        return np.where(self.goals.sum(axis=0) == 1, self.goals.argmax(axis=0), -1)


class _NeverReachedError(ConfigurationError):
    """A goal that the data never arrived at."""


def as_point(goal: Goal, env: gym.Env[Any, Any] | None, shape: tuple[int, ...]) -> PointGoal | None:
    """A goal as a point: one that is given as one, or a desired goal of a goal environment; None
    of others.

    Args:
        goal: of any form.
        env: the environment, or None.
        shape: of observations.

    Raises:
        ConfigurationError: a point that is not one of observation vectors of this shape.
        NonFiniteError: a target that is not finite.
    """
    view = GoalObservation.within(env)
    if view is not None and isinstance(goal, np.ndarray):
        part = (len(view.achieved),)
        is_part = goal.shape == part != shape
        goal = PointGoal(goal, view.achieved, view.goal_radius) if is_part else goal
    if not isinstance(goal, PointGoal):
        return None
    places, target = np.asarray(goal.columns), np.asarray(goal.target, np.float64)
    fits = len(shape) == 1 and target.shape == places.shape == (places.size,) and places.size > 0
    if not (fits and ((places >= 0) & (places < shape[0])).all() and goal.radius > 0.0):
        raise ConfigurationError(
            f"{goal!r} is no point among observations of shape {shape}: give as many numbers as "
            "columns, columns of a vector, and a radius > 0"
        )
    if not np.isfinite(target).all():
        raise NonFiniteError("a goal must be finite")
    return goal


def goal_tasks(
    goals: str | Sequence[Goal],
    points: Points,
    rows: Rows | None,
    env: gym.Env[Any, Any] | None,
    *,
    stays: bool = False,
) -> Tasks:
    """The tasks to arrive at goals: reward 1 on arrival, which terminates, and 0 elsewhere.

    Args:
        goals: several of any form; ``"all"`` observations that some transition arrives at; or the
            ``"named"`` ones of the environment. Of several, those that the data never arrived at
            earn nothing anywhere.
        points: of the observations.
        rows: that are planned on, which may pass goals; None: they do not.
        env: the environment, for goals by name or cell; or None.
        stays: whether the reward is earned at every step in the goal, which ends nothing.

    Raises:
        ConfigurationError: the data never arrived at any of the goals, one is of no known form, or
            there are none.

    Warns:
        RoverWarning: the data never arrived at some of the goals.
    """
    buffer, finder = points.buffer, _GoalFinder(points, rows, env)
    listed, refused = _listed(goals, buffer, env), []
    names, masks, passing = [], [], []
    for number, goal in enumerate(listed):
        try:
            name, is_goal, passed = finder.find(goal)
        except _NeverReachedError as error:
            refused.append(error)
            if len(refused) == len(listed):
                raise refused[0] from None
            name, is_goal = f"goal {number}", np.zeros(len(buffer.observations), np.bool_)
            passed = finder.passed(lambda at: np.zeros(len(at), np.bool_))
        names.append(name)
        masks.append(is_goal)
        passing.append(passed)
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(listed)} goals were not reached in the data, and their "
            f"policies act at random; the first: {refused[0]}",
            RoverWarning,
            stacklevel=3,
        )
    are_goals = np.stack(masks, axis=1)
    arrived = are_goals[buffer.successors]
    # An end of the environment ends a task too: what came after it was another episode.
    ends = buffer.terminated[:, None] | (arrived & (not stays))
    passed = np.stack(passing, axis=1)
    return Tasks(arrived.astype(np.float64), ends, tuple(names), are_goals, passed, stays)


def _listed(
    goals: str | Sequence[Goal], buffer: Buffer, env: gym.Env[Any, Any] | None
) -> Sequence[Goal]:
    """The goals of a list, or of its name, as of :func:`goal_tasks`."""
    if isinstance(goals, str) and goals == "all":
        return [buffer.observations.rows[row] for row in np.unique(buffer.successors)]
    if isinstance(goals, str) and goals == "named":
        env_id = "" if env is None or env.spec is None else env.spec.id
        if env_id not in GOALS:
            raise ConfigurationError(
                f"{env_id or 'this environment'} has no named goals: give cells or observations"
            )
        return list(GOALS[env_id])
    if isinstance(goals, str) or len(goals) == 0:
        raise ConfigurationError(f"goals must be 'all', 'named' or several goals, not {goals!r}")
    return goals


class _GoalFinder:
    """Finds goals of any form among the observations of a buffer.

    Args:
        points: of the observations.
        rows: that are planned on, or None.
        env: the environment, for goals by name or cell; or None.
    """

    def __init__(self, points: Points, rows: Rows | None, env: gym.Env[Any, Any] | None) -> None:
        self._points, self._rows, self._env = points, rows, env
        self._table = points.buffer.observations.rows
        world = None if env is None else env.unwrapped
        self._world = world if isinstance(world, GridWorld) else None

    def find(self, goal: Goal) -> tuple[str, BoolArray, IntArray]:
        """A goal's name, mask (N,) of the observations that are it, and the steps (n·A,) from which
        on rows are in it: a goal may lie between observations.

        Raises:
            ConfigurationError: of no known form, or the data never arrived there.
            NonFiniteError: it is not finite.
        """
        point = as_point(goal, self._env, self._table.shape[1:])
        passed = self.passed(lambda at: np.zeros(len(at), np.bool_))
        if point is not None or callable(goal):
            name = "goal" if point is not None else getattr(goal, "__name__", "goal")
            is_goal: Any = goal if point is None else lambda seen: point.distances(seen) <= 1.0
            mask = _met(is_goal, self._table)
            if self._points.encoder is None:
                passed = self.passed(lambda at: _met(is_goal, self._points.observations(at)))
        else:
            name, wanted = self._observations(goal)
            passed = self.passed(lambda at: self._distances(wanted, at) <= GOAL_RADIUS)
            if self._points.exact:
                found = (self._row.get(row.tobytes()) for row in wanted.astype(self._table.dtype))
                mask = np.zeros(len(self._table), np.bool_)
                mask[[row for row in found if row is not None]] = True
            else:
                # Where states do not repeat no transition arrives at a point exactly.
                mask = self._distances(wanted, self._points.rows) <= GOAL_RADIUS
        if mask[self._points.buffer.successors].any() or passed.any():
            return name, mask, passed
        named = "the goal" if name == "goal" else f"the goal {name}"
        if mask.any():
            reason = f"{named} cannot be planned for: no transition arrives there"
        elif point is not None:
            radii = f"{point.distances(self._table).min():.3g} times its radius"
            reason = f"{named} was never reached: the data came as near as {radii}"
        elif callable(goal):
            reason = self._none_is(goal, name)
        elif len(wanted) == 1:
            reason = f"{named} was never seen: {self._nearest(wanted)}"
        else:
            reason = f"none of the goal's {len(wanted)} observations was ever seen"
            reason += f": {self._nearest(wanted)}"
        raise _NeverReachedError(f"{reason}; collect more steps")

    def passed(self, is_goal: Callable[[FloatArray], BoolArray]) -> IntArray:
        """The step (n·A,) from which on rows on landmarks are in a goal of points, 0: in none;
        (0,) of states."""
        rows = self._rows
        if rows is None or rows.landmarks is None or rows.passed is None:
            return np.empty(0, np.int64)
        begins = np.repeat(rows.landmarks, self._points.buffer.n_actions, axis=0)
        points = begins + _SHARES * (rows.ahead - begins)
        inside = is_goal(points.reshape(-1, points.shape[2])).reshape(points.shape[:2])
        # A pair that was never tried has not moved, and leads to the sink.
        reached = inside.any(axis=0) & (rows.sink < 1.0)
        n_steps = (rows.passed[1] >= 0).sum(axis=0)
        step = np.ceil(_SHARES[inside.argmax(axis=0), 0, 0] * n_steps)
        return np.where(reached, step, 0).astype(np.int64)

    def _observations(self, goal: Any) -> tuple[str, NDArray[Any]]:
        """Name and observations (m, *shape) of a goal by its name, its cell, or observations."""
        if isinstance(goal, str | tuple):
            if self._env is None or self._world is None:
                raise ConfigurationError(
                    f"the goal {goal!r} is a name or a cell, and the environment is no grid world: "
                    "give an observation, or a function of observations"
                )
            name, state = goal_state(goal, self._env)
            return name, self._states[state : state + 1]
        wanted, shape = self._stored(goal), self._table.shape[1:]
        wanted = wanted[None] if wanted.shape == shape else wanted
        if wanted.shape[1:] != shape or len(wanted) == 0:
            raise ConfigurationError(
                f"a goal of shape {np.shape(goal)} is no observation of shape {shape}, and "
                "not several"
            )
        if not np.isfinite(wanted).all():
            raise NonFiniteError("a goal must be finite")
        return (self._name_of(wanted[0]) if len(wanted) == 1 else "goal"), wanted

    def _stored(self, goal: Any) -> NDArray[Any]:
        """A goal, or several, as observations are stored."""
        spaces = None if self._env is None else Spaces.of(self._env)
        if spaces is None or spaces.observation is spaces.observed:
            return np.asarray(goal)
        if isinstance(goal, np.ndarray) and goal.shape[-len(spaces.shape) :] == spaces.shape:
            return goal
        return spaces.read(goal, "a goal")

    def _name_of(self, observation: NDArray[Any]) -> str:
        """The name of an observation: its cell (x, y), else its number if it is one."""
        state = self._state_of(observation)
        if self._world is None or state is None:
            return "goal" if observation.shape else str(observation)
        return ",".join(map(str, self._world.layout.cells[state].tolist()))

    @cached_property
    def _row(self) -> dict[bytes, int]:
        """The row of each observation of the table, by its bytes."""
        return {row.tobytes(): index for index, row in enumerate(self._table)}

    @cached_property
    def _states(self) -> NDArray[Any]:
        """The observations (S, *shape) of all states of a grid world."""
        return np.empty(0) if self._world is None else self._world.observations()

    def _state_of(self, observation: NDArray[Any]) -> int | None:
        """The state of a grid world with an observation; None of others."""
        if self._world is None:
            return None
        equal = (self._states == observation).reshape(len(self._states), -1).all(axis=1)
        return int(equal.argmax()) if equal.any() else None

    def _distances(self, wanted: NDArray[Any], points: FloatArray) -> FloatArray:
        """Distance of points (n, z) to the nearest observation of those wanted."""
        # In the model's units, in which five steps change about one.
        targets = wanted.reshape(len(wanted), -1).astype(np.float64) @ self._points.projection
        return np.asarray(KDTree(targets).query(points)[0])

    def _none_is(self, goal: Callable[[NDArray[Any]], Any], name: str) -> str:
        """A message of a function for which no observation is a goal.

        Raises:
            ConfigurationError: none of the whole map is.
        """
        reason = f"none of the {len(self._table)} observations seen is a goal by {name}"
        if self._world is not None:
            wanted = self._states[_met(goal, self._states)]
            if len(wanted) == 0:
                raise ConfigurationError(f"{reason}, and none of the map is: mend the function")
            reason += f": {self._nearest(wanted)}"
        elif self._table[0].size <= _MOST_SHOWN:
            flat = self._table.reshape(len(self._table), -1)
            spans = zip(flat.min(axis=0), flat.max(axis=0), strict=True)
            spanned = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in spans)
            reason += f": they span {spanned}"
        return reason

    def _nearest(self, wanted: NDArray[Any]) -> str:
        """A message of the distance that the data kept from a goal that it never saw."""
        states = [state for state in map(self._state_of, wanted) if state is not None]
        rows = self._states.astype(self._table.dtype)
        seen = [state for state, row in enumerate(rows) if row.tobytes() in self._row]
        if self._world is not None and states and seen:
            distances = [self._world.layout.distances(state)[seen].min() for state in states]
            steps = int(min(distances))
            return f"the nearest state seen is {steps} step{'s' if steps > 1 else ''} away"
        if self._points.exact:
            flat = self._table.reshape(len(self._table), -1).astype(np.float64)
            others = wanted.reshape(len(wanted), -1)
            apart = min(float(np.abs(flat - one).sum(axis=1).min()) for one in others)
            return f"the nearest observation seen differs by {apart:g}"
        apart = float(self._distances(wanted, self._points.rows).min())
        return f"the data came as near as {apart:.2g} times what five steps change"


def _met(goal: Callable[[NDArray[Any]], Any], observations: NDArray[Any]) -> BoolArray:
    """Mask (n,) of the observations that are a goal by a user's function."""
    # A copy: the function of a user must not change the data.
    mask, size = np.asarray(goal(observations.copy())), len(observations)
    if mask.shape != (size,) or mask.dtype.kind != "b":
        raise ConfigurationError(
            f"the function {getattr(goal, '__name__', 'goal')} returned {mask.dtype} of shape "
            f"{mask.shape} for {size} observations; a goal's must return bool of shape ({size},)"
        )
    return mask
