"""Improve: from a fitted transition model to a policy.

The same descent serves both policies of a run. The policy that is handed over starts from the
environment's initial states; the exploration plan starts from the state the agent stands on, and
treats what the data does not support as free (docs/deviations.md, "collect from where you stand").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rover.coverage.config import RoverConfig
from rover.operators import (
    DenseOperator,
    Dirac,
    Kernel,
    MirrorDescentResult,
    StepRule,
    TransitionCounts,
    TransitionOperator,
    exact_support,
    fit_transition_model,
    mirror_descend,
    nystrom_support,
    sparse_operator,
)
from rover.operators.support import FloatArray, IntArray

GREEDY_MARGIN = 1e-3
"""By how much the best action's probability must exceed the uniform one to be taken greedily."""

NOVELTY_FLOOR = 0.01
"""Sink mass below which an exploration plan leads to nothing novel."""


@dataclass(frozen=True)
class PlanningModel:
    """A fitted transition model on s anchors, dense and sparse alike.

    Exact states (Dirac kernel) are solved with sparse matrices, which are faster from a hundred
    states on; every other kernel with dense ones, on all distinct next states or on Nyström
    anchors.

    Attributes:
        kernel: the kernel on features.
        operator: the transition operator on the anchors.
        start: (s,) initial weights on the anchors.
        anchors: (s,) what each anchor stands for: 2 · observation index + 1 if terminal.
        basis: (u, z) features that regressors compare with; None for ρ(φ) = φ.
        start_at: the (s,) weights of standing on an observation, by its index.
        coefficients: (q, A) extension of Σ_i v_i P_a[i, x] to every x, of values v (s,).
        anchor_features: (s', z) features of the anchors that observations are compared with.
        worst_column: the largest mass that any anchor and action keep on the anchors.
    """

    kernel: Kernel
    operator: TransitionOperator
    start: Tensor
    anchors: IntArray
    basis: Tensor | None
    start_at: Callable[[int], Tensor]
    coefficients: Callable[[Tensor], Tensor]
    anchor_features: Tensor
    worst_column: float


def fit_planning_model(
    features: Tensor,
    counts: TransitionCounts,
    starts: tuple[IntArray, FloatArray],
    kernel: Kernel,
    config: RoverConfig,
    *,
    n_actions: int,
    ridge: float,
    gram: Tensor | None = None,
    current: int | None = None,
) -> PlanningModel:
    """Estimate: fit the transition operator to merged transitions.

    Args:
        features: (N, z) float64 features of the buffer's observations.
        counts: merged transitions.
        starts: distinct initial observations (q,) and their counts (q,).
        kernel: the kernel on features.
        config: says when and how next states are compressed to anchors.
        n_actions: A.
        ridge: λ.
        gram: (N, N) kernel matrix of the features, or None.
        current: index of an observation that must be an anchor, or None.
    """
    extra = None if current is None else np.array([current], np.int64)
    if isinstance(kernel, Dirac):
        sparse = sparse_operator(
            counts, *starts, n_actions=n_actions, ridge=ridge, extra_states=extra
        )
        ordinary = torch.from_numpy(np.flatnonzero(~sparse.terminal))
        basis = features[torch.from_numpy(sparse.states)[ordinary]]
        return PlanningModel(
            kernel=kernel,
            operator=sparse,
            start=sparse.start,
            anchors=2 * sparse.states + sparse.terminal,
            basis=basis,
            start_at=sparse.start_at,
            coefficients=lambda values: sparse.coefficients(values)[ordinary],
            anchor_features=basis,
            worst_column=float(sparse.transition.sum(axis=1).max()),
        )
    assert config.max_exact_states is not None
    if len(np.unique(counts.successors)) <= config.max_exact_states:
        support = exact_support(counts, *starts, extra_anchors=extra, device=features.device)
    else:
        support = nystrom_support(
            features,
            counts,
            *starts,
            kernel,
            n_anchors=config.n_anchors,
            min_distance=config.anchor_spacing,
            projection_ridge=config.projection_ridge,
            extra_anchors=extra,
        )
    model = fit_transition_model(
        features, support, kernel, n_actions=n_actions, ridge=ridge, gram=gram
    )
    return PlanningModel(
        kernel=kernel,
        operator=DenseOperator(model.transition, model.gram),
        start=support.start,
        anchors=2 * support.anchors + support.terminal,
        basis=model.basis,
        start_at=support.start_at,
        coefficients=model.coefficients,
        anchor_features=model.anchor_features,
        worst_column=float(model.transition.sum(dim=1).max()),
    )


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


@dataclass(frozen=True)
class Plan:
    """A policy π = softmax(ρ(φ) W) on features, and the model that it was planned on.

    Attributes:
        model: the model.
        descent: how mirror descent ended.
        weights: (q, A) W.
        supported: (q, A) the same for the mass that the model keeps on the anchors, 1 − the sink's.
    """

    model: PlanningModel
    descent: MirrorDescentResult
    weights: Tensor
    supported: Tensor

    def action(self, features: Tensor, rng: np.random.Generator, *, greedy: bool) -> int:
        """The action at `features` (1, z).

        If `greedy` the best one, and drawn from `rng` only where no action is best.
        """
        model = self.model
        regressors = features if model.basis is None else model.kernel(features, model.basis)
        probs = torch.softmax(regressors @ self.weights, dim=1)[0].cpu().numpy()
        best = int(probs.argmax())
        if greedy and probs[best] > 1.0 / len(probs) + GREEDY_MARGIN:
            return best
        return int(rng.choice(len(probs), p=probs))

    def novelty(self, features: Tensor, action: int, reached: Tensor) -> float:
        """How little the plan's model knew of a step, in [0, 1] up to overshoot.

        The larger of the mass that the model routed to the sink and the unlikeness of what was
        reached to the nearest anchor.

        Args:
            features: (1, z) where the step began.
            action: what was done there.
            reached: (1, z) where it led.
        """
        model = self.model
        regressors = features if model.basis is None else model.kernel(features, model.basis)
        nearest = model.kernel(reached, model.anchor_features).amax()
        known = float(nearest / model.kernel(reached, reached))
        return 1.0 - min(float(regressors[0] @ self.supported[:, action]), known)


def improve(
    model: PlanningModel,
    start: Tensor,
    *,
    discount: float,
    sink_norm: float,
    n_steps: int,
    step_rule: StepRule,
    tolerance: float = 0.0,
    dual: Tensor | None = None,
) -> Plan:
    """Mirror descent from `dual` (None: the uniform policy), extended to every feature vector."""
    descent = mirror_descend(
        model.operator,
        start,
        discount=discount,
        sink_norm=sink_norm,
        n_steps=n_steps,
        step_rule=step_rule,
        tolerance=tolerance,
        dual=dual,
    )
    weights = model.coefficients(descent.dual).mul_(-discount)
    return Plan(model, descent, weights, model.coefficients(torch.ones_like(start)))


@dataclass(frozen=True)
class WarmStart:
    """Where the last descent ended, for the next one on the same anchors and the same pairs.

    Attributes:
        anchors: (s,) what the anchors stood for.
        pairs: number of distinct pairs (x, a) that were known; it only ever grows.
        dual: (s,) the dual vector of the policy.
        step_size: the size with which a further step would have begun.
    """

    anchors: IntArray
    pairs: int
    dual: Tensor
    step_size: float
