"""States that share nothing in the kernel are exact: sparse matrices, and the same numbers."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover import Rover
from rover.coverage.plan import estimated_starts, fit_planning_model, landmark_planning_model
from rover.features import encoder_config, make_encoder
from rover.operators import (
    Gaussian,
    Interpolation,
    SparseOperator,
    exact_anchors,
    merge_transitions,
    solve_occupancy,
)
from rover.policies import CoveragePolicy
from rover.world.net import Net
from rover.world.rows import Rows


def test_states_that_are_alike_are_not_exact():
    agent = Rover("rover/TwoRooms-v0", env_kwargs={"observation": "onehot"}, seed=0, bandwidth=1.0)
    agent.learn(100)
    assert not agent._representation.is_exact()
    representation = agent._representation
    representation.gram = None  # as where none is kept
    assert not representation.is_exact()


@pytest.mark.parametrize(
    ("changes", "trains"),
    [
        ({}, False),
        ({"encoder_tolerance": None}, True),
        ({"encoder_tolerance": 1e-30}, True),
        ({"bandwidth": 1.0}, True),
        ({"kernel": "linear"}, True),
    ],
)
def test_an_encoder_is_trained_while_observations_share(changes, trains):
    few = {"mirror_steps": 5, "evaluation_episodes": 2}
    one_hot = {"observation": "onehot"}
    agent = Rover("rover/TwoRooms-v0", env_kwargs=one_hot, seed=0, **few, **changes)
    begun = agent._representation.state()
    agent.learn(150)
    learned = agent._representation.state()
    weights = [name for name in begun if name.endswith("weight")]
    assert any(not torch.equal(begun[name], learned[name]) for name in weights) is trains


def test_an_encoder_that_is_far_enough_learns_again_when_it_no_longer_is():
    agent = Rover("rover/TwoRooms-v0", env_kwargs={"observation": "onehot"}, seed=0)
    agent.learn(100)
    representation = agent._representation
    assert representation.train() == {}
    weights = [part for part in representation.encoder.parameters() if part.ndim == 2][-1]
    with torch.no_grad():
        weights.copy_(weights[:, :1] + 1e-3 * weights)  # all but one direction
    representation.forget()
    assert np.isfinite(representation.train()["encoder_loss"])


def nearly_apart(agent: Rover, cosine: float) -> torch.Tensor:
    """Features of the agent's observations, all at right angles but for the first two."""
    features = torch.eye(len(agent.buffer.observations), dtype=torch.float64)
    features[1, :2] = torch.tensor([cosine, (1.0 - cosine**2) ** 0.5], dtype=torch.float64)
    return features


