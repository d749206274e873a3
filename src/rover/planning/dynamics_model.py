"""Motion: a smooth law of all displacements, what contradicts it near by, and what is novel.

The law (:mod:`rover.planning.displacements`) holds everywhere but at contacts. What it misses is
averaged over the cells where it was missed,

    c_a(x) = Σ_k w_k r_k / (Σ_k w_k + 0.1),   w_k = min(n_k, 4) exp(−|x − x_k|² / 2ℓ²),

with the mean residual r_k of n_k transitions, and shrunk to nothing where there is no such cell
near by. Where the law was missed by far, the landmark that it predicted counts as visited: else a
plan would try to pass the same wall at every point of it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from rover.arrays import blocks, evenly_spaced
from rover.operators.support import SAMPLE, BoolArray, FloatArray, IntArray
from rover.planning.displacements import Displacements
from rover.planning.model_selection import unexplained
from rover.planning.novelty import PairNovelty
from rover.planning.terminations import Terminations

HELD = 3
"""Steps for which a plan holds an action."""

MISSED = 0.3
"""Distance in a feature from which on a prediction is refuted."""

STALE = 0.02
"""Share of new transitions after which the law is fitted, and rows of it are made, again."""

MOST_COMPARED = 10_000
"""Most transitions that a law is compared with."""

MOST_UNEXPLAINED = 0.1
"""Largest unexplained share of the motion for simulated rollouts in a law."""

Moves = Callable[[slice], tuple[FloatArray, IntArray, FloatArray]]
"""From rows of a buffer to points (n, d), actions (n,) and changes (n, d), all in units of time."""

_NOVELTY_WIDTH = 0.35  # of the density of pairs, in units of coverage
_SATURATED, _MOST_NOVEL = 0.25, 0.98  # novelty below which a quantile of it is saturated
_SHARPER, _WIDTHS, _LEAST_WIDTH = 0.7, 5, 0.7  # widths to try, until they are below the least
_FEWEST_NEW = 10  # transitions after which the law is fitted again
_LOCAL_WIDTH, _LOCAL_PRIOR, _MOST_COUNTED = 0.4, 0.1, 4.0
_BEYOND = 0.5  # distance beyond the data to which predictions may lead


class DynamicsModel:
    """The law by the first transitions of a buffer, and by later ones as they come.

    All of it is a function of the buffer, however often it was looked at meanwhile.

    Args:
        moves: the transitions.
        n_rows: number of the first transitions, which the law is chosen by.
        controls: (A, k) of the actions; displacements are affine in them.
        coverage: (d,) the units of coverage, in units of the model.
        time_scales: (d,) as of :class:`~rover.planning.novelty.PairNovelty`.

    Attributes:
        novelty: of points.
        unexplained: share of what the first moves change that the law leaves unexplained, in
            [0, 1], each left out.
    """

    def __init__(
        self,
        moves: Moves,
        n_rows: int,
        controls: FloatArray,
        *,
        coverage: FloatArray,
        time_scales: FloatArray,
    ) -> None:
        self._moves, self._controls = moves, controls
        points, actions, changes = moves(slice(0, n_rows))
        taken = controls[actions]
        self._law = Displacements(points, taken, changes, rng=np.random.default_rng(0))
        self._coefficients = self._law.coefficients(controls)
        missed = self._law.left_out(points, taken, changes)
        moved = np.flatnonzero(changes.any(axis=1))
        self.unexplained = unexplained(missed[moved], changes[moved])
        ends = points + changes
        centre = (ends.min(axis=0) + ends.max(axis=0)) / 2.0
        some = evenly_spaced(n_rows, SAMPLE)
        ahead = points[some] + self._law.predict(points[some], self._coefficients)
        # Where almost all that can be reached is saturated at a width, a sharper one tells apart
        # what is new, down to about half of what five steps change.
        for sharper in range(_WIDTHS):
            widths = _NOVELTY_WIDTH * _SHARPER**sharper * coverage
            self.novelty = PairNovelty(centre, widths, time_scales)
            self.novelty.add(ends)
            novelty = self.novelty(ahead.reshape(-1, ahead.shape[2]))
            if np.quantile(novelty, _MOST_NOVEL) >= _SATURATED or widths.max() < _LEAST_WIDTH:
                break
        self._refute(points, actions, changes, missed)
        self._n_fitted = self._n_visited = n_rows
        self._terminations: Terminations | None = None  # none has been seen

    def visit(self, n: int) -> None:
        """Count the arrivals of the first n transitions."""
        if n > self._n_visited:
            points, _, changes = self._moves(slice(self._n_visited, n))
            self.novelty.add(points + changes)
            self._n_visited = n

    def extend(self, n: int) -> None:
        """Fit the law to the first n transitions, as far as they are whole blocks."""
        while True:
            # Blocks end where they do whenever they are looked at: later weights depend on it.
            behind = max(self._n_fitted + _FEWEST_NEW, int(self._n_fitted * (1.0 + STALE)))
            if behind > n:
                return
            points, actions, changes = self._moves(slice(self._n_fitted, behind))
            missed = self._law.add(points, self._controls[actions], changes)
            self._coefficients = self._law.coefficients(self._controls)
            self._refute(points, actions, changes, missed)
            self._n_fitted = behind

    def _refute(
        self, points: FloatArray, actions: IntArray, changes: FloatArray, missed: FloatArray
    ) -> None:
        """Count as visited what was predicted, and what would have followed, but did not come."""
        rows = np.flatnonzero(np.abs(missed).max(axis=1, initial=0.0) > MISSED)
        place, each = points[rows] + changes[rows] - missed[rows], np.arange(len(rows))
        for _ in range(HELD + 1):
            self.novelty.add(place)
            place = place + self._law.predict(place, self._coefficients)[actions[rows], each]

    def end(
        self, points: FloatArray, actions: IntArray, ended: BoolArray, weights: FloatArray
    ) -> None:
        """Learn where episodes end, as of :class:`~rover.planning.terminations.Terminations`."""
        controls, rng = self._controls[actions], np.random.default_rng(0)
        self._terminations = Terminations(points, controls, ended, weights, rng=rng)

    def correct(self, begins: FloatArray, counts: FloatArray, changes: FloatArray) -> None:
        """Take what the law misses in m cells.

        Args:
            begins: (m, A, d) mean points at which actions were taken there.
            counts: (m, A) how often.
            changes: (m, A, d) on average.
        """
        tried = [np.flatnonzero(taken) for taken in counts.T]
        n_actions, size, d = len(tried), max(map(len, tried)), begins.shape[2]
        cells, told = np.zeros((n_actions, d + 2, size)), np.zeros((n_actions, size, d + 1))
        cells[:, d + 1] = -np.inf  # no weight for what only fills the table
        for action, cell in enumerate(tried):
            begin, taken = begins[cell, action], np.minimum(counts[cell, action], _MOST_COUNTED)
            law = self._law.predict(begin, self._coefficients[action : action + 1])[0]
            x = begin.T / _LOCAL_WIDTH
            own = np.log(taken) - 0.5 * (x**2).sum(axis=0)
            cells[action, :, : len(cell)] = np.concatenate([x, np.ones_like(own)[None], own[None]])
            missed = changes[cell, action] - law
            told[action, : len(cell)] = np.column_stack([missed, np.ones(len(cell))])
        self._cells, self._told = torch.from_numpy(cells), torch.from_numpy(told)
        reached = np.concatenate([(begins + changes)[counts > 0.0], begins[counts > 0.0]])
        self._low, self._high = reached.min(axis=0) - _BEYOND, reached.max(axis=0) + _BEYOND

    @property
    def n_actions(self) -> int:
        """A."""
        return len(self._controls)

    def is_beyond(self, points: FloatArray) -> BoolArray:
        """Mask (…) of predicted points (…, d) that were held back, far from what was seen."""
        return np.asarray(((points <= self._low) | (points >= self._high)).any(axis=-1))

    def smooth(self, points: FloatArray, actions: IntArray) -> FloatArray:
        """Changes (n, d) of actions (n,) at points (n, d) by the law alone, uncorrected."""
        changes = np.empty_like(points)
        for rows in blocks(len(points), 4096):
            each = self._law.predict(points[rows], self._coefficients)
            changes[rows] = each[actions[rows], np.arange(each.shape[1])]
        return changes

    def ends(self, points: FloatArray, steps: int = 1) -> tuple[FloatArray, FloatArray]:
        """Ends (n, A, d) of every action, held for some steps, from points (n, d), and the
        probability (n, A) that the episode ends before."""
        place, alive = points[None], np.ones((len(self._controls), len(points)))
        for _ in range(steps):
            reached, ended = self.step(place)
            place = np.where((alive > 0.5)[:, :, None], reached, place)
            alive = alive * (1.0 - ended)
        return np.swapaxes(place, 0, 1), 1.0 - alive.T

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        """End (A, n, d) of each action, and the probability (A, n) that the episode ends, from
        points of its own (A, n, d), or of all (1, n, d)."""
        # The weights of all cells are a table that must fit into memory.
        most = max(1, 4_000_000 // (self.n_actions * self._cells.shape[2]))
        parts = [self._step(points[:, i : i + most]) for i in range(0, points.shape[1], most)]
        if len(parts) == 1:
            return parts[0]
        places, terminations = zip(*parts, strict=True)
        return np.concatenate(places, axis=1), np.concatenate(terminations, axis=1)

    def _step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        change = self._law.predict(points, self._coefficients)
        # −½ |x − x_k|² + log min(n_k, 4) as one product, which is far cheaper than its parts.
        count, n, d = points.shape
        each = np.empty((count, n, d + 2))
        np.divide(points, _LOCAL_WIDTH, out=each[:, :, :d])
        np.multiply(-0.5, (each[:, :, :d] ** 2).sum(axis=2), out=each[:, :, d])
        each[:, :, d + 1] = 1.0
        # Products with what underflows take ten times as long.
        logs = (torch.from_numpy(each) @ self._cells).clamp_(min=-40.0)
        sums = (logs.exp_() @ self._told).numpy()
        local = sums[..., :-1] / (sums[..., -1:] + _LOCAL_PRIOR)
        return self.arrive(points + change + local)

    def arrive(self, reached: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Predicted points (A, n, d), held back where they are far from what was seen, and the
        probability (A, n) that the episode ends there."""
        reached = np.clip(reached, self._low, self._high)
        if self._terminations is None:
            return reached, np.zeros(reached.shape[:2])
        return reached, self._terminations(reached, self._controls)
