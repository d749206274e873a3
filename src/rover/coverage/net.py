"""Collect: where to go next, from the state the agent stands on, when states do not repeat.

The plan heads for places where the data is thin. A step's novelty is priced at the place that it is
predicted to reach, by the density ρ of what was visited, 1 / (1 + ρ), which falls where ‖μ‖² of the
data's own occupancy grows; and the prediction is a displacement, because what an action changes is
much the same everywhere while where it leads is not. Value iteration runs on an ε-net of what was
visited. Distances are in units of time: each feature is divided by what it changes in `lag` steps,
so that a fast or noisy one counts little and a slow one much; a feature whose successive values
hardly correlate is noise that no action controls, and does not count at all (docs/deviations.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.spatial import KDTree
from torch import Tensor

from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.support import BoolArray, FloatArray, IntArray

MODEL_LAG = 5
"""Steps whose change is the unit of distance of the transition model."""

COVERAGE_LAG = 40
"""Steps whose change is the unit of distance of coverage: slow features, not fast ones."""

RADIUS = 1.0
"""Largest distance of a visited place to the net, doubled while the net is too large."""

MAX_NET = 1000
"""Most places of a net: a plan costs their square, times the actions (docs/deviations.md)."""

DENSITY_WIDTH = 0.5
"""Width of the Gaussian by which the density of the data is measured."""

FIRST_SCALE = 50
"""Transitions that the units are first taken from, and again when there are half as many more."""

_NOISE = 0.2  # lag-one autocorrelation of a feature below which it is noise
_SMALLEST_SCALE = 1e-3  # of a feature's range: one that has not moved yet is not infinitely fine
_NEIGHBOURS = 4
_SPREAD = 3
_TIE = 1e-12
_SWEEPS = 150
_TOLERANCE = 1e-3
_BLOCK = 256
_FEW_DIMENSIONS = 16  # up to which a tree finds neighbours sooner than products do


def _lag_scale(points: FloatArray, ends: FloatArray, episodes: IntArray, lag: int) -> FloatArray:
    """What each feature changes in `lag` steps: the root mean square within episodes, (d,).

    Args:
        points: (n, d) where the transitions begin, in the order in which they were made.
        ends: (n, d) where they lead.
        episodes: (n,) the number of each transition's episode, non-decreasing.
        lag: steps ≥ 1; fewer are taken where the data is shorter.
    """
    lag = max(1, min(lag, len(points) // 2))
    whole = np.flatnonzero(episodes[lag - 1 :] == episodes[: len(episodes) - lag + 1])
    if len(whole) == 0:
        return _lag_scale(points, ends, episodes, 1)
    change = ends[lag - 1 :][whole] - points[whole]
    return np.asarray(np.sqrt((change**2).mean(axis=0)))


def _autocorrelation(points: FloatArray, ends: FloatArray) -> FloatArray:
    """Correlation of each feature with itself one step later, (d,); 1 for a constant."""
    spread = np.concatenate([points, ends]).var(axis=0)
    change = ((ends - points) ** 2).mean(axis=0)
    return np.asarray(1.0 - change / np.maximum(2.0 * spread, 1e-300) * (spread > 0.0))


def time_units(
    points: FloatArray, ends: FloatArray, done: BoolArray, lag: int = MODEL_LAG
) -> FloatArray:
    """The unit of distance of each feature: what it changes in `lag` steps, (d,); inf for noise.

    Noise is what is hardly correlated with itself one step later; where everything is noise,
    nothing is taken for it.

    Args:
        points: (n, d) where the transitions begin, in the order in which they were made.
        ends: (n, d) where they lead.
        done: (n,) whether the episode ended with the transition.
        lag: steps ≥ 1.
    """
    episodes = np.concatenate([[0], np.cumsum(done)[:-1]])
    range_of = np.maximum(np.ptp(ends, axis=0), _SMALLEST_SCALE)
    units = np.maximum(_lag_scale(points, ends, episodes, lag), _SMALLEST_SCALE * range_of)
    is_noise = _autocorrelation(points, ends) <= max(_NOISE, 3.0 / np.sqrt(len(points)))
    return np.asarray(np.where(is_noise & ~is_noise.all(), np.inf, units))


class NetExplorer:
    """Plans over an ε-net of the visited places.

    Everything it keeps is a function of the buffer, whenever it began to look at it.

    Args:
        buffer: the transitions.
        places: returns the features (N, z) of the buffer's observations, and which of them are to
            be covered; None: all.
        discount: γ in (0, 1).
        every: steps after which the plan is made anew.
    """

    def __init__(
        self,
        buffer: Buffer,
        places: Callable[[], tuple[FloatArray, IntArray | None]],
        *,
        discount: float,
        every: int,
    ) -> None:
        self._buffer = buffer
        self._places_of = places
        self._discount = discount
        self._every = every
        self._age = 0
        self._planned = False
        self._units_from = 0  # transitions that the units were taken from; 0: none yet

    def observe(self, row: int, *, done: bool) -> None:
        """The plan ages by a step; it looks at the buffer when it is made anew."""
        self._age += 1

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The action at an observation, by its index, with the largest value; ties drawn."""
        n_actions = self._buffer.n_actions
        if len(self._buffer) < FIRST_SCALE:
            return int(rng.integers(n_actions))
        if not self._planned or self._age >= self._every:
            self._plan()
        features, _ = self._places_of()
        point = features[observation : observation + 1, self._kept] / self._scale
        ends = np.concatenate([self._predict(action, point) for action in range(n_actions)])
        weights, near = self._near(ends)
        onward = (weights * self._values[near]).sum(axis=1)
        values = self._novelty(ends) + self._discount * onward
        return int(rng.choice(np.flatnonzero(values >= values.max() - _TIE)))

    def _take_units(self, n_rows: int) -> None:
        """Which features count, and how much they change, by the first `n_rows` transitions."""
        buffer, (features, chosen) = self._buffer, self._places_of()
        points, ends = features[buffer.inputs[:n_rows]], features[buffer.successors[:n_rows]]
        done = buffer.terminated[:n_rows] | buffer.truncated[:n_rows]
        units = time_units(points, ends, done)
        self._kept = np.flatnonzero(np.isfinite(units))
        self._scale = units[self._kept]
        slow = time_units(points, ends, done, COVERAGE_LAG)[self._kept]
        covered = np.isin(self._kept, self._kept if chosen is None else chosen)
        if not covered.any():
            warnings.warn(
                "nothing of what cover names follows from the step before, so everything else is "
                "covered: cover something that actions change",
                RoverWarning,
                stacklevel=2,
            )
            covered[:] = True
        self._to_slow = np.where(covered, self._scale / slow, 0.0)
        self._units_from = n_rows
        self._net = np.empty((0, len(self._kept)))
        self._radius = RADIUS
        self._in_net = 0

    def _extend_net(self, ends: FloatArray) -> None:
        """Add the places `ends` (n, d) that are farther than the radius from the net; count all."""
        self._net = epsilon_net(ends[self._in_net :], self._radius, self._net, largest=MAX_NET)
        while len(self._net) > MAX_NET:
            self._radius *= 2.0
            self._net = epsilon_net(ends, self._radius, largest=MAX_NET)
        self._tree = KDTree(self._net)
        nearest = self._tree.query(ends)[1]
        self._counts = torch.from_numpy(np.bincount(nearest, minlength=len(self._net))).double()
        self._in_net = len(ends)

    def _plan(self) -> None:
        """Units, net, model, density and values, all from the buffer."""
        buffer = self._buffer
        due = FIRST_SCALE
        while due * 3 // 2 <= len(buffer):
            due = due * 3 // 2
        if due != self._units_from:
            self._take_units(due)
        features = self._places_of()[0][:, self._kept] / self._scale
        points, ends = features[buffer.inputs], features[buffer.successors]
        self._extend_net(ends)
        self._places = torch.from_numpy(self._net * self._to_slow)
        self._models: list[tuple[KDTree, FloatArray] | None] = []
        predictions = []
        for action in range(buffer.n_actions):
            rows = np.flatnonzero(buffer.actions == action)
            known = len(rows) > 0
            self._models.append((KDTree(points[rows]), (ends - points)[rows]) if known else None)
            predictions.append(self._predict(action, self._net))
        predicted = np.concatenate(predictions)
        novelty, on_net = self._novelty(predicted), self._on_net(predicted)
        self._values = np.zeros(len(self._net))
        for _ in range(_SWEEPS):
            action_values = novelty + self._discount * (on_net @ self._values)
            better = action_values.reshape(buffer.n_actions, -1).max(axis=0)
            change = np.abs(better - self._values).max()
            self._values = better
            if change <= _TOLERANCE * better.max():
                break
        self._age, self._planned = 0, True

    def _predict(self, action: int, points: FloatArray) -> FloatArray:
        """Where `action` leads from `points` (n, d): by the displacement of the nearest ones."""
        model = self._models[action]
        if model is None:
            return points
        tree, change = model
        distance, index = _nearest(tree, points, min(_NEIGHBOURS, len(change)))
        weight = np.exp(-0.5 * (distance / RADIUS) ** 2) + 1e-12
        mean = (weight[:, :, None] * change[index]).sum(axis=1)
        return np.asarray(points + mean / weight.sum(axis=1, keepdims=True))

    def _near(self, points: FloatArray) -> tuple[FloatArray, IntArray]:
        """Points (n, d) as weights (n, k), rows that sum to 1, on the k nearest places (n, k)."""
        n_near = min(_SPREAD, len(self._net))
        distance, index = _nearest(self._tree, points, n_near)
        weight = np.exp(-0.5 * (distance / (self._radius / 2)) ** 2) + 1e-12
        return weight / weight.sum(axis=1, keepdims=True), index

    def _on_net(self, points: FloatArray) -> csr_array:
        """The weights of points (n, d) as a matrix (n, places of the net)."""
        weights, near = self._near(points)
        bounds = np.arange(len(points) + 1) * weights.shape[1]
        shape = len(points), len(self._net)
        return csr_array((weights.ravel(), near.ravel(), bounds), shape=shape)

    def _novelty(self, points: FloatArray) -> FloatArray:
        """(1 − γ) / (1 + ρ) at `points` (n, d), with the density ρ of what was visited."""
        # By torch, whose threads a run fixes: numpy's bits follow their number.
        slow = torch.from_numpy(points * self._to_slow)
        near = torch.exp(_squared(slow, self._places).mul_(-0.5 / DENSITY_WIDTH**2))
        density = torch.mv(near, self._counts).numpy()
        return np.asarray((1.0 - self._discount) / (1.0 + density))


