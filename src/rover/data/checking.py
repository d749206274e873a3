"""The door for environments: their spaces, their interface, and some random steps."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.data.buffer import MAX_ACTIONS, Buffer
from rover.data.rollout import RunningEpisode, as_reward, episode_seed
from rover.envs.discrete_actions import MOST_NUMBERS, action_set
from rover.errors import ConfigurationError, RoverWarning, UnsupportedSpaceError, abridge

# Distance by which rounding takes an observation beyond its bounds, relative to its size.
_BOUND_SLACK = 1e-5

_OBSERVATION = "gymnasium.wrappers.TransformObservation"
_ACTION = "gymnasium.wrappers.TransformAction"
_SMALLEST = 8
"""Pixels from which on the last two axes are those of an image in torch's order, and no board's."""

# Types of vectors that encoders take.
_DTYPES = ("uint8", "int64", "float32", "float64")


def check_spaces(env: Any) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Observation shape, observation dtype and number of actions of a supported environment.

    Args:
        env: an environment, or a data set with its spaces.

    Raises:
        ConfigurationError: no environment, its class, or many at once.
        UnsupportedSpaceError: other observations than Discrete or Box, or other actions than
            Discrete or a bounded Box of up to eight numbers, of which there are as many as
            :func:`~rover.envs.action_set` has; the message has the line that wraps the
            environment, where there is one.
    """
    kind = None
    if inspect.isclass(env):
        kind = f"the class {env.__name__}, and an agent steps an instance"
    elif isinstance(getattr(env, "num_envs", None), int):  # Gymnasium's, Stable-Baselines3's
        kind = (
            f"a vector environment of {env.num_envs}, and an agent steps a single one (to collect "
            "in parallel, make several runs and plan on them together: rover.solve([run, run]))"
        )
    elif not (hasattr(env, "action_space") and hasattr(env, "observation_space")):
        kind = f"a {type(env).__name__}, which is no environment"
    if kind is not None:
        raise ConfigurationError(
            f"this is {kind}: give a gymnasium.Env, as gymnasium.make returns it"
        )
    shape: tuple[int, ...] = ()
    match env.observation_space:
        # Discrete states are int64 whatever dtype the space has, so that they index tables.
        case spaces.Discrete(start=0):
            dtype = np.dtype(np.int64)
        case spaces.Box(shape=(size,) as shape, dtype=dtype) if size and dtype in _DTYPES:
            pass
        case spaces.Box(shape=(_, _, 1 | 3 | 4) as shape, dtype=np.dtype() as dtype) if (
            dtype == np.uint8 and 0 not in shape
        ):
            pass
        case space:
            raise _unsupported("observation", space, _line_for_observations)
    match env.action_space:
        case spaces.Discrete(start=0, n=n_actions) if n_actions <= MAX_ACTIONS:
            return shape, dtype, int(n_actions)
        case space if (actions := action_set(space)) is not None:
            return shape, dtype, len(actions)
        case space:
            raise _unsupported("action", space, _line_for_actions)


def _unsupported(
    name: str, space: Any, advice: Callable[[gym.Space[Any]], str]
) -> UnsupportedSpaceError:
    line = advice(space) if isinstance(space, gym.Space) else "give one of gymnasium.spaces"
    return UnsupportedSpaceError(f"{name} space {abridge(space)} is not supported: {line}")


