"""A dynamics model with contacts: features that are mostly still move by a gate times a move model.

A box lies still until it is pushed. Fitted to all transitions, a regression takes the pushes for
noise. Here a feature that is still in most steps has two factors, each fitted in closed form:

    x' = x + p(x, u) Δ(x, u),

with the chance p in [0, 1] of a move a ridge regression of whether anything still moves, moving and
still transitions weighted alike, and the move Δ a ridge regression on [1, z] of the transitions in
which it moves.
All other features change by one ridge regression on sparse random ReLU features of three inputs
each, in units of the transitions in which something moves: in units of all transitions a contact is
a small part of the range, and gates stay open far from it. A feature that is a linear function of
others is computed from them.

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
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rover.arrays import BoolArray, FloatArray, IntArray, rows_before
from rover.data import Buffer
from rover.world.net import MOST_ROWS, units_due

N_FEATURES = 1000
"""Random features: 600 depend on the draw, 2,000 take twice the time of a decision."""

FEWEST_MOVES = 5
"""Moving transitions from which on there is a gate."""

_LARGEST = 8.0  # standard deviations
_LINEAR = 1e-6  # share of its variance that a linear function leaves of a dependent feature
_SMALLEST = 1e-6
_CONSTANT = 1e-5  # deviation of what has never changed
_LEAST_DEVIATION = 1e-3  # deviation of changes that moves are measured by, at least
_BLOCK = 100  # transitions that are added together, from multiples of it on


class Gating(NamedTuple):
    """Settings of a dynamics model with contacts.

    Attributes:
        inputs: of a random feature.
        narrowest: share of its variance in all transitions that an input's unit is at least.
        least_weight: of an input in which moving transitions differ like all others.
        ridge, move_ridge: of changes and the gate, and of moves.
        still: share of its deviation below which a still feature changes in more than half of
            the transitions, under each action.
        action_prior: transitions that an action is taken to have besides, of all actions.
        moved: share of its deviation from which on a change is a move.
        early: first transitions, before exploration moves what is still in most of them.
        first_moves: steps of an unbroken motion that count: an object that falls or slides goes on
            without contact. Of the first 18 moving steps of FetchPush 12 were one fall, and no plan
            found the next contact.
        sharper: slope of the gate of a move: balanced weights leave it half open where it is shut.
        farthest: deviations of the moving transitions beyond which in a difference nothing moves.
        most_likely: bound of an input's logarithm of the likelihood ratio.
        least_open: chance far from contacts, which what a step looks like then decides about.
        alike: variance of a difference in moving transitions, as a share of the sum of variances of
            both features in all, up to which it is an input.
        shown: share of a difference's variance from which on one feature shows it.
        most_change, quantile: a move is at most 1.3 times the 98% quantile of moves.
        margin: share of the range of the data beyond which no prediction leads.
    """

    inputs: int = 3
    narrowest: float = 0.1
    least_weight: float = 0.1
    ridge: float = 3.0
    move_ridge: float = 1.0
    still: float = 0.02
    action_prior: float = 20.0
    moved: float = 0.1
    early: int = 1000
    first_moves: int = 4
    sharper: float = 2.0
    farthest: float = 3.0
    most_likely: float = 6.0
    least_open: float = 0.1
    alike: float = 0.25
    shown: float = 0.99
    most_change: float = 1.3
    quantile: float = 0.98
    margin: float = 0.1


GATING = Gating()


MODEL_FORMS = {
    "centre": "torch.float32 inputs",
    "spread": "torch.float32 inputs",
    "differences": "torch.float32 features differences",
    "low": "torch.float32 features",
    "high": "torch.float32 features",
    "projection": "torch.float32 inputs random",
    "offsets": "torch.float32 random",
    "change": "torch.float32 design targets",
    "still": "torch.int64 gated",
    "most_moved": "torch.float32 gated",
    "moving_centre": "torch.float32 inputs",
    "moving_spread": "torch.float32 inputs",
    "relations": "torch.float32 related features",
}
"""Dtypes and shapes of the tensors of a model, for its file."""


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
        """Next points (n, d) of points (n, d) under controls (n, k), and the chance (n,) of a move.

        The chance that is returned is lower the less a step looks like those in which contacts were
        seen, also far from all of them, so that a plan finds the way.

        Args:
            points, controls: float32.
        """
        z, d = self._standardised(points, controls), points.shape[1]
        wide = torch.addmm(self.offsets, z, self.projection).relu_()
        constant, linear, of_wide = self._factors
        change = torch.addmm(constant, z, linear) + torch.nn.functional.linear(wide, of_wide)
        reached, chance = points + change[:, :d], change[:, d].clamp(0.0, 1.0)
        if len(self.still):
            gate = chance
            if n_differences := self.differences.shape[1]:
                ratio, away = self._likelihood_ratio(z, slice(-n_differences, None))
                is_near = away.amax(dim=1) < GATING.farthest**2
                gate = (GATING.sharper * (chance - 0.5) + 0.5).clamp_(0.0, 1.0) * is_near
                chance = GATING.least_open + (1.0 - GATING.least_open) * chance * is_near
                ratio = GATING.most_likely * ratio / (GATING.most_likely + ratio.abs())
            else:
                ratio, _ = self._likelihood_ratio(z, slice(None))
            move, most = change[:, d + 1 :], self.most_moved
            move = torch.minimum(torch.maximum(move, -most), most)
            reached[:, self.still] = points[:, self.still] + gate[:, None] * move
            ratio = ratio.clamp_(-GATING.most_likely, GATING.most_likely).sum(dim=1)
            chance = chance * torch.sigmoid(0.5 * ratio)
        reached = torch.addmm(self.relations[0], reached, self.relations[1:])
        return torch.minimum(torch.maximum(reached, self.low), self.high), chance

    def _likelihood_ratio(self, z: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
        """Logarithms (n, i) of ratios of likelihoods by diagonal Gaussians, in moving and all
        transitions, and squared distances (n, i) from the mean of moving ones in deviations."""
        z, spread = z[:, columns], self.moving_spread[columns]
        away = ((z - self.moving_centre[columns]) / spread) ** 2
        return 0.5 * (z**2 - away) - spread.log(), away

    @cached_property
    def _factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Coefficients of 1, of inputs and of random features, these as rows: read faster."""
        size = 1 + len(self.centre)
        return self.change[0], self.change[1:size], self.change[size:].T.contiguous()

    def _standardised(self, points: Tensor, controls: Tensor) -> Tensor:
        z = torch.cat([points, controls, points @ self.differences], dim=1)
        return z.sub_(self.centre).div_(self.spread).clamp_(-_LARGEST, _LARGEST)


