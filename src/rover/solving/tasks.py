"""Goals and rewards of any form, as arrays on the transitions of a buffer."""

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

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.data import Buffer, RunningEpisode, as_reward, check_same_spaces, episode_seed, label
from rover.envs import (
    GOALS,
    GoalObservation,
    GridWorld,
    RewardFunction,
    Spaces,
    goal_state,
    id_and_kwargs,
    resolve_goal,
    reward_function,
)
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.solving.experience import Experience
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

    @staticmethod
    def of(goal: Any, env: gym.Env[Any, Any] | None, shape: tuple[int, ...]) -> PointGoal | None:
        """A goal of any form, among observations of a shape, as a point: one that is given as one,
        or a desired goal of a goal environment; None of others.

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
        fits = len(shape) == 1 and target.shape == places.shape == (places.size,) != (0,)
        if not (fits and ((places >= 0) & (places < shape[0])).all() and goal.radius > 0.0):
            raise ConfigurationError(
                f"{goal!r} is no point among observations of shape {shape}: give as many numbers "
                "as columns, columns of a vector, and a radius > 0"
            )
        if not np.isfinite(target).all():
            raise NonFiniteError("a goal must be finite")
        return goal

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

OWN_REWARD = "own reward"
"""The name of the task that is the own reward of pretraining's environment."""

GOAL_RADIUS = 0.5
"""Distance at which a goal counts as reached where states do not repeat, in units of what five
steps change."""

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
    found = [finder.find(goal) for goal in _listed(goals, buffer, env)]
    refused = [goal.refusal for goal in found if goal.refusal]
    if len(refused) == len(found):
        raise ConfigurationError(refused[0])
    if refused:
        warnings.warn(
            f"{len(refused)} of {len(found)} goals were not reached in the data, and their "
            f"policies act at random; the first: {refused[0]}",
            RoverWarning,
            stacklevel=3,
        )
    are_goals = np.stack([goal.mask for goal in found], axis=1)
    arrived = are_goals[buffer.successors]
    # An end of the environment ends a task too: what came after it was another episode.
    ends = buffer.terminated[:, None] | (arrived & (not stays))
    passing = np.stack([goal.passing for goal in found], axis=1)
    names = tuple(goal.name for goal in found)
    return Tasks(arrived.astype(np.float64), ends, names, are_goals, passing, stays)


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


class _Found(NamedTuple):
    """A goal among the observations of a buffer.

    Attributes:
        name: of its task.
        mask: (N,) the observations that are it.
        passing: (n·A,) steps from which on rows are in it, as of :class:`Tasks`.
        refusal: the reason why it cannot be planned for; empty: it can.
    """

    name: str
    mask: BoolArray
    passing: IntArray
    refusal: str


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

    def find(self, goal: Goal) -> _Found:
        """A goal, with the rows that lead into it: it may lie between observations.

        Raises:
            ConfigurationError: of no known form.
            NonFiniteError: it is not finite.
        """
        point = PointGoal.of(goal, self._env, self._table.shape[1:])
        passing, near = self._passing(None), ""
        if point is not None or callable(goal):
            name = getattr(goal, "__name__", "goal")
            is_goal: Any = goal if point is None else lambda seen: point.distances(seen) <= 1.0
            mask = _met(is_goal, self._table)
            if self._points.encoder is None:
                passing = self._passing(lambda at: _met(is_goal, self._points.observations(at)))
            if point is not None:
                near = f"{point.distances(self._table).min():.3g} times its radius"
        else:
            name, wanted = self._observations(goal)
            if self._points.exact:
                found = (self._row.get(row.tobytes()) for row in wanted.astype(self._table.dtype))
                mask = np.zeros(len(self._table), np.bool_)
                mask[[row for row in found if row is not None]] = True
            else:
                # Where states do not repeat no transition arrives at a point exactly.
                tree = KDTree(self._points.of(wanted))
                apart = np.asarray(tree.query(self._points.rows)[0])
                mask = apart <= GOAL_RADIUS
                passing = self._passing(lambda at: np.asarray(tree.query(at)[0]) <= GOAL_RADIUS)
                near = f"{apart.min():.2g} times what five steps change"
        if mask[self._points.buffer.successors].any() or passing.any():
            return _Found(name, mask, passing, "")
        refusal = "no transition arrives at the goal" + (f" {name}" if name != "goal" else "")
        if near:
            refusal += f", and the data came as near as {near}"
        return _Found(name, mask, passing, f"{refusal}: collect more steps")

    def _passing(self, is_goal: Callable[[FloatArray], BoolArray] | None) -> IntArray:
        """The step (n·A,) from which on rows on landmarks are in a goal of points, 0: in none;
        (0,) of states."""
        rows = self._rows
        if rows is None or rows.landmarks is None or rows.passed is None:
            return np.empty(0, np.int64)
        if is_goal is None:
            return np.zeros(len(rows.sink), np.int64)
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
            world = None if self._env is None else self._env.unwrapped
            if self._env is None or not isinstance(world, GridWorld):
                raise ConfigurationError(
                    f"the goal {goal!r} is a name or a cell, and the environment is no grid world: "
                    "give an observation, or a function of observations"
                )
            name, state = goal_state(goal, self._env)
            return name, world.observations()[state : state + 1]
        wanted, shape = self._stored(goal), self._table.shape[1:]
        wanted = wanted[None] if wanted.shape == shape else wanted
        if wanted.shape[1:] != shape or len(wanted) == 0:
            raise ConfigurationError(
                f"a goal of shape {np.shape(goal)} is no observation of shape {shape}, and "
                "not several"
            )
        if not np.isfinite(wanted).all():
            raise NonFiniteError("a goal must be finite")
        return (str(wanted[0]) if wanted.shape == (1,) else "goal"), wanted

    def _stored(self, goal: Any) -> NDArray[Any]:
        """A goal, or several, as observations are stored."""
        spaces = None if self._env is None else Spaces.of(self._env)
        if spaces is None or spaces.observation is spaces.observed:
            return np.asarray(goal)
        if isinstance(goal, np.ndarray) and goal.shape[-len(spaces.shape) :] == spaces.shape:
            return goal
        return spaces.read(goal, "a goal")

    @cached_property
    def _row(self) -> dict[bytes, int]:
        """The row of each observation of the table, by its bytes."""
        return {row.tobytes(): index for index, row in enumerate(self._table)}


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


