"""Properties of an environment: its horizon, its observations, and limits to warn of."""

from __future__ import annotations

import copy
import itertools
import json
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rover.data import Buffer, RunningEpisode, as_reward, episode_seed
from rover.data.checking import random_steps
from rover.envs import (
    FiniteMDP,
    GridWorld,
    Spaces,
    finite_dynamics,
    horizon_of,
    id_and_kwargs,
    make_env,
)
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.envs.finite_mdp import hiding_wrapper
from rover.errors import ConfigurationError, RoverError, RoverWarning, abridge
from rover.features import Observations
from rover.training.config import DEFAULT_DISCOUNT

_STEPS_REPEATED = 200
"""Steps of a recorded episode by which an instance is held against the run's."""


def warn_of_limits(env: gym.Env[Any, Any], problem: FiniteMDP | None) -> None:
    """Say what keeps the exact figures of an environment away, or full coverage out of reach."""
    messages = []
    if Spaces.of(env).n_actions == 1:
        messages.append(
            "the environment has a single action, so every policy is the same one: there is "
            "nothing to learn; give it the actions that can be chosen among"
        )
    wrapper = hiding_wrapper(env) if problem is None else None
    if wrapper is not None:
        messages.append(
            f"{wrapper} may change an environment whose dynamics are known: coverage of states "
            "and J/J* are not reported; leave the wrapper out to have them, or state in its "
            "class that nothing changes, finite_mdp = property(lambda self: "
            "rover.envs.finite_dynamics(self.env))"
        )
    if problem is not None:
        # Full coverage that no policy can reach would be read as a failure of the agent.
        steps, horizon = problem.dynamics.steps_to_states(), horizon_of(env)
        late, never, longest = int((steps > horizon).sum()), int((steps < 0).sum()), steps.max()
        if len(steps) > MAX_EVALUATED_STATES:
            messages.append(
                f"{len(steps)} states are too many to measure every policy exactly (limit "
                f"{MAX_EVALUATED_STATES}); coverage and optimality are not reported"
            )
        if late:
            messages.append(
                f"{late} of {len(steps)} states cannot be reached within an episode of {horizon} "
                f"steps: the farthest takes {longest}. Coverage cannot be full; allow longer "
                f"episodes (horizon={longest} of a grid world, max_episode_steps={longest} of "
                "others), or let them begin elsewhere"
            )
        if never:
            messages.append(
                f"{never} of {len(steps)} states can only be reached through a state that ends the "
                "episode: coverage cannot be full; leave the goal out, or move it"
            )
    for message in messages:
        warnings.warn(message, RoverWarning, stacklevel=3)


def discount_of(env: gym.Env[Any, Any]) -> float:
    """Discount that the environment suggests, or else the default one."""
    return getattr(env.unwrapped, "suggested_discount", None) or DEFAULT_DISCOUNT


class NoSecondInstanceError(ConfigurationError):
    """There is no second instance of an environment that can be trusted: give one."""