def _random_features(inputs: FloatArray, moving: BoolArray, size: int) -> tuple[Tensor, Tensor]:
    """Projection (i, size) and offsets (size,) of sparse random ReLU features.

    Their inputs are in units of the transitions that move, among which a hand is within centimetres
    of the box. The more those are alike in an input, the more features have it.

    Args:
        inputs: (n, i) of transitions.
        moving: (n,) mask; with too few of them units are deviations in all transitions.
        size: number of features.
    """
    n_inputs, count = inputs.shape[1], int(moving.sum())
    centre, variance, chances = np.zeros(n_inputs), np.ones(n_inputs), None
    if count >= FEWEST_MOVES:
        every, kept = inputs.var(axis=0) + _SMALLEST, count / (count + FEWEST_MOVES)
        centre = kept * inputs[moving].mean(axis=0)
        variance = kept * inputs[moving].var(axis=0) + (1.0 - kept) * every
        variance = np.maximum(variance, GATING.narrowest * every)
        chances = GATING.least_weight + np.log(every / variance).clip(0.0)
        chances /= chances.sum()
    rng, taken = np.random.default_rng(0), min(GATING.inputs, n_inputs)
    projection = np.zeros((n_inputs, size))
    for column in projection.T:
        chosen = rng.choice(n_inputs, taken, replace=False, p=chances)
        column[chosen] = rng.standard_normal(taken) / (taken * variance[chosen]) ** 0.5
    offsets = rng.uniform(-1.5, 1.5, size) - centre @ projection
    return _single(projection), _single(offsets)


