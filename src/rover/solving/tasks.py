"""Rewards and goals of any form, as numbers on the transitions of a buffer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray
from rover.data import (
    Buffer,
    RunningEpisode,
    as_reward,
    check_same_spaces,
    episode_seed,
    label,
)
from rover.envs import (
    GOALS,
    GridWorld,
    RewardFunction,
    Spaces,
    goal_state,
    goal_view,
    id_and_kwargs,
    resolve_goal,
    reward_function,
)
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.solving.experience import Experience
from rover.world.outcomes import OutcomeModel


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

Reward = RewardFunction | Callable[..., Any] | NDArray[Any] | Sequence[float] | gym.Env[Any, Any]
"""A reward: a function of (observations, actions, next observations), observations as they are
stored (:class:`rover.envs.Spaces`), that returns rewards (n,), or
rewards (n,) and terminated (n,); one number per transition; or an environment's own."""

GOAL_RADIUS = 0.5
"""Distance at which a goal counts as reached where states do not repeat, in units of what five
steps change."""

OWN_REWARD = "own reward"
"""The name of the task that is the own reward of pretraining's environment."""

_MOST_SHOWN = 8
"""Numbers of an observation whose ranges a message can show."""


class TaskRewards(NamedTuple):
    """K tasks on the n transitions of a buffer.

    Attributes:
        rewards: (n, K).
        ends: (n, K) 1 where the task terminates on arrival, else 0.
        names: K names.
        goals: (K,) the observation's row that a task is to arrive at, −1 where it is no single one.
        passing: (E, K) outcomes of the model that are predicted to pass the goal of a task, which
            is worth 1 and terminates; None: what transitions earned says all.
        stays: whether goals are worth 1 at every step rather than once, and end nothing.
    """

    rewards: FloatArray
    ends: FloatArray
    names: tuple[str, ...]
    goals: NDArray[np.int64]
    passing: BoolArray | None = None
    stays: bool = False


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
    view = goal_view(env)
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


def goal_rewards(
    goals: str | Sequence[Goal],
    model: OutcomeModel,
    env: gym.Env[Any, Any] | None,
    *,
    stays: bool = False,
) -> TaskRewards:
    """The tasks to arrive at goals: reward 1 on arrival, which terminates, and 0 elsewhere.

    Args:
        goals: several of any form; ``"all"`` observations that some transition arrives at; or the
            ``"named"`` ones of the environment. Of several, those that the data never arrived at
            earn nothing anywhere.
        model: the model that is planned on.
        env: the environment, for goals by name or cell; or None.
        stays: whether the reward is earned at every step in the goal, which ends nothing.

    Raises:
        ConfigurationError: the data never arrived at any of the goals, one is of no known form, or
            there are none.

    Warns:
        RoverWarning: the data never arrived at some of the goals.
    """
    buffer, finder = model.points.buffer, _GoalFinder(model, env)
    listed, refused = _listed(goals, buffer, env), []
    names, columns, rows, passing = [], [], [], []
    for number, goal in enumerate(listed):
        try:
            name, is_goal, passed = finder.find(goal)
        except _NeverReachedError as error:
            refused.append(error)
            if len(refused) == len(listed):
                raise refused[0] from None
            name, is_goal = f"goal {number}", np.zeros(len(buffer.observations), np.bool_)
            passed = np.zeros(model.onward.shape[0], np.bool_)
        names.append(name)
        columns.append(is_goal[buffer.successors])
        passing.append(passed)
        only = np.flatnonzero(is_goal)
        rows.append(int(only[0]) if len(only) == 1 else -1)
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(listed)} goals were not reached in the data, and their "
            f"policies act at random; the first: {refused[0]}",
            RoverWarning,
            stacklevel=3,
        )
    arrived = np.stack(columns, axis=1)
    # An end of the environment ends a task too: what came after it was another episode.
    ends = buffer.terminated[:, None] | (arrived & (not stays))
    return TaskRewards(
        arrived.astype(np.float64),
        ends.astype(np.float64),
        tuple(names),
        np.array(rows),
        np.stack(passing, axis=1),
        stays,
    )


