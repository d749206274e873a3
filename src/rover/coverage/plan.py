"""Estimate: the transition model that the policy is planned on, and where its occupancy starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rover.arrays import FloatArray, IntArray, evenly_spaced
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
    exact_support,
    fit_transition_model,
    nystrom_support,
)
from rover.transitions import TransitionCounts
from rover.world.counts import Counts
from rover.world.dynamics import ACTION_REPEAT
from rover.world.model import LandmarkModel
from rover.world.net import MOST_ROWS
from rover.world.rows import Rows

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
        anchors: (s,) what each anchor stands for.
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
    n_pairs: int = 0
    outcome_variance: float = 0.0
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
    gram: Tensor | None = None,
) -> PlanningModel:
    """Estimate: fit the transition operator to merged transitions by kernel ridge regression.

    Args:
        features: (N, z) float64 features of the buffer's observations.
        counts: merged transitions.
        starts: initial observations (q,), distinct, and their weights (q,).
        kernel: the kernel on features.
        config: says when and how next states are compressed to anchors.
        cover: the part of observations that is to be covered.
        n_actions: A.
        ridge: λ.
        gram: (N, N) kernel matrix of the features, or None.
    """
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


def state_planning_model(
    counts: Counts, basis: Tensor, kernel: Kernel, config: RoverConfig, cover: Cover, buffer: Buffer
) -> PlanningModel:
    """The planning model of states, which share nothing: rows of relative frequencies.

    Args:
        counts: of the transitions.
        basis: (N, z) features of the states.
        kernel: between which policies are read at other features.
        config: λ, and whether starts that were not seen get their estimated mass.
        cover: the part of observations that is to be covered.
        buffer: the transitions.
    """
    assert config.ridge is not None
    # λ / (n + λ) of what n tries leave open
    ridge = max(config.ridge, config.outcome_ridge * counts.outcome_variance)
    states, weights = estimated_starts(buffer, unseen=config.unseen_starts)
    rows, groups = counts.rows(ridge=ridge), cover.groups()
    start = np.bincount(states, weights, minlength=len(groups)).astype(np.float64)
    rows = replace(rows, start=start)
    everything = np.arange(len(groups))
    model = _on_rows(rows, basis, groups, cover.target(groups, everything, everything))
    return replace(
        model,
        coefficients=lambda values: _interpolating(model.coefficients(values), basis, kernel),
        n_pairs=counts.n_pairs,
        outcome_variance=counts.outcome_variance,
    )


def landmark_planning_model(model: LandmarkModel, encoder: Encoder, cover: Cover) -> PlanningModel:
    """The planning model of continuous states: rows on the landmarks of a net.

    Args:
        model: the model, with the landmarks that are planned on.
        encoder: a scaling one; its scales become the units of the model.
        cover: the target distribution.
    """
    rows, net = model.rows(), model.net
    groups, target = model.coverage_groups(net.landmarks), None
    if cover.has_target:
        some = evenly_spaced(len(model.buffer.observations), MOST_ROWS)
        owner = net.nearest(model.points(some), 1)[1][:, 0]
        target = cover.target(groups, some, owner)
    seen = model.kept < encoder.feature_dim  # others are what a function makes of observations
    kept = model.kept[seen]
    buffers = dict(encoder.named_buffers())
    buffers["low"].zero_()
    buffers["width"].fill_(_NOISE_WIDTH)
    buffers["width"][kept] = torch.from_numpy(model.scale[seen])
    basis = torch.zeros(len(net), encoder.feature_dim, dtype=torch.float64)
    basis[:, kept] = torch.from_numpy(net.landmarks[:, seen])
    return replace(
        _on_rows(rows, basis, groups, target),
        n_pairs=model.n_pairs,
        on_landmarks=True,
        action_repeat=ACTION_REPEAT,
    )


def _on_rows(rows: Rows, basis: Tensor, groups: IntArray, target: Tensor | None) -> PlanningModel:
    """The model of rows of m landmarks, with groups (m,) and a target (m,) of them."""
    operator, n_landmarks = rows.operator(groups), len(groups)
    if target is not None:  # twins are covered with their landmarks
        target = torch.cat([target, target.new_zeros(operator.n_states - n_landmarks)])
    return PlanningModel(
        operator=operator,
        start=operator.start,
        anchors=np.arange(operator.n_states),
        basis=basis,
        coefficients=lambda values: operator.action_values(values)[:n_landmarks],
        target=target,
    )


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