def _differences(begins: FloatArray, moving: BoolArray, gated: IntArray) -> FloatArray:
    """Map (d, r) from observations to differences of a gated feature and another.

    A push depends on where a hand is relative to a box: in the difference moving transitions are
    alike. Where a feature shows a difference, as one of Fetch does, there are none.

    Args:
        begins: (n, d) of transitions.
        moving: (n,) mask.
        gated: (g,) features.
    """
    d, found = begins.shape[1], np.empty((0, begins.shape[1]))
    if moving.sum() < FEWEST_MOVES:
        return found.T
    places, single = np.cov(begins.T), begins.var(axis=0)
    left = _of_differences(np.cov(begins[moving].T)) / (single[:, None] + single + _SMALLEST)
    each, variances = np.eye(d), _of_differences(places) + _SMALLEST
    for feature in gated:
        differences = each[feature] - each
        common = (places @ differences.T) ** 2 / (np.diag(places) + _SMALLEST)[:, None]
        is_shown = (
            common > GATING.shown * variances[feature]
        )  # by a feature (d, 1), of another (1, d)
        others = ~(is_shown[feature] | is_shown.diagonal())
        others[gated] = False
        if is_shown[:, others].any():
            return np.empty((d, 0))
        other = int(np.where(others, left[feature], np.inf).argmin())
        if others[other] and left[feature, other] < GATING.alike:
            found = np.vstack([found, differences[other]])
    return found.T


def _of_differences(covariance: FloatArray) -> FloatArray:
    """Variances (d, d) of differences of features, of their covariance."""
    variance = np.diag(covariance)
    return np.asarray(variance[:, None] + variance - 2.0 * covariance)


def _single(array: FloatArray) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.float32))