def _listed(
    goals: str | Sequence[Goal], buffer: Buffer, env: gym.Env[Any, Any] | None
) -> Sequence[Goal]:
    """The goals of a list, or of its name, as of :func:`goal_rewards`."""
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
        model: the model that is planned on.
        env: the environment, for goals by name or cell; or None.
    """

    def __init__(self, model: OutcomeModel, env: gym.Env[Any, Any] | None) -> None:
        self._model, self._points, self._env = model, model.points, env
        self._table = model.points.buffer.observations.rows
        world = None if env is None else env.unwrapped
        self._world = world if isinstance(world, GridWorld) else None

    def find(self, goal: Goal) -> tuple[str, BoolArray, BoolArray]:
        """A goal's name, mask (N,) of the observations that are it, and mask (E,) of the outcomes
        that pass it: a goal may lie between observations.

        Raises:
            ConfigurationError: of no known form, or the data never arrived there.
            NonFiniteError: it is not finite.
        """
        point = as_point(goal, self._env, self._table.shape[1:])
        passed = np.zeros(self._model.onward.shape[0], np.bool_)
        if point is not None or callable(goal):
            name = "goal" if point is not None else getattr(goal, "__name__", "goal")
            is_goal: Any = goal if point is None else lambda seen: point.distances(seen) <= 1.0
            mask = _met(is_goal, self._table)
            if self._points.encoder is None:
                passed = self._model.outcomes_that_pass(
                    lambda points: _met(is_goal, self._points.observations(points))
                )
        else:
            name, wanted = self._observations(goal)
            passed = self._model.outcomes_that_pass(
                lambda points: self._distances(wanted, points) <= GOAL_RADIUS
            )
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
            reason = f"none of the {len(mask)} observations seen is a goal by {name}"
            if self._world is not None:
                wanted = self._states[_met(goal, self._states)]
                if len(wanted) == 0:
                    raise ConfigurationError(f"{reason}, and none of the map is: mend the function")
                reason += f": {self._nearest(wanted)}"
            elif self._table[0].size <= _MOST_SHOWN:
                flat = self._table.reshape(len(mask), -1)
                spans = zip(flat.min(axis=0), flat.max(axis=0), strict=True)
                spanned = ", ".join(f"{low:.3g} to {high:.3g}" for low, high in spans)
                reason += f": they span {spanned}"
        elif len(wanted) == 1:
            reason = f"{named} was never seen: {self._nearest(wanted)}"
        else:
            reason = f"none of the goal's {len(wanted)} observations was ever seen"
            reason += f": {self._nearest(wanted)}"
        raise _NeverReachedError(f"{reason}; collect more steps")

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


def task_rewards(experience: Experience, reward: Reward) -> TaskRewards:
    """One reward of any form on stored transitions.

    Args:
        experience: the transitions.
        reward: a function, an array (n,), or an environment with its own reward, computed from
            observations where possible, and else by playing the episodes again.

    Raises:
        ConfigurationError: of the wrong length, the same for every transition, an environment
            whose reward cannot be computed, or one whose goal the data never arrived at.
        NonFiniteError: NaN or infinity.
    """
    buffer, seed, name = experience.buffer, experience.seed, "reward"
    ends = buffer.terminated
    if isinstance(reward, gym.Env):
        check_same_spaces(buffer, reward)
        world = reward.unwrapped
        try:
            rewards, ends = label(buffer, reward_function(reward))
        # Only an environment whose rewards follow from no table is played again; a grid world's
        # reason stands.
        except ConfigurationError:
            if isinstance(world, GridWorld) or seed is None:
                raise
            rewards = _replayed_rewards(buffer, reward, seed=seed)
        name = _name_of(reward, experience)
        is_goal = isinstance(world, GridWorld) and world.reward == "sparse"
        if is_goal and _says_nothing(rewards, ends):
            goal_rewards([name], experience.outcomes(0.0), reward)  # raises, and says how near
    elif callable(reward):
        rewards, ends = label(buffer, _with_ends(reward, buffer))
    else:
        rewards = np.asarray(reward)
        if rewards.shape != (len(buffer),) or rewards.dtype.kind not in "biuf":
            raise ConfigurationError(
                f"rewards of shape {rewards.shape} and dtype {rewards.dtype} are not one number "
                f"for each of the {len(buffer)} transitions"
            )
        rewards = rewards.astype(np.float64)
        if not np.isfinite(rewards).all():
            bad = np.flatnonzero(~np.isfinite(rewards))[0]
            raise NonFiniteError(f"rewards must be finite: transition {bad} is not")
    ends = ends | buffer.terminated
    if _says_nothing(rewards, ends):
        raise ConfigurationError(
            f"every transition earns {rewards[0]:g} and none ends the task, so every policy is as "
            "good as any other: the data never reached what the reward is for"
        )
    return TaskRewards(
        rewards[:, None].astype(np.float64),
        ends[:, None].astype(np.float64),
        (name,),
        np.array([-1]),
    )


def _name_of(env: gym.Env[Any, Any], experience: Experience) -> str:
    """The name of an environment's task: its goal, where arriving there is all that counts."""
    world = env.unwrapped
    if isinstance(world, GridWorld) and world.goal is not None and world.reward == "sparse":
        name, _ = resolve_goal("" if env.spec is None else env.spec.id, world.goal)
        return name or ",".join(map(str, world.goal))
    about = {} if experience.policy is None else experience.policy.details
    pretrained_on = about.get("env_id"), about.get("env_kwargs")
    return OWN_REWARD if pretrained_on == id_and_kwargs(env) else "reward"


def _says_nothing(rewards: FloatArray, ends: BoolArray) -> bool:
    """True if every transition earns the same and none ends the task."""
    return bool(not ends.any() and (rewards == rewards[0]).all())


def _with_ends(reward: Callable[..., Any], buffer: Buffer) -> RewardFunction:
    """A reward function that also says where the task ends; nowhere if the user's does not."""

    def labelled(observations: Any, actions: Any, next_observations: Any, /) -> Any:
        returned = reward(observations, actions, next_observations)
        if isinstance(returned, tuple):
            return returned
        return returned, np.zeros(len(actions), np.bool_)

    return labelled


def _replayed_rewards(buffer: Buffer, env: gym.Env[Any, Any], *, seed: int) -> FloatArray:
    """Reward of every transition (n,) of a run, by playing its episodes again.

    Args:
        buffer: all transitions of the run.
        env: the environment, with its reward.
        seed: of the run.

    Raises:
        ConfigurationError: the environment does not repeat what was recorded.
    """
    rewards, table = np.empty(len(buffer)), buffer.observations.rows
    for number in range(buffer.n_episodes):
        running = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        for row in buffer.rows_of(number).tolist():
            reached, reward, *_ = running.step(int(buffer.actions[row]))
            expected = table[buffer.successors[row]]
            # To the bit: an episode that drifts would give its rewards to other transitions.
            if not np.array_equal(np.asarray(reached, dtype=expected.dtype), expected):
                raise ConfigurationError(
                    f"step {running.n_steps} of episode {number} led elsewhere than when it was "
                    "recorded, so its reward cannot be computed by playing it again: give the "
                    "reward as a function of (observations, actions, next_observations)"
                )
            rewards[row] = as_reward(reward, running)
    return rewards
