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
_EVIDENCE = 7.0  # logarithm of odds; of drawn outcomes 1.8 was the most in 1,500 steps
_NONE = -1

# Transitions between tests of whether layouts change, and finished episodes before the first.
_TESTED, _FEWEST_EPISODES = 250, 3

LARGEST_LIST = 4096
"""Numbers of an observation up to which contexts are recognised, and can be asked for."""


class _Evidence:
    """Odds that what else is known foretells outcomes of pairs (x, a) better than these alone.

    A Bayes factor, one outcome after the other, of pairs that varied: of drawn outcomes it is large
    by accident alone.
    """

    def __init__(self) -> None:
        self.odds, self._varied = 0.0, set[tuple[int, ...]]()
        self._counts = Counter[tuple[int, ...]]()

    def weigh(self, pair: tuple[int, int], known: int, outcome: int) -> None:
        """Take in an outcome, by its pair and the number of what else is known. Until that is
        seen with the pair, it foretells what the pair does."""
        counts, both = self._counts, (*pair, known, 0)
        of_pair, of_both = (*pair, outcome), (*both, outcome)
        by_pair = (counts[of_pair] + _GUESS) / (counts[pair] + 1)
        by_both = (counts[of_both] + by_pair) / (counts[both] + 1)
        if pair in self._varied:
            self.odds += math.log(by_both / by_pair)
        elif counts[of_pair] < counts[pair]:
            self._varied.add(pair)
        counts.update((pair, both, of_pair, of_both))


def are_aliased(buffer: Buffer) -> bool:
    """True if outcomes follow the episode, and not the observation alone: different states look
    alike, or layouts change. How an episode ended is an outcome, too."""
    evidence, rows = _Evidence(), buffer.by_episode
    outcomes = np.where(buffer.terminated, -1 - buffer.successors, buffer.successors)
    columns = buffer.inputs, buffer.actions, buffer.episodes, outcomes
    for x, action, episode, outcome in zip(*(c[rows].tolist() for c in columns), strict=True):
        evidence.weigh((x, action), episode, outcome)
    return evidence.odds > _EVIDENCE


def changes_with_episodes(buffer: Buffer) -> bool:
    """True if the outcomes of actions follow the episode, and not the observation alone.

    Only of observations that are whole numbers: a plan then belongs to its episode. False unless a
    test is due: after 500, 750, 1,000, 1,500, 2,000, 3,000, … transitions.
    """
    n, rest = divmod(len(buffer), _TESTED)
    if rest > 0 or n < 2 or n // (n & -n) not in (1, 3):
        return False
    table = buffer.observations
    if table.dtype.kind == "f" or math.prod(table.shape) > LARGEST_LIST:
        return False
    n_episodes = np.count_nonzero(buffer.is_end)
    return bool(n_episodes >= _FEWEST_EPISODES) and are_aliased(buffer)


class Histories:
    """The transitions of a buffer between histories, in a buffer of their own, row by row.

    Attributes:
        buffer: the same transitions; its observations (4,) are histories.
        matter: whether outcomes were foretold so much better by histories than by pairs (x, a)
            alone, among pairs that varied, that something hidden explains them; it stays.
    """

    def __init__(self, source: Buffer) -> None:
        self._source, self.matter = source, False
        self._evidence, self._of_episodes = _Evidence(), _Evidence()
        self.buffer = Buffer((4,), np.int64, source.n_actions, interleaved=True)

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
            for evidence, known in ((self._evidence, before), (self._of_episodes, episode)):
                evidence.weigh((x, action), known, -1 - y if ends else y)
            # Where layouts change with episodes these explain more.
            self.matter |= self._evidence.odds > max(_EVIDENCE, self._of_episodes.odds)

    def at(self, observation: int, episode: int) -> int:
        """The history, by its index, that an observation of an episode is seen after."""
        row = self.buffer.latest.get(episode, -1)
        if row >= 0:
            return int(self.buffer.successors[row])
        return self.buffer.observations.intern([observation, _NONE, _NONE, _NONE])
