"""Adam (Kingma and Ba, 2015) over named parameters, with a state of named tensors.

Moments exist from the start and not from the first step, so that a checkpoint always has the same
keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from rover.learners.flat_parameters import FlatParameters

_MOMENTS = ("exp_avg", "exp_avg_sq")


class FlatAdam:
    """Adam over the parameters of networks of ours, which it lays end to end.

    Args:
        group: name of the step count in the state.
        parameters: float32, by name; they become views of one tensor, and so do their gradients.
        learning_rate: step size.

    Attributes:
        flat: values and gradients.
    """

    def __init__(
        self, group: str, parameters: Mapping[str, nn.Parameter], *, learning_rate: float
    ) -> None:
        self._group = group
        self.flat = FlatParameters(parameters)
        self._optimizer = _make_adam([(self.flat.flat, learning_rate)])

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the whole gradient."""
        norm: Tensor = torch.linalg.vector_norm(self.flat.grad)
        return norm

    def step(self) -> None:
        """Change the parameters by one step along their gradients."""
        self._optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Values, moments and step count, not copied."""
        tensors = self.flat.views(self.flat.flat.detach())
        state = self._optimizer.state[self.flat.flat]
        tensors[f"optimizer.step.{self._group}"] = state["step"]
        for moment in _MOMENTS:
            views = self.flat.views(state[moment])
            tensors.update((f"optimizer.{moment}.{name}", view) for name, view in views.items())
        return tensors


class ParameterAdam:
    """Adam over parameters that stay where they are, of any floating dtype: those of a user.

    Args:
        parameters: by name; there may be none.
        learning_rate: step size.
        learning_rates: other step sizes, by the name of the parameter.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        learning_rate: float,
        learning_rates: Mapping[str, float] | None = None,
    ) -> None:
        self._parameters = dict(parameters)
        for parameter in self._parameters.values():
            parameter.grad = torch.zeros_like(parameter)
        rates = learning_rates or {}
        groups = [(p, rates.get(name, learning_rate)) for name, p in self._parameters.items()]
        # Adam itself refuses an empty list.
        self._optimizer = _make_adam(groups) if groups else None

    def zero_grad(self) -> None:
        """Set all gradients to zero; they stay allocated."""
        for gradient in self._gradients():
            gradient.zero_()

    def grad_norm(self) -> Tensor:
        """Euclidean norm of the whole gradient; zero without parameters."""
        norms = [torch.linalg.vector_norm(gradient).float() for gradient in self._gradients()]
        return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())

    def _gradients(self) -> list[Tensor]:
        return [p.grad for p in self._parameters.values() if p.grad is not None]

    def step(self) -> None:
        """Change the parameters by one step along their gradients."""
        if self._optimizer is not None:
            self._optimizer.step()

    def tensors(self) -> dict[str, Tensor]:
        """Values, moments and step counts, not copied."""
        tensors: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            tensors[name] = parameter.detach()
            assert self._optimizer is not None
            state = self._optimizer.state[parameter]
            tensors.update((f"optimizer.{key}.{name}", state[key]) for key in ("step", *_MOMENTS))
        return tensors


def _make_adam(parameters: Sequence[tuple[nn.Parameter, float]]) -> torch.optim.Adam:
    """Adam over parameters, each with its step size."""
    groups = [{"params": [parameter], "lr": rate} for parameter, rate in parameters]
    optimizer = torch.optim.Adam(groups, fused=True)
    for parameter, _ in parameters:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer
