"""Improve: policy mirror descent on the occupancy objective."""

from rover.mirror_descent.solve import MirrorDescentResult, mirror_descend, policy_at_anchors
from rover.mirror_descent.step_size import (
    StepRule,
    backtracking_steps,
    constant_steps,
    growing_steps,
)

__all__ = [
    "MirrorDescentResult",
    "StepRule",
    "backtracking_steps",
    "constant_steps",
    "growing_steps",
    "mirror_descend",
    "policy_at_anchors",
]
