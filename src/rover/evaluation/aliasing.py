"""Test for aliased observations: outcomes that depend on the episode, not on the observation alone.

Where observations are states, the outcome of an action is drawn anew at each try, in any episode.
Where different states look alike, or layouts change, it stays the same within an episode and
differs in another one. Two tests ask that. One compares the tries of each pair (x, a) with each
other, so that nothing but aliasing can make it fail; it needs pairs tried twice in one episode and
again in another. The other compares all repetitions within episodes with all repetitions across
them, and requires that outcomes mostly repeat within and mostly differ across.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are imported on first use

from rover.arrays import IntArray

if TYPE_CHECKING:
    from rover.data import Buffer

# One run in ten thousand is said to be aliased although it is not.
_LARGEST_P_VALUE = 1e-4
# Below so many nothing is said.
_FEWEST_COMPARISONS = 20
# Who tries an action until its outcome changes sees outcomes of probability p repeat with that
# share within an episode, and differ with at most 1 − p² across: less than half from 0.75 on.
_LEAST_REPEATED, _LEAST_CHANGED = 0.75, 0.5
# Different pairs whose outcome changed, so that no single one decides.
_FEWEST_CHANGED = 12


@dataclass(frozen=True)
class _Test:
    """Outcomes of repeated tries, within an episode and across episodes.

    Attributes:
        n_comparisons: tries that were compared.
        n_within: those that repeat an outcome of their own episode where the next episode's does
            not; `n_across` the other way round, as many in the mean without aliasing.
        repeats: later tries within an episode with the outcome of the one before, and with another.
        returns: first tries in a later episode with the first outcome of the last one, and with
            another; `n_changed` pairs have one of the latter.
    """

    n_comparisons: int
    n_within: int
    n_across: int
    repeats: tuple[int, int]
    returns: tuple[int, int]
    n_changed: int

    @property
    def p_value(self) -> float:
        """Probability of so many `n_within`, or more, without aliasing: tosses of a fair coin."""
        if (n := self.n_within + self.n_across) == 0:
            return 1.0
        return float(scipy.stats.binomtest(self.n_within, n, alternative="greater").pvalue)

    @property
    def is_aliased(self) -> bool | None:
        """Evidence of aliasing; None where next to nothing was tried repeatedly."""
        # Outcomes that mostly repeat within episodes and mostly differ across them.
        if (
            self.n_changed >= _FEWEST_CHANGED
            and self.n_within > self.n_across
            and self.repeats[0] >= _LEAST_REPEATED * sum(self.repeats)
            and self.returns[1] >= _LEAST_CHANGED * sum(self.returns)
        ):
            table = np.array([self.repeats, self.returns])
            test = scipy.stats.fisher_exact(table, alternative="greater")
            if test.pvalue < _LARGEST_P_VALUE:
                return True
        if self.n_comparisons < _FEWEST_COMPARISONS:
            return None
        return self.p_value < _LARGEST_P_VALUE


def aliasing_of(buffer: Buffer) -> _Test:
    """Test the observations of all transitions so far; how an episode ended is an outcome too."""
    pairs, rows = buffer.inputs * buffer.n_actions + buffer.actions, buffer.by_episode
    outcomes = 2 * buffer.successors + buffer.terminated
    return _compare(pairs[rows], outcomes[rows], buffer.episodes[rows])


def _compare(pairs: IntArray, outcomes: IntArray, episodes: IntArray) -> _Test:
    """Compare how outcomes agree within episodes to how they agree across them.

    Let A and B be the outcomes of the first two tries of a pair (x, a) in one episode, and C of its
    first try in the next episode that has any. Where observations are states B and C are, given A,
    both drawn from P(· | x, a), whatever made the agent come back: B = A ≠ C is as likely as B ≠ A
    = C, and the number of the first among both is binomial. Random outcomes alone never count as
    aliasing.

    Args:
        pairs: (n,) the pair (x, a) of each transition, in the order in which they were made.
        outcomes: (n,) what it led to; `episodes` (n,) the episode that it is of, ascending.
    """
    order = np.argsort(pairs, kind="stable")
    pairs, outcomes, episodes = pairs[order], outcomes[order], episodes[order]
    # The first try of a pair in each episode; the tries behind it are of the same episode.
    is_first = np.ones(len(pairs), np.bool_)
    is_first[1:] = (pairs[1:] != pairs[:-1]) | (episodes[1:] != episodes[:-1])
    agree, again = outcomes[1:] == outcomes[:-1], ~is_first[1:]
    first = np.flatnonzero(is_first)
    follows = np.flatnonzero(pairs[first[1:]] == pairs[first[:-1]])  # by a later episode
    before, after = first[follows], first[follows + 1]
    returned = outcomes[before] == outcomes[after]
    # Only an episode that tried the pair twice can agree with itself.
    twice = again[before]
    repeated = agree[before[twice]]
    return _Test(
        n_comparisons=int(twice.sum()),
        n_within=int((repeated & ~returned[twice]).sum()),
        n_across=int((~repeated & returned[twice]).sum()),
        repeats=(int((again & agree).sum()), int((again & ~agree).sum())),
        returns=(int(returned.sum()), int((~returned).sum())),
        n_changed=len(np.unique(pairs[before[~returned]])),
    )