def epsilon_net(
    points: FloatArray, radius: float, net: FloatArray | None = None, *, largest: float = np.inf
) -> FloatArray:
    """Some of the `points` (n, d), no two nearer than `radius` and every point as near to one.

    The first point comes first, and the others in their order, so that a net only grows with the
    data.

    Args:
        points: (n, d).
        radius: of the balls around the places of the net that hold every point, > 0.
        net: (m, d) the net of earlier points, which is extended; None: there are none.
        largest: size beyond which the net is not continued.
    """
    chosen = torch.from_numpy(points[:0] if net is None else net)
    for block in torch.split(torch.from_numpy(points), _BLOCK):
        if len(chosen) > largest:
            break
        fresh = block[(_distances(block, chosen) > radius).all(dim=1)]
        apart = (_distances(fresh, fresh) > radius).numpy()
        is_open, added = np.ones(len(fresh), np.bool_), []
        for index in range(len(fresh)):
            if is_open[index]:
                added.append(index)
                is_open &= apart[index]
        chosen = torch.cat([chosen, fresh[added]])
    return chosen.numpy()


def _nearest(tree: KDTree, points: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
    """Distances and indices, both (n, k), of the k places of a tree that are nearest to points."""
    if tree.m <= _FEW_DIMENSIONS:
        distance, index = tree.query(points, k=range(1, k + 1))
        return np.asarray(distance), np.asarray(index)
    # Where a tree has to look at almost every place, a matrix product does so sooner.
    squared, at = _squared(torch.from_numpy(points), torch.from_numpy(tree.data)).topk(
        k, largest=False
    )
    return squared.sqrt().numpy(), at.numpy()


def _squared(points: Tensor, others: Tensor) -> Tensor:
    """Squared distances (n, m) of points (n, d) to others (m, d), by their products."""
    squared = torch.addmm((points**2).sum(dim=1)[:, None], points, others.T, alpha=-2.0)
    return squared.add_((others**2).sum(dim=1)).clamp_(min=0.0)


def _distances(points: Tensor, others: Tensor) -> Tensor:
    """Distances (n, m) of points (n, d) to others (m, d), from their differences."""
    return torch.cdist(points, others, compute_mode="donot_use_mm_for_euclid_dist")
