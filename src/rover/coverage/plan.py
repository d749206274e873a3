"""Estimate: the transition model that the policy is planned on, and where its occupancy starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor

from rover.arrays import evenly_spaced
from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover
from rover.data import Buffer
from rover.features import Encoder
from rover.operators import (
    DenseOperator,
    Dirac,
    Interpolation,
    Kernel,
    SparseOperator,
    TransitionCounts,
    exact_anchors,
    exact_support,
    fit_transition_model,
    merge_transitions,
    nystrom_support,
)
from rover.operators.support import FloatArray, IntArray
from rover.world.dynamics import ACTION_REPEAT
from rover.world.model import LandmarkModel
from rover.world.net import MOST_ROWS

NEGLIGIBLE = 1e-8
"""Similarity whose effect on a policy is far below the tolerance of the descent."""

_SMOOTHING = 1e-3
_NOISE_WIDTH = 1e12  # no two values differ


@dataclass(frozen=True)
class PlanningModel:
    """A fitted transition model on s anchors, dense and sparse alike.

    Exact states, those that share next to nothing, are solved with sparse matrices, which are
    faster from a hundred states on; others with dense ones, on all distinct next states or on
    Nyström anchors.

    Attributes:
        operator: the transition operator on the anchors.
        start: (s,) initial weights on the anchors.
        anchors: (s,) what each anchor stands for: 2 · observation index + 1 if terminal.
        basis: (u, z) features that regressors compare with; None for ρ(φ) = φ.
        coefficients: (q, A) extension of Σ_i v_i P_a[i, x] to every x, of values v (s,).
        target: (s,) occupancy that is wanted; None: as even as possible.
        n_pairs: number of distinct pairs (x, a) that it was made of.
        outcome_variance: of their outcomes, 0 of landmarks.
        on_landmarks: whether the anchors are landmarks of a net, which are never the same twice.
        action_repeat: steps for which a row repeats its action.
    """

    operator: DenseOperator | SparseOperator
    start: Tensor
    anchors: IntArray
    basis: Tensor | None
    coefficients: Callable[[Tensor], Tensor]
    target: Tensor | None
    n_pairs: int
    outcome_variance: float
    on_landmarks: bool = False
    action_repeat: int = 1

    @property
    def worst_column(self) -> float:
        """The largest mass that any anchor and action keep on the anchors."""
        return float(self.operator.transition.sum(1).max())


def fit_planning_model(
    features: Tensor,
    counts: TransitionCounts,
    starts: tuple[IntArray, FloatArray],
    kernel: Kernel,
    config: RoverConfig,
    cover: Cover,
    *,
    n_actions: int,
    ridge: float,
    exact: bool,
    gram: Tensor | None = None,
) -> PlanningModel:
    """Estimate: fit the transition operator to merged transitions.

    Args:
        features: (N, z) float64 features of the buffer's observations.
        counts: merged transitions.
        starts: initial observations (q,), distinct, and their weights (q,).
        kernel: the kernel on features.
        config: says when and how next states are compressed to anchors.
        cover: the part of observations that is to be covered.
        n_actions: A.
        ridge: λ.
        exact: whether no two observations share anything.
        gram: (N, N) kernel matrix of the features, or None.
    """
    if exact:
        groups = cover.groups()
        operator, anchors, ordinary = _on_counts(
            counts, starts, n_actions=n_actions, ridge=ridge, groups=groups
        )
        basis = features[torch.from_numpy(anchors // 2)[ordinary]]
        return PlanningModel(
            operator=operator,
            start=operator.start,
            anchors=anchors,
            basis=basis,
            coefficients=lambda values: _interpolating(
                operator.action_values(values)[ordinary], basis, kernel
            ),
            target=cover.target(groups[anchors // 2], anchors // 2, np.arange(len(anchors))),
            n_pairs=counts.n_pairs,
            outcome_variance=counts.outcome_variance,
        )
    assert config.max_exact_states is not None
    if len(np.unique(counts.successors)) <= config.max_exact_states:
        support = exact_support(counts, *starts, device=features.device)
    else:
        support = nystrom_support(
            features,
            counts,
            *starts,
            kernel,
            n_anchors=config.n_anchors,
            min_distance=config.anchor_spacing,
            projection_ridge=config.projection_ridge,
        )
    model = fit_transition_model(
        features, support, kernel, n_actions=n_actions, ridge=ridge, gram=gram
    )
    similarity = cover.gram(support.anchors)
    return PlanningModel(
        operator=DenseOperator(model.transition, model.gram if similarity is None else similarity),
        start=support.start,
        anchors=2 * support.anchors + support.terminal,
        basis=model.basis,
        coefficients=model.coefficients,
        target=cover.target(
            cover.groups()[support.anchors], support.anchors, np.arange(len(support.anchors))
        ),
        n_pairs=counts.n_pairs,
        outcome_variance=counts.outcome_variance,
    )


def landmark_planning_model(model: LandmarkModel, encoder: Encoder, cover: Cover) -> PlanningModel:
    """The planning model of continuous states: rows on the landmarks of a net.

    An episode ends in a terminal state, which is occupied for one step: a twin of each landmark
    near which episodes end, and covered with it.

    Args:
        model: the model, with the landmarks that are planned on.
        encoder: a scaling one; its scales become the units of the model.
        cover: the target distribution.
    """
    rows, net = model.rows(), model.net
    n_actions = len(rows.end) // len(net)
    onward, ends = coo_array(rows.onward), np.flatnonzero(rows.end)
    weights, index = model.on_landmarks(rows.ahead[ends])
    pairs = np.concatenate([onward.coords[0], np.repeat(ends, index.shape[1])])
    ended = (rows.end[ends, None] * weights).ravel()
    # A row is a pair that was tried once, with a share of this try for each of its outcomes.
    counts = merge_transitions(
        pairs // n_actions,
        pairs % n_actions,
        np.concatenate([onward.coords[1], index.ravel()]),
        np.arange(len(pairs)) >= onward.nnz,
        np.concatenate([onward.data, ended]),
    )
    starts, groups = np.flatnonzero(rows.start), model.coverage_groups(net.landmarks)
    operator, anchors, ordinary = _on_counts(
        counts,
        (starts, rows.start[starts]),
        n_actions=n_actions,
        ridge=float(rows.sink[0]),
        groups=groups,
    )
    target = None
    if cover.has_target:
        some = evenly_spaced(len(model.buffer.observations), MOST_ROWS)
        owner = net.nearest(model.points(some), 1)[1][:, 0]
        target = cover.target(groups[anchors // 2], some, ordinary.numpy()[owner])
    seen = model.kept < encoder.feature_dim  # others are what a function makes of observations
    kept = model.kept[seen]
    buffers = dict(encoder.named_buffers())
    buffers["low"].zero_()
    buffers["width"].fill_(_NOISE_WIDTH)
    buffers["width"][kept] = torch.from_numpy(model.scale[seen])
    basis = torch.zeros(len(net), encoder.feature_dim, dtype=torch.float64)
    basis[:, kept] = torch.from_numpy(net.landmarks[:, seen])
    return PlanningModel(
        operator=operator,
        start=operator.start,
        anchors=anchors,
        basis=basis,
        coefficients=lambda values: operator.action_values(values)[ordinary],
        target=target,
        n_pairs=model.n_pairs,
        outcome_variance=0.0,
        on_landmarks=True,
        action_repeat=ACTION_REPEAT,
    )


def _on_counts(
    counts: TransitionCounts,
    starts: tuple[IntArray, FloatArray],
    *,
    n_actions: int,
    ridge: float,
    groups: IntArray,
) -> tuple[SparseOperator, IntArray, Tensor]:
    """The operator of counted transitions, its anchors (s,), and the rows (q,) of the anchors that
    are not terminal; arguments as of ``SparseOperator.from_counts``."""
    anchors = exact_anchors(counts, starts[0])
    operator = SparseOperator.from_counts(
        counts, *starts, n_actions=n_actions, ridge=ridge, groups=groups
    )
    return operator, anchors, torch.from_numpy(np.flatnonzero(anchors % 2 == 0))


def _interpolating(values: Tensor, basis: Tensor, kernel: Kernel) -> Tensor:
    """Weights (q, A) with which ρ(φ) W takes these values (q, A) at the basis.

    Where two features of it are all but the same, it takes the mean of their values.
    """
    if isinstance(kernel, Dirac | Interpolation):  # at the basis they are one
        return values
    shared, one = kernel(basis, basis), torch.eye(len(basis), dtype=basis.dtype)
    if float((shared - one).abs().max()) <= NEGLIGIBLE:
        return values
    weights: Tensor = torch.linalg.solve(shared + _SMOOTHING * one, (1.0 + _SMOOTHING) * values)
    return weights


def estimated_starts(buffer: Buffer, *, unseen: bool) -> tuple[IntArray, FloatArray]:
    """Estimated start distribution: states (q,) and their weights (q,), sum 1.

    Args:
        buffer: the transitions.
        unseen: whether starts that were not seen yet get the mass that Good and Turing estimate
            for them (Good 1953), the share of episodes whose start was seen once, spread evenly
            over the states in which something was done. One episode alone gives no estimate.
    """
    states, counts = buffer.starts()
    n_episodes, once = float(counts.sum()), int(np.count_nonzero(counts == 1.0))
    mass = once / n_episodes if unseen and n_episodes > 1.0 else 0.0
    if mass == 0.0:
        return states, counts / n_episodes
    acted = np.unique(buffer.inputs)
    weights = np.concatenate(
        [(1.0 - mass) * counts / n_episodes, np.full(len(acted), mass / len(acted))]
    )
    everything, index = np.unique(np.concatenate([states, acted]), return_inverse=True)
    return everything, np.bincount(index, weights).astype(np.float64)
