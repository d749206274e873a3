"""A policy's actions on interned observations, each evaluated once until the policy changes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from rover.data import ObservationTable

_TABLE_ROWS = 256
"""Up to so many known observations the policy is tabulated on all of them at once."""

Logits = Callable[[Tensor, Tensor], Tensor]
"""Logits (n, A) of raw observations (n, *shape) in rows (n,) of the table."""


class TabulatedPolicy:
    """π(·|x) on the rows of a table, kept until :meth:`forget`.

    One evaluation on all that is known costs little more than one on a single observation, as long
    as there are few and they are no images.

    Args:
        table: the observations.
        logits: evaluates the policy.
    """

    def __init__(self, table: ObservationTable, logits: Logits) -> None:
        self._table = table
        self._logits = logits
        self._entries: dict[int, tuple[list[float], int]] = {}
        """Cumulative probabilities and the likeliest action, by observation."""

    def forget(self) -> None:
        """The policy has changed."""
        self._entries = {}

    def sample(self, observation: int, rng: np.random.Generator) -> int:
        """An action drawn from π(·|x), x in row `observation` of the table."""
        cumulative, _ = self._entry(observation)
        # The last sum may miss 1 by a rounding error.
        return bisect_right(cumulative, rng.random() * cumulative[-1])

    def greedy(self, observation: int) -> int:
        """The likeliest action; the first of several."""
        return self._entry(observation)[1]

    def _entry(self, observation: int) -> tuple[list[float], int]:
        if observation not in self._entries:
            rows = self._table.rows
            is_image = len(self._table.shape) == 3
            at_once = not self._entries and len(rows) <= _TABLE_ROWS and not is_image
            wanted = np.arange(len(rows)) if at_once else np.array([observation])
            logits = self._logits(torch.from_numpy(rows[wanted]), torch.from_numpy(wanted))
            sums = torch.softmax(logits.double(), dim=1).cumsum(dim=1)
            entries = zip(sums.tolist(), logits.argmax(dim=1).tolist(), strict=True)
            self._entries.update(zip(wanted.tolist(), entries, strict=True))
        return self._entries[observation]
