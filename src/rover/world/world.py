"""Models of an environment, learned from the transitions of a buffer.

Exploration, coverage and plans for rewards ask one object whether states repeat, and share what
takes long to make of all transitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, Literal, TypeVar

import numpy as np

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer
from rover.world.counts import Counts
from rover.world.model import LandmarkModel, Sums
from rover.world.model_selection import (
    DECIDED,
    has_metric,
    held_out_errors,
    is_lattice,
    is_whole,
    lasts_a_lag,
    repeats,
)
from rover.world.net import FIRST_UNITS, units_due
from rover.world.regression import USUAL_FIT

_MOST_LEFT = 0.5
"""Error of counts up to which states repeat, whatever the error of the dynamics model: outcomes of
a state itself are certain, while a dynamics model that misses a wall promises a path through it."""

_TRUSTED = 0.1
"""Error of a dynamics model above which whole numbers that hardly repeat are states: it predicts
the moves of a car in whole pixels, and not the moves of a puzzle."""

Kind = Literal["states", "landmarks", "contexts"]
"""Kind of world: what plans are made on."""

PartT = TypeVar("PartT")


class World:
    """The transitions of a buffer, their states, exact or not, and models that are made of them.

    Whether states are exact is decided on the first transitions, anew when there are half as many
    more, up to 2,000, so that it follows from the buffer alone, however often it was asked for.
    Vectors on a lattice are exact states, and vectors of whole numbers unless a dynamics model
    explains nine tenths of their changes. Observations without a metric, whose distances have no
    meaning, are exact states if a quarter of the moves come back to known ones.

    Images are states, too, while no episode lasts long enough to show what changes slowly.

    Args:
        buffer: the transitions.

    Attributes:
        buffer: the transitions.
        chosen: the kind that settings choose, or that contexts were recognised; None: by the data.
        counts_error, motion_error: shares of moves in [0, 1] that counts and dynamics leave
            unexplained; None where they were not compared.
    """

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.chosen: Kind | None = None
        self._decided_on, self._is_exact = 0, True
        self.counts_error: float | None = None
        self.motion_error: float | None = None
        self._counts: Counts | None = None
        self._sums = Sums(buffer, lambda _: self._numbers, USUAL_FIT)
        self._parts: dict[Hashable, Any] = {}
        self._made_of = (0, 0, 0)

    @property
    def kind(self) -> Kind:
        """States, if every observation stands for itself alone, landmarks, or contexts."""
        buffer = self.buffer
        if self.chosen == "contexts":
            return self.chosen
        if buffer.observations.shape == () or len(buffer) < FIRST_UNITS:
            return "states"
        if self.chosen is not None:
            return self.chosen
        return "states" if self._are_states() else "landmarks"

    def _are_states(self) -> bool:
        buffer = self.buffer
        if not has_metric(buffer.observations.rows[: 2 * DECIDED]):
            is_image = buffer.observations.rows.ndim > 2
            return repeats(buffer) or (is_image and not lasts_a_lag(buffer))
        due = units_due(min(len(buffer), DECIDED))
        if due != self._decided_on:
            self._decided_on = due
            self.counts_error, self.motion_error = held_out_errors(buffer, due)
            least = _TRUSTED if is_whole(buffer.observations.rows[: 2 * DECIDED]) else 1.0
            counted = self.counts_error <= max(self.motion_error, _MOST_LEFT)
            self._is_exact = counted or self.motion_error > least or is_lattice(buffer, due)
        return self._is_exact

    @property
    def counts(self) -> Counts:
        """The outcomes of the pairs of states and actions, of all transitions so far."""
        if self._counts is None:
            self._counts = Counts(self.buffer, foretells=True)
        self._counts.take_in()
        return self._counts

    def landmarks(self, sums: Sums | None = None) -> LandmarkModel:
        """The model of all transitions on landmarks, of which there is one, whoever asks first.

        Args:
            sums: of features of observations; None: of their numbers.
        """
        of = self._sums if sums is None else sums
        return self.part((LandmarkModel, of), of.model)

    def _numbers(self, observations: IntArray) -> tuple[FloatArray, None]:
        """The numbers (n, d) of observations (n,)."""
        rows = self.buffer.observations.rows[observations]
        return rows.reshape(len(rows), math.prod(rows.shape[1:])).astype(np.float64), None

    @property
    def repeats(self) -> bool:
        """True if rewards are planned for on observations themselves."""
        # States of coarse steps come back, and walls between them show in transitions alone.
        return self.kind == "states" or repeats(self.buffer)

    def figures(self) -> dict[str, Any]:
        """The decision and both errors, for metrics."""
        return {
            "exact_states": self.kind == "states",
            "counts_error": self.counts_error,
            "motion_error": self.motion_error,
        }

    def part(self, name: Hashable, make: Callable[[], PartT]) -> PartT:
        """A model that follows from all transitions, made once and kept until there are more.

        Args:
            name: of the model, and of what else it follows from.
            make: the model, which nobody changes.
        """
        buffer = self.buffer
        made_of = len(buffer), len(buffer.observations), len(buffer.episode_starts)
        if made_of != self._made_of:
            self._parts, self._made_of = {}, made_of
        if name not in self._parts:
            self._parts[name] = make()
        part: PartT = self._parts[name]
        return part
