"""Simulated coverage: J in a known law of motion, and the plan that is chosen by it."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rover import Rover
from rover.coverage import agent as agent_module
from rover.coverage.simulation import simulated_objective
from rover.operators.kernels import Interpolation
from rover.planning.invariants import Invariants
from rover.planning.model import LandmarkModel
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
        on_landmarks=lambda points: (np.ones((len(points), 1)), points.astype(np.int64)),
        motion=SimpleNamespace(step=step),
    )


def exact(probs, ends_at=None):
    """J of the probabilities (S, 2) on the ring."""
    transition = np.zeros((SIZE, SIZE))
    for state in range(SIZE):
        for following, prob in zip(((state + 1) % SIZE, state), probs[state], strict=True):
            transition[state, 0 if state == ends_at else following] += prob
    occupancy = (1 - DISCOUNT) * np.linalg.inv(np.eye(SIZE) - DISCOUNT * transition)[0]
    return (occupancy**2).sum()


def test_j_of_a_certain_policy_is_exact_up_to_the_end():
    weights = np.tile([500.0, 0.0], (SIZE, 1))
    value = simulated_objective(ring(), weights, FREE, EACH, discount=DISCOUNT)
    # What is left out is a twentieth of the discounted visits.
    assert value == pytest.approx(exact(np.tile([1.0, 0.0], (SIZE, 1))), rel=0.02)


def test_what_leaves_the_relations_is_led_back():
    weights = np.tile([500.0, 0.0], (SIZE, 1))
    drifting = ring()
    exactly = drifting.motion.step
    drifting.motion.step = lambda points: (exactly(points)[0] + 0.3, exactly(points)[1])
    rounded = SimpleNamespace(restore=np.round)
    values = [
        simulated_objective(model, weights, invariants, EACH, discount=DISCOUNT)
        for model, invariants in ((ring(), FREE), (drifting, rounded))
    ]
    assert values[0] == values[1]


@pytest.mark.parametrize("ends_at", [None, 4])
@pytest.mark.parametrize("uniform_share", [0.0, 0.5])
def test_j_is_near_that_of_the_exact_occupancy(ends_at, uniform_share):
    weights = np.random.default_rng(0).normal(size=(SIZE, 2))
    probs = np.exp(weights) / np.exp(weights).sum(axis=1, keepdims=True)
    value = simulated_objective(
        ring(ends_at), weights, FREE, EACH, discount=DISCOUNT, uniform_share=uniform_share
    )
    mixed = (1 - uniform_share) * probs + uniform_share / 2
    assert value == pytest.approx(exact(mixed, ends_at), rel=0.15)


@pytest.mark.parametrize("better", [0, 1])
def test_the_better_plan_in_simulation_is_handed_over(monkeypatch, better):
    agent = Rover("MountainCar-v0", seed=0, n_anchors=40, measure_share=0.0).learn(300)
    sizes, objectives = [], iter([0.8, 0.7] if better else [0.7, 0.8])

    def judged(model, weights, *_, **__):
        sizes.append(len(weights))
        return next(objectives)

    monkeypatch.setattr(agent_module, "simulated_objective", judged)
    model, plan = agent._plan(agent._representation.handed_over()[0])
    assert sizes[1] <= 40 < sizes[0] <= 100
    assert len(model.anchors) == sizes[better]
    assert plan.figures["simulated_objective"] == 0.7


def test_a_plan_that_keeps_its_promise_is_the_only_one(monkeypatch):
    agent = Rover("MountainCar-v0", seed=0, n_anchors=40, measure_share=0.0).learn(300)
    objectives = iter([0.0])
    monkeypatch.setattr(agent_module, "simulated_objective", lambda *_, **__: next(objectives))
    model, plan = agent._plan(agent._representation.handed_over()[0])
    assert len(model.anchors) > 40
    assert plan.figures["simulated_objective"] == 0.0


def test_a_law_that_explains_little_is_not_simulated_in(monkeypatch):
    agent = Rover("MountainCar-v0", seed=0, n_anchors=40, measure_share=0.0).learn(300)
    monkeypatch.setattr(agent_module, "MOST_UNEXPLAINED", -1.0)
    model, plan = agent._plan(agent._representation.handed_over()[0])
    assert len(model.anchors) <= 40
    assert "simulated_objective" not in plan.figures


@pytest.mark.parametrize("d", [2, 10, 20])
def test_the_simulated_policy_is_the_returned_one(d):
    """Total variation is 0 at any dimension: both interpolate logits between the same landmarks."""
    rng = np.random.default_rng(d)
    landmarks, points = rng.normal(size=(30, d)), rng.normal(size=(50, d))
    logits = 3.0 * rng.normal(size=(30, 4))
    weights, index = LandmarkModel.on_landmarks(SimpleNamespace(net=Net(landmarks, 0.1)), points)
    simulated = torch.from_numpy((weights[:, :, None] * logits[index]).sum(axis=1)).softmax(dim=1)
    returned = Interpolation()(torch.from_numpy(points), torch.from_numpy(landmarks))
    returned = (returned @ torch.from_numpy(logits)).softmax(dim=1)
    assert float((simulated - returned).abs().sum(dim=1).max()) / 2.0 < 1e-9