def reward_task(experience: Experience, reward: Reward) -> Tasks:
    """One reward of any form on stored transitions.

    Args:
        experience: the transitions.
        reward: a function, an array (n,), or an environment with its own reward, computed from
            observations where possible, and else by playing the episodes again.

    Raises:
        ConfigurationError: of the wrong length, the same for every transition, or an environment
            whose reward cannot be computed.
        NonFiniteError: NaN or infinity.
    """
    buffer, name = experience.buffer, "reward"
    ends = buffer.terminated
    if isinstance(reward, gym.Env):
        check_same_spaces(buffer, reward)
        name = _name_of(reward, experience)
        try:
            rewards, ends = label(buffer, reward_function(reward))
        # Only an environment whose rewards follow from no table is played again; a grid world's
        # reason stands.
        except ConfigurationError:
            if isinstance(reward.unwrapped, GridWorld) or experience.seed is None:
                raise
            rewards = _replayed_rewards(buffer, reward, seed=experience.seed)
    elif callable(reward):
        rewards, ends = label(buffer, _with_ends(reward))
    else:
        rewards = np.asarray(reward)
        if rewards.shape != (len(buffer),) or rewards.dtype.kind not in "biuf":
            raise ConfigurationError(
                f"rewards of shape {rewards.shape} and dtype {rewards.dtype} are not one number "
                f"for each of the {len(buffer)} transitions"
            )
        if not np.isfinite(rewards).all():
            bad = np.flatnonzero(~np.isfinite(rewards))[0]
            raise NonFiniteError(f"rewards must be finite: transition {bad} is not")
    ends = ends | buffer.terminated
    if not ends.any() and (rewards == rewards[0]).all():
        raise ConfigurationError(
            f"every transition earns {rewards[0]:g} and none ends the task, so every policy is as "
            "good as any other: the data never reached what the reward is for"
        )
    return Tasks.single(rewards, ends, name)


def _name_of(env: gym.Env[Any, Any], experience: Experience) -> str:
    """The name of an environment's task: its goal, where arriving there is all that counts."""
    world = env.unwrapped
    if isinstance(world, GridWorld) and world.goal is not None and world.reward == "sparse":
        name, _ = resolve_goal("" if env.spec is None else env.spec.id, world.goal)
        return name or ",".join(map(str, world.goal))
    about = {} if experience.policy is None else experience.policy.details
    pretrained_on = about.get("env_id"), about.get("env_kwargs")
    return OWN_REWARD if pretrained_on == id_and_kwargs(env) else "reward"


def _with_ends(reward: Callable[..., Any]) -> RewardFunction:
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
