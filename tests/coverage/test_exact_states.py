"""States that share nothing in the kernel are exact: sparse matrices, and the same numbers."""

import numpy as np
import pytest
import torch

from rover import Rover
from rover.coverage.plan import fit_planning_model, start_distribution
from rover.operators import Gaussian
from rover.operators.sparse import SparseOperator


def test_states_that_are_alike_are_not_exact():
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
def test_an_encoder_is_trained_while_observations_share(settings, trains):
    few = {"mirror_steps": 5, "evaluation_episodes": 2}
    one_hot = {"observation": "onehot"}
    agent = Rover("rover/TwoRooms-v0", env_kwargs=one_hot, seed=0, **few, **settings)
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
    assert not model.operator.terminal.any()
    tolerance = 5e-3 * np.abs(wanted).max() if similarity > 0.0 else 1e-12
    np.testing.assert_allclose(taken, wanted, atol=tolerance)
