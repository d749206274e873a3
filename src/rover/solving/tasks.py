"""Goals and rewards of any form, as arrays on the transitions of a buffer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray, blocks, distinct_rows
from rover.data import Buffer, RunningEpisode, as_reward, check_same_spaces, label
from rover.envs import (
    GOALS,
    Environment,
    GoalObservation,
    GridWorld,
    RewardFunction,
    Spaces,
    goal_state,
    resolve_goal,
    reward_function,
)
from rover.errors import ConfigurationError, NonFiniteError, warn
from rover.world.counts import Rows
from rover.world.world import Points


@dataclass(frozen=True)
class PointGoal:
    """A goal as a point: the numbers in some columns (c,) of an observation vector are within a
    Euclidean distance, the radius, of a target (c,).

    Example:
        >>> rover.solve(agent, goal=PointGoal([1.3, 0.7, 0.5], columns=[0, 1, 2], radius=0.05))
    """

    target: Sequence[float] | NDArray[Any]
    columns: Sequence[int]
    radius: float

    @staticmethod
    def of(goal: Any, env: gym.Env[Any, Any] | None, shape: tuple[int, ...]) -> PointGoal | None:
        """A goal of any form, among observations of a shape, as a point: one that is given as one,
        or a desired goal of a goal environment; None of others."""
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
:class:`PointGoal`, the desired goal of an environment in :class:`~rover.wrappers.GoalObservation`,
or a function of observations (n, *shape), as they are stored and with whole numbers as int64, that
returns which are goals (n,)."""

Reward = RewardFunction | Callable[..., Any] | NDArray[Any] | Sequence[float] | gym.Env[Any, Any]
"""A reward: a function of (observations, actions, next observations), observations as they are
stored (:class:`rover.envs.Spaces`) and with whole numbers as int64, of Dict and Tuple spaces an
array for each part, that returns rewards (n,), or rewards (n,) and terminated (n,); one number per
transition; or the own one of an environment, or of one that a function without arguments makes."""

OWN_REWARD = "own reward"
"""The name of the task that is the own reward of pretraining's environment."""

GOAL_RADIUS = 0.5
"""Distance at which a goal counts as reached where states do not repeat, in units of what five
steps change."""

_FEWEST_HIDDEN = 3  # rewards that differ without a cause, from which on that is said
_SHARES = np.arange(1, 7)[:, None, None] / 6.0  # of the displacement of repeated actions


@dataclass(frozen=True)
class Tasks:
    """K tasks on the n transitions of a buffer, and the observations (N, K) that are their goals,
    if they are to arrive at some."""

    rewards: FloatArray  # (n, K)
    ends: BoolArray  # (n, K) whether the task terminates on arrival
    names: tuple[str, ...]
    goals: BoolArray | None = None
    # (n·A, K) step from which on the row of a plan on landmarks is predicted to be in the goal, 0
    # where it does not pass; None, or empty: rewards say all.
    passing: IntArray | None = None
    stays: bool = False  # whether goals are worth 1 at every step rather than once, and end nothing
    # (n·A, K) expected rewards of rows, where outcomes are drawn; None: `rewards` say so.
    earned: FloatArray | None = None


def goal_tasks(
    goals: str | Sequence[Goal],
    points: Points,
    rows: Rows | None,
    env: gym.Env[Any, Any] | None,
    *,
    stays: bool = False,
) -> Tasks:
    """The tasks to arrive at goals: reward 1 on arrival, which terminates, and 0 elsewhere; with
    `stays` at every step in the goal, which ends nothing.

    Goals lie among `points`, and are passed by the `rows` that are planned on, if there are any; a
    name or a cell is one of `env`. Of several, those that the data never arrived at earn nothing.
    """
    buffer, table = points.buffer, points.table
    index = {row.tobytes(): number for number, row in enumerate(table)} if points.exact else {}
    found = [_find(goal, points, rows, env, index) for goal in _listed(goals, buffer, env)]
    names, masks, passing = zip(*found, strict=True)
    are_goals, passed = np.stack(masks, axis=1), np.stack(passing, axis=1)
    arrived = are_goals[buffer.successors]
    missed = np.flatnonzero(~arrived.any(axis=0) & ~passed.any(axis=0))
    if len(missed):
        named = "" if names[missed[0]] == "goal" else f" {names[missed[0]]}"
        refusal = f"no transition arrives at the goal{named}: collect more steps"
        if len(missed) == len(found):
            raise ConfigurationError(refusal)
        warn(
            f"{len(missed)} of {len(found)} goals were not reached in the data, and their "
            f"policies act at random; the first: {refusal}",
            stacklevel=4,
        )
    # An end of the environment ends a task too: what came after it was another episode.
    ends = buffer.terminated[:, None] | (arrived & (not stays))
    return Tasks(arrived.astype(np.float64), ends, names, are_goals, passed, stays)


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


