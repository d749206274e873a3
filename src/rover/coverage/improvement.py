"""Improve: mirror descent on a planning model, begun where the last descent ended if it still can.

Its result is a policy in closed form, π = softmax(ρ(φ) W), at every feature vector φ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from rover.arrays import IntArray
from rover.coverage.config import RoverConfig
from rover.coverage.plan import PlanningModel
from rover.operators import Objective, StepRule, growing_steps, mirror_descend

_FEW_NEW = 0.03
"""Share of new pairs up to which a policy is planned to the end."""

_KEPT = 0.5
"""Share of a warm start that is kept where outcomes vary. Each plan is then for another model, and
from a policy that is already certain mirror descent hardly moves (docs/deviations.md)."""

_LANDMARK_STEPS, _LANDMARK_TOLERANCE = 100, 1e-3
"""Steps and tolerance of mirror descent on landmarks, whose model is no better than that."""

_STEP_RULES: dict[str, Callable[[float], StepRule]] = {
    "growing": growing_steps,
    # Each iteration from the first size again, as the authors' code has it.
    "backtracking": functools.partial(StepRule, max_backtracks=12, restart=True),
    "constant": StepRule,
}


@dataclass(frozen=True)
class WarmStart:
    """The end of the last descent, for the next one on the same anchors and the same pairs.

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

    def fits(self, model: PlanningModel) -> bool:
        """True if a model has the same anchors, made of as many pairs."""
        return self.pairs == model.n_pairs and np.array_equal(self.anchors, model.anchors)


class Improvement(NamedTuple):
    """A policy that mirror descent has planned.

    Attributes:
        weights: W (q, A) of the policy π = softmax(ρ(φ) W).
        warm_start: where the descent ended.
        figures: of the descent and its model.
    """

    weights: Tensor
    warm_start: WarmStart
    figures: dict[str, Any]


def improve(
    model: PlanningModel,
    warm: WarmStart | None,
    config: RoverConfig,
    *,
    step: int,
    is_exploring: bool,
    is_comparable: bool,
) -> Improvement:
    """Descend J by the policy on a planning model.

    Args:
        model: the model.
        warm: the end of the last descent; None before the first.
        config: how.
        step: environment steps so far, with which the sink's norm grows at first.
        is_exploring: whether data comes from exploration plans, so that policies made while much
            is new are soon replaced, and planned in fewer steps.
        is_comparable: whether the model was fitted as the last one was.

    Raises:
        SingularSolveError: the model creates mass.
    """
    assert config.discount is not None
    discount = config.discount**model.action_repeat
    dual, rule = None, _STEP_RULES[config.step_rule](config.step_size)
    continues = config.warm_start and is_comparable and not model.on_landmarks
    if continues and warm is not None and warm.fits(model):
        dual = warm.dual
        if model.outcome_variance > 0.0:
            dual = _KEPT * dual
        else:
            rule = replace(rule, initial=warm.step_size)
    n_new = model.n_pairs - (0 if warm is None else warm.pairs)
    n_steps, tolerance = config.mirror_steps, config.mirror_tolerance
    if model.on_landmarks:
        n_steps, tolerance = _LANDMARK_STEPS, max(tolerance, _LANDMARK_TOLERANCE)
    elif is_exploring and n_new > _FEW_NEW * model.n_pairs:
        n_steps = min(config.discovery_steps or n_steps, n_steps)
    warmup = min(1.0, step / config.sink_warmup) if config.sink_warmup else 1.0
    descent = mirror_descend(
        model.operator,
        model.start,
        discount=discount,
        objective=Objective(model.target, config.sink_norm * warmup),
        n_steps=n_steps,
        step_rule=rule,
        tolerance=tolerance,
        dual=dual,
    )
    # A descent that ended in rejected steps leaves a step size too small to begin with.
    step_size = max(descent.step_size, config.step_size)
    return Improvement(
        # The policy at the anchors is softmax(−γ Σ_i v_i P_a[i, x]), extended to every φ.
        weights=model.coefficients(descent.dual).mul_(-discount),
        warm_start=WarmStart(model.anchors, model.n_pairs, descent.dual, step_size),
        figures={
            "model_objective": descent.occupancy.objective,
            # On landmarks every row leads to the sink with the same small probability.
            "sink_mass": None if model.on_landmarks else descent.occupancy.sink_mass,
            "column_sum_max": model.worst_column,
            "mirror_steps": len(descent.objectives) - 1,
            "anchors": len(model.anchors),
            "pairs": model.n_pairs,
        },
    )
