"""Kinds of environments and data that say something else than what happened.

Each function looks at recorded transitions and returns a message that names its kind, or nothing.
Environments of released packages are of each of these kinds.
"""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium as gym
import numpy as np
import scipy
from numpy.typing import NDArray

from rover.arrays import BoolArray, FloatArray, IntArray

_FEWEST = 3  # episodes, or jumps, that make a kind
_BY_CHANCE = 1e-3  # probability that ends meet at one step without a clock
_SHOWN = 2000  # arrivals whose numbers are compared
_BLANK = 16  # numbers of an observation from which on equal ones are no place
_FAR = 3  # steps beyond which an arrival at a start is a jump, where states repeat
_BEYOND = 6.0  # times the three quarters' longest move: a jump, where they do not
_NEAR = 0.25  # distance to the starts behind a jump, by that before it
_RARE = 0.2  # share of the same actions in the same states that jump


class Recorded(Protocol):
    """Transitions episode by episode, as a :class:`rover.data.Buffer` has them."""

    observations: Any
    inputs: IntArray
    actions: IntArray
    successors: IntArray
    terminated: BoolArray
    truncated: BoolArray

    @property
    def is_end(self) -> BoolArray:
        """Mask (n,) of transitions that ended their episode."""

    @property
    def episodes(self) -> IntArray:
        """Number (n,) of the episode of each transition."""

    @property
    def episode_starts(self) -> IntArray:
        """Observation (e,) that each episode began with."""


def kinds_of(made: Recorded, space: gym.Space[Any] | None = None) -> dict[str, str]:
    """A message for each kind that transitions are of, by its function's name.

    `space` is of the observations, where they are stored as they were returned.
    """
    if len(made.inputs) == 0:
        return {}
    kinds = clock_end, double_flags, transition_end, stale_first, blank_last, self_reset, glued
    found = {kind.__name__: kind(made) for kind in kinds}
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        found["outside"] = outside(made.observations.rows, space.low, space.high)
    if found["clock_end"]:  # which has no states of its own
        del found["transition_end"]
    return {name: message for name, message in found.items() if message}


def clock_end(made: Recorded) -> str:
    """Terminations after one number of steps, the largest, in states that go on elsewhere."""
    ends, steps = np.flatnonzero(made.is_end), np.bincount(made.episodes)
    lengths = steps[made.episodes[ends]]
    limit, over = steps.max(), ends[made.terminated[ends] & (lengths == steps.max())]
    # Short games end at any step, and some at the longest of all.
    hazard = (1 + (lengths < limit).sum()) / (2 + np.minimum(lengths, limit - 1).sum())
    if len(over) <= _FEWEST or limit == 1 or hazard ** len(over) > _BY_CHANCE:
        return ""
    goes_on = np.isin(made.successors[over], made.inputs)
    if goes_on.sum() < max(2, len(over) / 5) and (_repeats(made) or _tells_apart(made, over)):
        return ""
    return (
        f"a time limit says 'terminated': {len(over)} of {len(ends)} episodes ended after {limit} "
        "steps, which none outlasts, whatever the state. Such states are taken for ends of the "
        "task: return terminated=False and truncated=True there (gymnasium.wrappers.TimeLimit)"
    )


