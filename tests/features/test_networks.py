import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rover.features import ActionPredictor, info_nce_loss


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _plain_info_nce(predicted: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """The paper's loss on a batch of transitions, duplicates and all (eq. l_nce)."""
    logits = F.normalize(predicted, dim=1) @ F.normalize(targets, dim=1).T / temperature
    return -logits.log_softmax(dim=1).diagonal().mean()


@settings(max_examples=50)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(1, 12),
    m=st.integers(1, 6),
    temperature=st.sampled_from([0.02, 0.05, 0.5, 1.0]),
)
def test_info_nce_on_merged_rows_equals_the_batch_of_duplicates(seed, n, m, temperature):
    generator = _generator(seed)
    predicted = torch.randn(n, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(m, 7, generator=generator, dtype=torch.float64)
    positive = torch.randint(m, (n,), generator=generator)
    counts = torch.randint(1, 5, (n,), generator=generator)
    weights = counts.double()
    merged = info_nce_loss(predicted, targets, positive, weights, temperature=temperature)
    rows = torch.repeat_interleave(torch.arange(n), counts)
    plain = _plain_info_nce(predicted[rows], targets[positive[rows]], temperature)
    assert merged.item() == pytest.approx(plain.item(), abs=1e-9)
    (gradient,) = torch.autograd.grad(merged, predicted, retain_graph=True)
    (expected,) = torch.autograd.grad(plain, predicted)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "two_layer", "silu"])
@pytest.mark.parametrize("n", [3, 40])
def test_prediction_is_the_matrix_of_the_action_times_the_features(kind, n):
    """Few rows are predicted by action and many all at once: both are W (φ(x) ⊗ e_a)."""
    predictor = ActionPredictor(6, 4, kind=kind, generator=_generator())
    features = torch.randn(5, 6, generator=_generator())
    inputs = torch.randint(5, (n,), generator=_generator())
    actions = torch.randint(3, (n,), generator=_generator())  # the last action never occurs
    psi = torch.einsum("nz,na->naz", features[inputs], F.one_hot(actions, 4).float())
    expected = torch.einsum("naz,zaw->nw", psi, predictor.weight)
    if predictor.output is not None:
        hidden = F.silu(expected) if kind == "silu" else expected
        expected = hidden @ predictor.output
    torch.testing.assert_close(predictor(features, inputs, actions), expected)
