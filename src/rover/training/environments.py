"""What is known of an environment: how long it runs, what it shows, whether that is so."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rover.data import Buffer, Collector, check_spaces
from rover.envs import (
    DiscreteActions,
    FiniteMDP,
    GridWorld,
    finite_dynamics,
    hiding_wrapper,
)
from rover.errors import RoverWarning
from rover.features import Observations
from rover.operators.support import IntArray
from rover.policies import Policy

DEFAULT_HORIZON, MAX_HORIZON = 200, 10**6

_TESTED_STEPS = 2000
"""Steps in which a wrapper can show that it changes what is known."""


def warn_of_limits(env: gym.Env[Any, Any], problem: FiniteMDP | None, horizon: int) -> None:
    """Say what keeps the exact figures of an environment away, or full coverage out of reach.

    Args:
        env: the environment.
        problem: its known dynamics.
        horizon: steps after which its episodes are truncated.

    Warns:
        RoverWarning: a wrapper hides known dynamics, or there are states that no episode reaches.
    """
    said = []
    if getattr(env.action_space, "n", None) == 1:
        said.append(
            "the environment has a single action, so every policy is the same one: there is "
            "nothing to learn; give it the actions that can be chosen among"
        )
    if problem is None:
        wrapper = hiding_wrapper(env)
        if wrapper is not None:
            said.append(
                f"{wrapper} changes the observations or actions of an environment whose dynamics "
                "are known: coverage of states and J/J* are not reported; leave the wrapper out to "
                "have them"
            )
    else:
        steps = problem.dynamics.steps_to_states()
        late, never, longest = int((steps > horizon).sum()), int((steps < 0).sum()), steps.max()
        if late:
            said.append(
                f"{late} of {len(steps)} states cannot be reached within an episode of {horizon} "
                f"steps: the farthest takes {longest}. Coverage cannot be full; allow longer "
                f"episodes (horizon={longest} of a grid world, max_episode_steps={longest} of "
                "others), or let them begin elsewhere"
            )
        if never:
            said.append(
                f"{never} of {len(steps)} states can only be reached through a state that ends the "
                "episode: coverage cannot be full; leave the goal out, or move it"
            )
    for message in said:
        warnings.warn(message, RoverWarning, stacklevel=3)


def is_disproved(problem: FiniteMDP, buffer: Buffer, states: IntArray, horizon: int) -> bool:
    """Whether a wrapper that steps by itself turned out to change what is known.

    Args:
        problem: the known dynamics, and the wrappers that may change them.
        buffer: all transitions so far.
        states: (N,) the state of each row of its table of observations, −1 for none.
        horizon: steps after which episodes should be truncated.

    Warns:
        RoverWarning: it did; the message says what.
    """
    counts = buffer.counts()
    found = problem.contradiction(
        states[counts.inputs],
        counts.actions,
        states[counts.successors],
        counts.terminated,
        states[buffer.episode_starts],
    )
    ends = np.flatnonzero(buffer.terminated | buffer.truncated)
    lengths = np.diff(ends, prepend=-1)[buffer.truncated[ends]]
    if found is None and (lengths < horizon).any():
        found = f"an episode was truncated after {lengths.min()} steps"
    if found is not None:
        warnings.warn(
            f"{' or '.join(problem.unproven)} changes the environment whose dynamics are known "
            f"({found}): coverage of states and J/J* are not reported from step {len(buffer)} on",
            RoverWarning,
            stacklevel=3,
        )
    return found is not None


def tested_dynamics(
    env: gym.Env[Any, Any], policy: Policy, *, horizon: int, seed: int
) -> FiniteMDP | None:
    """The known dynamics of an environment, tried out where a wrapper may change them.

    Episodes of the policy and of random actions take turns.

    Args:
        env: the environment, which is stepped if it has such a wrapper.
        policy: a policy for it.
        horizon: steps after which episodes should be truncated.
        seed: of the episodes.

    Returns:
        The problem; None where nothing is known, or what was known turned out to be wrong.

    Warns:
        RoverWarning: it did; the message says what.
    """
    problem = finite_dynamics(env)
    if problem is None or not problem.unproven:
        return problem
    buffer, rng = Buffer(*check_spaces(env)), np.random.default_rng(seed)
    collector = Collector(env, buffer, seed=seed)
    collector.start_episode()
    for _ in range(_TESTED_STEPS):
        is_random = collector.episode % 2 == 1
        row = buffer.observations.rows[collector.observation]
        collector.step(int(rng.integers(buffer.n_actions)) if is_random else policy.act(row, rng))
    states = problem.states_of(buffer.observations.rows)
    return None if is_disproved(problem, buffer, states, horizon) else problem


def horizon_of(env: gym.Env[Any, Any]) -> int:
    """Steps after which episodes of the environment are truncated; 200 without a limit.

    More than a million steps are no limit.
    """
    limits, repeat = [None if env.spec is None else env.spec.max_episode_steps], 1
    while isinstance(env, gym.Wrapper):  # a TimeLimit around an environment without a spec
        limits.append(_decisions(getattr(env, "_max_episode_steps", None), repeat))
        repeat *= env.repeat if isinstance(env, DiscreteActions) else 1
        env = env.env
    limits += [_decisions(getattr(env, name, None), repeat) for name in ("horizon", "max_steps")]
    return min(
        (limit for limit in limits if limit is not None and limit <= MAX_HORIZON),
        default=DEFAULT_HORIZON,
    )


def _decisions(steps: Any, repeat: int) -> int | None:
    """Decisions in so many environment steps, `repeat` of them each; None of what is no number."""
    return math.ceil(steps / repeat) if isinstance(steps, int) else None


def fresh_copy(env: gym.Env[Any, Any]) -> gym.Env[Any, Any] | None:
    """Another instance of an environment, made from its spec or else copied; None if neither is.

    An instance that is made is silent.
    """
    spec = env.spec
    if spec is not None and not (
        isinstance(env.unwrapped, GridWorld) and not spec.additional_wrappers
    ):  # the map and the tables of a grid world need not be made anew
        silent = {"render_mode": None} if "render_mode" in spec.kwargs else {}
        try:
            return gym.make(spec, **silent)
        except Exception:  # a wrapper does not record how it was made, or a port is in use
            pass
    try:
        return copy.deepcopy(env)
    except Exception:  # whatever an environment may hold on to
        return None


def observations_of(env: gym.Env[Any, Any]) -> Observations:
    """What the observations of an environment are, for the networks of a learner.

    Vectors are taken for one-hot where the environment's states are known and say so.

    Raises:
        ConfigurationError: observations of a dtype that encoders do not take.
    """
    space = env.observation_space
    one_hot = False
    if isinstance(space, spaces.Box) and len(space.shape) == 1:
        is_unit = bool((space.low == 0).all() and (space.high == 1).all())
        problem = finite_dynamics(env) if is_unit else None
        if problem is not None:
            known = problem.observations
            one_hot = bool(((known == 0) | (known == 1)).all() and (known.sum(axis=1) == 1).all())
    return Observations.from_space(space, one_hot=one_hot)