def _tells_apart(made: Recorded, over: IntArray) -> bool:
    """True if a number of the observations is beyond all others where episodes are over."""
    rows = made.observations.rows.reshape(len(made.observations.rows), -1)
    others = np.flatnonzero(~made.is_end)
    others = others[:: 1 + len(others) // _SHOWN]
    last, rest = rows[made.successors[over]], rows[made.successors[others]]
    return bool(((last.min(0) > rest.max(0)) | (last.max(0) < rest.min(0))).any())


def double_flags(made: Recorded) -> str:
    """Ends that are said to be terminations and truncations at once."""
    lengths = np.bincount(made.episodes)[made.episodes]
    both = made.terminated & made.truncated
    cut = set(lengths[made.truncated & ~made.terminated].tolist())
    counts = set(lengths[both].tolist())
    if both.sum() < _FEWEST or (len(counts) == 1 and counts <= cut):
        return ""  # ends that happen to fall on a limit
    which = "terminated" if len(counts) > 1 else "truncated"
    return (
        f"both flags at once: {both.sum()} ends are terminated and truncated, "
        + ("at different steps" if len(counts) > 1 else f"all after {min(counts)} steps")
        + f". They are taken for terminations; return {which}=True alone"
    )


def transition_end(made: Recorded) -> str:
    """Observations that end the episode on some arrivals and not on others."""
    n = len(made.observations.rows)
    ending = np.bincount(made.successors[made.terminated], minlength=n)
    others = np.bincount(made.successors[~made.is_end], minlength=n)
    row = np.minimum(ending, others).argmax()
    if min(ending[row], others[row]) == 0 or ending[row] < _FEWEST:
        return ""
    return (
        f"ends belong to transitions, not to states: one observation ended the episode on "
        f"{ending[row]} arrivals and did not on {others[row]}. Let ends have observations of their "
        "own"
    )


def stale_first(made: Recorded) -> str:
    """First observations that are the last ones of the episode before."""
    ends = np.flatnonzero(made.is_end)
    ends = ends[: len(made.episode_starts) - 1]
    if len(ends) < _FEWEST or not made.is_end[:-1].any():
        return ""
    last, first = made.successors[ends], made.episode_starts[1 : len(ends) + 1]
    if (last != first).any() or len(np.unique(last)) < 2:
        return ""
    return (
        f"the first observation of an episode is old: in all of {len(ends)} it is the last one of "
        "the episode before. Let reset() begin anew, and return what is seen then"
    )


def blank_last(made: Recorded) -> str:
    """Ends that all look alike, and like nothing."""
    ends = np.flatnonzero(made.is_end)
    last, before = np.unique(made.successors[ends]), np.unique(made.inputs[ends])
    if min(len(ends), len(before)) < _FEWEST or len(last) > 1 or last[0] in made.inputs:
        return ""
    row = made.observations.rows[last[0]]
    if row.size < _BLANK or row.min() != row.max():
        return ""
    return (
        f"the last observation of an episode is nothing: in all of {len(ends)} each number is "
        f"{row.min()}, a state that all actions seem to lead to. Return what is seen at the end"
    )


def self_reset(made: Recorded) -> str:
    """Ends whose observation is one that episodes begin with."""
    n_ends = int(made.is_end.sum())
    n_jumps = int((_jumps(made) & made.is_end).sum())
    if n_jumps < _FEWEST or n_jumps < n_ends / 2:
        return ""
    return (
        f"the environment resets itself: {n_jumps} of {n_ends} ends lead far away, to where "
        "episodes begin, in a transition that never happened. Return the last observation itself, "
        "or in info['final_obs']"
    )


def glued(made: Recorded) -> str:
    """Episodes that go on behind an end which is not flagged."""
    jumps = np.flatnonzero(_jumps(made) & ~made.is_end)
    if len(jumps) < _FEWEST:
        return ""
    # An action that always leads back, such as a fall, is part of the task.
    every = np.gcd.reduce(np.diff(jumps))
    pairs = made.inputs * (1 + made.actions.max()) + made.actions
    n_same = np.isin(pairs, pairs[jumps]).sum()
    is_regular = every > _FAR
    if _repeats(made) and not is_regular and len(jumps) > _RARE * n_same:
        return ""
    length = f", {every} steps or a multiple apart: episode_length={every}" if is_regular else ""
    return (
        f"episodes look glued together: {len(jumps)} transitions lead far beyond all others, to "
        f"where episodes begin{length}. Flag each end, or give episode_length= to load_minari or "
        "Buffer.from_arrays"
    )


def _repeats(made: Recorded) -> bool:
    """True where observations come back, so that they are compared as names."""
    return 2 * len(made.observations.rows) <= len(made.inputs)


def _jumps(made: Recorded) -> BoolArray:
    """Mask (n,) of transitions far beyond all others, to where episodes begin."""
    rows, starts = made.observations.rows, np.unique(made.episode_starts)
    if _repeats(made):
        into = np.isin(made.successors, starts)
        edges = made.inputs[~into], made.successors[~into]
        graph = scipy.sparse.coo_array((np.ones(len(edges[0])), edges), shape=(len(rows),) * 2)
        distance = scipy.sparse.csgraph.dijkstra(
            graph.tocsr(), directed=False, indices=starts, unweighted=True, min_only=True
        )
        return np.asarray(into & (distance[made.inputs] > _FAR))
    if rows.ndim != 2:
        return np.zeros(len(made.inputs), np.bool_)
    moved = rows[made.successors].astype(np.float64) - rows[made.inputs]
    units = np.maximum(np.abs(moved).mean(axis=0), 1e-12)
    moves: FloatArray = np.linalg.norm(moved / units, axis=1)
    is_far = moves > _BEYOND * np.quantile(moves[moves > 0.0], 0.75) if moves.any() else moves > 0
    if is_far.any():
        tree = scipy.spatial.KDTree(rows[starts] / units)
        before, behind = (
            np.median(tree.query(rows[ends[is_far]] / units)[0])
            for ends in (made.inputs, made.successors)
        )
        is_far &= behind <= _NEAR * before
    return np.asarray(is_far)


def outside(rows: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> str:
    """Numbers of vectors (n, d) beyond the bounds of their space (d,) by more than rounding."""
    least, most = rows.min(axis=0), rows.max(axis=0)
    slack = 1e-5 * np.maximum(1.0, np.abs(rows).max(axis=0))
    wrong = np.flatnonzero((least < low - slack) | (most > high + slack))
    if len(wrong) == 0:
        return ""
    at = wrong[0]
    value = most[at] if most[at] > high[at] + slack[at] else least[at]
    return (
        f"observations are outside their space: [{at}] was {value}, and is said to be from "
        f"{low[at]} to {high[at]}. Correct the bounds"
    )
