"""Exploration towards contact: make still features move, to where they have seldom been.

The novelty of a smooth dynamics model leads an arm through the air. Here a sequence of actions is
worth the sum of

    p(x, u) (0.3 + (1 + n(x') / 5)^−1/2),

with the chance p that anything still moves and n the number of moves that ended in the cell of
where it goes (:mod:`rover.world.gated`, :mod:`rover.world.sampled`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rover.arrays import IntArray, cell_factors
from rover.data import Buffer
from rover.world.gated import FEWEST_MOVES, GatedModel, GatedSums
from rover.world.sampled import Controls, SampledPlan, Sampling

_SAMPLING = Sampling(horizon=12, n_sequences=48, n_elites=6, spread=0.7)
_CODES = 2**16
_CONTACT_SEED = 0


class ContactExploration(NamedTuple):
    """Settings of exploration towards contact.

    Attributes:
        first, every: transitions of the first model, and between models.
        size: random features.
        least: value of a move to a known cell.
        share: weight of the visits of a cell.
        side: of a cell, in moves.
    """

    first: int = 200
    every: int = 100
    size: int = 600
    least: float = 0.3
    share: float = 0.2
    side: float = 2.0


class ContactSearch:
    """The search for contacts in an environment, a function of its buffer alone.

    Args:
        buffer: the transitions, of observations (d,).
        covered: (c,) features that are to move; None: all that rest anywhere.
    """

    settings = ContactExploration()

    def __init__(self, buffer: Buffer, covered: IntArray | None) -> None:
        self._buffer = buffer
        self._sums = GatedSums(buffer, covered, size=self.settings.size, is_sharp=False)
        self._controls = Controls.among(buffer.controls)
        self._n_fitted = 0
        self._model: GatedModel | None = None
        self.forget_plan()

    def forget_plan(self) -> None:
        """Begin a search anew: nothing that is not in the buffer is kept."""
        self._plan: SampledPlan | None = None

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation of the buffer, by its index; None where what is
        covered is not known to move on contact.

        While all that is covered is still, and moved too seldom for a model, it is drawn: a plan
        for novelty of what does not move leads nowhere.
        """
        due = len(self._buffer) // self.settings.every * self.settings.every
        if due < self.settings.first:
            return None
        if due != self._n_fitted:
            self._fit(due)
        if self._model is None and self._sums.at_rest:
            return int(rng.integers(self._buffer.n_actions))
        if self._model is None:
            return None
        if self._plan is None:
            sequences = np.random.default_rng([_CONTACT_SEED, len(self._buffer)])
            self._plan = SampledPlan(
                self._model,
                self._value,
                self._controls,
                _SAMPLING,
                sequences,
                is_continuous=False,
            )
        control = self._plan.act(self._buffer.observations.rows[observation])
        return int(self._controls.nearest(control))

    def _fit(self, n: int) -> None:
        sums = self._sums
        sums.extend(n)
        self._n_fitted, self._model = n, None
        if sums.n_moving < FEWEST_MOVES:
            self._plan = None
            return
        self._model = sums.model()
        ends, moves = sums.moves()
        self._gated = torch.from_numpy(sums.gated)
        self._side = torch.from_numpy(np.sqrt((moves**2).mean(axis=0))).float()
        self._side.mul_(self.settings.side).clamp_(min=1e-6)
        self._cells = torch.tensor(cell_factors(ends.shape[1]))
        codes = self._codes(torch.from_numpy(ends).float())
        visits = torch.bincount(codes, minlength=_CODES).float()
        self._worth = self.settings.least + (1.0 + self.settings.share * visits) ** -0.5
        if self._plan is not None:
            self._plan.follow(self._model)

    def _codes(self, gated: Tensor) -> Tensor:
        """Number (n,) of the cells of gated features (n, g)."""
        return (torch.floor(gated / self._side).long() @ self._cells) % _CODES

    def _value(self, points: Tensor, chance: Tensor) -> Tensor:
        return chance * self._worth[self._codes(points[:, self._gated])]
