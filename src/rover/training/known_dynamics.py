"""Known dynamics held against an environment: its wrappers, its time limit, its transitions."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np

from rover.data import Buffer, Collector, check_spaces
from rover.envs import FiniteMDP, finite_dynamics, hiding_wrapper
from rover.errors import RoverWarning
from rover.operators.support import IntArray
from rover.policies import Policy

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
