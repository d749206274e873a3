import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rover.features import ActionPredictor, info_nce_loss, self_predictive_loss


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


def test_byol_is_the_squared_distance_of_normalised_vectors():
    generator = _generator(1)
    predicted, targets = (torch.randn(6, 5, generator=generator).double() for _ in range(2))
    counts = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 1.0]).double()

    def byol_loss(rows: Tensor) -> float:
        return self_predictive_loss(rows, targets, counts, normalized=True).item()

    cosine = F.cosine_similarity(predicted, targets)
    assert byol_loss(predicted) == pytest.approx(float((counts * (2 - 2 * cosine)).sum() / 9.0))
    assert byol_loss(2.0 * targets) == pytest.approx(0.0, abs=1e-12)
    assert byol_loss(-targets) == pytest.approx(4.0)


def test_self_predictive_is_the_mean_squared_distance_with_stopped_targets():
    generator = _generator(2)
    predicted = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(4, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    counts = torch.tensor([2.0, 1.0, 1.0, 4.0], dtype=torch.float64)
    loss = self_predictive_loss(predicted, targets, counts)
    expected = sum(
        float(c * (p - t).square().sum())
        for c, p, t in zip(counts, predicted.detach(), targets.detach(), strict=True)
    )
    assert loss.item() == pytest.approx(expected / 8.0)
    loss.backward()
    assert targets.grad is None
    torch.testing.assert_close(
        predicted.grad, (2.0 * counts[:, None] * (predicted - targets) / 8.0).detach()
    )


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
