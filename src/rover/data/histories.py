"""Observations with what happened before them, where outcomes depend on more than is seen.

A heading, a door or a switch that is not shown makes outcomes look random, and turns look as if
they did nothing. A history tells such states apart: an observation, the other one before it, and
the last two actions since that changed nothing.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from rover.data.buffer import Buffer

_GUESS = 0.25  # tries that an outcome counts for before it is seen
_EVIDENCE = 7.0  # logarithm of odds; where outcomes are drawn 1.8 was the most in 1,500 steps
_NONE = -1


class Histories:
    """The transitions of a buffer between histories, in a buffer of their own, row by row.

    Attributes:
        buffer: the same transitions; its observations (4,) are histories.
        matter: whether outcomes were foretold so much better by histories than by pairs (x, a)
            alone, among pairs that varied, that something hidden explains them; it stays.
    """

    def __init__(self, source: Buffer) -> None:
        self._source, self.matter, self._odds = source, False, 0.0
        self.buffer = Buffer((4,), np.int64, source.n_actions, interleaved=True)
        self._counts, self._varied = Counter[tuple[int, ...]](), set[tuple[int, ...]]()

    def take_in(self) -> None:
        """Add the transitions that are new in the source."""
        source, made = self._source, self.buffer
        for row in range(len(made), len(source)):
            episode, action = int(source.episodes[row]), int(source.actions[row])
            x, y = int(source.inputs[row]), int(source.successors[row])
            before, ends = self.at(x, episode), bool(source.terminated[row])
            if source.previous[row] < 0:
                made.add_start(before)
            _, other, latest, _ = made.observations.rows[before].tolist()
            history = [y, other, action, latest] if x == y else [y, x, _NONE, _NONE]
            after = made.observations.intern(history)
            made.add(before, action, after, ends, bool(source.truncated[row]), episode=episode)
            self._weigh((x, action), (-1 - before, action), -1 - y if ends else y)

    def at(self, observation: int, episode: int) -> int:
        """The history, by its index, that an observation of an episode is seen after."""
        row = self.buffer.latest.get(episode, -1)
        if row >= 0:
            return int(self.buffer.successors[row])
        return self.buffer.observations.intern([observation, _NONE, _NONE, _NONE])

    def _weigh(self, pair: tuple[int, int], history: tuple[int, int], outcome: int) -> None:
        """Multiply the odds by how much likelier an outcome was after its history, which is
        predicted as the pair until it is seen: a Bayes factor of drawn outcomes is rarely large."""
        counts, of_pair, of_history = self._counts, (*pair, outcome), (*history, outcome)
        by_pair = (counts[of_pair] + _GUESS) / (counts[pair] + 1)
        by_history = (counts[of_history] + by_pair) / (counts[history] + 1)
        if pair in self._varied:
            self._odds += math.log(by_history / by_pair)
            self.matter |= self._odds > _EVIDENCE
        elif counts[of_pair] < counts[pair]:
            self._varied.add(pair)
        counts.update((pair, history, of_pair, of_history))
