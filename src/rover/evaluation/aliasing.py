"""A test for aliased observations: outcomes that follow the episode, and not the observation alone.

If an observation says all that matters, what an action in it leads to is drawn anew each time,
however often it was tried and in which episode. If different states look alike, it stays the same
while the agent is where it was, or while the layout lasts, and differs in another episode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

if TYPE_CHECKING:
    from rover.data import Buffer

IntArray = NDArray[np.int64]

# One run in ten thousand is said to be aliased although it is not.
_LARGEST_P_VALUE = 1e-4
# Below so many nothing is said.
_FEWEST_COMPARISONS = 20


@dataclass(frozen=True)
class _Test:
    """Outcomes of repeated tries, within an episode and across episodes.

    Attributes:
        n_comparisons: tries that were compared.
        n_within: of these, the tries that repeat an outcome of their own episode where the next
            episode's does not.
        n_across: the other way round; as many as `n_within` in the mean without aliasing.
        p_value: probability of so many `n_within`, or more, without aliasing.
    """

    n_comparisons: int
    n_within: int
    n_across: int
    p_value: float

    @property
    def is_aliased(self) -> bool | None:
        """Evidence of aliasing; None where next to nothing was tried repeatedly."""
        if self.n_comparisons < _FEWEST_COMPARISONS:
            return None
        return self.p_value < _LARGEST_P_VALUE


def _compare(pairs: IntArray, outcomes: IntArray, episodes: IntArray) -> _Test:
    """Compare how outcomes agree within episodes to how they agree across them.

    Let A and B be the outcomes of the first two tries of a pair (x, a) in one episode, and C that
    of its first try in the next episode that has any. Given A, both B and C are drawn from
    P(· | x, a) where observations are states, whatever made the agent come back; so B = A ≠ C is
    as likely as B ≠ A = C, and the number of the first among both has a binomial distribution.
    Random outcomes alone never count as aliasing.

    Args:
        pairs: (n,) the pair (x, a) of each transition, in the order in which they were made.
        outcomes: (n,) what it led to.
        episodes: (n,) the episode that it is of, ascending.
    """
    n_comparisons = n_within = n_across = 0
    # By pair: the latest episode with its first outcome, and, if there was a second try, that.
    tries: dict[int, tuple[int, int, int | None]] = {}
    rows = zip(pairs.tolist(), outcomes.tolist(), episodes.tolist(), strict=True)
    for pair, outcome, episode in rows:
        latest = tries.get(pair)
        # The first episode of a pair has nothing to be compared with yet.
        if latest is None:
            tries[pair] = episode, outcome, None
            continue
        number, first, second = latest
        if number == episode:
            if second is None:
                tries[pair] = episode, first, outcome
            continue
        # Only an episode that tried the pair twice can agree with itself.
        if second is not None:
            n_comparisons += 1
            n_within += second == first != outcome
            n_across += second != first == outcome
        tries[pair] = episode, outcome, None
    # Where both or neither agree nothing is said; without aliasing any other is a toss of a fair
    # coin.
    n_different = n_within + n_across
    p_value = 1.0
    if n_different:
        p_value = float(binomtest(n_within, n_different, 0.5, alternative="greater").pvalue)
    return _Test(n_comparisons, n_within, n_across, p_value)


def aliasing_of(buffer: Buffer) -> _Test:
    """Test the observations of all transitions so far; how an episode ended is an outcome too."""
    done = buffer.terminated | buffer.truncated
    return _compare(
        buffer.inputs * buffer.n_actions + buffer.actions,
        2 * buffer.successors + buffer.terminated,
        np.cumsum(done) - done,
    )