@pytest.mark.parametrize("similarity", [0.0, 0.4, 1.0])
def test_the_policy_does_at_each_exact_state_what_was_planned_there(similarity):
    agent = Rover("rover/TwoRooms-v0", env_kwargs={"observation": "onehot"}, seed=0)
    agent.learn(200)
    kernel = Gaussian(bandwidth=0.1)
    # exp(−‖u − v‖² / 2b²) of unit vectors u, v
    cosine = 1.0 if similarity == 1.0 else 1.0 + 0.01 * np.log(max(similarity, 1e-40))
    features = nearly_apart(agent, float(cosine))
    assert float(kernel(features[:1], features[1:2])) == pytest.approx(similarity, abs=1e-9)
    model = fit_planning_model(
        features,
        agent.buffer.counts(),
        estimated_starts(agent.buffer, unseen=True),
        kernel,
        agent.config,
        agent._cover,
        n_actions=agent.buffer.n_actions,
        ridge=1e-3,
        exact=True,
    )
    values = torch.linspace(-3.0, 5.0, len(model.anchors), dtype=torch.float64)
    assert isinstance(model.operator, SparseOperator)
    wanted = model.operator.action_values(values).numpy()
    if similarity == 1.0:  # no policy tells the two apart
        wanted[:2] = wanted[:2].mean(axis=0)
    taken = (kernel(features, model.basis) @ model.coefficients(values)).numpy()
    assert not model.operator.end.any()
    tolerance = 5e-3 * np.abs(wanted).max() if similarity > 0.0 else 1e-12
    np.testing.assert_allclose(taken, wanted, atol=tolerance)


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(0.1, 0.95))
@settings(max_examples=30)
def test_a_terminal_state_is_occupied_for_one_step_on_counts_and_on_landmarks(seed, n, discount):
    rng = np.random.default_rng(seed)
    to, ends = rng.integers(n, size=2 * n), rng.random(2 * n) < 0.4
    inputs, actions = np.divmod(np.arange(2 * n), 2)
    counts = merge_transitions(inputs, actions, to, ends)
    start, probs = np.array([0]), rng.dirichlet(np.ones(2), n)
    exact = SparseOperator.from_counts(counts, start, np.ones(1), n_actions=2, ridge=1e-14)
    points = np.arange(n, dtype=np.float64)[:, None]
    places = SimpleNamespace(
        net=Net(points, 0.5),
        on_landmarks=lambda at: (np.ones((len(at), 1)), at.astype(np.int64)),
        coverage_groups=lambda at: np.arange(len(at)),
        kept=np.array([0]),
        scale=np.ones(1),
        n_pairs=2 * n,
        action_repeat=1,
    )
    onward = csr_array((~ends * 1.0, (np.arange(2 * n), to)), shape=(2 * n, n))
    rows = Rows(onward, ends * 1.0, np.zeros(2 * n), np.eye(n)[0], to[:, None].astype(float))
    encoder = make_encoder(
        encoder_config(spaces.Box(0.0, 1.0, (1,), np.float64), kind="scale"), torch.Generator()
    )
    places.rows = lambda: rows
    planned = landmark_planning_model(places, encoder, SimpleNamespace(has_target=False))
    anchors = exact_anchors(counts, start), planned.anchors
    one, other = (
        solve_occupancy(
            operator,
            torch.from_numpy(probs[keys // 2]),
            operator.start,
            discount=discount,
            sink_norm=0.5,
        )
        for operator, keys in zip((exact, planned.operator), anchors, strict=True)
    )
    assert one.objective == pytest.approx(other.objective, rel=1e-10)
    occupied = [
        np.bincount(keys, solved.weights.numpy(), minlength=2 * n)
        for solved, keys in zip((one, other), anchors, strict=True)
    ]
    np.testing.assert_allclose(*occupied, atol=1e-10)
    values = torch.from_numpy(rng.normal(size=n))
    assert planned.coefficients(values[torch.from_numpy(planned.anchors // 2)]).shape == (n, 2)


@pytest.fixture(scope="module")
def car():
    return Rover("MountainCar-v0", seed=0, n_landmarks=40, measure_share=0.0).learn(300)


def test_the_net_is_finer_where_the_dynamics_model_explains_the_motion(car, monkeypatch):
    assert 40 < len(car._plan()[0].basis) <= 100
    monkeypatch.setattr("rover.coverage.agent.MOST_UNEXPLAINED", -1.0)
    assert len(car._plan()[0].basis) <= 40


def test_a_policy_on_landmarks_is_what_was_planned_there(car):
    encoder = car._representation.policy_parts()[0]
    model = landmark_planning_model(car._landmarks.finer(40), encoder, car._cover)
    values = torch.from_numpy(np.random.default_rng(0).normal(size=len(model.anchors)))
    ordinary = torch.from_numpy(model.anchors % 2 == 0)
    wanted = model.operator.action_values(values)[ordinary]
    policy = CoveragePolicy(encoder, Interpolation(), model.basis, model.coefficients(values))
    at_landmarks = policy.logits_from_features(model.basis)
    assert torch.allclose(at_landmarks, wanted, atol=1e-9)