def evaluation_copy(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """A second instance of an environment, which may be stepped while the first one is in use.

    A deep copy, which holds whatever was set after the environment was made; else one that is made
    from its spec, if it has the same attributes. It is stepped a few times, beside a second copy:
    copies that hold the same client or handle drive one simulator, the first one's.

    Raises:
        NoSecondInstanceError: neither can be made, or copies disturb one another.
    """
    reasons = []
    for make, lacks in _MAKERS:
        try:
            made = make(env)
            # Of rover's own environments it is known that copies are whole and share tables alone.
            if make is _deep_copy and isinstance(env.unwrapped, GridWorld):
                return made
            other = make(env)
        except _NoCopy as reason:
            reasons.append(str(reason))
            continue
        if unlike := _set_after_making(env, made, other):
            reasons.append(lacks.format(", ".join(unlike)))
        elif _disturb(made, other):
            reasons.append(
                "copies of it drive one simulator, so that an evaluation would disturb it"
            )
        else:
            return made
    raise NoSecondInstanceError(
        f"no second instance of this environment can be evaluated in: {'; '.join(reasons)}. Pass "
        "evaluation_env=, another instance with a simulator of its own"
    )


class _NoCopy(Exception):
    """The reason for which an environment cannot be made a second time."""


def _deep_copy(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    if getattr(env, "render_mode", None) == "human":
        raise _NoCopy("it draws in a window, which a copy would draw in too")
    try:
        copied = copy.deepcopy(env)
    except Exception as error:  # whatever an environment may hold on to
        raise _NoCopy(f"it cannot be copied ({type(error).__name__})") from error
    if getattr(env, "render_mode", None) is not None:
        _keep(copied, env)
    return copied


def _keep(copied: gym.Env[Any, Any], env: gym.Env[Any, Any]) -> None:
    """Keep a copy that may draw as long as its original.

    When one of Gymnasium's MuJoCo renderers is freed, the graphics of the others go with it, and
    their pictures are black from then on.
    """
    weakref.finalize(env, lambda _: None, copied).atexit = False


def _made_again(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """An instance that is made from the spec, silent."""
    spec = env.spec
    if spec is None:
        raise _NoCopy("it was not made by gymnasium.make")
    silent = {"render_mode": None} if "render_mode" in spec.kwargs else {}
    try:
        return gym.make(spec, **silent)
    except Exception as error:  # a wrapper does not record how it was made, or a port is in use
        raise _NoCopy(f"it cannot be made from its id ({type(error).__name__})") from error


# Environments that are pickled by the arguments of their making are made anew by a deep copy, too.
_MAKERS = (
    (_deep_copy, "a copy lacks {}, which was set after it was made"),
    (_made_again, "{} of it was set after it was made from its id"),
)


def _set_after_making(
    env: gym.Env[Any, Any], fresh: gym.Env[Any, Any], other: gym.Env[Any, Any]
) -> list[str]:
    """Attributes of an environment with other values than a fresh instance of it has, as words.

    Numbers, words, arrays, and lists, tuples and dictionaries of them are compared, of the
    innermost environment. What a reset or a step changes is part of an episode, and what differs
    between two fresh instances, as a temporary file, is each one's own: both are left out.

    Args:
        env: the environment.
        fresh: an instance that was just made, which is reset and stepped.
        other: another one.
    """
    before = _attributes(fresh)
    random_steps(fresh, _STEPS_TOGETHER, 0)
    after, own, others = (_attributes(each) for each in (fresh, env, other))
    return [
        f"{name}={abridge(getattr(env.unwrapped, name))}"
        for name, value in before.items()
        if value == after.get(name) == others.get(name)
        and name in own
        and value != own[name]
        and not name.startswith("render")
    ]


def _attributes(env: gym.Env[Any, Any]) -> dict[str, Any]:
    """The attributes of the innermost environment that can be compared, by name."""
    known = {name: _comparable(value) for name, value in vars(env.unwrapped).items()}
    return {name: value for name, value in known.items() if value is not None}


def _comparable(value: Any) -> str | None:
    """A value as JSON, which can be compared; None of objects of other classes."""

    def plain(part: Any) -> Any:
        if not (isinstance(part, np.generic | np.ndarray) and part.dtype.kind in "biuf"):
            raise TypeError
        return part.tolist()

    try:
        return json.dumps(value, default=plain, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        return None


_STEPS_TOGETHER = 8
"""Steps by which it is found whether two copies drive one simulator: of a seed's first ones."""


def _disturb(one: gym.Env[Any, Any], other: gym.Env[Any, Any]) -> bool:
    """True if an episode of one instance is another one when the other is stepped meanwhile."""

    def stepped(disturb: Callable[[int], object] | None = None) -> list[Any]:
        return list(itertools.chain(*random_steps(one, _STEPS_TOGETHER, 0, disturb=disturb)))

    first = stepped()
    if not _same(first, stepped()):  # whatever its seed: nothing can be said of it
        return False
    return not _same(first, stepped(lambda k: random_steps(other, k + 1, seed=k + 1)))


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def repeats_itself(env: gym.Env[Any, Any], buffer: Buffer, *, seed: int, episode: int = 0) -> bool:
    """True if an instance repeats a recorded episode of a run; or not even itself, by its seed.

    Args:
        env: the instance, which is reset and stepped.
        buffer: transitions of the run; rewards are compared where it has them.
        seed: of the run.
        episode: number of the episode; at most its first 200 steps are played.
    """
    rows = buffer.rows_of(episode)[:_STEPS_REPEATED]
    table = buffer.observations.rows
    recorded: list[Any] = [table[buffer.episode_starts[episode]], *table[buffer.successors[rows]]]
    earned = [] if buffer.rewards is None else buffer.rewards[rows].tolist()

    def played() -> list[Any]:
        running = RunningEpisode(env, seed=episode_seed(seed, episode))
        seen, rewards = [running.observation], []
        for action in buffer.actions[rows].tolist():
            reached, reward, *_ = running.step(action)
            seen.append(reached)
            if earned:
                rewards.append(as_reward(reward, running))
        return [*seen, *rewards]

    try:
        once = played()
        return _same(once, [*recorded, *earned]) or not _same(once, played())
    except (ConfigurationError, gym.error.ResetNeeded):  # other observations, or an earlier end
        return False


def warn_of_another_world(env: gym.Env[Any, Any], buffer: Buffer, *, seed: int) -> None:
    """Warn where an environment that was made from the id of a run does not repeat its data.

    Warns:
        RoverWarning: it does not; something was set after the run's own was made.
    """
    if not isinstance(env.unwrapped, GridWorld) and not repeats_itself(env, buffer, seed=seed):
        warnings.warn(
            "the environment as its id makes it does not repeat the first episode of the run's "
            "data: something was set after it was made. Go on in Python with env=, or register it "
            "as it was set",
            RoverWarning,
            stacklevel=3,
        )


def warn_of_settings(env: gym.Env[Any, Any]) -> None:
    """Warn before a run with a folder of what no command can make again from the id.

    Warns:
        RoverWarning: attributes that were set after the environment was made.
    """
    made = id_and_kwargs(env)
    if made is None or isinstance(env.unwrapped, GridWorld):
        return
    try:
        unlike = _set_after_making(env, make_env(*made), make_env(*made))
    except RoverError:  # it cannot be made twice
        return
    if unlike:
        warnings.warn(
            f"{', '.join(unlike)} was set after {made[0]} was made. The commands (resume, "
            "evaluate, solve, finetune) make it from its id, without that: go on in "
            "Python with env=, or register it with the keywords that set it",
            RoverWarning,
            stacklevel=4,
        )


def observations_of(env: gym.Env[Any, Any]) -> Observations:
    """Description of an environment's observations for the networks of a learner.

    Vectors are taken for one-hot where the environment's states are known and say so.
    """
    space = Spaces.of(env).observation
    one_hot = False
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        # Only then are all states asked for, whose table may be large.
        is_unit = bool((space.low == 0).all() and (space.high == 1).all())
        problem = finite_dynamics(env) if is_unit else None
        if problem is not None:
            # By all states and not by the space alone: a box from 0 to 1 may hold anything.
            rows = problem.observations
            one_hot = bool(((rows == 0) | (rows == 1)).all() and (rows.sum(axis=1) == 1).all())
    return Observations.from_space(space, one_hot=one_hot)