def _find(
    goal: Goal,
    points: Points,
    rows: Rows | None,
    env: gym.Env[Any, Any] | None,
    index: Mapping[bytes, int],
) -> tuple[str, BoolArray, IntArray]:
    """Name of a goal, mask (N,) of the observations that are it, and the step (n·A,) from which on
    rows are in it, as of :class:`Tasks`: it may lie between observations."""
    table = points.table
    point = PointGoal.of(goal, env, table.shape[1:])
    if point is None and not callable(goal):
        name, wanted = _observations(goal, table, env)
        if points.exact:
            keys, mask = [row.tobytes() for row in wanted.astype(table.dtype)], np.zeros(len(table))
            mask[[index[key] for key in keys if key in index]] = 1.0
            return name, mask > 0.0, np.empty(0, np.int64)
        tree = KDTree(points.of(wanted))

        def is_near(at: FloatArray) -> BoolArray:
            return np.asarray(tree.query(at)[0] <= GOAL_RADIUS)

        return name, is_near(points.rows), _passing(is_near, rows)

    def is_met(seen: NDArray[Any]) -> BoolArray:
        if point is not None:
            return point.distances(seen) <= 1.0
        return met(cast(Callable[..., Any], goal), points.buffer, seen)

    def is_inside(at: FloatArray) -> BoolArray:
        # No observation has features of an encoder that lie between.
        return is_met(points.observations(at)) if points.encoder is None else np.zeros(len(at)) > 0

    return getattr(goal, "__name__", "goal"), is_met(table), _passing(is_inside, rows)


