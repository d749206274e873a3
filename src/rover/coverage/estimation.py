"""Estimate: one face for the dense and the sparse transition model.

Exact states (Dirac kernel) are solved with sparse matrices, which are faster from a hundred states
on; every other kernel with dense ones, on all distinct next states or on Nyström anchors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from rover.operators import (
    DenseOperator,
    Dirac,
    Kernel,
    Support,
    TransitionCounts,
    TransitionModel,
    TransitionOperator,
    exact_support,
    fit_transition_model,
    nystrom_support,
    sparse_operator,
)
from rover.operators.sparse import SparseOperator
from rover.operators.support import FloatArray, IntArray


@dataclass(frozen=True)
class Features:
    """Features of every observation in the buffer.

    Attributes:
        values: (N, z) float64.
        gram: (N, N) kernel matrix, or None where none is kept.
    """

    values: Tensor
    gram: Tensor | None


@dataclass(frozen=True)
class Nystrom:
    """When and how next states are compressed (see `nystrom_support`)."""

    max_exact_states: int
    n_anchors: int
    min_distance: float
    projection_ridge: float


class Estimate(Protocol):
    """A fitted transition model, as planning sees it."""

    @property
    def operator(self) -> TransitionOperator:
        """The transition operator on the anchors."""
        ...

    @property
    def start(self) -> Tensor:
        """(s,) initial weights on the anchors."""
        ...

    @property
    def anchors(self) -> IntArray:
        """(s,) what each anchor stands for: 2 · observation index + 1 if terminal."""
        ...

    @property
    def basis(self) -> Tensor | None:
        """(u, z) features that regressors compare with; None for ρ(φ) = φ."""
        ...

    def start_at(self, observation: int) -> Tensor:
        """(s,) weights of standing on an observation."""
        ...

    def coefficients(self, anchor_values: Tensor) -> Tensor:
        """(q, A) extension of Σ_i `anchor_values`_i P_a[i, x] to every x."""
        ...

    def similarity(self, features: Tensor) -> Tensor:
        """(n,) likeness of `features` (n, z) to the nearest anchor, 1 for an anchor itself."""
        ...

    def worst_column(self) -> float:
        """The largest mass that any anchor and action keep on the anchors."""
        ...


@dataclass(frozen=True)
class DenseEstimate:
    """An estimate in dense matrices."""

    model: TransitionModel

    @property
    def operator(self) -> DenseOperator:
        """The transition operator on the anchors."""
        return DenseOperator(self.model.transition, self.model.gram)

    @property
    def start(self) -> Tensor:
        """(s,) initial weights on the anchors."""
        return self.model.support.start

    @property
    def anchors(self) -> IntArray:
        """(s,) 2 · observation index + 1 if terminal."""
        return 2 * self.model.support.anchors + self.model.support.terminal

    @property
    def basis(self) -> Tensor | None:
        """(u, z) features that regressors compare with; None for ρ(φ) = φ."""
        return self.model.basis

    def start_at(self, observation: int) -> Tensor:
        """(s,) weights of standing on an observation."""
        return self.model.support.start_at(observation)

    def coefficients(self, anchor_values: Tensor) -> Tensor:
        """(q, A), see :meth:`TransitionModel.coefficients`."""
        return self.model.coefficients(anchor_values)

    def similarity(self, features: Tensor) -> Tensor:
        """(n,) likeness to the nearest anchor."""
        kernel = self.model.kernel
        return kernel(features, self.model.anchor_features).amax(dim=1) / kernel.diagonal(features)

    def worst_column(self) -> float:
        """The largest column sum."""
        return float(self.model.column_sums().max())


@dataclass(frozen=True)
class SparseEstimate:
    """An estimate of exact states in sparse matrices.

    Attributes:
        operator: the sparse operator.
        basis: (u, z) features of the states that are not terminal.
        ordinary: (u,) their places among the anchors.
    """

    operator: SparseOperator
    basis: Tensor
    ordinary: Tensor

    @property
    def start(self) -> Tensor:
        """(s,) initial weights on the anchors."""
        return self.operator.start

    @property
    def anchors(self) -> IntArray:
        """(s,) 2 · observation index + 1 if terminal."""
        return 2 * self.operator.states + self.operator.terminal

    def start_at(self, observation: int) -> Tensor:
        """(s,) weights of standing on an observation."""
        return self.operator.start_at(observation)

    def coefficients(self, anchor_values: Tensor) -> Tensor:
        """(u, A): the values themselves, at the states that are not terminal."""
        return self.operator.coefficients(anchor_values)[self.ordinary]

    def similarity(self, features: Tensor) -> Tensor:
        """(n,) 1 for a known state, else 0."""
        return Dirac()(features, self.basis).amax(dim=1)

    def worst_column(self) -> float:
        """The largest column sum; 1 at most."""
        return float(self.operator.transition.sum(axis=1).max())


def fit_estimate(
    features: Features,
    counts: TransitionCounts,
    starts: tuple[IntArray, FloatArray],
    kernel: Kernel,
    *,
    n_actions: int,
    ridge: float,
    nystrom: Nystrom,
    current: int | None,
) -> Estimate:
    """Estimate the transition operator from merged transitions.

    Args:
        features: features of the buffer's observations.
        counts: merged transitions.
        starts: distinct initial observations (q,) and their counts (q,).
        kernel: the kernel on features.
        n_actions: A.
        ridge: λ.
        nystrom: when and how to compress.
        current: index of an observation that must be an anchor, or None.
    """
    extra = None if current is None else np.array([current], np.int64)
    if isinstance(kernel, Dirac):
        operator = sparse_operator(
            counts, *starts, n_actions=n_actions, ridge=ridge, extra_states=extra
        )
        ordinary = torch.from_numpy(np.flatnonzero(~operator.terminal))
        basis = features.values[torch.from_numpy(operator.states)[ordinary]]
        return SparseEstimate(operator, basis, ordinary)
    support: Support
    if len(np.unique(counts.successors)) <= nystrom.max_exact_states:
        support = exact_support(counts, *starts, extra_anchors=extra, device=features.values.device)
    else:
        support = nystrom_support(
            features.values,
            counts,
            *starts,
            kernel,
            n_anchors=nystrom.n_anchors,
            min_distance=nystrom.min_distance,
            projection_ridge=nystrom.projection_ridge,
            extra_anchors=extra,
        )
    model = fit_transition_model(
        features.values, support, kernel, n_actions=n_actions, ridge=ridge, gram=features.gram
    )
    return DenseEstimate(model)


def outcome_variance(counts: TransitionCounts) -> float:
    """How random the environment's transitions have proved to be: 1 − Σ_x' p(x'|x, a)², pooled.

    The within-pair variance of the next state's indicator, without bias, over the pairs (x, a)
    that were seen more than once; 0 while every repetition ended in the same state.
    """
    order = np.lexsort([counts.inputs, counts.actions])
    inputs, actions, seen = counts.inputs[order], counts.actions[order], counts.counts[order]
    first = np.flatnonzero(np.r_[True, (inputs[1:] != inputs[:-1]) | (actions[1:] != actions[:-1])])
    totals = np.add.reduceat(seen, first)
    squares = np.add.reduceat(seen**2, first)
    freedom = float((totals - 1.0).sum())
    return float((totals - squares / totals).sum()) / freedom if freedom > 0.0 else 0.0