def _line_for_actions(space: gym.Space[Any]) -> str:
    """Advice on a space of actions that is not supported, with the line to paste."""
    if isinstance(space, spaces.Discrete):
        if space.n > MAX_ACTIONS:
            return f"it has more than {MAX_ACTIONS} actions; choose among fewer with a wrapper"
        return (
            f"it starts at {space.start}, and actions must be 0..A−1; shift them with "
            f"{_ACTION}(env, lambda a: a + {space.start}, gymnasium.spaces.Discrete({space.n}))"
        )
    needed = "ROVER needs a finite set of actions, gymnasium.spaces.Discrete"
    few = f"{needed}; choose among at most {MAX_ACTIONS} with a wrapper"
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        is_binary = isinstance(space, spaces.MultiBinary)
        sizes = np.full(space.shape, 2) if is_binary else space.nvec  # type: ignore[union-attr]
        if (n := math.prod(sizes.ravel().tolist())) > MAX_ACTIONS:
            return few
        from_start = "" if is_binary or not np.any(space.start) else " + s.start"  # type: ignore[union-attr]
        counts = tuple(sizes.ravel().tolist())
        return (
            f"{needed}; number its {n} combinations with {_ACTION}(env, lambda a, "
            f"s=env.action_space: numpy.reshape(numpy.unravel_index(a, {counts}), s.shape)"
            f"{from_start}, gymnasium.spaces.Discrete({n}))"
        )
    if isinstance(space, spaces.Box):
        if math.prod(space.shape) <= MOST_NUMBERS and not space.is_bounded():
            return (
                "give its numbers bounds, your own in the place of -1 and 1, with "
                f"{_ACTION}(env, lambda a: a, gymnasium.spaces.Box(-1, 1, {space.shape}))"
            )
        n = 2 * math.prod(space.shape) + 1
        if not (1 < n <= MAX_ACTIONS and space.is_bounded()):
            return few
        # A grid over all numbers would have too many actions: one number at a time has 2 d + 1.
        # Where zero is out of bounds the others are as near to it as they can be.
        return (
            f"{needed}; move one of its {n // 2} numbers at a time, or none, with {_ACTION}(env, "
            "lambda a, s=env.action_space: numpy.where(numpy.vstack([numpy.eye(s.low.size)] * 2 + "
            "[numpy.zeros(s.low.size)])[a], (s.low if a < s.low.size else s.high).ravel(), "
            "numpy.clip(0, s.low, s.high).ravel()).reshape(s.shape).astype(s.dtype), "
            f"gymnasium.spaces.Discrete({n}))"
        )
    return (
        f"{needed}; number a few with {_ACTION}(env, lambda a: CHOICES[a], "
        "gymnasium.spaces.Discrete(len(CHOICES))), where CHOICES is a list of them"
    )


def _line_for_observations(space: gym.Space[Any]) -> str:
    """Advice on a space of observations that is not supported, with the line to paste."""
    if isinstance(space, spaces.Discrete):
        return (
            f"it starts at {space.start}, and states must be 0..S−1; shift them with "
            f"{_OBSERVATION}(env, lambda s: s - {space.start}, "
            f"gymnasium.spaces.Discrete({space.n}))"
        )
    if isinstance(space, spaces.Box):
        return _line_for_box_observations(space)
    if _is_flattenable(space):
        return f"make a vector of it with {_flattening(space)}"
    # A dictionary with text or graphs in it has no vector, but often a part that is all one needs.
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    usable = [key for key, part in parts.items() if isinstance(part, spaces.Box | spaces.Discrete)]
    if usable:
        key = "image" if "image" in usable else usable[0]
        minigrid = "minigrid.wrappers.ImgObsWrapper(env) for MiniGrid, or with "
        return (
            f"take one of its parts with {minigrid if key == 'image' else ''}{_OBSERVATION}"
            f"(env, lambda seen: seen[{key!r}], env.observation_space[{key!r}])"
        )
    return (
        f"make a vector of its numbers with {_OBSERVATION}(env, FUNCTION, "
        "gymnasium.spaces.Box(LOW, HIGH, (SIZE,)))"
    )


def _is_flattenable(space: gym.Space[Any]) -> bool:
    """True if Gymnasium makes a vector of the elements of a space."""
    try:
        return space.is_np_flattenable
    except NotImplementedError:  # a space of somebody's own, as the missions of MiniGrid
        return False


def _flattening(space: gym.Space[Any]) -> str:
    """Line that makes observations a vector of a dtype that encoders take."""
    line, vector = "gymnasium.wrappers.FlattenObservation(env)", spaces.flatten_space(space)
    if vector.dtype not in _DTYPES:
        return f"gymnasium.wrappers.DtypeObservation({line}, numpy.float32)"
    return line


def _line_for_box_observations(space: spaces.Box) -> str:
    shape, is_bytes = space.shape, space.dtype == np.uint8
    if 0 in shape:
        return "it holds no number at all, and an observation needs at least one"
    if len(shape) == 1:
        return (
            f"its dtype is none of {', '.join(_DTYPES)}; change it with "
            "gymnasium.wrappers.DtypeObservation(env, numpy.float32)"
        )
    image = "images are uint8 of (height, width, 1, 3 or 4)"
    if is_bytes and len(shape) == 2:
        change, new_shape = "[..., None]", (*shape, 1)
    elif is_bytes and len(shape) == 3 and shape[0] in (1, 3, 4) and min(shape[1:]) >= _SMALLEST:
        change, new_shape = ".transpose(1, 2, 0)", (*shape[1:], shape[0])
    else:
        return f"{image}; make a vector of it with {_flattening(space)}"
    return (
        f"{image}; make one of it with {_OBSERVATION}(env, lambda seen: seen{change}, "
        f"gymnasium.spaces.Box(0, 255, {new_shape}, numpy.uint8))"
    )


