"""Improve: from an estimate of the dynamics to a policy.

The same descent serves both policies of a run. The policy that is handed over starts from the
environment's initial states; the plan that collects data starts from the state the agent stands
on, and treats what the data does not know as free (docs/deviations.md, "collect from where you
stand").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rover.coverage.estimation import Estimate
from rover.operators import Kernel, MirrorDescentResult, StepRule, mirror_descend
from rover.operators.support import IntArray
from rover.training.timing import Stopwatch


@dataclass(frozen=True)
class FeaturePolicy:
    """π = softmax(ρ(φ) W) on features: a policy without its encoder."""

    kernel: Kernel
    basis: Tensor | None
    weights: Tensor

    def linear(self, features: Tensor) -> Tensor:
        """ρ(φ) W (n, A) for `features` (n, z): the logits."""
        regressors = features if self.basis is None else self.kernel(features, self.basis)
        return regressors @ self.weights

    def probs(self, features: Tensor) -> Tensor:
        """Action probabilities (n, A) for `features` (n, z)."""
        return torch.softmax(self.linear(features), dim=1)


@dataclass(frozen=True)
class Plan:
    """A converged policy on a fitted model."""

    estimate: Estimate
    descent: MirrorDescentResult
    policy: FeaturePolicy


def improve(
    estimate: Estimate,
    kernel: Kernel,
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
        estimate.operator,
        start,
        discount=discount,
        sink_norm=sink_norm,
        n_steps=n_steps,
        step_rule=step_rule,
        tolerance=tolerance,
        dual=dual,
    )
    weights = estimate.coefficients(descent.dual).mul_(-discount)
    return Plan(estimate, descent, FeaturePolicy(kernel, estimate.basis, weights))


@dataclass(frozen=True)
class Warmth:
    """Where the last descent ended, for the next one on the same anchors and the same pairs.

    Attributes:
        anchors: (s,) what the anchors stand for.
        pairs: number of distinct pairs (x, a) that were known; it only ever grows.
        dual: (s,) the dual vector of the policy.
        step_size: the size with which a further step would have begun.
    """

    anchors: IntArray
    pairs: int
    dual: Tensor
    step_size: float

    def fits(self, estimate: Estimate, pairs: int) -> bool:
        """Whether `estimate` stands on the same anchors and pairs."""
        return pairs == self.pairs and np.array_equal(self.anchors, estimate.anchors)


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
    """Sink mass below which a plan expects to learn nothing more."""

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
        self._kept: FeaturePolicy | None = None
        self._age = 0

    @property
    def is_current(self) -> bool:
        """Whether the plan may still be followed."""
        return self._plan is not None and (self._age < self._every or not self.expects_news)

    @property
    def expects_news(self) -> bool:
        """Whether the plan leads to anything that the data does not know."""
        assert self._plan is not None
        return self._plan.descent.occupancy.sink_mass >= self.NEWS

    def discard(self) -> None:
        """Make the next call to :meth:`renew` necessary."""
        self._plan = None

    def renew(self, estimate: Estimate, kernel: Kernel, current: int) -> None:
        """Plan from the observation `current` on `estimate`."""
        with self._stopwatch("improve"):
            self._plan = improve(
                estimate,
                kernel,
                estimate.start_at(current),
                discount=self._discount,
                sink_norm=0.0,
                n_steps=self._n_steps,
                step_rule=self._step_rule,
                tolerance=0.0,
            )
            kept = estimate.coefficients(torch.ones_like(estimate.start))
            self._kept = replace(self._plan.policy, weights=kept)
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
        assert self._kept is not None
        supported = float(self._kept.linear(features)[0, action])
        known = float(self._plan.estimate.similarity(reached)[0])
        return 1.0 - min(supported, known) > self._threshold
