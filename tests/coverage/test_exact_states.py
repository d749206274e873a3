"""States that share nothing in the kernel are exact: sparse matrices, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rover import Rover
from rover.coverage.plan import PlanningModel, fit_planning_model, start_distribution
from rover.operators import DenseOperator, Gaussian, growing_steps, mirror_descend
from rover.operators.sparse import SparseOperator


def planned(agent: Rover, *, exact: bool) -> tuple[PlanningModel, np.ndarray, float]:
    """The model, the policy at all observations, and the objective of some mirror steps."""
    features = agent._representation.features()
    model = fit_planning_model(
        features,
        agent.buffer.counts(),
        start_distribution(agent.buffer, unseen=True),
        agent._kernel,
        agent.config,
        n_actions=agent.buffer.n_actions,
        ridge=1e-3,
        exact=exact,
    )
    descent = mirror_descend(
        model.operator,
        model.start,
        discount=0.95,
        sink_norm=1.0,
        n_steps=20,
        step_rule=growing_steps(10.0),
    )
    logits = agent._kernel(features, model.basis) @ model.coefficients(descent.dual) * -0.95
    return model, torch.softmax(logits, dim=1).numpy(), descent.occupancy.objective


@pytest.mark.parametrize(
    ("env_id", "where"),
    [
        ("rover/TwoRooms-v0", {"observation": "onehot", "slip": 0.2}),
        ("rover/MultiRooms-v0", {"observation": "onehot", "start": "random"}),
    ],
)
def test_the_sparse_model_is_the_dense_one(env_id: str, where: dict[str, Any]) -> None:
    # trained until it shares less than the tolerances below
    settings = {"mirror_steps": 5, "evaluation_episodes": 2, "encoder_tolerance": None}
    agent = Rover(env_id, env_kwargs=where, seed=0, **settings)
    agent.learn(200)
    assert agent._representation.is_exact()
    sparse, probs, objective = planned(agent, exact=True)
    dense, same_probs, same_objective = planned(agent, exact=False)
    assert isinstance(sparse.operator, SparseOperator)
    assert isinstance(dense.operator, DenseOperator)
    np.testing.assert_array_equal(sparse.anchors, dense.anchors)
    assert objective == pytest.approx(same_objective, rel=1e-7)
    np.testing.assert_allclose(probs, same_probs, atol=1e-6)
    assert sparse.worst_column == pytest.approx(dense.worst_column, abs=1e-7)


def test_states_that_are_alike_are_not_exact() -> None:
    agent = Rover("rover/TwoRooms-v0", env_kwargs={"observation": "onehot"}, seed=0, bandwidth=1.0)
    agent.learn(100)
    assert not agent._representation.is_exact()
    representation = agent._representation
    representation.gram = None  # as where none is kept
    assert not representation.is_exact()


@pytest.mark.parametrize(
    ("settings", "trains"),
    [
        ({}, False),
        ({"encoder_tolerance": None}, True),
        ({"encoder_tolerance": 1e-30}, True),
        ({"bandwidth": 1.0}, True),
        ({"kernel": "linear"}, True),
    ],
)
def test_an_encoder_is_trained_while_observations_share(
    settings: dict[str, Any], trains: bool
) -> None:
    few = {"mirror_steps": 5, "evaluation_episodes": 2}
    one_hot = {"observation": "onehot"}
    agent = Rover("rover/TwoRooms-v0", env_kwargs=one_hot, seed=0, **few, **settings)
    begun = agent._representation.state()
    agent.learn(150)
    learned = agent._representation.state()
    weights = [name for name in begun if name.endswith("weight")]
    assert any(not torch.equal(begun[name], learned[name]) for name in weights) is trains


def test_an_encoder_that_is_far_enough_learns_again_when_it_no_longer_is() -> None:
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
def test_the_policy_does_at_each_exact_state_what_was_planned_there(similarity: float) -> None:
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
        start_distribution(agent.buffer, unseen=True),
        kernel,
        agent.config,
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
    assert model.basis is not None
    assert not model.operator.terminal.any()
    tolerance = 5e-3 * np.abs(wanted).max() if similarity > 0.0 else 1e-12
    np.testing.assert_allclose(taken, wanted, atol=tolerance)
