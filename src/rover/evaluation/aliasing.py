"""Test for aliased observations: outcomes that follow the episode, and not the observation alone.

Where observations are states the outcome of an action is drawn anew at each try, in whichever
episode. Where different states look alike it stays the same while the agent is where it was, or
while the layout lasts, and differs in another episode. Two tests ask that: one compares the tries
of each pair (x, a) with each other, so that nothing but aliasing can make it fail, and needs pairs
tried twice in one episode and again in another; the other compares all that is tried again within
an episode with all that is tried again in another, and, since what comes back may be more certain,
needs outcomes that mostly repeat within and mostly differ across. A third test asks whether
outcomes follow the step before, as where a state that changes within an episode is hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import binomtest, fisher_exact

from rover.arrays import IntArray, episode_numbers

if TYPE_CHECKING:
    from rover.data import Buffer

# One run in ten thousand is said to be aliased although it is not.
_LARGEST_P_VALUE = 1e-4
# Below so many nothing is said.
_FEWEST_COMPARISONS = 20
# Who tries an action until its outcome changes sees outcomes of probability p repeat with that
# share within an episode, and differ with at most 1 − p² across: less than half from 0.75 on.
_LEAST_REPEATED, _LEAST_CHANGED = 0.75, 0.5
# Of each order of the tries: who comes back because an outcome was new would favour one of them.
_LARGEST_P_OF_ORDER = 0.05
# Different pairs whose outcome changed, so that no single place decides.
_FEWEST_CHANGED = 12


@dataclass(frozen=True)
class _Test:
    """Outcomes of repeated tries, within an episode and across episodes.

    Attributes:
        n_comparisons: tries that were compared.
        n_within: those that repeat an outcome of their own episode where the next episode's does
            not; `n_across` the other way round, as many in the mean without aliasing.
        p_value: probability of so many `n_within`, or more, without aliasing.
        repeats: later tries within an episode with the outcome of the one before, and with another.
        returns: first tries in a later episode with the first outcome of the last one, and with
            another; `n_changed` pairs have one of the latter.
        history: outcomes that agree with an earlier try after the same step, where one after
            another step does not; and the other way round. `follows_history` if that is evidence.
    """

    n_comparisons: int
    n_within: int
    n_across: int
    p_value: float
    repeats: tuple[int, int]
    returns: tuple[int, int]
    n_changed: int
    history: tuple[int, int] = (0, 0)
    follows_history: bool = False

    @property
    def is_aliased(self) -> bool | None:
        """Evidence of aliasing; None where next to nothing was tried repeatedly."""
        if self._belongs_to_episodes or self.follows_history:
            return True
        if self.n_comparisons < _FEWEST_COMPARISONS:
            return None
        return self.p_value < _LARGEST_P_VALUE

    @property
    def _belongs_to_episodes(self) -> bool:
        """True if outcomes mostly repeat within episodes and mostly differ across them."""
        if self.n_changed < _FEWEST_CHANGED or self.n_within <= self.n_across:
            return False
        if self.repeats[0] < _LEAST_REPEATED * sum(self.repeats):
            return False
        if self.returns[1] < _LEAST_CHANGED * sum(self.returns):
            return False
        test = fisher_exact(np.array([self.repeats, self.returns]), alternative="greater")
        return bool(test.pvalue < _LARGEST_P_VALUE)


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
    n_within = int((repeated & ~returned[twice]).sum())
    n_across = int((~repeated & returned[twice]).sum())
    return _Test(
        n_comparisons=int(twice.sum()),
        n_within=n_within,
        n_across=n_across,
        p_value=_p_value(n_within, n_across),
        repeats=(int((again & agree).sum()), int((again & ~agree).sum())),
        returns=(int(returned.sum()), int((~returned).sum())),
        n_changed=len(np.unique(pairs[before[~returned]])),
    )


def _p_value(n_for: int, n_against: int) -> float:
    """One-sided sign test: without aliasing each comparison is a toss of a fair coin."""
    n = n_for + n_against
    return float(binomtest(n_for, n, 0.5, alternative="greater").pvalue) if n else 1.0


def aliasing_of(buffer: Buffer) -> _Test:
    """Test the observations of all transitions so far; how an episode ended is an outcome too."""
    done = buffer.terminated | buffer.truncated
    pairs = buffer.inputs * buffer.n_actions + buffer.actions
    outcomes = 2 * buffer.successors + buffer.terminated
    # The pair of the step before, −1 at the first step of an episode.
    before = np.where(np.concatenate([[True], done[:-1]]), -1, np.concatenate([[-1], pairs[:-1]]))
    history, follows = _follow_history(pairs, outcomes, before)
    return replace(
        _compare(pairs, outcomes, episode_numbers(done)),
        history=history,
        follows_history=follows,
    )


def _follow_history(
    pairs: IntArray, outcomes: IntArray, before: IntArray
) -> tuple[tuple[int, int], bool]:
    """Compare outcomes after the same step with outcomes after another step.

    Of three tries of a pair, let A and B be reached by the same step and C by another one. Where
    observations are states B = A ≠ C is as likely as C = A ≠ B. The latest of the three is B as
    often as C: who comes back because an outcome was new favours one of these orders, so each must
    be evidence. `before` (n,) is the pair of the step before, −1 where an episode begins.

    Returns:
        How often B alone agreed, and C alone; and whether that is evidence.
    """
    alike, unlike = [0, 0], [0, 0]  # by which of B and C is the latest
    unused: dict[int, dict[int, list[int]]] = {}  # outcomes by pair and step before
    n_triples: dict[int, int] = {}
    rows = zip(pairs.tolist(), outcomes.tolist(), before.tolist(), strict=True)
    for pair, latest, way in rows:
        tries = unused.setdefault(pair, {})
        own, others = tries.get(way, []), [v for v in tries if v != way]
        twice = [v for v in others if len(tries[v]) > 1]
        orders = [k for k, possible in enumerate((own and others, twice)) if possible]
        if not orders:
            tries.setdefault(way, []).append(latest)
            continue
        order = orders[n_triples.get(pair, 0) % len(orders)]
        n_triples[pair] = n_triples.get(pair, 0) + 1
        # No try is of two triples, so that they are independent.
        if order == 0:
            first, same, other = _take(tries, way), latest, _take(tries, others[0])
        else:
            first, same, other = _take(tries, twice[0]), _take(tries, twice[0]), latest
        alike[order] += same == first != other
        unlike[order] += other == first != same
    history, in_orders = (sum(alike), sum(unlike)), map(_p_value, alike, unlike)
    follows = _p_value(*history) < _LARGEST_P_VALUE and max(in_orders) < _LARGEST_P_OF_ORDER
    return history, follows


def _take(tries: dict[int, list[int]], way: int) -> int:
    """Remove and return the first outcome of a way: a hidden state lasts, so that tries which
    follow one another agree whatever their way."""
    outcome = tries[way].pop(0)
    if not tries[way]:
        del tries[way]
    return outcome
