from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rover.errors import NonFiniteError
from rover.operators import (
    Dirac,
    Gaussian,
    Kernel,
    Support,
    TransitionModel,
    exact_support,
    fit_transition_model,
    merge_transitions,
)


def walk(seed: int, n: int = 80, n_states: int = 12, n_actions: int = 2) -> Support:
    rng = np.random.default_rng(seed)
    table = rng.integers(n_states, size=(n_states, n_actions))
    inputs, actions = rng.integers(n_states, size=n), rng.integers(n_actions, size=n)
    counts = merge_transitions(inputs, actions, table[inputs, actions])
    return exact_support(counts, np.zeros(1, np.int64), np.ones(1))


def features(seed: int, width: int = 5, n_states: int = 12) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n_states, width)))


def fit(
    support: Support,
    values: Tensor,
    kernel: Kernel | None = None,
    ridge: float = 0.1,
    n_actions: int = 2,
) -> TransitionModel:
    return fit_transition_model(
        values, support, kernel or Gaussian(0.5), n_actions=n_actions, ridge=ridge
    )


def test_dirac_shrinks_each_pair_alone() -> None:
    """P_a[x', x] = frequency · c / (c + λ), and λ / (c + λ) goes to the sink."""
    counts = merge_transitions(
        np.array([0, 0, 0, 0, 1]), np.array([0, 0, 0, 1, 0]), np.array([1, 1, 2, 0, 1])
    )
    support = exact_support(counts, np.zeros(1, np.int64), np.ones(1))
    model = fit(support, torch.eye(3).double(), Dirac(), ridge=0.5)
    expected = torch.zeros(2, 3, 3).double()
    expected[0, 1, 0], expected[0, 2, 0] = 2 / 3 * 3 / 3.5, 1 / 3 * 3 / 3.5
    expected[0, 1, 1] = expected[1, 0, 0] = 1 / 1.5
    assert torch.allclose(model.transition, expected, rtol=1e-14)
    assert float(model.transition.sum(dim=1).max()) <= 1.0  # no mass is created
    to_sink = torch.tensor([[0.5 / 3.5, 0.5 / 1.5], [0.5 / 1.5, 1.0], [1.0, 1.0]]).double()
    assert torch.allclose(model.residual(torch.eye(3).double()), to_sink, atol=1e-7)


def test_features_and_gram_matrices_that_are_not_finite_are_named() -> None:
    values = features(0)
    with pytest.raises(NonFiniteError, match="the features of the observations: 60 of 60"):
        fit(walk(0), values / 0.0)
    gram = Gaussian(0.5)(values, values)
    gram[2, 2] = float("inf")
    with pytest.raises(NonFiniteError, match="the ridge regression of action 0"):
        fit_transition_model(values, walk(0), Gaussian(0.5), n_actions=2, ridge=0.1, gram=gram)