def _passing(is_goal: Callable[[FloatArray], BoolArray], rows: Rows | None) -> IntArray:
    """The step (n·A,) from which on rows on landmarks are in a goal of points, 0: in none; (0,) of
    states."""
    if rows is None or rows.landmarks is None or rows.passed is None:
        return np.empty(0, np.int64)
    begins = np.repeat(rows.landmarks, len(rows.sink) // len(rows.landmarks), axis=0)
    points = begins + _SHARES * (rows.ahead - begins)
    inside = is_goal(points.reshape(-1, points.shape[2])).reshape(points.shape[:2])
    # A pair that was never tried has not moved, and leads to the sink.
    reached = inside.any(axis=0) & (rows.sink < 1.0)
    n_steps = (rows.passed[1] >= 0).sum(axis=0)
    step = np.ceil(_SHARES[inside.argmax(axis=0), 0, 0] * n_steps)
    return np.where(reached, step, 0).astype(np.int64)


def _observations(
    goal: Any, table: NDArray[Any], env: gym.Env[Any, Any] | None
) -> tuple[str, NDArray[Any]]:
    """Name and observations (m, *shape) of a goal by its name, its cell, or observations."""
    if isinstance(goal, str | tuple):
        world = None if env is None else env.unwrapped
        if env is None or not isinstance(world, GridWorld):
            raise ConfigurationError(
                f"the goal {goal!r} is a name or a cell, and the environment is no grid world: "
                "give an observation, or a function of observations"
            )
        name, state = goal_state(goal, env)
        return name, np.array([world.observation_map.encode(state)])
    if isinstance(goal, list) and len(goal) == 2 and env and isinstance(env.unwrapped, GridWorld):
        raise ConfigurationError(
            f"goal={goal!r} is a cell or two states: give ({goal[0]}, {goal[1]}) for the cell, or "
            f"np.array({goal!r}) for observations"
        )
    shape, spaces = table.shape[1:], None if env is None else Spaces.of(env)
    is_array = isinstance(goal, np.ndarray) and goal.shape[-len(shape) :] == shape
    if spaces is None or is_array or spaces.observation is spaces.observed:
        wanted = np.asarray(goal)
    else:
        wanted = spaces.read(goal, "a goal")
    wanted = wanted[None] if wanted.shape == shape else wanted
    if wanted.shape[1:] != shape or len(wanted) == 0:
        raise ConfigurationError(
            f"a goal of shape {np.shape(goal)} is no observation of shape {shape}, and not several"
        )
    if not np.isfinite(wanted).all():
        raise NonFiniteError("a goal must be finite")
    return (str(wanted[0]) if wanted.shape == (1,) else "goal"), wanted


def met(goal: Callable[..., Any], buffer: Buffer, observations: NDArray[Any]) -> BoolArray:
    """Mask (n,) of the observations that are a goal by a user's function."""
    mask = np.zeros(len(observations), np.bool_)
    for part in blocks(len(mask), 1024):
        found, size = np.asarray(goal(buffer.elements(observations[part]))), len(mask[part])
        if found.shape != (size,) or found.dtype.kind != "b":
            raise ConfigurationError(
                f"the function {getattr(goal, '__name__', 'goal')} returned {found.dtype} of shape "
                f"{found.shape} for {size} observations; a goal's must return bool of shape "
                f"({size},)"
            )
        mask[part] = found
    return mask


def reward_task(
    buffer: Buffer, reward: Reward, *, env: gym.Env[Any, Any] | None = None, seed: int | None = None
) -> Tasks:
    """One reward of any form on stored transitions of an environment and a run's seed; the reward
    of an environment from observations where possible, else by playing the episodes again."""
    name, ends = "reward", buffer.terminated
    made: Any = reward
    if inspect.isclass(made) or (callable(made) and not inspect.signature(made).parameters):
        reward = Environment.of(made).env
    if isinstance(reward, gym.Env):
        check_same_spaces(buffer, reward)
        world = reward.unwrapped
        if isinstance(world, GridWorld) and world.goal is not None and world.reward == "sparse":
            known, _ = resolve_goal("" if reward.spec is None else reward.spec.id, world.goal)
            name = known or ",".join(map(str, world.goal))
        elif env is not None and reward.spec is not None and reward.spec == env.spec:
            name = OWN_REWARD
        try:
            rewards, ends = label(buffer, reward_function(reward))
        # Only an environment whose rewards follow from no table is played again; a grid world's
        # reason stands.
        except ConfigurationError:
            if isinstance(world, GridWorld) or seed is None:
                raise
            rewards = _replayed_rewards(buffer, reward, seed=seed)
    elif callable(reward):
        rewards, ends = label(buffer, reward)
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
    first, index = distinct_rows(buffer.inputs, buffer.actions, buffer.successors)
    n_other = np.count_nonzero(~np.isclose(rewards, rewards[first][index]))
    if n_other >= _FEWEST_HIDDEN and buffer.counts().outcome_variance == 0.0:
        warn(
            f"in {n_other} transitions the reward was another than when the same was done before, "
            "although outcomes are certain: something that observations do not show decides it, "
            "such as a goal that moves. Show it; else the plan is for the mean",
            stacklevel=3,
        )
    if not ends.any() and (rewards == rewards[0]).all():
        raise ConfigurationError(
            f"every transition earns {rewards[0]:g} and none ends the task, so every policy is as "
            "good as any other: the data never reached what the reward is for"
        )
    return Tasks(rewards[:, None].astype(np.float64), ends[:, None], (name,))


def _replayed_rewards(buffer: Buffer, env: gym.Env[Any, Any], *, seed: int) -> FloatArray:
    """Reward of every transition (n,) of a run of a seed, by playing its episodes again.
    ConfigurationError: the environment does not repeat what was recorded."""
    rewards, table = np.empty(len(buffer)), buffer.observations.rows
    for number in range(buffer.n_episodes):
        running = RunningEpisode(env, seed=seed, number=number)
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
