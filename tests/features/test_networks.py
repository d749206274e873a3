"""Losses, AdamW and sparse convolution against torch."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from rover.errors import NonFiniteError
from rover.features import ActionPredictor, AdamW, convolution, info_nce_loss


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


def layers() -> nn.Sequential:
    """Two layers and one that is frozen, with weights of a seed."""
    made = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Linear(1, 1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    made[3].requires_grad_(False)
    return made


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def test_steps_are_those_of_torch_with_single_rates_and_the_state_has_its_names_from_the_start():
    ours, theirs = layers(), layers()
    rates = {"2.bias": 0.5}
    optimizer = AdamW("x", ours, 0.1, weight_decay=0.1, learning_rates=rates)
    names = optimizer.tensors().keys()
    others = [parameter for name, parameter in theirs[:3].named_parameters() if name != "2.bias"]
    apart = {"params": [theirs[2].bias], "lr": 0.5, "weight_decay": 0.0}
    reference = torch.optim.AdamW([{"params": others}, apart], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        loss = theirs(X).square().mean()
        reference.zero_grad()
        loss.backward()
        reference.step()
        assert optimizer.descend(ours(X).square().mean())["loss"] == pytest.approx(loss.item())
        for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(found, expected)
    assert optimizer.n_updates == 3
    assert optimizer.tensors().keys() == names >= {"3.bias", "optimizer.exp_avg.0.weight"}
    assert "optimizer.exp_avg.3.bias" not in names


@pytest.mark.parametrize("factor", [torch.nan, torch.inf])
def test_an_update_that_is_not_finite_changes_nothing(factor):
    module = layers()
    optimizer = AdamW("the density", module, 0.1)
    before = {name: tensor.clone() for name, tensor in optimizer.tensors().items()}
    with pytest.raises(NonFiniteError, match=r"update 1 of the density has .*loss.*now 0\.1"):
        optimizer.descend(factor * module(X).square().sum())
    assert all(torch.equal(tensor, before[k]) for k, tensor in optimizer.tensors().items())


def test_moments_without_a_gradient_become_zero_and_not_denormal():
    """Denormal numbers, which they would be for hundreds of steps, are slow to compute with."""
    unit = nn.ParameterDict({"u": nn.Parameter(torch.ones(1))})
    optimizer = AdamW("x", unit, 1e-3)
    optimizer.descend(1e-30 * unit["u"].sum())
    moment, steps = optimizer.tensors()["optimizer.exp_avg.u"], 0
    while float(moment) != 0.0:
        assert float(moment) >= torch.finfo(torch.float32).tiny
        optimizer.descend(0.0 * unit["u"].sum())
        steps += 1
    assert 150 < steps < 200  # 1e-31 times 0.9 to the power of 157 is 6e-39


def _images(
    seed: int, n: int, height: int, width: int, channels: int, changed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of one random image with ``changed`` random pixels replaced in each."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randint(0, 256, (height, width, channels), generator=generator, dtype=torch.uint8)
    images = base.repeat(n, 1, 1, 1)
    for image in images:
        for _ in range(changed):
            y = int(torch.randint(height, (), generator=generator))
            x = int(torch.randint(width, (), generator=generator))
            image[y, x] = torch.randint(0, 256, (channels,), generator=generator, dtype=torch.uint8)
    return images, base.float()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(
        st.integers(1, 3), st.integers(5, 20), st.integers(5, 20), st.sampled_from([1, 3])
    ),
    changed=st.integers(0, 4),
    kernel=st.integers(1, 4),
    strides=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_sparse_convolution_equals_the_ordinary_one(seed, shape, changed, kernel, strides):
    images, center = _images(seed, *shape, changed)
    generator = torch.Generator().manual_seed(seed)
    scale = 1.0 + torch.rand(center.shape, generator=generator)
    expected = ((images - center) / scale).permute(0, 3, 1, 2).double()
    padding = kernel // 2
    kernels = []
    for i, stride in enumerate(strides):
        fan_in = shape[-1] if i == 0 else 4
        kernels.append(torch.randn(4, kernel, kernel, fan_in, generator=generator))
        weight = kernels[-1].double().permute(0, 3, 1, 2)
        expected = F.relu(F.conv2d(expected, weight, stride=stride, padding=padding))
    result = convolution.convolved(images, center, scale, kernels, strides=strides, padding=padding)
    tolerance = 1e-5 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=tolerance)


def test_gradients_equal_those_of_the_ordinary_convolution(monkeypatch):
    images, center = _images(3, 4, 18, 15, 3, 3)
    scale = torch.full_like(center, 255.0)
    generator = torch.Generator().manual_seed(0)
    shapes = (5, 3, 3, 3), (6, 3, 3, 5)
    initial = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = []
    for fraction in (1.0, 0.0):  # sparse to the end, and dense from the beginning
        monkeypatch.setattr(convolution, "_DENSE_FRACTION", fraction)
        weights = [one.clone().requires_grad_() for one in initial]
        output = convolution.convolved(images, center, scale, weights, strides=(2, 2), padding=1)
        (output.square().sum() + output[:, 0].sum()).backward()
        gradients.append([weight.grad for weight in weights])
    for ours, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-5)
