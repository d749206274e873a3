from __future__ import annotations

import pytest
import torch
from torch import nn

from rover.errors import ConfigurationError
from rover.learners import ParallelMLP, PolicySpec, learner_encoder_spec, make_policy_network
from rover.learners.flat_parameters import FlatParameters


def make_mlp(*, skill_dim: int = 0) -> ParallelMLP:
    return ParallelMLP(
        2,
        5,
        skill_dim=skill_dim,
        hidden_sizes=(7,),
        output_dim=3,
        output_gain=1.0,
        generator=torch.Generator().manual_seed(0),
    )


def test_heads_are_perceptrons_on_features_and_skill_side_by_side() -> None:
    mlp, generator = make_mlp(skill_dim=2), torch.Generator().manual_seed(1)
    features, skills = (torch.randn(6, d, generator=generator) for d in (5, 2))
    index = torch.tensor([3, 3, 0, 5, 1, 2])
    assert mlp.skill_weights is not None
    for head in range(2):
        first = torch.cat([mlp.weights[0][head], mlp.skill_weights[head]], dim=1)
        hidden = torch.relu(torch.cat([features[index], skills], dim=1) @ first.T)
        expected = hidden @ mlp.weights[1][head].T
        torch.testing.assert_close(mlp(features, index, skills)[head], expected)
    assert not torch.equal(mlp.weights[0][0], mlp.weights[0][1])


@pytest.mark.parametrize("n", [4, 20])
def test_the_derivative_is_that_of_autograd(n: int) -> None:
    """With fewer and with more results than features, which are gathered at different places."""
    mlp, generator = make_mlp(skill_dim=2).double(), torch.Generator().manual_seed(1)
    features = torch.randn(9, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    skills = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    index = torch.randint(0, 9, (n,), generator=generator)
    gradient = torch.randn(2, n, 3, dtype=torch.float64, generator=generator)
    parameters = list(mlp.parameters())
    expected = torch.autograd.grad(mlp(features, index, skills), [features, *parameters], gradient)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, torch.nan)  # overwritten, not added to
    found = mlp.backward(mlp.activations(features, index, skills), gradient)
    torch.testing.assert_close(found, expected[0])
    for parameter, wanted in zip(parameters, expected[1:], strict=True):
        torch.testing.assert_close(parameter.grad, wanted)


def test_a_network_that_was_not_laid_out_is_not_differentiated() -> None:
    mlp = make_mlp()
    with pytest.raises(ConfigurationError, match="lay its parameters out with FlatParameters"):
        mlp.backward(mlp.activations(torch.zeros(4, 5)), torch.zeros(2, 4, 3))


def test_skills_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"needs skills of shape \(4, 2\) .* none"):
        make_mlp(skill_dim=2)(torch.zeros(4, 5))
    with pytest.raises(ConfigurationError, match=r"needs skills of shape \(4, 2\) .* \(4, 3\)"):
        make_mlp(skill_dim=2)(torch.zeros(4, 5), None, torch.zeros(4, 3))
    with pytest.raises(ConfigurationError, match="to a network without skills"):
        make_mlp()(torch.zeros(4, 5), None, torch.zeros(4, 3))


def test_the_same_generator_gives_the_same_policy() -> None:
    encoder = learner_encoder_spec((), observation_dtype="int64", n_states=5, width=8)
    spec = PolicySpec(encoder=encoder, n_actions=2, hidden_sizes=(4,))
    first, second = (make_policy_network(spec, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first(torch.arange(5)), second(torch.arange(5)))


def test_encoders_by_observation() -> None:
    images = learner_encoder_spec((84, 84, 3), observation_dtype="uint8", width=64)
    assert (images.kind, images.normalization, images.output_relu) == ("conv", "none", True)
    one_hot = learner_encoder_spec((9,), observation_dtype="float32", one_hot=True, width=64)
    vectors = learner_encoder_spec((9,), observation_dtype="float32", width=64)
    for spec, bias in ((one_hot, False), (vectors, True)):
        assert (spec.kind, spec.hidden_sizes, spec.feature_dim) == ("mlp", (), 64)
        assert (spec.normalization, spec.output_relu, spec.bias) == ("none", True, bias)


def test_flat_parameters_share_memory_with_the_modules() -> None:
    layer = nn.Linear(3, 2)
    values = layer.weight.detach().clone()
    flat = FlatParameters(dict(layer.named_parameters()))
    assert torch.equal(layer.weight, values)
    layer(torch.ones(1, 3)).sum().backward()
    assert torch.equal(flat.views(flat.grad)["weight"], torch.ones(2, 3))
    assert float(flat.grad.sum()) == 8.0  # six weights, two biases, nothing between them
    with torch.no_grad():
        flat.flat.fill_(2.0)
    assert (layer.weight == 2.0).all()
    assert (layer.bias == 2.0).all()