def check_same_spaces(buffer: Buffer, env: gym.Env[Any, Any]) -> None:
    """Check that a buffer holds transitions of an environment's observations and actions.

    Raises:
        ConfigurationError: it holds others.
    """
    if not isinstance(buffer, Buffer):
        raise ConfigurationError(
            f"a {type(buffer).__name__} is no buffer: give agent.buffer, or what rover.data.Buffer."
            "load or rover.training.run_folder.load_run_buffer returns"
        )
    # Equal shapes and dtypes are all that can be told; which observations they are cannot.
    wanted = check_spaces(env)
    table, space = buffer.observations, env.observation_space
    stored = (table.shape, table.dtype, buffer.n_actions)
    beyond = isinstance(space, gym.spaces.Discrete) and bool((table.rows >= space.n).any())
    if stored != wanted or beyond:
        raise ConfigurationError(
            f"the buffer was collected on another environment: it has observations of shape "
            f"{stored[0]} and dtype {stored[1]} and {stored[2]} actions, and this environment has "
            f"{abridge(space)} and {abridge(env.action_space)}: make it with the observations of "
            "pretraining"
        )


def check_env(env: gym.Env[Any, Any], *, n_steps: int = 50, seed: int = 0) -> None:
    """Check that an agent can work with an environment, by its spaces and some random steps.

    The steps are taken twice from the same seed, and must return the same. The environment is left
    in the middle of an episode.

    Args:
        env: the environment.
        n_steps: steps to take, over as many episodes as that takes, ≥ 1.
        seed: of the resets and the actions.

    Raises:
        UnsupportedSpaceError: spaces that no agent can work with; the message says how to wrap it.
        ConfigurationError: no single environment, another interface than Gymnasium's, or an
            observation that is not of its space.
        NonFiniteError: NaN or infinity in an observation or a reward.

    Warns:
        RoverWarning: observations outside their bounds, rewards that are not single numbers, or
            steps that the seed does not repeat.

    Example:
        >>> check_env(gymnasium.make("MountainCar-v0"))
    """
    check_spaces(env)
    # Twice from one seed, since resuming replays an episode and must meet the same steps.
    first, again = (_sampled(env, n_steps, seed) for _ in range(2))
    space: Any = env.observation_space
    for row, _, _ in first if isinstance(space, spaces.Box) else ():
        slack = _BOUND_SLACK * (1.0 + np.abs(row))
        outside = np.argwhere((row < space.low - slack) | (row > space.high + slack))
        if len(outside):
            place = tuple(outside[0].tolist())
            warnings.warn(
                f"the environment returned {row[place]} in dimension {place}, outside the "
                f"[{space.low[place]}, {space.high[place]}] of its observation space; correct the "
                "space or the environment",
                RoverWarning,
                stacklevel=2,
            )
            break
    if all(np.size(reward) == 1 for _, reward, _ in first):
        for number, (_, reward, _) in enumerate(first):
            as_reward(reward, f"random step {number}")
    else:
        warnings.warn(
            "the environment's rewards are no single numbers: pretraining does not read them, but "
            "finetune, adapt and solve need one; make it with "
            "gymnasium.wrappers.TransformReward(env, FUNCTION)",
            RoverWarning,
            stacklevel=2,
        )
    for number, (one, other) in enumerate(zip(first, again, strict=True)):
        if not all(map(np.array_equal, one, other)):
            warnings.warn(
                f"the same seed and the same actions gave something else at step {number}: draw "
                "random numbers from self.np_random, after super().reset(seed=seed); a run that "
                "stops cannot be resumed otherwise",
                RoverWarning,
                stacklevel=2,
            )
            break


def _sampled(
    env: gym.Env[Any, Any], n_steps: int, seed: int
) -> list[tuple[NDArray[Any], Any, bool]]:
    """Observation, reward and end of an episode for each of `n_steps` random steps and resets."""
    rng, n_actions = np.random.default_rng(seed), check_spaces(env)[2]
    steps: list[tuple[NDArray[Any], Any, bool]] = []
    n_episodes, is_over = 0, True
    for _ in range(n_steps):
        if is_over:
            episode = RunningEpisode(env, seed=episode_seed(seed, n_episodes), number=n_episodes)
            steps.append((episode.observation, 0.0, False))
            n_episodes += 1
        reached, reward, terminated, truncated = episode.step(int(rng.integers(n_actions)))
        is_over = terminated or truncated
        # A copy: some environments write every reward into one array.
        steps.append((reached, np.array(reward), is_over))
    return steps
