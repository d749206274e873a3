"""From a bag of transitions to the points that carry the estimate.

Repeated transitions merge into counts and repeated next states into one anchor each: nothing is
lost, and matrices shrink from the number of transitions to the number of distinct states
(docs/primer.md, "From n to s"). Where next states do not repeat, a few anchors are chosen by
farthest-point sampling and every next state is projected on them (Nyström).

Indices point into a table of distinct observations, which the caller keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.operators.kernels import Kernel, cholesky_factor
from rover.transitions import TransitionCounts

# Initial states always are anchors, weighted by how often episodes began there (D8).
_MAX_START_ANCHORS = 16


@dataclass(frozen=True)
class Support:
    """The points that an estimate of the transition operator stands on.

    Attributes:
        pair_inputs: (p,) observation index of x for each distinct pair (x, a), sorted by a then x.
        pair_actions: (p,) its action.
        pair_counts: (p,) how often the pair was seen.
        anchors: (s,) observation index of each anchor.
        terminal: (s,) whether the anchor is a terminal state. A state that was seen both as a
            terminal and as an ordinary state has two anchors.
        successor: (p, s) float64; row i holds the weights on the anchors of the mean next state of
            pair i. Exact support: the empirical next-state frequencies, so rows sum to 1.
        start: (s,) float64 weights on the anchors of the initial distribution, sum 1.
        exact: whether every next state is an anchor itself (no Nyström projection).
    """

    pair_inputs: IntArray
    pair_actions: IntArray
    pair_counts: Tensor
    anchors: IntArray
    terminal: BoolArray
    successor: Tensor
    start: Tensor
    exact: bool


def exact_support(counts: TransitionCounts, starts: IntArray, start_weights: FloatArray) -> Support:
    """Support with one anchor for each distinct next state and initial state.

    Args:
        counts: merged transitions.
        starts, start_weights: (q,) observation indices of the initial states, and weights ≥ 0.
    """
    # Sorting key: the observation, with terminal anchors after ordinary ones of the same state.
    keys = 2 * counts.successors + counts.terminated
    anchor_keys = np.unique(np.concatenate([keys, 2 * starts]))
    actions, inputs, pair_of_row, pair_counts = counts.pairs()
    n_pairs, n_anchors = len(actions), len(anchor_keys)
    frequency = np.zeros((n_pairs, n_anchors))
    share = counts.counts / pair_counts[pair_of_row]
    np.add.at(frequency, (pair_of_row, np.searchsorted(anchor_keys, keys)), share)
    start, weights = np.zeros(n_anchors), start_weights / start_weights.sum()
    np.add.at(start, np.searchsorted(anchor_keys, 2 * starts), weights)
    return Support(
        pair_inputs=inputs,
        pair_actions=actions,
        pair_counts=torch.from_numpy(pair_counts),
        anchors=anchor_keys // 2,
        terminal=(anchor_keys % 2).astype(np.bool_),
        successor=torch.from_numpy(frequency),
        start=torch.from_numpy(start),
        exact=True,
    )


def _farthest_point_anchors(
    features: Tensor,
    candidates: IntArray,
    kernel: Kernel,
    *,
    first: IntArray,
    n_anchors: float,
    min_distance: float,
) -> IntArray:
    """Greedy farthest-point choice of at most `n_anchors` of the `candidates`; those in `first` are
    always anchors, and come first.

    Distance is the kernel's own, ‖φ(x) − φ(y)‖² = k(x,x) + k(y,y) − 2k(x,y); the choice is a
    2-approximation of the best covering radius (Gonzalez 1985). It stops early when every candidate
    is closer than `min_distance` to an anchor, which also bounds the conditioning.
    """
    chosen = list(dict.fromkeys(int(i) for i in first))
    pool = features[torch.from_numpy(candidates)]
    self_similarity = kernel.diagonal(pool)

    def distance_to(index: int) -> Tensor:
        anchor = features[index : index + 1]
        return self_similarity + kernel.diagonal(anchor)[0] - 2.0 * kernel(pool, anchor)[:, 0]

    # Infinite while there is no anchor, so that the first candidate is taken as the farthest.
    nearest = features.new_full((len(pool),), float("inf"))
    for index in chosen:
        nearest = torch.minimum(nearest, distance_to(index))
    while len(chosen) < n_anchors and len(pool):
        farthest = int(torch.argmax(nearest))
        if float(nearest[farthest]) <= min_distance:
            break
        chosen.append(int(candidates[farthest]))
        nearest = torch.minimum(nearest, distance_to(chosen[-1]))
    return np.asarray(chosen, np.int64)


def _project(
    features: Tensor, anchors: IntArray, points: IntArray, kernel: Kernel, projection_ridge: float
) -> Tensor:
    """S = k(points, anchors) (K_mm + ρI)⁻¹, (n, m): each point as weights on the anchors."""
    anchor_features = features[torch.from_numpy(anchors)]
    gram = kernel(anchor_features, anchor_features)
    # Without ρ two anchors side by side would get large weights of opposite signs.
    gram.diagonal().add_(projection_ridge)
    factor = cholesky_factor(gram, "the Gram matrix of the Nyström anchors", is_gram=True)
    similarity = kernel(anchor_features, features[torch.from_numpy(points)])
    return torch.cholesky_solve(similarity, factor).T


def nystrom_support(
    features: Tensor,
    counts: TransitionCounts,
    starts: IntArray,
    start_weights: FloatArray,
    kernel: Kernel,
    *,
    n_anchors: int,
    min_distance: float,
    projection_ridge: float,
) -> Support:
    """Support on at most about `n_anchors` anchors, with next states projected on their span.

    φ(x') ≈ Σ_k S_k φ(y_k) with S = (K_mm + ρI)⁻¹ k_m(x') (Williams & Seeger 2000; paper, end of
    Section 3.1), of ordinary next states on ordinary anchors and of terminal ones on terminal
    anchors: what follows a terminal state is not what follows its neighbour.

    Args:
        features: (N, z) float64 features of the table of observations.
        counts, starts, start_weights: as of :func:`exact_support`.
        kernel: of the features.
        n_anchors: largest number of ordinary anchors; as many again for terminal ones.
        min_distance: squared kernel distance under which a state needs no anchor of its own.
        projection_ridge: ρ > 0, relative to k(y, y) = 1; keeps weights moderate.
    """
    # The occupancy begins at the starts, whose weights a projection would smear.
    frequent = starts[np.argsort(-start_weights, kind="stable")][:_MAX_START_ANCHORS]
    ordinary = np.unique(np.concatenate([counts.successors[~counts.terminated], counts.inputs]))
    ended = np.unique(counts.successors[counts.terminated])
    limits = {"n_anchors": n_anchors, "min_distance": min_distance}
    chosen = _farthest_point_anchors(features, ordinary, kernel, first=frequent, **limits)
    at_ends = _farthest_point_anchors(features, ended, kernel, first=ended[:1], **limits)
    # Ordinary anchors stand in front, which makes each kind one block of columns.
    n_ordinary, anchors = len(chosen), np.concatenate([chosen, at_ends])
    actions, inputs, pair_of_row, pair_counts = counts.pairs()
    weight = torch.from_numpy(counts.counts / pair_counts[pair_of_row])
    successor = features.new_zeros(len(actions), len(anchors))
    for ends, block in ((False, slice(0, n_ordinary)), (True, slice(n_ordinary, len(anchors)))):
        rows = np.flatnonzero(counts.terminated == ends)
        if len(rows):
            reached = counts.successors[rows]
            projected = _project(features, anchors[block], reached, kernel, projection_ridge)
            pairs = torch.from_numpy(pair_of_row[rows])
            successor[:, block].index_add_(0, pairs, weight[rows, None] * projected)
    projected = _project(features, anchors[:n_ordinary], starts, kernel, projection_ridge)
    share = torch.from_numpy(start_weights / start_weights.sum())
    start = features.new_zeros(len(anchors))
    start[:n_ordinary] = projected.T @ share
    return Support(
        pair_inputs=inputs,
        pair_actions=actions,
        pair_counts=torch.from_numpy(pair_counts),
        anchors=anchors,
        terminal=np.arange(len(anchors)) >= n_ordinary,
        successor=successor,
        start=start / start.sum(),  # a projection loses a little of the mass
        exact=False,
    )
