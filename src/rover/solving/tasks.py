"""Rewards and goals of any form, as numbers on the transitions of a buffer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover.data import (
    Buffer,
    RunningEpisode,
    as_reward,
    check_same_spaces,
    episode_bounds,
    episode_seed,
    label,
)
from rover.envs import (
    GOALS,
    GridWorld,
    RewardFunction,
    Spaces,
    goal_view,
    id_and_kwargs,
    resolve_goal,
    reward_function,
)
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.operators.support import BoolArray, FloatArray
from rover.planning.outcomes import OutcomeModel
from rover.solving.experience import Experience


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


def goal_state(goal: str | tuple[int, int], env: gym.Env[Any, Any]) -> tuple[str, int]:
    """Name and state of a goal of a grid world, by its name or its cell.

    Raises:
        ConfigurationError: no such name, or the cell is a wall or outside the map.
    """
    world = env.unwrapped
    assert isinstance(world, GridWorld)
    name = goal if isinstance(goal, str) else ",".join(map(str, goal))
    _, (x, y) = resolve_goal("" if env.spec is None else env.spec.id, name)
    return name, world.layout.index((x, y), role="goal")


class GoalFinder:
    """Finds goals of any form among the observations of a buffer.

    Args:
        buffer: the transitions.
        model: the model that is planned on.
        env: the environment, for goals by name or cell; or None.
    """

    def __init__(
        self,
        buffer: Buffer,
        model: OutcomeModel,
        env: gym.Env[Any, Any] | None,
    ) -> None:
        self._buffer = buffer
        self._table = buffer.observations.rows
        self._model = model
        self._env = env
        self._row = {row.tobytes(): index for index, row in enumerate(self._table)}
        world = None if env is None else env.unwrapped
        self._world = world if isinstance(world, GridWorld) else None
        self._states: NDArray[Any] = (
            np.empty(0) if self._world is None else self._world.observations()
        )

    def listed(self, goals: str | Sequence[Goal]) -> Sequence[Goal]:
        """The goals of a list, or of its name.

        Args:
            goals: several of any form; ``"all"`` observations that some transition arrives at; or
                the ``"named"`` ones of the environment.

        Raises:
            ConfigurationError: there are none.
        """
        if isinstance(goals, str) and goals == "all":
            return [self._table[row] for row in np.unique(self._buffer.successors)]
        if isinstance(goals, str) and goals == "named":
            spec = None if self._env is None else self._env.spec
            env_id = "" if spec is None else spec.id
            if env_id not in GOALS:
                raise ConfigurationError(
                    f"{env_id or 'this environment'} has no named goals: give cells or observations"
                )
            return list(GOALS[env_id])
        if isinstance(goals, str) or len(goals) == 0:
            raise ConfigurationError(
                f"goals must be 'all', 'named' or several goals, not {goals!r}"
            )
        return goals

    def rewards(self, goals: str | Sequence[Goal], *, stays: bool = False) -> TaskRewards:
        """The tasks to arrive at goals: reward 1 on arrival, which terminates, and 0 elsewhere.

        Args:
            goals: as of :meth:`listed`. Of several, those that the data never arrived at earn
                nothing anywhere.
            stays: whether the reward is earned at every step in the goal, which ends nothing.

        Raises:
            ConfigurationError: the data never arrived at any of the goals, one is of no known
                form, or there are none.

        Warns:
            RoverWarning: the data never arrived at some of the goals.
        """
        names, columns, rows, passing = [], [], [], []
        refused: list[_NeverReachedError] = []
        goals = self.listed(goals)
        for number, goal in enumerate(goals):
            try:
                name, reached, passed = self._find(goal)
                arrivals = reached[self._buffer.successors]
                if not (arrivals.any() or passed.any()):
                    raise _NeverReachedError(
                        f"{_the(name)} cannot be planned for: no transition arrives there; "
                        "collect more steps"
                    )
            except _NeverReachedError as error:
                refused.append(error)
                if len(refused) == len(goals):
                    raise refused[0] from None
                name, reached = f"goal {number}", np.zeros(len(self._table), np.bool_)
                arrivals = np.zeros(len(self._buffer), np.bool_)
                passed = np.zeros(self._model.onward.shape[0], np.bool_)
            names.append(name)
            columns.append(arrivals)
            passing.append(passed)
            only = np.flatnonzero(reached)
            rows.append(int(only[0]) if len(only) == 1 else -1)
        if refused:
            warnings.warn(
                f"{len(refused)} of {len(goals)} goals were not reached in the data, and their "
                f"policies act at random; the first: {refused[0]}",
                RoverWarning,
                stacklevel=3,
            )
        arrived = np.stack(columns, axis=1)
        # An end of the environment ends a task too: what came after it was another episode.
        ends = self._buffer.terminated[:, None] | (arrived & (not stays))
        return TaskRewards(
            arrived.astype(np.float64),
            ends.astype(np.float64),
            tuple(names),
            np.array(rows),
            np.stack(passing, axis=1),
            stays,
        )

    def _stored(self, goal: Any) -> NDArray[Any]:
        """A goal, or several, as observations are stored."""
        spaces = None if self._env is None else Spaces.of(self._env)
        if spaces is None or spaces.observation is spaces.observed:
            return np.asarray(goal)
        if isinstance(goal, np.ndarray) and goal.shape[-len(spaces.shape) :] == spaces.shape:
            return goal
        return spaces.read(goal, "a goal")

    def _find(self, goal: Goal) -> tuple[str, BoolArray, BoolArray]:
        """A goal's name, which observations of the table (N,) are it, and which outcomes pass it.

        A goal may lie between the observations: predictions are asked, too.
        """
        point = as_point(goal, self._env, self._table.shape[1:])
        if point is not None:
            return self._by_function(
                lambda seen: point.distances(seen) <= 1.0, name="goal", nearest=point.distances
            )
        if callable(goal):
            return self._by_function(goal, getattr(goal, "__name__", "goal"))
        assert not isinstance(goal, PointGoal)
        if isinstance(goal, str | tuple):
            if self._env is None or self._world is None:
                raise ConfigurationError(
                    f"the goal {goal!r} is a name or a cell, and the environment is no grid world: "
                    "give an observation, or a function of observations"
                )
            name, state = goal_state(goal, self._env)
            wanted = self._states[state : state + 1]
        else:
            wanted, shape = self._stored(goal), self._table.shape[1:]
            wanted = wanted[None] if wanted.shape == shape else wanted
            if wanted.shape[1:] != shape or len(wanted) == 0:
                raise ConfigurationError(
                    f"a goal of shape {np.shape(goal)} is no observation of shape {shape}, and "
                    "not several"
                )
            if not np.isfinite(wanted).all():
                raise NonFiniteError("a goal must be finite")
            name = self._cell_of(wanted[0]) if len(wanted) == 1 else "goal"
        mask = np.zeros(len(self._table), np.bool_)
        if self._model.exact:
            rows = [self._row.get(row.tobytes(), -1) for row in wanted.astype(self._table.dtype)]
            mask[[row for row in rows if row >= 0]] = True
        else:
            # Within a radius: where states do not repeat no transition arrives at a point exactly.
            mask = self._distances(wanted, self._model.points) <= GOAL_RADIUS
        passed = self._model.outcomes_that_pass(
            lambda points: self._distances(wanted, points) <= GOAL_RADIUS
        )
        if not (mask.any() or passed.any()):
            never = f"{_the(name)} was never seen"
            if len(wanted) > 1:
                never = f"none of the goal's {len(wanted)} observations was ever seen"
            raise _NeverReachedError(f"{never}: {self._nearest(wanted)}; collect more steps")
        return name, mask, passed

    def _by_function(
        self,
        goal: Callable[[NDArray[Any]], Any],
        name: str,
        nearest: Callable[[NDArray[Any]], FloatArray] | None = None,
    ) -> tuple[str, BoolArray, BoolArray]:
        """The same of a function; `nearest` of observations are distances to a point."""
        mask = _met(goal, self._table)
        passed = np.zeros(self._model.onward.shape[0], np.bool_)
        if self._model.encoder is None:
            passed = self._model.outcomes_that_pass(
                lambda points: _met(goal, self._model.observations(points, self._table[0]))
            )
        if mask.any() or passed.any():
            return name, mask, passed
        if nearest is not None:
            raise _NeverReachedError(
                f"{_the(name)} was never reached: the data came as near as "
                f"{nearest(self._table).min():.3g} times its radius; collect more steps"
            )
        none = f"none of the {len(mask)} observations seen is a goal by {name}"
        if self._world is not None:
            wanted = self._states[_met(goal, self._states)]
            if len(wanted) == 0:
                raise ConfigurationError(f"{none}, and none of the map is: mend the function")
            none += f": {self._nearest(wanted)}"
        elif self._table[0].size <= _MOST_SHOWN:
            flat = self._table.reshape(len(mask), -1)
            spans = zip(flat.min(axis=0), flat.max(axis=0), strict=True)
            none += f": they span {', '.join(f'{low:.3g} to {high:.3g}' for low, high in spans)}"
        raise _NeverReachedError(f"{none}; collect more steps")

    def _cell_of(self, observation: NDArray[Any]) -> str:
        """The name of an observation: its cell (x, y), else its number if it is one."""
        state = self._state_of(observation)
        if self._world is None or state is None:
            return "goal" if observation.shape else str(observation)
        return ",".join(map(str, self._world.layout.cells[state].tolist()))

    def _state_of(self, observation: NDArray[Any]) -> int | None:
        if self._world is None:
            return None
        equal = (self._states == observation).reshape(len(self._states), -1).all(axis=1)
        return int(equal.argmax()) if equal.any() else None

    def _distances(self, wanted: NDArray[Any], points: FloatArray) -> FloatArray:
        """Distance of points (n, z) to the nearest observation of those wanted."""
        # In the model's units, in which five steps change about one.
        targets = wanted.reshape(len(wanted), -1).astype(np.float64) @ self._model.projection
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
        if self._model.exact:
            flat = self._table.reshape(len(self._table), -1).astype(np.float64)
            others = wanted.reshape(len(wanted), -1)
            apart = min(float(np.abs(flat - one).sum(axis=1).min()) for one in others)
            return f"the nearest observation seen differs by {apart:g}"
        apart = float(self._distances(wanted, self._model.points).min())
        return f"the data came as near as {apart:.2g} times what five steps change"


def _the(name: str) -> str:
    """A goal of this name, in a message."""
    return "the goal" if name == "goal" else f"the goal {name}"


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


def task_rewards(experience: Experience, model: OutcomeModel, reward: Reward) -> TaskRewards:
    """One reward of any form on stored transitions.

    Args:
        experience: the transitions.
        model: the model of them that is planned on.
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
            GoalFinder(buffer, model, reward).rewards([name])  # raises, and says how near
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
    for number, (first, behind) in enumerate(episode_bounds(buffer).tolist()):
        running = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        for row in range(first, behind):
            reached, reward, *_ = running.step(int(buffer.actions[row]))
            expected = table[buffer.successors[row]]
            # To the bit: an episode that drifts would give its rewards to other transitions.
            if not np.array_equal(np.asarray(reached, dtype=expected.dtype), expected):
                raise ConfigurationError(
                    f"step {row - first + 1} of episode {number} led elsewhere than when it was "
                    "recorded, so its reward cannot be computed by playing it again: give the "
                    "reward as a function of (observations, actions, next_observations)"
                )
            rewards[row] = as_reward(reward, running)
    return rewards
