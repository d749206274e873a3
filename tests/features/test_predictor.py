from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from rover.errors import ConfigurationError
from rover.features import ActionPredictor, PredictorKind


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("n", [3, 40])
def test_prediction_is_the_matrix_of_the_action_times_the_features(
    kind: PredictorKind, n: int
) -> None:
    """Few rows are predicted by action and many all at once: both are W (φ(x) ⊗ e_a)."""
    predictor = ActionPredictor(6, 4, kind=kind, hidden_size=10, generator=_generator())
    features = torch.randn(5, 6, generator=_generator())
    inputs = torch.randint(5, (n,), generator=_generator())
    actions = torch.randint(3, (n,), generator=_generator())  # the last action never occurs
    psi = torch.einsum("nz,na->naz", features[inputs], F.one_hot(actions, 4).float())
    expected = torch.einsum("naz,zaw->nw", psi, predictor.weight)
    if predictor.output is not None:
        expected = F.relu(expected) @ predictor.output
    torch.testing.assert_close(predictor(features, inputs, actions), expected)


def test_both_ways_of_computing_agree_in_their_gradients() -> None:
    predictor = ActionPredictor(6, 4, generator=_generator())
    features = torch.randn(30, 6, generator=_generator())
    inputs, actions = torch.arange(12) % 5, torch.arange(12) % 4
    gradients = []
    for rows in (features[:5], features):
        predictor.zero_grad()
        predictor(rows, inputs, actions).square().sum().backward()
        assert predictor.weight.grad is not None
        gradients.append(predictor.weight.grad.clone())
    torch.testing.assert_close(*gradients)


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigurationError, match="predictor 'cubic' is unknown"):
        ActionPredictor(3, 2, kind="cubic", generator=_generator())  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="at least one feature, action"):
        ActionPredictor(3, 0, generator=_generator())
