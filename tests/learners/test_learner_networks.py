from __future__ import annotations

import pytest
import torch

from rover.learners.networks import ParallelMLP


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
def test_results_are_gathered_before_or_behind_the_first_layer(n: int) -> None:
    """With fewer and with more results than features."""
    mlp, generator = make_mlp(skill_dim=2).double(), torch.Generator().manual_seed(1)
    features = torch.randn(9, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    skills = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    index = torch.randint(0, 9, (n,), generator=generator)
    one_by_one = [mlp(features[i][None], None, z[None]) for i, z in zip(index, skills, strict=True)]
    found, expected = mlp(features, index, skills), torch.cat(one_by_one, dim=1)
    torch.testing.assert_close(found, expected)
    inputs = [features, *mlp.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(expected.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
