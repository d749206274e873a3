"""AdamW: torch's steps, a state by names, and no step where a number is not finite."""

import pytest
import torch
from torch import nn

from rover.errors import NonFiniteError
from rover.features import AdamW


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
        assert optimizer.descend(ours(X).square().mean()) == pytest.approx(loss.item())
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
    with pytest.raises(NonFiniteError, match=r"update 1 of the density has loss .*now 0\.1"):
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
