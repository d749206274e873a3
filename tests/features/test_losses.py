from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rover.features import (
    byol_loss,
    info_nce_loss,
    next_state_counts,
    self_predictive_loss,
)


def _plain_info_nce(predicted: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """The paper's loss on a batch of transitions, duplicates and all (eq. l_nce)."""
    logits = F.normalize(predicted, dim=1) @ F.normalize(targets, dim=1).T / temperature
    return -logits.log_softmax(dim=1).diagonal().mean()


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(1, 12),
    m=st.integers(1, 6),
    temperature=st.sampled_from([0.02, 0.05, 0.5, 1.0]),
)
def test_info_nce_on_merged_rows_equals_the_batch_of_duplicates(
    seed: int, n: int, m: int, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    predicted = torch.randn(n, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(m, 7, generator=generator, dtype=torch.float64)
    positive = torch.randint(m, (n,), generator=generator)
    counts = torch.randint(1, 5, (n,), generator=generator)
    weights = counts.double()
    merged = info_nce_loss(
        predicted,
        targets,
        positive,
        weights,
        next_state_counts(positive, weights, m),
        temperature=temperature,
    )
    rows = torch.repeat_interleave(torch.arange(n), counts)
    plain = _plain_info_nce(predicted[rows], targets[positive[rows]], temperature)
    assert merged.item() == pytest.approx(plain.item(), abs=1e-9)
    (gradient,) = torch.autograd.grad(merged, predicted, retain_graph=True)
    (expected,) = torch.autograd.grad(plain, predicted)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-9)


def test_info_nce_equality_holds_to_1e_6_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted, targets = (torch.randn(k, 32, generator=generator) for k in (200, 60))
    positive = torch.randint(60, (200,), generator=generator)
    counts = torch.randint(1, 6, (200,), generator=generator)
    rows = torch.repeat_interleave(torch.arange(200), counts)
    plain = _plain_info_nce(predicted[rows].double(), targets[positive[rows]].double(), 0.05)
    merged = info_nce_loss(
        predicted,
        targets,
        positive,
        counts.float(),
        next_state_counts(positive, counts.float(), 60),
        temperature=0.05,
    )
    assert merged.item() == pytest.approx(plain.item(), rel=1e-6)


def test_info_nce_closed_forms() -> None:
    """Equal features: log of the batch size; orthogonal ones: log(1 + (B − 1) e^{−1/τ})."""
    ones = torch.ones(8, dtype=torch.float64)
    same = torch.ones(8, 3, dtype=torch.float64)
    index = torch.arange(8)
    loss = info_nce_loss(same, same, index, ones, ones, temperature=0.1)
    assert loss.item() == pytest.approx(math.log(8), abs=1e-12)
    eye = torch.eye(8, dtype=torch.float64)
    loss = info_nce_loss(3.0 * eye, eye, index, ones, ones, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(1 + 7 * math.exp(-2.0)), abs=1e-12)


def test_targets_without_count_are_no_negatives() -> None:
    generator = torch.Generator().manual_seed(0)
    predicted = torch.randn(3, 4, generator=generator, requires_grad=True)
    targets = torch.randn(5, 4, generator=generator)
    positive, counts = torch.tensor([0, 1, 1]), torch.ones(3)
    full = info_nce_loss(
        predicted,
        targets,
        positive,
        counts,
        next_state_counts(positive, counts, 5),
        temperature=0.1,
    )
    short = info_nce_loss(
        predicted, targets[:2], positive, counts, torch.tensor([1.0, 2.0]), temperature=0.1
    )
    assert full.item() == pytest.approx(short.item(), abs=1e-6)
    (gradient,) = torch.autograd.grad(full, predicted)
    assert torch.isfinite(gradient).all()


def test_byol_is_the_squared_distance_of_normalised_vectors() -> None:
    generator = torch.Generator().manual_seed(1)
    predicted, targets = (torch.randn(6, 5, generator=generator).double() for _ in range(2))
    counts = torch.tensor([1.0, 2.0, 1.0, 3.0, 1.0, 1.0]).double()
    rows = torch.repeat_interleave(torch.arange(6), counts.long())
    distance = (F.normalize(predicted, dim=1) - F.normalize(targets, dim=1))[rows]
    expected = distance.square().sum(dim=1).mean()
    assert byol_loss(predicted, targets, counts).item() == pytest.approx(expected.item())
    assert byol_loss(2.0 * targets, targets, counts).item() == pytest.approx(0.0, abs=1e-12)
    assert byol_loss(-targets, targets, counts).item() == pytest.approx(4.0)


def test_self_predictive_is_the_mean_squared_distance_with_stopped_targets() -> None:
    generator = torch.Generator().manual_seed(2)
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


def test_next_state_counts() -> None:
    counts = next_state_counts(torch.tensor([2, 0, 2]), torch.tensor([1.0, 5.0, 2.0]), 4)
    assert counts.tolist() == [5.0, 0.0, 3.0, 0.0]
