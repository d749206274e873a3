"""J in simulated rollouts of a known dynamics model, and the plan that is chosen by it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rover import Rover
from rover.coverage import agent as agent_module
from rover.coverage.simulation import at_points, simulate, simulated_objective
from rover.planning.invariants import Invariants
from rover.planning.net import Net

SIZE, DISCOUNT = 6, 0.9
EACH = np.arange(SIZE)  # every place for itself
FREE = Invariants(np.arange(SIZE, dtype=np.float64)[:, None])  # keep no relation


def ring(ends_at: int | None = None) -> SimpleNamespace:
    """A ring of places on which actions go on, or stay; one place may end the episode."""
    places = np.arange(SIZE, dtype=np.float64)[:, None]

    def step(points):
        reached = np.stack([(points[0] + 1.0) % SIZE, points[0]])
        return reached, (reached[:, :, 0] == ends_at).astype(np.float64)

    return SimpleNamespace(
        buffer=SimpleNamespace(starts=lambda: (np.array([0]), np.array([3.0]))),
        points=lambda observations: places[observations],
        cells=Net(places, 0.5),
        dynamics=SimpleNamespace(step=step),
    )


def exact(probs, ends_at=None):
    """J of the probabilities (S, 2) on the ring."""
    transition = np.zeros((SIZE, SIZE))
    for state in range(SIZE):
        for following, prob in zip(((state + 1) % SIZE, state), probs[state], strict=True):
            transition[state, 0 if state == ends_at else following] += prob
    occupancy = (1 - DISCOUNT) * np.linalg.inv(np.eye(SIZE) - DISCOUNT * transition)[0]
    return (occupancy**2).sum()


def simulated(probs, model=None, invariants=FREE):
    """J in simulated rollouts of the probabilities (S, 2)."""
    model = model or ring()
    visits = simulate(
        model, lambda points: probs[points[:, 0].astype(int)], invariants, discount=DISCOUNT
    )
    return simulated_objective(visits, model.cells, np.arange(SIZE), discount=DISCOUNT)


ONWARD = np.tile([1.0, 0.0], (SIZE, 1))


def test_j_of_a_certain_policy_is_exact_up_to_the_end():
    # What is left out is a twentieth of the discounted visits.
    assert simulated(ONWARD) == pytest.approx(exact(ONWARD), rel=0.02)


def test_points_that_leave_the_relations_are_restored():
    drifting = ring()
    exactly = drifting.dynamics.step
    drifting.dynamics.step = lambda points: (exactly(points)[0] + 0.3, exactly(points)[1])
    rounded = SimpleNamespace(restore=np.round)
    assert simulated(ONWARD) == simulated(ONWARD, drifting, rounded)


@pytest.mark.parametrize("ends_at", [None, 4])
def test_j_is_near_that_of_the_exact_occupancy(ends_at):
    probs = np.random.default_rng(0).dirichlet(np.ones(2), SIZE)
    assert simulated(probs, ring(ends_at)) == pytest.approx(exact(probs, ends_at), rel=0.15)


def test_a_target_shifts_j_by_its_overlap():
    model = ring()
    visits = simulate(model, lambda at: ONWARD[at[:, 0].astype(int)], FREE, discount=DISCOUNT)
    groups, uniform = np.arange(SIZE), torch.full((SIZE,), 1.0 / SIZE, dtype=torch.float64)
    even, towards = (
        simulated_objective(visits, model.cells, groups, target, discount=DISCOUNT)
        for target in (None, uniform)
    )
    assert towards == pytest.approx(even - 1.0 / SIZE)


@pytest.fixture(scope="module")
def agent():
    return Rover("MountainCar-v0", seed=0, n_anchors=40, measure_share=0.0).learn(300)


def planned(agent, monkeypatch, objectives):
    """The plan and the sizes of the nets that were simulated on."""
    sizes, values = [], iter(objectives)

    def judged(visits, net, *_, **__):
        sizes.append(len(net))
        return next(values)

    monkeypatch.setattr(agent_module, "simulated_objective", judged)
    return *agent._plan(), sizes


@pytest.mark.parametrize("better", [0, 1])
def test_the_better_plan_in_simulation_is_returned(agent, monkeypatch, better):
    """Plans are compared on the cells, and each with its own J on its own landmarks."""
    objectives = [[0.7, 9.0, 0.8, 9.0], [0.8, 9.0, 0.7, 9.0]][better]
    policy, plan, sizes = planned(agent, monkeypatch, objectives)
    cells = len(agent._landmarks.cells)
    assert sizes[::2] == [cells, cells]
    assert sizes[3] <= 40 < sizes[1] <= 100
    assert len(policy.basis) == sizes[1 + 2 * better]
    assert plan.figures["simulated_objective"] == 0.7


def test_a_plan_whose_simulation_confirms_its_j_is_the_only_one(agent, monkeypatch):
    policy, plan, _ = planned(agent, monkeypatch, [0.9, 0.0])
    assert len(policy.basis) > 40
    assert plan.figures["simulated_objective"] == 0.9


def test_a_model_that_explains_little_is_not_simulated_in(agent, monkeypatch):
    monkeypatch.setattr(agent_module, "MOST_UNEXPLAINED", -1.0)
    policy, plan = agent._plan()
    assert len(policy.basis) <= 40
    assert "simulated_objective" not in plan.figures


@pytest.mark.parametrize("cover", [None, lambda rows: rows[:, :1] > -0.5])
def test_the_simulated_policy_is_the_returned_one(cover):
    """Total variation is 0 at the buffer's observations, also with columns that cover appends."""
    options = {"n_anchors": 40, "measure_share": 0.0, "cover": cover}
    agent = Rover("MountainCar-v0", seed=0, **options).learn(200)
    places, policy = agent._landmarks, agent.policy
    rows = agent.buffer.observations.rows
    points = places.points(np.arange(len(rows)))
    # The units of the policy are those of the latest plan.
    width = np.asarray(policy.encoder.state_dict()["width"])[places.kept[: rows.shape[1]]]
    np.testing.assert_array_equal(width, places.scale[: rows.shape[1]])
    simulated = at_points(policy, places)(points)
    assert np.abs(simulated - policy.probs(rows)).sum(axis=1).max() / 2.0 < 1e-6
