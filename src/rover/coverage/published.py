"""Estimate as the paper does (its Algorithm 2), with a kernel on features, for presets and users.

Kernel ridge regression of the next feature on the pair of feature and action. With more distinct
next states than 1,500 they are projected on Nyström anchors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover
from rover.coverage.improve import PlanningModel
from rover.coverage.represent import Representation, Scaled
from rover.data import Buffer, draw_transitions
from rover.operators import DenseOperator, exact_support, fit_transition_model, nystrom_support

_MOST_EXACT = 1500
"""Distinct next states that are anchors themselves. Physical quantities hardly ever repeat, and
their neighbours are alike: of them Nyström's anchors suffice."""

# Anchors that nearly coincide would make their Gram matrix singular.
_ANCHORS: Mapping[str, Any] = {"min_distance": 0.05, "projection_ridge": 1e-6}
"""Settings of Nyström's anchors and of the projection on them."""


def kernel_planning_model(
    representation: Representation,
    cover: Cover,
    config: RoverConfig,
    buffer: Buffer,
    rng: np.random.Generator,
) -> PlanningModel:
    """Fit the transition operator to merged transitions.

    `rng` draws the transitions, if not all are used, and `cover` has the target distribution.
    """
    assert config.ridge is not None
    # 1. Transitions (x, a, x'), equal ones merged into counts.
    rows, n_drawn = None, config.plan_transitions
    if n_drawn is not None:
        rows = draw_transitions(buffer, n_drawn, config.draw, rng)
    elif config.plan_window is not None:
        rows = np.arange(max(0, len(buffer) - config.plan_window), len(buffer))
    counts, starts = buffer.counts(rows), buffer.starts(unseen=config.unseen_starts)
    # 2. The anchors: distinct next states, or Nyström's choice of them.
    features, kernel = representation.features(), representation.kernel
    most = config.n_anchors if isinstance(representation, Scaled) else _MOST_EXACT
    if len(np.unique(counts.successors)) <= most:
        support = exact_support(counts, *starts)
    else:
        anchors = {"n_anchors": config.n_anchors, **_ANCHORS}
        support = nystrom_support(features, counts, *starts, kernel, **anchors)
    # 3. One ridge regression for each action.
    n_actions, ridge = buffer.n_actions, config.ridge
    model = fit_transition_model(features, support, kernel, n_actions=n_actions, ridge=ridge)
    everything = np.arange(len(support.anchors))
    return PlanningModel(
        operator=DenseOperator(model.transition, model.gram),
        start=support.start,
        anchors=2 * support.anchors + support.terminal,
        basis=model.basis,
        coefficients=model.coefficients,
        target=cover.target(support.anchors, support.anchors, everything),
        n_pairs=counts.n_pairs,
        varies=counts.outcome_variance > 0.0,
    )
