"""Rehearsed plans: a stick that falls, against a fine grid and by hand."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from rover.operators.support import BoolArray, FloatArray
from rover.planning.motion import Motion
from rover.solving.rehearsal import Stage, best_plan

GAMMA = 0.95
FORCES = np.array([-0.3, 0.3])


class _Stick:
    """A law by which a lean x grows by a fifth, less or more a force, and ends beyond 1.

    What leaves ±3 lies beyond the data.
    """

    n_actions = 2

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        reached = 1.2 * points + FORCES[:, None, None]
        return reached, (np.abs(reached[..., 0]) > 1.0).astype(float)

    def is_beyond(self, points: FloatArray) -> BoolArray:
        return np.asarray((np.abs(points) >= 3.0).any(axis=-1))


def stage(held: int = 1, *, reward: float = 1.0, ends: bool = False) -> Stage:
    """Each step earns a reward, but for the one that ends an episode, which earns −5."""
    arrivals = np.linspace(-2.0, 2.0, 41)[:, None]
    terminated = np.abs(arrivals[:, 0]) > 1.0
    rewards = np.where(terminated, -5.0, reward)
    over = terminated | (ends & (arrivals[:, 0] > 0.85))
    motion = cast(Motion, _Stick())
    return Stage(
        motion, arrivals, terminated, rewards, over, discount=GAMMA, sink_value=-7.0, held=held
    )


def by_hand(x: float, action: int, held: int, ends: bool) -> tuple[float, float, float]:
    earned, remaining = 0.0, 1.0
    for _ in range(held):
        x = 1.2 * x + FORCES[action]
        has_ended = abs(x) > 1.0
        earned += remaining * (-7.0 if abs(x) >= 3.0 else -5.0 if has_ended else 1.0)
        is_over = ends and 0.85 < x + 1e-9 <= 1.0 and round(x, 1) > 0.85
        remaining *= 0.0 if has_ended or is_over or abs(x) >= 3.0 else GAMMA
    return x, earned, remaining


@pytest.mark.parametrize("held", [1, 3])
def test_an_outlook_is_what_happens_step_by_step(held: int) -> None:
    points = np.array([[-0.9], [-0.31], [0.0], [0.42], [0.95], [2.6]])
    outlook = stage(held).look(points)
    for row, (x,) in enumerate(points):
        for action in range(2):
            end, earned, remaining = by_hand(x, action, held, ends=False)
            assert outlook.ends[row, action, 0] == pytest.approx(end)
            assert outlook.earned[row, action] == pytest.approx(earned)
            assert outlook.remaining[row, action] == pytest.approx(remaining)


def test_a_task_ends_where_its_transitions_say_so() -> None:
    points = np.array([[0.5], [0.2]])  # arrive at 0.9 and at 0.54
    assert stage(ends=True).look(points).remaining[:, 1].tolist() == [0.0, GAMMA]


def test_values_are_those_of_a_fine_grid() -> None:
    grid = np.linspace(-1.0, 1.0, 2001)
    values = np.zeros(2001)
    reached = 1.2 * grid + FORCES[:, None]
    alive = np.abs(reached) <= 1.0
    for _ in range(600):
        onward = np.where(alive, 1.0 + GAMMA * np.interp(reached, grid, values), -5.0)
        values = onward.max(axis=0)
    solved, _ = stage().solve(grid[::10, None], np.empty(0))
    assert np.abs(solved - values[::10]).max() < 0.02 * values.max()


def test_a_plan_that_falls_when_rehearsed_is_mended() -> None:
    """Of places that are none of them beside the edge: interpolated, a fall is no fall."""
    one, begins = stage(), np.linspace(-0.2, 0.2, 5)[:, None]
    starts = np.array([[0.05], [-0.1]])
    first, _ = one.solve(begins, np.empty(0))
    plan = best_plan(one, begins, starts)
    best = (1.0 - GAMMA**100) / (1.0 - GAMMA)
    assert plan.value > 0.97 * best, "it stays up until the rehearsal ends"
    assert plan.value >= one.rehearse(begins, first, starts)[0]
    value, passed = one.rehearse(plan.places, plan.values, starts)
    assert value == plan.value
    assert (np.abs(passed) <= 1.0).all()
