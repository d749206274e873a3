"""What is read off a learning curve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rover.errors import ConfigurationError
from rover.finetuning.curves import Curve, area_under_curve, steps_to_best


def test_events_of_a_curve_by_hand() -> None:
    steps, returns = np.arange(6.0) * 100, np.array([-300, -26, -40, -26, -26, -26.0])
    assert steps_to_best(steps, returns, -26.0) == (100, 300)
    assert steps_to_best(steps, returns[::-1], -26.0) == (0, None)
    assert steps_to_best(steps, returns, -25.0) == (None, None)
    assert steps_to_best(steps, returns, None) == (None, None)
    assert steps_to_best(steps, np.full(6, -26.0), -26.0) == (0, 0)


def test_area_is_the_mean_of_the_polygon() -> None:
    assert (
        area_under_curve(np.array([0.0, 100.0, 400.0]), np.array([-10.0, 0.0, -4.0]))
        == (-5.0 * 100 + -2.0 * 300) / 400
    )
    assert area_under_curve(np.array([5.0]), np.array([-7.0])) == -7.0


@given(
    st.lists(st.floats(-300, 0), min_size=2, max_size=20),
    st.integers(1, 50),
)
def test_area_lies_between_the_extremes(returns: list[float], spacing: int) -> None:
    steps = np.arange(len(returns)) * float(spacing)
    area = area_under_curve(steps, np.array(returns))
    assert min(returns) - 1e-9 <= area <= max(returns) + 1e-9


def test_summary_of_a_curve() -> None:
    curve = Curve(best=-3.0)
    with pytest.raises(ConfigurationError, match="without any evaluation"):
        curve.summary()
    for step, value in ((0, -9.0), (10, -3.0), (20, -5.0)):
        curve.add({"step": step, "greedy_return": value})
    curve.note_success(7)
    curve.note_success(12)
    assert curve.summary() == {
        "steps": 20,
        "best_possible_return": -3.0,
        "greedy_return": -5.0,
        "best_greedy_return": -3.0,
        "steps_to_first_success": 7,
        "steps_to_best_return": 10,
        "steps_to_stay_at_best": None,
        "area_under_curve": -5.0,
    }
