"""The optimiser against torch's own, and what it does with odd gradients."""

import copy
import sys

import pytest
import torch
from torch import Tensor, nn

from rover.errors import ConfigurationError, NonFiniteError
from rover.features import Optimizer


class Transposed(nn.Module):
    """Its gradient comes out of autograd in another memory layout than the parameter's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(12.0).view(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight.t()).square().mean()


@pytest.mark.slow  # torch.optim takes seconds to import
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_steps_are_those_of_adamw(weight_decay):
    module = Transposed()
    reference = copy.deepcopy(module)
    optimizer = Optimizer("x", {"m": module}, learning_rate=0.1, weight_decay=weight_decay)
    keys = optimizer.tensors().keys()
    adamw = torch.optim.AdamW(reference.parameters(), lr=0.1, weight_decay=weight_decay)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    for step in range(3):
        optimizer.learning_rate = adamw.param_groups[0]["lr"] = 0.1 / (1 + step)
        adamw.zero_grad()
        loss = reference(x)
        loss.backward()
        (norm,) = optimizer.backward(module(x)).tolist()
        assert norm == pytest.approx(reference.weight.grad.norm().item())
        assert optimizer.step(module(x)) == pytest.approx(loss.item())
        adamw.step()
        torch.testing.assert_close(module.weight, reference.weight)
    assert optimizer.tensors().keys() == keys
    assert int(optimizer.tensors()["n_updates"]) == 3


def test_what_is_frozen_or_without_gradient_stays_and_has_a_state():
    layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False))
    free = nn.Parameter(torch.ones(3))
    before = copy.deepcopy(layers.state_dict())
    optimizer = Optimizer("x", {"layers": layers, "free": free}, learning_rate=0.1)
    optimizer.step(layers(torch.ones(1, 2)).sum())
    tensors = optimizer.tensors()
    assert torch.equal(free, torch.ones(3))
    for name, tensor in before.items():
        assert torch.equal(tensors[f"layers.{name}"], tensor) == name.startswith("1.")
    assert "optimizer.exp_avg.free" in tensors
    assert "optimizer.exp_avg.layers.1.weight" not in tensors
    nothing = Optimizer("x", {"layers": layers.requires_grad_(False)}, learning_rate=0.1)
    assert nothing.step(torch.ones(())) == 1.0


def test_single_parameters_have_rates_of_their_own():
    """Adam's first step is its rate times the gradient's sign."""
    layer = nn.Linear(2, 1)
    before = copy.deepcopy(layer)
    optimizer = Optimizer("x", {"l": layer}, learning_rate=0.1, learning_rates={"l.bias": 0.5})
    optimizer.step(layer(torch.ones(1, 2)).sum())
    assert (before.weight - layer.weight).tolist() == [pytest.approx([0.1, 0.1])]
    assert (before.bias - layer.bias).item() == pytest.approx(0.5)


@pytest.mark.parametrize("factor", [torch.nan, torch.inf])
def test_an_update_that_is_not_finite_changes_nothing(factor):
    layer = nn.Linear(2, 1)
    optimizer = Optimizer("the density", {"l": layer}, learning_rate=0.1)
    before = {k: v.clone() for k, v in optimizer.tensors().items()}
    with pytest.raises(NonFiniteError, match="update 1 of the density has loss"):
        optimizer.step(factor * layer(torch.ones(1, 2)).square().sum())
    assert all(torch.equal(v, before[k]) for k, v in optimizer.tensors().items())


def test_parameters_may_lie_in_memory_in_any_order():
    weight = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    x = torch.arange(8.0).view(2, 1, 4)
    trained = []
    for layout in (weight.clone(), weight.transpose(1, 2).contiguous().transpose(1, 2)):
        parameter = nn.Parameter(layout)
        optimizer = Optimizer("x", {"p": parameter}, learning_rate=0.1, weight_decay=0.1)
        for _ in range(3):
            optimizer.step((x @ parameter.transpose(1, 2)).square().mean())
        trained.append(parameter.detach())
    assert trained[0].stride() != trained[1].stride()
    assert torch.equal(*trained)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, :2],
        lambda x: x[0].expand(3, 3),
        lambda x: x.as_strided((3, 3), (2, 2)),  # gaps and overlaps of the same size
    ],
)
def test_a_part_of_a_tensor_is_refused(view):
    """torch's fused kernel would read and write what lies between its elements."""
    module = nn.Module()
    module.weight = nn.Parameter(view(torch.ones(3, 3)))
    with pytest.raises(ConfigurationError, match=r"parameter m\.weight of x is part of a larger"):
        Optimizer("x", {"m": module}, learning_rate=0.1)


def test_moments_of_what_has_no_gradient_any_more_become_zero():
    """Denormal numbers, which they would be for hundreds of steps, are slow to compute with."""
    unit = nn.Parameter(torch.ones(1))
    optimizer = Optimizer("x", {"u": unit}, learning_rate=1e-3)
    optimizer.step(1e-30 * unit.sum())
    moment = optimizer.tensors()["optimizer.exp_avg.u"]
    steps = 0
    while float(moment) != 0.0:
        assert float(moment) >= torch.finfo(torch.float32).tiny
        optimizer.step(0.0 * unit.sum())
        steps += 1
    assert 150 < steps < 200  # 1e-31 times 0.9 to the power of 157 is 6e-39
    assert sys.float_info.min * torch.tensor(0.5, dtype=torch.float64).item() > 0.0
