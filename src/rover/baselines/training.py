"""One gradient step with Adam, and states of networks that are saved and restored to the bit."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from rover.errors import NonFiniteError


class GradientSteps:
    """Adam over the parameters of some modules.

    Args:
        name: whose loss it is, for messages.
        modules: what to train, by name.
        learning_rate: step size of Adam.
    """

    def __init__(self, name: str, modules: Mapping[str, nn.Module], *, learning_rate: float):
        self.n_updates = torch.zeros((), dtype=torch.int64)
        self._name = name
        self._learning_rate = learning_rate
        self._modules = dict(modules)
        self._parameters = {
            f"{prefix}.{key}": parameter
            for prefix, module in modules.items()
            for key, parameter in module.named_parameters()
        }
        self._optimizer = torch.optim.Adam(
            list(self._parameters.values()), lr=learning_rate, fused=True
        )
        # Created here and not by the first step, so that a state always has the same keys.
        for parameter in self._parameters.values():
            self._optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }

    def step(self, loss: Tensor) -> float:
        """Take one step on a scalar loss and return its value before the step.

        Raises:
            NonFiniteError: the loss or its gradient is not finite; no weight was changed.
        """
        parameters = list(self._parameters.values())
        gradients = torch.autograd.grad(loss, parameters)
        value = loss.item()
        norm = float(torch.nn.utils.get_total_norm(gradients))
        if not (math.isfinite(value) and math.isfinite(norm)):
            raise NonFiniteError(
                f"update {int(self.n_updates) + 1} of {self._name} has loss {value} and gradient "
                f"norm {norm}: lower its learning rate (now {self._learning_rate}), and check "
                "that the observations are finite"
            )
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        self.n_updates += 1
        return value

    def tensors(self) -> dict[str, Tensor]:
        """Everything that training changes, under the names of a state; not copied."""
        tensors: dict[str, Tensor] = {"n_updates": self.n_updates}
        for prefix, module in self._modules.items():
            for key, tensor in module.state_dict(keep_vars=True).items():
                tensors[f"{prefix}.{key}"] = tensor
        for name, parameter in self._parameters.items():
            for moment, tensor in self._optimizer.state[parameter].items():
                tensors[f"optimizer.{moment}.{name}"] = tensor
        return tensors


def finite(reward: Tensor, *, name: str) -> Tensor:
    """The reward as float32, once it is known to be finite.

    Raises:
        NonFiniteError: NaN or infinity among the rewards.
    """
    reward = reward.to(torch.float32)
    if not bool(torch.isfinite(reward).all()):
        raise NonFiniteError(
            f"{name} gave {int((~torch.isfinite(reward)).sum())} of {len(reward)} rewards that are "
            "not finite: check that the observations are finite, and lower its learning rate"
        )
    return reward


def make_linear(
    fan_in: int, fan_out: int, *, generator: torch.Generator, bias: bool = True
) -> nn.Linear:
    """A linear layer with orthogonal weights of gain √2 and zero bias."""
    # Built without values, so that the global random state is neither read nor moved.
    layer = nn.Linear(fan_in, fan_out, bias=bias, device="meta").to_empty(device="cpu")
    nn.init.orthogonal_(layer.weight, gain=math.sqrt(2.0), generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer
