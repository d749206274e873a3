"""Optimal values on sparse rows: value iteration, and policy iteration with an error bound; and
weights by which values at landmarks extend between them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array, csc_array, csr_array, eye_array
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve
from torch import Tensor

from rover.arrays import FloatArray
from rover.errors import warn

TIE = 1e-9
"""Action values nearer than this, relative to the best of the state, are taken for equal."""

_CERTAIN = 15.0  # ties by which an action is worse that is drawn once in e¹⁵ times
_PRECISION = 1e-11  # of optimal values
_ROUNDING = 1e-14  # of a sum over the outcomes of a pair
# Following a policy is one product a sweep, comparing actions as many as there are.
_FOLLOWED = 20  # sweeps of a policy before actions are compared again
_MOST_POLICIES = 5_000
_LEAPS, _MOST_FACTORED = 60, 20_000
"""Policies that are evaluated by leaps, which may take turns for ever; then up to so many states
each is evaluated exactly."""

_CORRECTIONS = 3
# Added to the spread of the landmarks, which is singular where they lie on a line.
_WEIGHT_FLOOR = 1e-4
# Squared distance, in units of the farthest landmark, below which a point is the landmark itself.
_COINCIDENT = 1e-12

Array = TypeVar("Array", Tensor, NDArray[np.float64])


class Values(NamedTuple):
    """Optimal values V = max_a Q of states (m, …), and Q of actions (m, A, …)."""

    states: FloatArray
    actions: FloatArray


def iterate(
    backup: Callable[[FloatArray], FloatArray],
    values: FloatArray,
    *,
    tolerance: float,
    sweeps: int = 20_000,
) -> Values:
    """V = max_a backup(V) by value iteration (Bellman 1957), for plans that are soon made anew.

    A backup leads from values (m, …) to values of actions (m, A, …). From zeros values that are not
    negative only grow, and what is nearest is reached first; the last plan's are closer. It stops
    when no value changes by more than a share of the largest, the tolerance.
    """
    for _ in range(sweeps):
        actions = backup(values)
        better = actions.max(axis=1)
        change = float(np.abs(better - values).max(initial=0.0))
        values = better
        if change <= tolerance * max(1e-6, float(np.abs(values).max(initial=0.0))):
            break
    return Values(values, actions)


class RowTasks(NamedTuple):
    """K tasks on rows: Q = q + c P (l V).

    Attributes:
        onward: P (m·A, m), as of :class:`rover.world.counts.Rows`.
        earned: q (m·A, K).
        remaining: c (m·A, K) or (1, 1), < 1.
        alive: l (m, K) or (1, 1), 0 where the task has ended.
    """

    onward: csr_array
    earned: FloatArray
    remaining: FloatArray
    alive: FloatArray

    def backup(self, values: FloatArray) -> FloatArray:
        """Values (m, A, K) of actions, from values (m, K)."""
        actions = self.earned + self.remaining * (self.onward @ (self.alive * values))
        return np.asarray(actions.reshape(len(values), -1, self.earned.shape[1]))

    def weights(self, task: int) -> csr_array:
        """c P l (m·A, m) of one task."""
        kept, alive = (
            np.broadcast_to(table, (size, self.earned.shape[1]))[:, task]
            for table, size in zip((self.remaining, self.alive), self.onward.shape, strict=True)
        )
        onward = self.onward
        data = onward.data * np.repeat(kept, np.diff(onward.indptr)) * alive[onward.indices]
        return csr_array((data, onward.indices, onward.indptr), shape=onward.shape)

    def optimal(self, start: FloatArray | None = None) -> Values:
        """Optimal values by modified policy iteration (Puterman and Shin 1978).

        It begins with the most probable paths to rare rewards, so that the farthest state has a
        value. Rows lead on with at most β, so that every value is within β / (1 − β) times the
        last change of the optimal one: at most 1e-11 of the largest, or 1e-14 β / (1 − β).

        Args:
            start: (m,) weights of the states where episodes begin, which are warned of if the
                discount leaves no value there; None: no paths are looked for.

        Warns:
            RoverWarning: values at the start are below what numbers distinguish, or not final.
        """
        values = np.zeros((self.onward.shape[1], self.earned.shape[1]))
        if start is not None:
            values = self._by_paths(start)
        actions = self.backup(values)
        change = np.abs(actions.max(axis=1) - values)
        # Certain outcomes: nothing but rounding is left of what the paths are worth.
        for task in np.flatnonzero((change > 1e-13 * np.abs(values)).any(axis=0)).tolist():
            weights, earned = self.weights(task), self.earned[:, task]
            values[:, task] = _policy_iteration(weights, earned, values[:, task])
        return Values(values, self.backup(values))

    def _by_paths(self, start: FloatArray) -> FloatArray:
        """Values (m, K) of the most probable path to a reward, where few pairs have any.

        Most states have one and the same f = max_a q / (1 − β), which no path to a reward falls
        below, and V − f earns q − f (1 − β), mostly 0.
        """
        onward, n_tasks = self.onward, self.earned.shape[1]
        size, n_actions = onward.shape[1], len(self.earned) // onward.shape[1]
        lost = 1.0 - self.remaining * (onward @ np.broadcast_to(self.alive, (size, n_tasks)))
        forever = (self.earned / lost).reshape(size, n_actions, -1).max(axis=1)
        usual = np.median(forever, axis=0)
        gains = self.earned - usual * lost
        noise = 1e-12 * (np.abs(self.earned) + np.abs(usual * lost))
        gains = np.where(np.abs(gains) <= noise, 0.0, gains)
        best = gains.reshape(size, n_actions, -1).max(axis=1)
        if (best != 0.0).mean() > 0.5 or not (best > 0.0).any():
            return np.asarray(forever.min(axis=0) + np.zeros_like(best))
        keep = np.broadcast_to(self.remaining, gains.shape).min(axis=1)
        keep = np.where((gains >= 0.0).all(axis=1), keep, 0.0)
        through = csr_array((size, size))
        for action in range(n_actions):
            some = onward[action::n_actions].multiply(keep[action::n_actions, None])
            through = through.maximum(csr_array(some))
        steps = coo_array(through)
        steps.eliminate_zeros()
        # A node for each task leads to its rewards, and these to where they are reached from.
        at, task = np.nonzero(best > 0.0)
        largest = best.max(axis=0)
        costs = np.append(-np.log(steps.data), 1.0 - np.log(best[at, task] / largest[task]))
        from_to = np.append(steps.col, size + task), np.append(steps.row, at)
        graph = csr_array((costs, from_to), shape=(size + n_tasks,) * 2)
        far = dijkstra(graph, indices=np.arange(size, size + n_tasks))[:, :size].T - 1.0
        values: FloatArray = usual + largest * np.exp(-far)
        begin = start > 0.0
        step = (values - usual)[begin] * lost.min()
        lacking = np.isfinite(far[begin]) & (step <= _CERTAIN * TIE * np.abs(values[begin]))
        if lacking.any():
            # Of one step: −log β.
            n_steps = round(float(far[begin][lacking].max()) / -math.log1p(-lost.min()))
            warn(
                f"where episodes begin a reward {n_steps:,} steps away is worth less than numbers "
                f"distinguish, and actions are drawn there: choose discount={1 - 1 / n_steps:.6g}",
                stacklevel=5,
            )
        return values


def _policy_iteration(onward: csr_array, earned: FloatArray, values: FloatArray) -> FloatArray:
    """Optimal values (m,) of pairs that earn (m·A,) and lead on with weights (m·A, m), from values
    (m,) to begin with."""
    first = np.arange(len(values)) * (len(earned) // len(values))
    most = float(onward.sum(axis=1).max())
    tolerance = max(_PRECISION * (1.0 - most) / max(most, 0.5), _ROUNDING)
    floor = 0.0
    for number in range(_MOST_POLICIES):
        actions = earned + onward @ values
        chosen = first + actions.reshape(len(values), -1).argmax(axis=1)
        better, matrix, reward = actions[chosen], onward[chosen], earned[chosen]
        change = np.abs(better - values)
        values = better
        rounded = tolerance * (np.abs(reward) + matrix @ np.abs(better))
        if (change <= np.maximum(rounded, floor)).all():
            return values
        if number >= _LEAPS and len(values) <= _MOST_FACTORED:
            # By what is lacking: each turn refines what the last one's rounding left (Skeel 1980),
            # but for the rounding of what is lacking, where a state's own value is 0.
            system = csc_array(eye_array(len(values)) - matrix)
            values = better + spsolve(system, reward - system @ better)
            floor = np.finfo(np.float64).eps ** 2 * float(np.abs(values).max())
            continue
        for _ in range(_FOLLOWED):
            before, values = values, reward + matrix @ values
        after = reward + matrix @ values
        # What is left, once changes only shrink: a geometric series.
        was, now = values - before, after - values
        ratio = float(was @ now) / max(float(was @ was), 1e-300)
        values = after
        if ratio < 1.0 and np.abs(now - ratio * was).max() <= 0.1 * np.abs(now).max():
            values = after + ratio / (1.0 - ratio) * now
    warn(
        f"values still changed by {change.max():.1e} after {_MOST_POLICIES:,} policies: choose a "
        "smaller discount",
        stacklevel=6,
    )
    return values


def gaussian_weights(distances: Array) -> Array:
    """Weights (q, k), sum 1, of distances (q, k) in units of the farthest; the width is a half."""
    xp: Any = torch if isinstance(distances, Tensor) else np
    weights = xp.exp(-2.0 * distances**2)
    return cast(Array, weights / weights.sum(axis=1, keepdims=True))


def interpolation_weights(distances: Array, offsets: Array, *, exact: bool = False) -> Array:
    """Weights (q, k) on k landmarks near each of q points, whose mean is the point if possible.

    Gaussian weights are corrected to first order (moving least squares, Lancaster and Salkauskas
    1981); where that would make one negative it is left out, and all this three times. Without the
    correction a point near a landmark would be taken for the landmark itself, and a short step for
    none.

    Args:
        distances: (q, k) in units of the farthest, ≤ 1; tensors, or arrays of numpy, which are
            five times faster for few points.
        offsets: (q, k, z) from the point to the landmarks, in the same units.
        exact: whether a point that is one of the landmarks has all of its weight there.
    """
    xp: Any = torch if isinstance(distances, Tensor) else np
    weights: Any = gaussian_weights(distances)
    if exact:
        weights = weights / (distances**2 + _COINCIDENT)
        weights = weights / weights.sum(axis=1, keepdims=True)
    k, d = offsets.shape[1:]
    floor = _WEIGHT_FLOOR * xp.eye(min(k, d), dtype=offsets.dtype)
    for _ in range(_CORRECTIONS):
        mean = (weights[:, None] @ offsets)[:, 0]
        centred = offsets - mean[:, None]
        if d <= k:
            spread = (centred * weights[:, :, None]).mT @ centred + floor
            change = centred @ xp.linalg.solve(spread, mean[:, :, None])
        else:  # the same by C (CᵀWC + εI)⁻¹ = (CCᵀW + εI)⁻¹ C, so that dimensions cost little
            spread = centred @ centred.mT * weights[:, None] + floor
            change = xp.linalg.solve(spread, centred @ mean[:, :, None])
        # Cut off where a weight would be negative, which the next round makes up for.
        corrected = weights * (1.0 - change[:, :, 0]).clip(min=0.0)
        total = corrected.sum(axis=1, keepdims=True)
        weights = xp.where(total > 0.0, corrected / total.clip(min=1e-300), weights)
    return cast(Array, weights)
