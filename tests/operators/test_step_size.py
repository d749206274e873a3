from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rover.errors import ConfigurationError
from rover.operators import StepRule, backtracking_steps, constant_steps, growing_steps
from rover.operators.step_size import LARGEST_STEP


def test_constant_steps_never_move_and_never_reject() -> None:
    rule = constant_steps(3.0)
    assert rule.initial == rule.after_accepted(3.0) == 3.0
    assert rule.max_backtracks == 0


def test_backtracking_begins_every_iteration_anew() -> None:
    rule = backtracking_steps(8.0, shrink=0.5, max_backtracks=4)
    assert rule.after_rejected(8.0) == 4.0
    assert rule.after_accepted(1.0) == 8.0
    assert rule.max_backtracks == 4


@given(st.floats(1e-6, 1e6), st.floats(1.0, 10.0), st.floats(0.01, 0.99))
def test_growing_steps_grow_from_the_last_accepted(
    step: float, growth: float, shrink: float
) -> None:
    rule = growing_steps(1.0, growth=growth, shrink=shrink)
    assert rule.after_accepted(step) == step * growth
    assert rule.after_rejected(step) == step * shrink


def test_growth_ends_before_overflow() -> None:
    rule, step = growing_steps(1.0), 1.0
    for _ in range(2000):
        step = rule.after_accepted(step)
    assert step == LARGEST_STEP


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial": 0.0}, r"the step size must be positive, not 0\.0"),
        ({"initial": float("nan")}, "the step size must be positive, not nan"),
        ({"initial": 1.0, "growth": 0.5}, r"step growth must be at least 1, not 0\.5"),
        ({"initial": 1.0, "shrink": 1.0}, r"step shrink must be in \(0, 1\), not 1\.0"),
        ({"initial": 1.0, "shrink": 0.0}, r"step shrink must be in \(0, 1\), not 0\.0"),
        ({"initial": 1.0, "max_backtracks": -1}, "max_backtracks must not be negative: -1"),
    ],
)
def test_impossible_rules_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        StepRule(**arguments)  # type: ignore[arg-type]
