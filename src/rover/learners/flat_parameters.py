"""Parameters laid end to end in one tensor.

A network of a hundred units is trained at the pace of calls, not of arithmetic. With all its
parameters in one tensor, zeroing gradients, an Adam step, a gradient norm and a target update are
one call each, whatever the number of layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_ALIGNMENT = 16  # floats: 64 bytes, a cache line


class FlatParameters:
    """Moves parameters into one tensor, of which each becomes a view; so do their gradients.

    Args:
        parameters: float32, by name; they stay leaves that modules own.

    Attributes:
        flat: (p,) all values as one leaf with a gradient, for an optimizer. Between parameters
            there are a few zeros for alignment, whose gradient stays zero.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._layout: dict[str, tuple[int, torch.Size]] = {}
        total = 0
        for name, parameter in parameters.items():
            self._layout[name] = (total, parameter.shape)
            total += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        self.flat = nn.Parameter(torch.zeros(total))
        self.grad = torch.zeros(total)
        self.flat.grad = self.grad
        values, grads = self.views(self.flat.detach()), self.views(self.grad)
        with torch.no_grad():
            for name, parameter in parameters.items():
                values[name].copy_(parameter)
                parameter.data = values[name]
                parameter.grad = grads[name]

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """A tensor of the same layout (values, gradients, moments) by parameter, not copied."""
        return {
            name: flat[begin : begin + shape.numel()].view(shape)
            for name, (begin, shape) in self._layout.items()
        }
