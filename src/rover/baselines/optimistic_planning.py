"""Planning in the face of uncertainty: how to get to what was never tried, as fast as possible.

The model of R-max (Brafman & Tennenholtz, 2002): a pair (x, a) is known once it was tried often
enough; an unknown pair is believed to lead to a heaven of reward 1 for ever, and nothing else is
rewarded. Values are scaled by 1 − γ, so that V(x) = max E[γ^T], where T is the number of steps
before an unknown pair is tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve

from rover.errors import ConfigurationError, ConvergenceError
from rover.operators import TransitionCounts

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

# Values are sums of powers of γ that may be tiny, so ties are judged relative to their size.
_TIE = 1e-9


@dataclass(frozen=True)
class OptimisticPlan:
    """The optimal values of the optimistic model, and every action that attains them.

    Attributes:
        values: (S,) in [0, 1]: E[γ^T] until an unknown pair is tried; 0 where none can be reached.
        greedy: (S, A) true for each optimal action; all are where nothing unknown can be reached.
        known: (S, A) whether a pair was tried often enough.
    """

    values: FloatArray
    greedy: BoolArray
    known: BoolArray


@dataclass(frozen=True)
class _Model:
    """Where known pairs lead, as triplets; state S stands for the beginning of an episode."""

    known: BoolArray  # (S, A)
    states: IntArray  # (r,) x of each triplet
    actions: IntArray  # (r,) a
    targets: IntArray  # (r,) x' or S
    probabilities: FloatArray  # (r,)
    start: FloatArray  # (S,) probabilities, or zeros where no start is known

    @property
    def is_deterministic(self) -> bool:
        certain = bool((self.probabilities == 1.0).all())
        return certain and int(np.count_nonzero(self.start)) <= 1


def plan_optimistically(
    counts: TransitionCounts,
    *,
    n_states: int,
    n_actions: int,
    starts: tuple[IntArray, FloatArray],
    known_after: int,
    discount: float,
) -> OptimisticPlan:
    """Plan the shortest way, in expectation of γ^T, to a pair that is not known yet.

    Q(x, a) = 1 for an unknown pair and γ Σ_x' P̂(x'|x, a) V(x') for a known one, with P̂ the relative
    frequencies. A terminated transition goes on where episodes begin, as exploration does. If every
    known outcome is certain, V(x) = γ^d(x) with the graph distance d, found by breadth-first
    search; else policy iteration with sparse solves ends at the exact optimum.

    Args:
        counts: distinct transitions between states in 0..S−1.
        n_states: S.
        n_actions: A.
        starts: initial states (q,) and how often episodes began there (q,); may be empty.
        known_after: m ≥ 1, tries after which a pair is known.
        discount: γ in (0, 1).

    Raises:
        ConfigurationError: a setting out of range, or a state or action beyond S or A.
    """
    _check(counts, starts[0], n_states, n_actions, known_after, discount)
    model = _fit_model(counts, n_states, n_actions, starts, known_after)
    if model.is_deterministic:
        return _shortest_paths(model, discount)
    return _policy_iteration(model, discount)


def _check(
    counts: TransitionCounts,
    starts: IntArray,
    n_states: int,
    n_actions: int,
    known_after: int,
    discount: float,
) -> None:
    if not 0.0 < discount < 1.0:
        raise ConfigurationError(f"discount is {discount}, but must lie in (0, 1)")
    if known_after < 1:
        raise ConfigurationError(
            f"known_after is {known_after}, but a pair must be tried at least once to be known"
        )
    for name, index, limit in (
        ("inputs", counts.inputs, n_states),
        ("successors", counts.successors, n_states),
        ("starts", starts, n_states),
        ("actions", counts.actions, n_actions),
    ):
        if len(index) and not 0 <= index.min() <= index.max() < limit:
            raise ConfigurationError(
                f"{name} span {index.min()} … {index.max()}, but must lie in 0 … {limit - 1}: "
                "pass the number of all states and actions"
            )


def _fit_model(
    counts: TransitionCounts,
    n_states: int,
    n_actions: int,
    starts: tuple[IntArray, FloatArray],
    known_after: int,
) -> _Model:
    pair = counts.inputs * n_actions + counts.actions  # (r,)
    tries = np.bincount(pair, counts.counts, minlength=n_states * n_actions)
    used = tries[pair] >= known_after
    targets = np.where(counts.terminated, n_states, counts.successors)
    # Terminated transitions to several states are one outcome: the beginning of an episode.
    outcome, index = np.unique(pair[used] * (n_states + 1) + targets[used], return_inverse=True)
    pairs, targets = outcome // (n_states + 1), outcome % (n_states + 1)
    start = np.zeros(n_states)
    np.add.at(start, starts[0], starts[1])
    return _Model(
        known=(tries >= known_after).reshape(n_states, n_actions),
        states=pairs // n_actions,
        actions=pairs % n_actions,
        targets=targets,
        probabilities=np.bincount(index, counts.counts[used], len(outcome)) / tries[pairs],
        start=start / max(start.sum(), 1.0),
    )


def _shortest_paths(model: _Model, discount: float) -> OptimisticPlan:
    n_states = len(model.known)
    begin = int(model.start.argmax()) if model.start.any() else n_states
    targets = np.where(model.targets == n_states, begin, model.targets)
    sources = np.flatnonzero(~model.known.all(axis=1))
    distance = np.full(n_states + 1, np.inf)  # the last entry: no episode begins anywhere
    if len(sources):
        backward = sparse.csr_array(
            (np.ones(len(targets)), (targets, model.states)), shape=(n_states + 1, n_states + 1)
        )
        distance = dijkstra(backward, indices=sources, unweighted=True, min_only=True)
    cost = np.zeros(model.known.shape)  # (S, A)
    cost[model.states, model.actions] = 1.0 + distance[targets]
    return OptimisticPlan(
        values=discount ** distance[:n_states],
        greedy=cost == distance[:n_states, None],
        known=model.known,
    )


def _policy_iteration(model: _Model, discount: float) -> OptimisticPlan:
    n_states, n_actions = model.known.shape
    everyone = np.arange(n_states)
    chosen = model.known.argmin(axis=1)  # an unknown action where there is one
    pairs = model.states * n_actions + model.actions
    for _ in range(n_states * n_actions + 1):
        values = _evaluate(model, chosen, discount)  # (S + 1,)
        expected = np.bincount(
            pairs, model.probabilities * values[model.targets], minlength=n_states * n_actions
        )
        q = np.where(model.known, discount * expected.reshape(n_states, n_actions), 1.0)
        best = q.max(axis=1)
        better = best > q[everyone, chosen] * (1.0 + _TIE)
        if not better.any():
            return OptimisticPlan(
                values=best, greedy=q >= best[:, None] * (1.0 - _TIE), known=model.known
            )
        chosen = np.where(better, q.argmax(axis=1), chosen)
    raise ConvergenceError(
        f"policy iteration over {n_states} states did not settle: lower the discount {discount}"
    )


def _evaluate(model: _Model, chosen: IntArray, discount: float) -> FloatArray:
    """Values (S + 1,) of the policy that takes action `chosen` (S,) in each state."""
    n_states = len(chosen)
    followed = chosen[model.states] == model.actions
    begin = np.flatnonzero(model.start)  # V(beginning) = Σ p(x) V(x), without a discount
    everyone = np.arange(n_states + 1)
    rows = np.concatenate([everyone, model.states[followed], np.full(len(begin), n_states)])
    columns = np.concatenate([everyone, model.targets[followed], begin])
    entries = [
        np.ones(n_states + 1),
        -discount * model.probabilities[followed],
        -model.start[begin],
    ]
    system = sparse.csc_array((np.concatenate(entries), (rows, columns)))
    reward = np.append(~model.known[everyone[:-1], chosen], False)
    solution: FloatArray = spsolve(system, reward.astype(np.float64))
    return np.clip(solution, 0.0, 1.0)
