"""From what the buffer knows to a policy: estimate, then improve.

The same two steps serve both policies of a run. The policy that is handed over starts from the
environment's initial states; the plan that collects data starts from the state the agent stands
on, and treats what the data does not know as free (docs/deviations.md, "collect from where you
stand").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rover.agents.timing import Stopwatch
from rover.mirror_descent import MirrorDescentResult, StepRule, mirror_descend
from rover.operators import (
    DenseOperator,
    Kernel,
    Support,
    TransitionCounts,
    TransitionModel,
    exact_support,
    fit_transition_model,
    nystrom_support,
)
from rover.operators.support import FloatArray, IntArray


@dataclass(frozen=True)
class Features:
    """Features of every observation in the buffer.

    Attributes:
        values: (N, z) float64.
        gram: (N, N) kernel matrix, or None where there are too many observations to keep one.
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


@dataclass(frozen=True)
class FeaturePolicy:
    """π = softmax(ρ(φ) W) on features: a policy without its encoder."""

    kernel: Kernel
    basis: Tensor | None
    weights: Tensor

    def probs(self, features: Tensor) -> Tensor:
        """Action probabilities (n, A) for `features` (n, z)."""
        regressors = features if self.basis is None else self.kernel(features, self.basis)
        return torch.softmax(regressors @ self.weights, dim=1)


@dataclass(frozen=True)
class Plan:
    """A converged policy on a fitted model."""

    model: TransitionModel
    descent: MirrorDescentResult
    policy: FeaturePolicy


def fit_model(
    features: Features,
    counts: TransitionCounts,
    starts: tuple[IntArray, FloatArray],
    kernel: Kernel,
    *,
    n_actions: int,
    ridge: float,
    nystrom: Nystrom,
    current: int | None,
) -> TransitionModel:
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
    return fit_transition_model(
        features.values, support, kernel, n_actions=n_actions, ridge=ridge, gram=features.gram
    )


def improve(
    model: TransitionModel,
    start: Tensor,
    *,
    discount: float,
    sink_norm: float,
    n_steps: int,
    step_rule: StepRule,
    tolerance: float,
    dual: Tensor | None = None,
) -> Plan:
    """Mirror descent from `dual` (None: the uniform policy), extended to every feature vector."""
    descent = mirror_descend(
        DenseOperator(model.transition, model.gram),
        start,
        discount=discount,
        sink_norm=sink_norm,
        n_steps=n_steps,
        step_rule=step_rule,
        tolerance=tolerance,
        dual=dual,
    )
    weights = model.coefficients(descent.dual).mul_(-discount)
    return Plan(model, descent, FeaturePolicy(model.kernel, model.basis, weights))


@dataclass(frozen=True)
class Warmth:
    """Where the last descent ended, for the next one on the same support.

    Attributes:
        anchors: (s,) observation indices of the anchors, terminal ones included.
        pairs: (p, 2) observation index and action of the pairs that were known.
        dual: (s,) the dual vector of the policy.
        step_size: the size with which a further step would have begun.
    """

    anchors: Tensor
    pairs: Tensor
    dual: Tensor
    step_size: float

    @classmethod
    def of(cls, plan: Plan) -> Warmth:
        """What `plan` leaves."""
        support = plan.model.support
        return cls(
            torch.from_numpy(2 * support.anchors + support.terminal),
            torch.from_numpy(np.stack([support.pair_inputs, support.pair_actions], axis=1)),
            plan.descent.dual,
            plan.descent.step_size,
        )

    def fits(self, support: Support) -> bool:
        """Whether `support` knows the same anchors and the same pairs."""
        anchors = 2 * support.anchors + support.terminal
        pairs = np.stack([support.pair_inputs, support.pair_actions], axis=1)
        return np.array_equal(self.anchors.numpy(), anchors) and np.array_equal(
            self.pairs.numpy(), pairs
        )


class CollectionPlan:
    """The plan that gathers data, renewed as soon as a step taught something.

    Args:
        discount: γ of the plan.
        n_steps: mirror-descent steps per plan.
        step_rule: their sizes.
        every: environment steps after which a plan is renewed anyway.
        novelty_threshold: sink mass of a step that makes the plan out of date.
        greedy: take the best action where it beats the uniform probability by a hair.
        stopwatch: measures the phases.
    """

    GREEDY_MARGIN = 1e-3
    NEWS = 0.01
    """Sink mass below which a plan expects to learn nothing and is followed to the end."""

    def __init__(
        self,
        *,
        discount: float,
        n_steps: int,
        step_rule: StepRule,
        every: int,
        novelty_threshold: float,
        greedy: bool,
        stopwatch: Stopwatch,
    ) -> None:
        self._discount = discount
        self._n_steps = n_steps
        self._step_rule = step_rule
        self._every = every
        self._threshold = novelty_threshold
        self._greedy = greedy
        self._stopwatch = stopwatch
        self._plan: Plan | None = None
        self._residual: Tensor | None = None
        self._age = 0

    @property
    def is_current(self) -> bool:
        """Whether the plan may still be followed."""
        if self._plan is None:
            return False
        return self._age < self._every or self._plan.descent.occupancy.sink_mass < self.NEWS

    def discard(self) -> None:
        """Make the next call to :meth:`renew` necessary."""
        self._plan = None

    def renew(self, model: TransitionModel, current: int) -> None:
        """Plan from the observation `current` on `model`."""
        with self._stopwatch("improve"):
            self._plan = improve(
                model,
                model.support.start_at(current),
                discount=self._discount,
                sink_norm=0.0,
                n_steps=self._n_steps,
                step_rule=self._step_rule,
                tolerance=0.0,
            )
            self._residual = model.residual_coefficients()
        self._age = 0

    def action(self, features: Tensor, rng: np.random.Generator) -> int:
        """The action at `features` (1, z); draws from `rng` only where no action is best."""
        assert self._plan is not None
        probs = self._plan.policy.probs(features)[0].cpu().numpy()
        self._age += 1
        best = int(probs.argmax())
        if self._greedy and probs[best] > 1.0 / len(probs) + self.GREEDY_MARGIN:
            return best
        return int(rng.choice(len(probs), p=probs))

    def taught_by(self, features: Tensor, action: int, reached: Tensor) -> bool:
        """Whether a step told the plan's model something: an action or a state it did not know.

        Args:
            features: (1, z) where the step began.
            action: what was done there.
            reached: (1, z) where it led.
        """
        assert self._plan is not None
        assert self._residual is not None
        model = self._plan.model
        supported = model.regressors(features)[0] @ self._residual[:, action]
        if 1.0 - float(supported) > self._threshold:
            return True
        nearest = model.kernel(reached, model.anchor_features).max()
        return 1.0 - float(nearest / model.kernel.diagonal(reached)[0]) > self._threshold
