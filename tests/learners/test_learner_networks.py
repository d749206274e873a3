"""Heads on features and skills; and a cache whose rows are what would have been computed."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_learners import ONE_HOT
from torch import Tensor

from rover.errors import RoverWarning
from rover.learners.networks import ParallelMLP, PolicyNetworkConfig, RowCache


def make_mlp() -> ParallelMLP:
    config = PolicyNetworkConfig(encoder=ONE_HOT, n_actions=3, hidden_sizes=(7,), skill_dim=2)
    return ParallelMLP(2, 5, config, output_gain=1.0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [4, 20])
def test_heads_are_perceptrons_on_features_and_skill_side_by_side(n: int) -> None:
    """With fewer and with more results than features, which are gathered as early as pays."""
    mlp, generator = make_mlp().double(), torch.Generator().manual_seed(1)
    features = torch.randn(9, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    skills = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    index = torch.randint(0, 9, (n,), generator=generator)
    assert mlp.skill_weights is not None
    expected = []
    for head in range(2):
        first = torch.cat([mlp.weights[0][head], mlp.skill_weights[head]], dim=1)
        hidden = torch.relu(torch.cat([features[index], skills], dim=1) @ first.T)
        expected.append(hidden @ mlp.weights[1][head].T)
    found, inputs = mlp(features, index, skills), [features, *mlp.weights]
    torch.testing.assert_close(found, torch.stack(expected))
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(torch.stack(expected).square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    assert not torch.equal(mlp.weights[0][0], mlp.weights[0][1])


GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = torch.randn(31, 17, generator=GENERATOR)


class Counted:
    """A product whose last digits depend on the number of rows, and how many rows it saw."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, observations: Tensor) -> Tensor:
        self.n += len(observations)
        return torch.relu(observations @ WEIGHTS)


def table_of(n: int, seed: int = 1) -> Tensor:
    return torch.randn(n, 31, generator=torch.Generator().manual_seed(seed))


ROW_BYTES = 4 * 17


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=40, unique=True), min_size=1),
    st.integers(0, 30),
)
def test_the_same_bits_whatever_was_seen_before(batches: list[list[int]], room: int) -> None:
    table, counted = table_of(100), Counted()
    large, small = RowCache(counted), RowCache(Counted(), max_bytes=room * ROW_BYTES)
    alone = RowCache(Counted())
    for batch in batches:
        rows = torch.tensor(batch)
        expected = alone(table[rows], None)
        assert torch.equal(large(table[rows], rows), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RoverWarning)
            assert torch.equal(small(table[rows], rows), expected)
    assert counted.n == len({row for batch in batches for row in batch})
    single = torch.cat([torch.relu(x[None].clone() @ WEIGHTS) for x in table[rows]])
    assert torch.equal(expected, single)


def test_a_full_memory_is_named_once() -> None:
    counted = Counted()
    cache, rows = RowCache(counted, max_bytes=4 * ROW_BYTES + 1), torch.arange(6)
    with pytest.warns(RoverWarning, match="features of 4 observations fill the 273 bytes"):
        cache(table_of(6), rows)
    cache(table_of(6), rows)  # a second warning would be an error
    assert counted.n == 6 + 2
    cache.clear()
    cache(table_of(6), rows)
    assert counted.n == 6 + 2 + 6