class GatedSums:
    """The sums that a :class:`GatedModel` of a buffer follows from.

    Units, the features that are still and what a move is follow from the first transitions, taken
    anew when there are half as many more, or twice as many moves that show differences.

    Args:
        buffer: the transitions, of observations (d,).
        covered: (c,) features whose moves open the gate; None: those that rest anywhere.
        size: random features.
        is_sharp: whether random features are in units of contacts; they are where differences are
            found. A gate that is open far from contacts leads goals astray, and exploration towards
            contacts.

    Attributes:
        still: (s,) features that are mostly still.
        gated: (g,) still features whose moves open the gate.
        at_rest: whether all that is covered is still or has never moved.
    """

    def __init__(
        self,
        buffer: Buffer,
        covered: IntArray | None = None,
        *,
        size: int = N_FEATURES,
        is_sharp: bool = True,
    ) -> None:
        self._buffer, self._covered = buffer, covered
        self._controls = buffer.controls
        self._size, self._is_sharp = size, is_sharp
        self._units_from = self._looked_at = self._n = 0
        # Transitions that moved by the latest units, and how many did when moves last doubled.
        self._n_moved = self._n_moved_then = 0
        self.still = self.gated = np.empty(0, np.int64)

    def _rows(self, rows: slice | IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Observations (n, d), controls (n, k) and changes (n, d) of transitions."""
        buffer, table = self._buffer, self._buffer.observations.rows
        begins = table[buffer.inputs[rows]].astype(np.float64)
        changes = table[buffer.successors[rows]].astype(np.float64) - begins
        return begins, self._controls[buffer.actions[rows]], changes

    def _take_units(self, n: int) -> None:
        begins, controls, changes = self._rows(slice(n))
        d, k = begins.shape[1], controls.shape[1]
        low, high = begins.min(axis=0), begins.max(axis=0)
        margin = GATING.margin * (high - low)
        self._low, self._high = low - margin, high + margin
        self._deviation = changes.std(axis=0) + _SMALLEST
        early = slice(GATING.early)
        is_still = _still(self._buffer.actions[:n][early], changes[early], self._deviation)
        self.at_rest = self._covered is not None and bool(is_still[self._covered].all())
        is_still &= self._deviation > _CONSTANT
        self.still = np.flatnonzero(is_still)
        if self._covered is None:
            self.gated = self.still[_rest_anywhere(begins, changes)[self.still]]
        else:
            self.gated = np.intersect1d(self.still, self._covered)
        moving = self._kinds(0, n, changes)[0]
        self._units_from = n
        self._n_moved = self._n_moved_then = int(moving.sum())
        moves = changes[moving][:, self.still]
        self._most = np.full(len(self.still), np.inf)
        if len(moves):
            self._most = np.quantile(np.abs(moves), GATING.quantile, axis=0)
        self._differences = _differences(begins, moving, self.gated)
        x = self._inputs(begins, controls)
        self._centre, self._spread = x.mean(axis=0), x.std(axis=0) + _SMALLEST
        self._centre[d : d + k], self._spread[d : d + k] = 0.0, 1.0
        inputs = self._standardised(begins, controls)
        self._projection, self._offsets = _random_features(
            inputs, moving & (self._is_sharp or self._differences.size > 0), self._size
        )
        self._relations = _linear_relations(np.concatenate([begins, begins + changes]), is_still)
        size = 1 + inputs.shape[1] + self._size
        self._grams = [torch.zeros(size, size, dtype=torch.float64) for _ in range(2)]
        self._moments = [torch.zeros(size, d, dtype=torch.float64) for _ in range(2)]
        self._counts, self._n = [0, 0], 0
        self._moved: list[IntArray] = []  # transitions whose motion counts

    def _standardised(self, begins: FloatArray, controls: FloatArray) -> FloatArray:
        """Inputs (n, i) of observations (n, d) and controls (n, k)."""
        z = (self._inputs(begins, controls) - self._centre) / self._spread
        return np.asarray(np.clip(z, -_LARGEST, _LARGEST))

    def _inputs(self, begins: FloatArray, controls: FloatArray) -> FloatArray:
        return np.concatenate([begins, controls, begins @ self._differences], axis=1)

    def _moving(self, changes: FloatArray) -> BoolArray:
        """Mask (n,) of changes (n, d) in which something gated moves."""
        if not len(self.gated):
            return np.zeros(len(changes), np.bool_)
        least = GATING.moved * np.maximum(self._deviation[self.gated], _LEAST_DEVIATION)
        return np.asarray((np.abs(changes[:, self.gated]) > least).any(axis=1))

    def _kinds(self, first: int, behind: int, changes: FloatArray) -> tuple[BoolArray, BoolArray]:
        """Masks (n,) of the transitions whose motion counts, and of those in which all is still.

        Args:
            first, behind: of the transitions.
            changes: (n, d) of theirs.
        """
        previous, moving = self._buffer.previous, np.zeros(behind, np.bool_)
        moving[first:] = self._moving(changes)
        rows = np.arange(first, behind)
        before = np.array(
            [rows_before(previous, rows, age + 1) for age in range(GATING.first_moves)]
        )
        earlier = np.unique(before[(before >= 0) & (before < first)])
        moving[earlier] = self._moving(self._rows(earlier)[2])
        goes_on = ((before >= 0) & moving[before]).all(axis=0)
        return moving[first:] & ~goes_on, ~moving[first:]

    def extend(self, n: int) -> None:
        """Take in the first n transitions."""
        self._renew_units(n)
        while self._n < n:
            behind = min(n, (self._n // _BLOCK + 1) * _BLOCK)
            begins, controls, changes = self._rows(slice(self._n, behind))
            inputs = _single(self._standardised(begins, controls))
            wide = torch.relu(torch.addmm(self._offsets, inputs, self._projection))
            design = torch.cat([torch.ones(len(inputs), 1), inputs, wide], dim=1)
            moving, still = self._kinds(self._n, behind, changes)
            self._moved.append(self._n + np.flatnonzero(moving))
            changes[:, self.still] = np.clip(changes[:, self.still], -self._most, self._most)
            targets = _single(changes / self._deviation)
            for kind, rows in enumerate((moving, still)):
                some = torch.from_numpy(np.flatnonzero(rows))
                chosen = design[some]
                self._grams[kind] += (chosen.T @ chosen).double()
                self._moments[kind] += (chosen.T @ targets[some]).double()
                self._counts[kind] += len(some)
            self._n = behind

    def _renew_units(self, n: int) -> None:
        """Take units anew as often as the first n transitions ask for it."""
        while (behind := self._looked_at + _BLOCK) <= min(n, MOST_ROWS):
            self._take_due(behind)
            first, self._looked_at = max(self._looked_at, self._units_from), behind
            changes = self._rows(slice(first, behind))[2]
            self._n_moved += int(self._kinds(first, behind, changes)[0].sum())
            if self._n_moved >= max(FEWEST_MOVES, 2 * self._n_moved_then):
                self._n_moved_then = self._n_moved
                begins, _, changes = self._rows(slice(behind))
                moving = self._kinds(0, behind, changes)[0]
                if _differences(begins, moving, self.gated).size:
                    self._take_units(behind)
        self._take_due(n)

    def _take_due(self, n: int) -> None:
        """Take units anew where the first n transitions are half as many more."""
        if (due := units_due(n)) > self._units_from:
            self._take_units(due)

    def moves(self) -> tuple[FloatArray, FloatArray]:
        """Gated features (m, g) where the moving transitions end, and their changes (m, g)."""
        begins, _, changes = self._rows(np.concatenate(self._moved))
        return (begins + changes)[:, self.gated], changes[:, self.gated]

    @property
    def n_moving(self) -> int:
        """Transitions in which something gated moved."""
        return self._counts[0]

    def model(self) -> GatedModel:
        """The model of the transitions that were taken in."""
        moving, still = self._grams
        n, n_inputs = sum(self._counts), len(self._centre)
        change = _ridge(moving + still, self._moments[0] + self._moments[1], GATING.ridge)
        change *= torch.from_numpy(self._deviation)
        gate = torch.zeros(len(moving), 1, dtype=torch.float64)
        gated, size = self.still, 1 + n_inputs
        if self.n_moving < FEWEST_MOVES:
            gated = gated[:0]
        else:
            balance = 0.5 * n / self.n_moving, 0.5 * n / max(n - self.n_moving, 1)
            gram = balance[0] * moving + balance[1] * still
            # Column 0 of a design is 1, so that this is the moment of an indicator.
            gate = _ridge(gram, balance[0] * moving[:, :1], GATING.ridge)
        used = len(moving) if self._differences.size else size
        move = torch.zeros(len(moving), len(gated), dtype=torch.float64)
        moment = self._moments[0][:used, gated]
        move[:used] = _ridge(moving[:used, :used], moment, GATING.move_ridge)
        move *= torch.from_numpy(self._deviation[gated])
        count, kept = max(self.n_moving, 1), self.n_moving / (self.n_moving + FEWEST_MOVES)
        mean = moving[0, 1:size] / count
        variance = (moving.diagonal()[1:size] / count - mean**2).clamp(min=0.0)
        return GatedModel(
            centre=_single(self._centre),
            spread=_single(self._spread),
            differences=_single(self._differences),
            low=_single(self._low),
            high=_single(self._high),
            projection=self._projection,
            offsets=self._offsets,
            change=torch.cat([change, gate, move], dim=1).float(),
            still=torch.from_numpy(gated),
            most_moved=_single(GATING.most_change * self._most[: len(gated)]),
            moving_centre=(kept * mean).float(),
            moving_spread=(kept * variance + 1.0 - kept).clamp(min=_SMALLEST).sqrt().float(),
            relations=_single(self._relations),
        )


def _ridge(gram: Tensor, moment: Tensor, ridge: float) -> Tensor:
    """Coefficients (P, t) of ridge regression from its products (P, P) and (P, t)."""
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(len(gram), dtype=torch.float64))
    return torch.cholesky_solve(moment, factor)


def _still(actions: IntArray, changes: FloatArray, deviation: FloatArray) -> BoolArray:
    """Mask (d,) of features that lie still in more than half of the transitions, under each action.

    A box does. The speed of a point without friction lies still under all forces across it, which
    may be most, and moves under the others wherever the point is: nothing has to be found for it.

    Args:
        actions: (n,) indices of transitions.
        changes: (n, d) of theirs.
        deviation: (d,) of changes.
    """
    stays = np.abs(changes) < GATING.still * deviation
    each = np.bincount(actions)[:, None]
    counts = np.stack([np.bincount(actions, column) for column in stays.T], axis=1)
    shares = (counts + GATING.action_prior * stays.mean(axis=0)) / (each + GATING.action_prior)
    return np.asarray((shares > 0.5).all(axis=0))


def _rest_anywhere(begins: FloatArray, changes: FloatArray) -> BoolArray:
    """Mask (d,) of features that rest at places farther apart than a move.

    A box does, a speed or a contact flag comes back to one value.

    Args:
        begins, changes: (n, d) of transitions.
    """
    size = np.abs(changes)
    moves = size > GATING.moved * (changes.std(axis=0) + _SMALLEST)
    move = (size * moves).sum(axis=0) / np.maximum(moves.sum(axis=0), 1)
    resting = np.ma.masked_array(begins, moves)
    return np.asarray(resting.std(axis=0).filled(0.0) > move)


def _linear_relations(points: FloatArray, first: BoolArray) -> FloatArray:
    """Map (1 + d, d) from 1 and points (n, d) to points whose dependent features are computed.

    Args:
        points: that keep the relations.
        first: (d,) mask of features that others are computed from rather than they from others.
    """
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
            if left.std() <= _LINEAR:
                weights = weights * spread[feature] / spread[chosen]
                relations[1:, feature] = 0.0
                relations[1 + np.array(chosen), feature] = weights
                relations[0, feature] = centre[feature] - weights @ centre[chosen]
                continue
        chosen.append(int(feature))
    return relations
