"""A dynamics model with contacts: features that are mostly still move by a gate times a move model.

A box lies still until it is pushed. Fitted to all transitions, a regression takes the pushes for
noise. Here a feature that is still in most steps has two factors, each fitted in closed form:

    x' = x + p(x, u) Δ(x, u),

with the chance p in [0, 1] of a move a ridge regression of whether anything still moves, moving and
still transitions weighted alike, and the move Δ a ridge regression on [1, z] of the transitions in
which it moves. All other features change by one ridge regression on sparse random ReLU features of
three inputs each, in units of the transitions in which something moves: in units of all transitions
a contact is a small part of the range, and gates stay open far from it. A feature that is a linear
function of others is computed from them.

Where a contact depends on a difference of two features that none shows, as the place of a box
relative to a hand, it is an input besides, and moves are predicted on the random features. Weights
that are alike leave a gate half open where it is shut: p is then steeper, and 0 far from contacts,
which differences alone decide: the first contacts are of few places.

Everything is a function of two Gram matrices, one of moving and one of still transitions, which
grow with the buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from rover.arrays import BoolArray, FloatArray, IntArray, rows_before
from rover.data import Buffer
from rover.world.net import MOST_ROWS, units_due

# Before, actions are uniform: a gate would follow the noise of one or two moves (D47).
FEWEST_MOVES = 5
"""Moving transitions from which on there is a gate."""

_LARGEST, _SMALLEST = 8.0, 1e-6  # standard deviations
# Whole blocks in one order, so that a resumed run adds up to the same bits.
_BLOCK = 100  # transitions that are added together, from multiples of it on
_RIDGE = 3.0  # of changes and the gate
_MOVED = 0.1  # share of its deviation from which on a change is a move
# An action that was seldom tried moves things about as often as all actions do.
_ACTION_PRIOR = 20.0  # transitions that an action has besides, of all actions
# Few contacts are known at first: no single input may decide alone.
_MOST_LIKELY = 6.0  # bound of an input's logarithm of the likelihood ratio
_LEAST_OPEN = 0.1  # chance far from contacts, where a step's looks decide


@dataclass(frozen=True)
class GatedModel:
    """Predictions from observations of d numbers under controls of k; all tensors float32.

    Attributes:
        centre, spread: (i,) by which inputs z are standardised, i = d + k + r.
        differences: (d, r) from points to differences of features, which are inputs as well.
        low, high: (d,) bounds of predictions.
        projection, offsets: (i, p), (p,) of the random features.
        change: (1 + i + p, d + 1 + s) coefficients of the changes, of the gate and of the moves.
        still: (s,) int64, the features that are gated; none where nothing is.
        most_moved: (s,) largest moves.
        moving_centre, moving_spread: (i,) mean and deviation of z in the moving transitions.
        relations: (1 + d, d) from 1 and predictions to predictions that keep all linear relations.
    """

    centre: Tensor
    spread: Tensor
    differences: Tensor
    low: Tensor
    high: Tensor
    projection: Tensor
    offsets: Tensor
    change: Tensor
    still: Tensor
    most_moved: Tensor
    moving_centre: Tensor
    moving_spread: Tensor
    relations: Tensor

    def tensors(self) -> dict[str, Tensor]:
        """All attributes by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def step(self, points: Tensor, controls: Tensor) -> tuple[Tensor, Tensor]:
        """Next points (n, d) of points (n, d) under controls (n, k), and the chance (n,) of a move,
        all float32.

        The chance is lower the less a step looks like those in which contacts were seen, also far
        from all of them, so that a plan finds the way.
        """
        d, z = points.shape[1], torch.cat([points, controls, points @ self.differences], dim=1)
        z = z.sub_(self.centre).div_(self.spread).clamp_(-_LARGEST, _LARGEST)
        wide = torch.addmm(self.offsets, z, self.projection).relu_()
        constant, linear, of_wide = self._factors
        change = torch.addmm(constant, z, linear) + torch.nn.functional.linear(wide, of_wide)
        reached, chance = points + change[:, :d], change[:, d].clamp(0.0, 1.0)
        if len(self.still):
            gate = chance
            # Logarithms of ratios of likelihoods by Gaussians, in moving and in all transitions.
            away = ((z - self.moving_centre) / self.moving_spread) ** 2
            ratio = 0.5 * (z**2 - away) - self.moving_spread.log()
            if n_differences := self.differences.shape[1]:
                ratio, away = ratio[:, -n_differences:], away[:, -n_differences:]
                is_near = away.amax(dim=1) < 9.0  # three deviations
                gate = (2.0 * (chance - 0.5) + 0.5).clamp_(0.0, 1.0) * is_near
                chance = _LEAST_OPEN + (1.0 - _LEAST_OPEN) * chance * is_near
                ratio = _MOST_LIKELY * ratio / (_MOST_LIKELY + ratio.abs())
            move, most = change[:, d + 1 :], self.most_moved
            move = torch.minimum(torch.maximum(move, -most), most)
            reached[:, self.still] = points[:, self.still] + gate[:, None] * move
            ratio = ratio.clamp_(-_MOST_LIKELY, _MOST_LIKELY).sum(dim=1)
            chance = chance * torch.sigmoid(0.5 * ratio)
        reached = torch.addmm(self.relations[0], reached, self.relations[1:])
        return torch.minimum(torch.maximum(reached, self.low), self.high), chance

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients of 1, of inputs and of random features, these as rows: read faster."""
        size = 1 + len(self.centre)
        return self.change[0], self.change[1:size], self.change[size:].T.contiguous()


def _random_features(
    inputs: FloatArray, moving: BoolArray, size: int
) -> tuple[FloatArray, FloatArray]:
    """Projection (i, size) and offsets (size,) of sparse random ReLU features of inputs (n, i), in
    units of those that move (n,): the more these are alike in an input, the more features have
    it."""
    n_inputs, count = inputs.shape[1], int(moving.sum())
    centre, variance, chances = np.zeros(n_inputs), np.ones(n_inputs), None
    if count >= FEWEST_MOVES:
        every, kept = inputs.var(axis=0) + _SMALLEST, count / (count + FEWEST_MOVES)
        centre = kept * inputs[moving].mean(axis=0)
        variance = kept * inputs[moving].var(axis=0) + (1.0 - kept) * every
        variance = np.maximum(variance, 0.1 * every)
        # An input in which moving transitions differ like all others is taken now and then.
        chances = 0.1 + np.log(every / variance).clip(0.0)
        chances /= chances.sum()
    rng, taken = np.random.default_rng(0), min(3, n_inputs)
    projection = np.zeros((n_inputs, size))
    for column in projection.T:
        chosen = rng.choice(n_inputs, taken, replace=False, p=chances)
        column[chosen] = rng.standard_normal(taken) / (taken * variance[chosen]) ** 0.5
    offsets = rng.uniform(-1.5, 1.5, size) - centre @ projection
    return projection, offsets


def _of_differences(covariance: FloatArray) -> FloatArray:
    """Variances (d, d) of differences of features, by their covariance."""
    variance = np.diag(covariance)
    return np.asarray(variance[:, None] + variance - 2.0 * covariance)


def _single(array: FloatArray) -> Tensor:
    return torch.from_numpy(np.array(array, np.float32))


class _Units:
    """Units, the features that are still, and what a move is, by the first n transitions.

    Random features are in units of contacts where these are sharp, or differences are found. A gate
    that is open far from contacts leads goals astray, and exploration towards them.

    Attributes:
        deviation: (d,) of changes.
        still, gated: (s,) features that are mostly still, (g,) those whose moves open the gate: of
            the covered ones (c,), or all that rest anywhere.
        at_rest: whether all that is covered is still or has never moved.
        most: (s,) largest moves.
        parts: of the model, by name.
    """

    def __init__(
        self, buffer: Buffer, n: int, covered: IntArray | None, size: int, *, is_sharp: bool
    ) -> None:
        self._buffer = buffer
        begins, controls, changes = _transitions(buffer, slice(n))
        d, k = begins.shape[1], controls.shape[1]
        self.deviation = changes.std(axis=0) + _SMALLEST
        early = slice(1000)  # before exploration moves what is still in most of them
        is_still = _still(buffer.actions[:n][early], changes[early], self.deviation)
        self.at_rest = covered is not None and bool(is_still[covered].all())
        is_still &= self.deviation > 1e-5  # else it has never changed
        self.still = np.flatnonzero(is_still)
        if covered is None:
            self.gated = self.still[_rest_anywhere(begins, changes)[self.still]]
        else:
            self.gated = np.intersect1d(self.still, covered)
        moving = self.kinds(n)[0]
        moves = np.abs(changes[moving][:, self.still])
        quantile = np.quantile(moves, 0.98, axis=0) if len(moves) else np.inf
        self.most = np.broadcast_to(quantile, len(self.still))
        self._differences = self.differences(n)
        x = self._inputs(begins, controls)
        self._centre, self._spread = x.mean(axis=0), x.std(axis=0) + _SMALLEST
        self._centre[d : d + k], self._spread[d : d + k] = 0.0, 1.0
        inputs, is_sharp = self.inputs(begins, controls), is_sharp or self._differences.size > 0
        projection, offsets = _random_features(inputs, moving & is_sharp, size)
        low, high = begins.min(axis=0), begins.max(axis=0)
        margin = 0.1 * (high - low)  # beyond which no prediction leads
        parts = {
            "centre": self._centre,
            "spread": self._spread,
            "differences": self._differences,
            "low": low - margin,
            "high": high + margin,
            "projection": projection,
            "offsets": offsets,
            "relations": _linear_relations(np.concatenate([begins, begins + changes]), is_still),
        }
        self.parts = {name: _single(part) for name, part in parts.items()}

    def inputs(self, begins: FloatArray, controls: FloatArray) -> FloatArray:
        """Inputs (n, i) of observations (n, d) and controls (n, k)."""
        z = (self._inputs(begins, controls) - self._centre) / self._spread
        return np.asarray(np.clip(z, -_LARGEST, _LARGEST))

    def _inputs(self, begins: FloatArray, controls: FloatArray) -> FloatArray:
        return np.concatenate([begins, controls, begins @ self._differences], axis=1)

    def kinds(self, n: int) -> tuple[BoolArray, BoolArray]:
        """Masks (n,) of the first n transitions whose motion counts, and of those in which all that
        is gated lies still.

        The first steps of an unbroken motion count: an object that falls or slides goes on without
        contact.
        """
        buffer, moving = self._buffer, np.zeros(n, np.bool_)
        if len(self.gated):
            seen = buffer.observations.rows[:, self.gated].astype(np.float64)
            changes = np.abs(seen[buffer.successors[:n]] - seen[buffer.inputs[:n]])
            least = _MOVED * np.maximum(self.deviation[self.gated], 1e-3)
            moving = (changes > least).any(axis=1)
        goes_on, row = moving, np.arange(n)
        for _ in range(4):
            row = rows_before(buffer.previous, row, 1)
            goes_on = goes_on & (row >= 0) & moving[row]
        return moving & ~goes_on, ~moving

    def differences(self, n: int) -> FloatArray:
        """Map (d, r) from observations to differences of a gated feature and another in which the
        moving ones of n transitions are alike: a push depends on where a hand is relative to a box.
        Where a feature shows a difference, as one of Fetch does, there are none."""
        begins, moving = _transitions(self._buffer, slice(n))[0], self.kinds(n)[0]
        d, found = begins.shape[1], np.empty((0, begins.shape[1]))
        if moving.sum() < FEWEST_MOVES:
            return found.T
        places, single = np.cov(begins.T), begins.var(axis=0)
        left = _of_differences(np.cov(begins[moving].T)) / (single[:, None] + single + _SMALLEST)
        each, variances = np.eye(d), _of_differences(places) + _SMALLEST
        for feature in self.gated:
            differences = each[feature] - each
            common = (places @ differences.T) ** 2 / (np.diag(places) + _SMALLEST)[:, None]
            # By a feature (d, 1), of another (1, d).
            is_shown = common > 0.99 * variances[feature]
            others = ~(is_shown[feature] | is_shown.diagonal())
            others[self.gated] = False
            if is_shown[:, others].any():
                return np.empty((d, 0))
            other = int(np.where(others, left[feature], np.inf).argmin())
            if others[other] and left[feature, other] < 0.25:
                found = np.vstack([found, differences[other]])
        return found.T


class GatedSums:
    """The sums that a :class:`GatedModel` of a buffer follows from; arguments as of `_Units`.

    Units are taken anew when there are half as many more transitions, or twice as many moves that
    show differences. 600 random features depend on their draw, 2,000 take twice the time.
    """

    def __init__(
        self,
        buffer: Buffer,
        covered: IntArray | None = None,
        *,
        size: int = 1000,
        is_sharp: bool = True,
    ) -> None:
        self._buffer, self._covered = buffer, covered
        self._size, self._is_sharp = size, is_sharp
        self._n_units = self._looked_at = self._n = 0
        self._n_moved = 0  # when moves last doubled

    def extend(self, n: int) -> None:
        """Take in the first n transitions."""
        while (behind := self._looked_at + _BLOCK) <= min(n, MOST_ROWS):
            self._looked_at = behind
            self._take_units(units_due(behind))
            n_moved = int(self.units.kinds(behind)[0].sum())
            if n_moved >= max(FEWEST_MOVES, 2 * self._n_moved):
                self._n_moved = n_moved
                if self.units.differences(behind).size:
                    self._take_units(behind)
        self._take_units(units_due(n))
        units, kinds = self.units, self.units.kinds(n)
        while self._n < n:
            block = slice(self._n, min(n, (self._n // _BLOCK + 1) * _BLOCK))
            begins, controls, changes = _transitions(self._buffer, block)
            inputs = _single(units.inputs(begins, controls))
            wide = torch.addmm(units.parts["offsets"], inputs, units.parts["projection"]).relu_()
            design = torch.cat([torch.ones(len(inputs), 1), inputs, wide], dim=1)
            changes[:, units.still] = np.clip(changes[:, units.still], -units.most, units.most)
            targets = _single(changes / units.deviation)
            for kind, rows in enumerate(kinds):
                some = torch.from_numpy(np.flatnonzero(rows[block]))
                chosen = design[some]
                self._grams[kind] += (chosen.T @ chosen).double()
                self._moments[kind] += (chosen.T @ targets[some]).double()
            self.n_moving += int(kinds[0][block].sum())
            self._n = block.stop

    def _take_units(self, n: int) -> None:
        """Begin sums anew, in units of the first n transitions, where these are more."""
        if n <= self._n_units:
            return
        buffer, self._n_units = self._buffer, n
        self.units = _Units(buffer, n, self._covered, self._size, is_sharp=self._is_sharp)
        self._n_moved, d = int(self.units.kinds(n)[0].sum()), len(self.units.deviation)
        size = 1 + len(self.units.parts["centre"]) + self._size
        self._grams = [torch.zeros(size, size, dtype=torch.float64) for _ in range(2)]
        self._moments = [torch.zeros(size, d, dtype=torch.float64) for _ in range(2)]
        self.n_moving = self._n = 0

    def moves(self) -> tuple[FloatArray, FloatArray]:
        """Gated features (m, g) where the moving transitions end, and their changes (m, g)."""
        rows = np.flatnonzero(self.units.kinds(self._n)[0])
        begins, _, changes = _transitions(self._buffer, rows)
        return (begins + changes)[:, self.units.gated], changes[:, self.units.gated]

    def model(self) -> GatedModel:
        """The model of the transitions that were taken in."""
        units, (moving, still) = self.units, self._grams
        # Column 0 of a design is 1, so that its products count and sum.
        n_still, size = int(still[0, 0]), 1 + len(units.parts["centre"])
        change = _ridge(moving + still, self._moments[0] + self._moments[1], _RIDGE)
        change *= torch.from_numpy(units.deviation)
        gate = torch.zeros(len(moving), 1, dtype=torch.float64)
        gated = units.still
        if self.n_moving < FEWEST_MOVES:
            gated = gated[:0]
        else:
            n = self.n_moving + n_still
            balance = 0.5 * n / self.n_moving, 0.5 * n / max(n_still, 1)
            gram = balance[0] * moving + balance[1] * still
            gate = _ridge(gram, balance[0] * moving[:, :1], _RIDGE)
        used = len(moving) if units.parts["differences"].numel() else size
        move = torch.zeros(len(moving), len(gated), dtype=torch.float64)
        moment = self._moments[0][:used, gated]
        move[:used] = _ridge(moving[:used, :used], moment, 1.0)
        move *= torch.from_numpy(units.deviation[gated])
        count, kept = max(self.n_moving, 1), self.n_moving / (self.n_moving + FEWEST_MOVES)
        mean = moving[0, 1:size] / count
        variance = (moving.diagonal()[1:size] / count - mean**2).clamp(min=0.0)
        return GatedModel(
            **units.parts,
            change=torch.cat([change, gate, move], dim=1).float(),
            still=torch.from_numpy(gated),
            most_moved=_single(1.3 * units.most[: len(gated)]),
            moving_centre=(kept * mean).float(),
            moving_spread=(kept * variance + 1.0 - kept).clamp(min=_SMALLEST).sqrt().float(),
        )


def _transitions(buffer: Buffer, rows: slice | IntArray) -> tuple[FloatArray, ...]:
    """Observations (n, d), controls (n, k) and changes (n, d) of transitions."""
    table = buffer.observations.rows
    begins = table[buffer.inputs[rows]].astype(np.float64)
    changes = table[buffer.successors[rows]].astype(np.float64) - begins
    return begins, buffer.controls[buffer.actions[rows]], changes


def _ridge(gram: Tensor, moment: Tensor, ridge: float) -> Tensor:
    """Coefficients (P, t) of ridge regression from its products (P, P) and (P, t)."""
    one = torch.eye(len(gram), dtype=torch.float64)
    factor, has_failed = torch.linalg.cholesky_ex(gram + ridge * one)
    if has_failed:  # products so large that the ridge is below their last digit
        values, vectors = torch.linalg.eigh(gram)
        inverse = 1.0 / (values.clamp(min=1e-12 * float(values[-1])) + ridge)
        found: Tensor = vectors @ (inverse[:, None] * (vectors.T @ moment))
        return found
    return torch.cholesky_solve(moment, factor)


def _still(actions: IntArray, changes: FloatArray, deviation: FloatArray) -> BoolArray:
    """Mask (d,) of features that lie still in more than half of the transitions, under each action.

    A box does. The speed of a point without friction lies still under all forces across it, and
    moves under the others wherever the point is.
    """
    stays = np.abs(changes) < 0.02 * deviation
    each = np.bincount(actions)[:, None]
    counts = np.stack([np.bincount(actions, column) for column in stays.T], axis=1)
    shares = (counts + _ACTION_PRIOR * stays.mean(axis=0)) / (each + _ACTION_PRIOR)
    return np.asarray((shares > 0.5).all(axis=0))


def _rest_anywhere(begins: FloatArray, changes: FloatArray) -> BoolArray:
    """Mask (d,) of features that rest at places farther apart than a move: a box does, a speed or a
    contact flag comes back to one value."""
    size = np.abs(changes)
    moves = size > _MOVED * (changes.std(axis=0) + _SMALLEST)
    move = (size * moves).sum(axis=0) / np.maximum(moves.sum(axis=0), 1)
    resting = np.ma.masked_array(begins, moves)
    return np.asarray(resting.std(axis=0).filled(0.0) > move)


def _linear_relations(points: FloatArray, first: BoolArray) -> FloatArray:
    """Map (1 + d, d) from 1 and points to points whose dependent features are computed from
    the features of a mask (d,) first."""
    n, d = points.shape
    relations = np.concatenate([np.zeros((1, d)), np.eye(d)])
    centre, spread = points.mean(axis=0), points.std(axis=0)
    z = (points - centre) / np.maximum(spread, _SMALLEST)
    chosen: list[int] = []
    for feature in np.argsort(~first, kind="stable"):
        if spread[feature] <= _SMALLEST:
            continue
        if chosen and n > 2 * len(chosen):
            weights = np.linalg.lstsq(z[:, chosen], z[:, feature], rcond=None)[0]
            left = z[:, feature] - z[:, chosen] @ weights
            if left.std() <= 1e-6:
                weights = weights * spread[feature] / spread[chosen]
                relations[1:, feature] = 0.0
                relations[1 + np.array(chosen), feature] = weights
                relations[0, feature] = centre[feature] - weights @ centre[chosen]
                continue
        chosen.append(int(feature))
    return relations
