"""Kinds of environments and data that say something else than what happened.

Each function looks at recorded transitions and has a message for each kind that they are of.
Environments of released packages are of each of these kinds; three episodes, or jumps, make one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import scipy

from rover.arrays import FloatArray
from rover.envs.spaces import misfit

if TYPE_CHECKING:
    from rover.data.buffer import Buffer


OUTSIDE = "observations are outside their space"
_FEWEST_MOVES = 100  # transitions from which on a number is said to grow


def kinds_of(made: Buffer, space: gym.Space[Any] | None = None) -> list[str]:
    """A message for each kind that transitions are of, whose name ends with a colon.

    `space` is of the observations, where they are stored as they were returned.
    """
    if len(made) == 0:
        return []
    found, rows = [*_ends(made), *_jumping(made)], made.observations.rows
    if rows.ndim == 2 and rows.shape[1] >= 2 and len(made) >= _FEWEST_MOVES:
        moved = rows[made.successors].astype(np.float64) - rows[made.inputs]
        change, share = np.sign(moved), (moved != 0.0).mean(axis=0)
        # Steps forward alone are a place, as long as others share its number.
        for column in np.flatnonzero((np.ptp(change, axis=0) <= 1.0) & (share > 0.2)).tolist():
            n_others = len(np.unique(np.delete(rows, column, axis=1), axis=0))
            if n_others <= len(rows) / 2:
                found.append(
                    f"a number only grows: {column} of the observation changed in "
                    f"{share[column]:.0%} of the steps, always one way, so that states do not come "
                    "back and goals with it are not reached. Leave it out "
                    "(gymnasium.wrappers.TransformObservation), or give goals in other numbers, "
                    "rover.solving.PointGoal"
                )
        found += [] if made.repeats else _wrapping(made)
    if isinstance(space, gym.spaces.Box) and len(space.shape) == 1:
        slack = 1e-5 * np.maximum(1.0, np.abs(rows).max(axis=0))  # more than rounding
        wrong = ((rows < space.low - slack) | (rows > space.high + slack)).any(axis=1)
        if wrong.any():
            words = misfit(rows[wrong][-1], space)
            found.append(f"{OUTSIDE}: {words}. Correct the bounds")
    return list(filter(None, found))


def _wrapping(made: Buffer) -> Iterator[str]:
    """Numbers of observations that moved a little or nearly their range, and never between."""
    rows, on = made.observations.rows.astype(np.float64), ~made.is_end
    ranges = np.maximum(np.ptp(rows, axis=0), 1e-12)
    low, high = np.sort([rows[made.inputs[on]], rows[made.successors[on]]], axis=0)
    share, place = (high - low) / ranges, (rows - rows.min(axis=0)) / ranges
    turns = (np.abs(place - 0.5) < 0.25).mean(axis=0) > 0.1  # a flag jumps, too
    n_far, n_near = (share > 0.75).sum(axis=0), ((share > 0.0) & (share < 0.25)).sum(axis=0)
    is_gap = n_far + n_near == (share > 0.0).sum(axis=0)
    for column in np.flatnonzero(turns & is_gap & (n_far >= 3) & (n_near > n_far)).tolist():
        is_far, x, y = share[:, column] > 0.75, low[:, column], high[:, column]
        near = (share[:, column] > 0.0) & ~is_far
        # What a sensor says that sees nothing is no neighbour of what it sees.
        if (x[near] <= x[is_far].max()).any() and (y[near] >= y[is_far].min()).any():
            yield (
                f"a number wraps around: {column} of the observation jumped by its whole range in "
                f"{n_far[column]} steps, as an angle does, so that neighbours look far apart. "
                "Return its cosine and sine in its place"
            )


def _ends(made: Buffer) -> Iterator[str]:
    """Ends that are no ends of the task, or are flagged twice; first observations of the episode
    before, and last ones that are like nothing."""
    # An action that always ends, such as to stand in a game of cards, is part of the task.
    ended = made.terminated & np.isin(made.actions, made.actions[~made.terminated])
    n = len(made.observations)
    ending = np.bincount(made.successors[ended], minlength=n)
    others = np.bincount(made.successors[~made.is_end], minlength=n)
    row = np.minimum(ending, others).argmax()
    if by_clock := _clock_end(made):
        yield by_clock  # whose ends have no states of their own
    elif others[row] > 0 and ending[row] >= 3:
        yield (
            f"ends belong to transitions, not to states: one observation ended the episode on "
            f"{ending[row]} arrivals and did not on {others[row]}. Let ends have observations of "
            "their own, and show what decides them, such as a goal that is drawn"
        )
    lengths = np.bincount(made.episodes)[made.episodes]
    both = made.terminated & made.truncated
    counts, cut = np.unique(lengths[both]), lengths[made.truncated & ~made.terminated]
    is_limit = len(counts) == 1
    # Ends that happen to fall on a limit are no kind.
    if both.sum() >= 3 and not (is_limit and counts[0] in cut):
        which = "truncated" if is_limit else "terminated"
        yield (
            f"both flags at once: {both.sum()} ends are terminated and truncated, at "
            f"{len(counts)} number(s) of steps. They are taken for terminations; return "
            f"{which}=True alone"
        )
    ends = made.successors[made.is_end]
    # Behind each end another episode begins; several may have begun at once before.
    n_first = max(1, len(made.episode_starts) - len(ends))
    begun = made.episode_starts[n_first:][: len(ends)]
    last = ends[: len(begun)]
    if len(last) >= 3 and (last == begun).all() and len(np.unique(last)) > 1:
        yield (
            f"the first observation of an episode is old: in all of {len(last)} it is the last "
            "one of the episode before. Let reset() begin anew, and return what is seen then"
        )
    if len(ends) < 3 or (ends != ends[0]).any() or ends[0] in made.inputs:
        return
    row = made.observations.rows[ends[0]]
    # Few equal numbers may be a place, and ends of few states too.
    if row.size >= 16 and row.min() == row.max() and len(np.unique(made.inputs[made.is_end])) >= 3:
        yield (
            f"the last observation of an episode is nothing: in all of {len(ends)} each number is "
            f"{row.min()}, a state that all actions seem to lead to. Return what is seen at the end"
        )


def _clock_end(made: Buffer) -> str:
    """Terminations after one number of steps, the largest, in states that go on elsewhere."""
    ends, steps = np.flatnonzero(made.is_end), np.bincount(made.episodes)
    lengths, limit = steps[made.episodes[ends]], steps.max()
    over = ends[made.terminated[ends] & (lengths == limit)]
    # Short games end at any step, and some at the longest of all.
    hazard = (1 + (lengths < limit).sum()) / (2 + np.minimum(lengths, limit - 1).sum())
    if len(over) <= 3 or limit == 1 or hazard ** len(over) > 1e-3:
        return ""
    # What falls ends more and more surely, and a clock all at once.
    if len(over) <= np.bincount(lengths)[limit - 1 - limit // 4 : limit].max():
        return ""
    if np.isin(made.successors[over], made.inputs).sum() < max(2, len(over) / 5):
        # Such ends may be places of their own, or tell the time.
        rows = made.observations.rows.reshape(len(made.observations), -1)
        last, rest = rows[made.successors[over]], rows[made.successors[~made.is_end]]
        is_beyond = (last.min(axis=0) > rest.max(axis=0)) | (last.max(axis=0) < rest.min(axis=0))
        if made.repeats or is_beyond.any():
            return ""
    return (
        f"a time limit says 'terminated': {len(over)} of {len(ends)} episodes ended after {limit} "
        "steps, which none outlasts, whatever the state. Such states are taken for ends of the "
        "task: return terminated=False and truncated=True there (gymnasium.wrappers.TimeLimit)"
    )


def _jumping(made: Buffer) -> tuple[str, str]:
    """Ends whose observation is one that episodes begin with; and episodes that go on behind an end
    which is not flagged."""
    rows, starts, resets = made.observations.rows, np.unique(made.episode_starts), ""
    is_jump = np.zeros(len(made), np.bool_)  # far beyond all others, to where episodes begin
    if made.repeats:  # more than three steps, of the graph of all other transitions
        into = np.isin(made.successors, starts)
        edges = made.inputs[~into], made.successors[~into]
        graph = scipy.sparse.coo_array((np.ones(len(edges[0])), edges), shape=(len(rows),) * 2)
        distance = scipy.sparse.csgraph.dijkstra(
            graph.tocsr(), directed=False, indices=starts, unweighted=True, min_only=True
        )
        is_jump = into & (distance[made.inputs] > 3)
    elif rows.ndim == 2:
        moved = rows[made.successors].astype(np.float64) - rows[made.inputs]
        units = np.maximum(np.abs(moved).mean(axis=0), 1e-12)
        moves: FloatArray = np.linalg.norm(moved / units, axis=1)
        is_jump = moves > (6.0 * np.quantile(moves[moves > 0.0], 0.75) if moves.any() else 0.0)
        if is_jump.any():
            tree = scipy.spatial.KDTree(rows[starts] / units)
            begun, reached = (
                np.median(tree.query(rows[ends[is_jump]] / units)[0])
                for ends in (made.inputs, made.successors)
            )
            is_jump &= reached <= begun / 4.0
    n_ends, n_jumps = made.is_end.sum(), (is_jump & made.is_end).sum()
    if n_jumps >= max(3, n_ends / 2):
        resets = (
            f"the environment resets itself: {n_jumps} of {n_ends} ends lead far away, to where "
            "episodes begin, in a transition that never happened. Return the last observation "
            "itself, or in info['final_obs']"
        )
    jumps = np.flatnonzero(is_jump & ~made.is_end)
    if len(jumps) < 3:
        return resets, ""
    every = np.gcd.reduce(np.diff(jumps))
    # An action that often leads back, such as a fall, is part of the task.
    pairs = made.inputs * made.n_actions + made.actions
    # Three jumps a multiple of four steps apart are met by chance in one of sixteen worlds.
    is_regular = every > 3 and float(every) ** (1 - len(jumps)) < 1e-3
    is_often = 5 * len(jumps) > np.isin(pairs, pairs[jumps]).sum()
    if made.repeats and not is_regular and is_often:
        return resets, ""
    length = f", {every} steps or a multiple apart: episode_length={every}" if is_regular else ""
    return resets, (
        f"episodes look glued together: {len(jumps)} transitions lead far beyond all others, to "
        f"where episodes begin{length}. Flag each end, or give episode_length= to load_minari or "
        "Buffer.from_arrays"
    )
