"""Plans refined by simulation: a stick that falls, against a fine grid and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import rover
from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.support import BoolArray, FloatArray
from rover.solving.simulation import Plan, Stage, best_plan

GAMMA = 0.95
FORCES = np.array([-0.3, 0.3])


class _Stick:
    """A law by which a lean x grows by a fifth, less or more a force, and ends beyond 1.

    What leaves ±3 lies beyond the data.
    """

    n_actions = 2

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.arrive(1.2 * points + FORCES[:, None, None])

    def arrive(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points, (np.abs(points[..., 0]) > 1.0).astype(float)

    def is_beyond(self, points: FloatArray) -> BoolArray:
        return np.asarray((np.abs(points) >= 3.0).any(axis=-1))


def stage(held: int = 1, *, reward: float = 1.0, ends: bool = False, missed: float = 0.0) -> Stage:
    """Each step earns a reward, but for the one that ends an episode, which earns −5."""
    arrivals = np.linspace(-2.0, 2.0, 41)[:, None]
    terminated = np.abs(arrivals[:, 0]) > 1.0
    rewards = np.where(terminated, -5.0, reward)
    over = terminated | (ends & (arrivals[:, 0] > 0.85))
    return Stage(
        _Stick(),
        arrivals,
        np.full_like(arrivals, missed),
        terminated,
        rewards,
        over,
        discount=GAMMA,
        sink_value=-7.0,
        action_repeat=held,
    )


def planned(one: Stage, places: FloatArray) -> Plan:
    outlook = one.look(places)
    return Plan(places, one.solve(places, np.empty(0), outlook), outlook, 0.0)


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
    solved = planned(stage(), grid[::10, None]).values
    assert np.abs(solved - values[::10]).max() < 0.02 * values.max()


def test_a_plan_that_falls_in_simulation_is_mended() -> None:
    """Of places that are none of them beside the edge: interpolated, a fall is no fall."""
    one, begins = stage(), np.linspace(-0.2, 0.2, 5)[:, None]
    starts, rng = np.array([[0.05], [-0.1]]), np.random.default_rng(5)
    first, _ = one.simulate(planned(one, begins), starts, rng)
    plan = best_plan(one, begins, starts, rng)
    assert first < 0.5 * plan.value
    assert one.is_best(plan.value), "it stays up until the simulated rollout ends"
    assert plan.value == pytest.approx(1.0 / (1.0 - GAMMA), rel=0.01)
    value, passed = one.simulate(plan, starts, rng)
    assert value == pytest.approx(plan.value)
    assert (np.abs(passed) <= 1.0).all()


def test_a_simulated_rollout_is_the_policy_step_by_step() -> None:
    """A stick that leans by 1 can be held at 0.9, at 0.78, and so on; beyond 1.08 it falls."""
    one, places = stage(), np.linspace(-1.0, 1.0, 201)[:, None]
    plan, rng = planned(one, places), np.random.default_rng(0)
    _, passed = one.simulate(plan, np.array([[1.0]]), rng)
    assert passed[:4, 0] == pytest.approx([1.0, 0.9, 0.78, 0.636])
    value, passed = one.simulate(plan, np.array([[1.09]]), rng)
    assert value == pytest.approx(-5.0)
    assert len(passed) == 1


def test_a_law_that_misses_much_is_worth_less() -> None:
    places, starts = np.linspace(-1.0, 1.0, 41)[:, None], np.zeros((20, 1))
    sure, missed = stage(), stage(missed=0.3)
    good, _ = sure.simulate(planned(sure, places), starts, np.random.default_rng(0))
    bad, _ = missed.simulate(planned(missed, places), starts, np.random.default_rng(0))
    assert sure.is_best(good)
    assert bad < 0.9 * good


def line(rng: np.random.Generator, forced: float) -> Buffer:
    """A point on [0, 1] that moves by 0.01, as its action says in a share of the steps only."""
    buffer = Buffer((1,), np.float64, 2)
    for _ in range(20):
        x = rng.random()
        row = buffer.observations.intern(np.array([x]))
        buffer.add_start(row)
        for step in range(100):
            action = int(rng.random() < (step // 25) % 2)
            sign = 2 * action - 1 if rng.random() < forced else rng.choice([-1.0, 1.0])
            x = float(np.clip(x + sign * rng.uniform(0.009, 0.011), 0.0, 1.0))
            reached = buffer.observations.intern(np.array([x]))
            buffer.add(row, action, reached, False, step == 99)
            row = reached
    return buffer


def test_a_plan_that_is_not_simulated_says_so() -> None:
    def reward(_: FloatArray, __: NDArray[Any], reached: FloatArray) -> FloatArray:
        return (reached[:, 0] > 0.9).astype(float)

    with pytest.warns(RoverWarning, match=r"leaves \d\d% of the motion unexplained"):
        rover.solve(line(np.random.default_rng(0), 0.0), reward, discount=0.9)
    policy = rover.solve(line(np.random.default_rng(0), 1.0), reward, discount=0.9)
    assert policy.probs(np.linspace(0.2, 0.8, 5)[:, None])[:, 1].min() > 0.99
