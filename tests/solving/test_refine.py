"""Plans refined by simulation: a stick that falls, against a fine grid and by hand."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from walks import line

import rover
from rover.arrays import BoolArray, FloatArray, IntArray
from rover.errors import RoverWarning
from rover.policies import ValuePolicy
from rover.solving.plans import Experience, PlanSettings
from rover.solving.refine import _Stage, warn_if_worse
from rover.solving.tasks import Tasks
from rover.world.dynamics import RefinedDynamics

GAMMA = 0.95
FORCES = np.array([-0.3, 0.3])


class _Stick:
    """A law by which a lean x grows by a fifth, less or more a force, and ends beyond 1.

    What leaves ±3 lies beyond the data.
    """

    n_actions, arrivals = 2, np.linspace(-2.0, 2.0, 41)[:, None]
    begins = np.linspace(-0.2, 0.2, 5)[:, None]
    rows: IntArray = np.arange(41)
    buffer = SimpleNamespace(terminated=np.abs(arrivals[:, 0]) > 1.0)

    def __init__(self, missed: float) -> None:
        self.missed = missed

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.arrive(1.2 * points + FORCES[:, None, None])

    def follow(self, points: FloatArray, actions: IntArray, rng: np.random.Generator) -> Any:
        noise = self.missed * rng.choice([-1.0, 1.0], size=points.shape)
        return self.arrive((1.2 * points + FORCES[actions, None] + noise)[:, None])

    def arrive(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points, (np.abs(points[..., 0]) > 1.0).astype(float)

    def is_beyond(self, points: FloatArray) -> BoolArray:
        return np.asarray((np.abs(points) >= 3.0).any(axis=-1))


def stage_of(
    law: _Stick, rewards: FloatArray, ends: BoolArray, *, by_arrival: bool = True
) -> _Stage:
    task = cast(Tasks, SimpleNamespace(rewards=rewards[:, None], ends=ends[:, None]))
    settings = PlanSettings(GAMMA, sink_value=-7.0)
    return _Stage(cast(RefinedDynamics, law), task, settings, by_arrival=by_arrival)


def stage(*, ends: bool = False, missed: float = 0.0) -> _Stage:
    """Each step earns 1, but for the one that ends an episode, which earns −5."""
    terminated = _Stick.buffer.terminated
    over = terminated | (ends & (_Stick.arrivals[:, 0] > 0.85))
    return stage_of(_Stick(missed), np.where(terminated, -5.0, 1.0), over)


def policy_of(tables: dict[str, FloatArray], temperature: float = 0.0) -> ValuePolicy:
    own = {"projection": np.eye(1), "sink_values": np.zeros(1), "goals": np.array([-1])}
    return ValuePolicy(
        {name: torch.from_numpy(table) for name, table in (tables | own).items()},
        observation_shape=(1,),
        neighbours=8,
        reach=np.inf,
        temperature=temperature,
    )


def planned(one: _Stage, n: int = 41) -> ValuePolicy:
    return policy_of(one.plan(np.linspace(-1.0, 1.0, n)[:, None], 1).tables())


def by_hand(x: float, action: int, held: int) -> tuple[float, float, float]:
    earned, remaining = 0.0, 1.0
    for _ in range(held):
        x = 1.2 * x + FORCES[action]
        has_ended = abs(x) > 1.0
        earned += remaining * (-7.0 if abs(x) >= 3.0 else -5.0 if has_ended else 1.0)
        remaining *= 0.0 if has_ended else GAMMA
    return x, earned, remaining


@pytest.mark.parametrize("held", [1, 3])
def test_an_outlook_is_what_happens_step_by_step(held: int) -> None:
    points = np.array([[-0.9], [-0.31], [0.0], [0.42], [0.95], [2.6]])
    outcomes = stage().look(points, held)
    for row, (x,) in enumerate(points):
        for action in range(2):
            end, earned, remaining = by_hand(x, action, held)
            assert outcomes[row, action] == pytest.approx([end - x, earned, remaining])
    # A task ends where its transitions say so: those from here arrive at 0.9 and at 0.54.
    over = stage(ends=True).look(np.array([[0.5], [0.2]]), 1)[:, 1, 2]
    assert over.tolist() == [0.0, GAMMA]


def test_what_an_action_costs_is_earned_by_the_action() -> None:
    stick = _Stick(0.0)
    stick.arrivals, stick.rows = stick.arrivals.repeat(2, axis=0), np.arange(82)
    kept, costs = np.zeros(82, np.bool_), -0.5 * (stick.rows % 2)
    stick.buffer = SimpleNamespace(actions=stick.rows % 2, terminated=kept)
    one = stage_of(stick, costs, kept, by_arrival=False)
    np.testing.assert_allclose(one.look(np.zeros((3, 1)), 1)[:, :, 1], [[0.0, -0.5]] * 3)


def test_values_are_those_of_a_fine_grid() -> None:
    grid = np.linspace(-1.0, 1.0, 2001)
    values = np.zeros(2001)
    reached = 1.2 * grid + FORCES[:, None]
    alive = np.abs(reached) <= 1.0
    for _ in range(600):
        onward = np.where(alive, 1.0 + GAMMA * np.interp(reached, grid, values), -5.0)
        values = onward.max(axis=0)
    solved = stage().plan(grid[::10, None], 1).values
    assert np.abs(solved - values[::10]).max() < 0.02 * values.max()


def test_a_plan_that_goes_on_from_another_is_one_made_anew() -> None:
    """Ends keep the landmarks that they lie between, unless a new one is nearer; and logits of the
    plan are those of its policy."""
    one, rng = stage(), np.random.default_rng(0)
    early, late = rng.uniform(-1.0, 1.0, (20, 1)), rng.uniform(-1.0, 0.0, (9, 1))
    plan = one.plan(late, 1, one.plan(early, 1))
    anew = one.plan(np.concatenate([early, late]), 1)
    assert (plan.near == anew.near).all()
    np.testing.assert_allclose(plan.weights, anew.weights, atol=1e-12)
    np.testing.assert_allclose(plan.values, anew.values, atol=1e-2)
    points = rng.uniform(-1.0, 1.0, (50, 1))
    for temperature in (0.0, 0.5):
        probs = torch.softmax(torch.from_numpy(plan.logits(points, temperature)), dim=1)
        policy = policy_of(plan.tables(), temperature)
        np.testing.assert_allclose(probs, policy.probs(points), atol=1e-9)


def test_a_plan_that_falls_in_simulation_is_mended() -> None:
    """On landmarks away from the edge: interpolated, a fall is no fall."""
    one, starts, rng = stage(), np.array([[0.05], [-0.1]]), np.random.default_rng(5)
    first, _ = one.simulate(policy_of(one.plan(_Stick.begins, 1).tables()), starts, rng)
    plan, best = one.best_plan(starts, rng)
    assert first.mean() < 0.5 * best.mean()
    assert best.mean() >= one.most, "it stays up until the simulated rollout ends"
    assert best.mean() == pytest.approx(1.0 / (1.0 - GAMMA), rel=0.01)
    returns, passed = one.simulate(plan, starts, rng)
    assert returns == pytest.approx(best)
    assert (np.abs(passed) <= 1.0).all()


def test_a_simulated_rollout_is_the_policy_step_by_step() -> None:
    """A stick that leans by 1 can be held at 0.9, at 0.78, and so on; beyond 1.08 it falls."""
    one, rng = stage(), np.random.default_rng(0)
    policy = planned(one, 201)
    _, passed = one.simulate(policy, np.array([[1.0]]), rng)
    assert passed[:4, 0] == pytest.approx([1.0, 0.9, 0.78, 0.636])
    assert (policy.probs(passed[:3])[:, 0] == 1.0).all()
    returns, passed = one.simulate(policy, np.array([[1.09]]), rng)
    assert returns.tolist() == [pytest.approx(-5.0)]
    assert len(passed) == 1


def test_simulated_actions_have_the_probabilities_of_the_policy() -> None:
    """Where a wall is likely an action is drawn at random: from 0.85 the wrong one falls."""
    one, starts = stage(), np.full((4000, 1), 0.85)
    tables = one.plan(np.linspace(-1.0, 1.0, 41)[:, None], 1).tables()
    policy = policy_of(tables | {"contact_probability": np.full((41, 2), 0.6)})
    assert policy.probs(starts[:1])[0] == pytest.approx([0.7, 0.3])
    _, passed = one.simulate(policy, starts, np.random.default_rng(0))
    stays_up = np.isclose(passed[4000:], 1.2 * 0.85 - 0.3).sum() / 4000
    assert stays_up == pytest.approx(0.7, abs=0.04)  # five standard errors


def test_a_law_that_misses_much_is_worth_less() -> None:
    starts, sure, missed = np.zeros((20, 1)), stage(), stage(missed=0.3)
    good, bad = (
        one.simulate(planned(one), starts, np.random.default_rng(0))[0].mean()
        for one in (sure, missed)
    )
    assert good >= sure.most
    assert bad < 0.9 * good


def test_simulated_returns_below_those_of_random_actions_are_warned_of() -> None:
    one, starts = stage(), np.linspace(-0.1, 0.1, 20)[:, None]
    policy = planned(one)
    best, random = (
        one.simulate(each, starts, np.random.default_rng(0))[0] for each in (policy, None)
    )
    assert random.mean() < best.mean() - 5.0
    early, _ = one.simulate(None, starts, np.random.default_rng(0), best.mean())
    assert early.mean() < best.mean(), "it ends where it cannot be better any more"
    with pytest.warns(RoverWarning, match=r"the plan earns .* less than the .* of uniformly"):
        warn_if_worse(random, best)
    with warnings.catch_warnings(action="error"):
        warn_if_worse(best, random)


def test_a_plan_that_is_not_simulated_says_so() -> None:
    def reward(_: FloatArray, __: NDArray[Any], reached: FloatArray) -> FloatArray:
        return (reached[:, 0] > 0.9).astype(float)

    with pytest.warns(RoverWarning, match=r"leaves \d\d% of the motion unexplained"):
        rover.solve(line(2000, np.random.default_rng(0), forced=0.0), goal=lambda x: x[:, 0] > 0.9)
    policy = rover.solve(line(2000, np.random.default_rng(0)), reward, discount=0.9)
    assert policy.probs(np.linspace(0.2, 0.8, 5)[:, None])[:, 1].min() > 0.99


def test_contacts_are_simulated_where_they_were_met() -> None:
    """With the action that met them alone, and not far from them."""
    buffer = line(2000, np.random.default_rng(0), wall=0.5)
    model = Experience.of(buffer).points().neighbours.model
    assert model is not None
    scale = model.units.scale
    dynamics = RefinedDynamics(model.buffer, model.units.points, model.dynamics)
    assert (np.abs(dynamics.missed) * scale).max() < 0.006
    at, right, left = (np.array([[0.5], [0.3], [0.7]]) / scale, np.ones(3, int), np.zeros(3, int))
    free = dynamics.step(at[None])[0]
    dynamics.missed[:], rng = 0.0, np.random.default_rng(0)
    followed = dynamics.follow(at, right, rng)[0][:, 0] * scale
    assert free[1, 0] * scale > 0.505, "the law passes the wall"
    assert followed[:, 0] == pytest.approx([0.5, 0.31, 0.71], abs=3e-3)
    assert dynamics.follow(at, left, rng)[0][:, 0] == pytest.approx(free[0])
