"""A kernel that is not the package's."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RationalQuadratic:
    """(1 + ‖x − y‖² / (2 a ℓ²))^(−a) of Rasmussen & Williams (2006), eq. 4.19: a user's own."""

    shape: float
    length: float
    name: str = "rational quadratic"

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        squares = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2
        return (1.0 + squares / (2.0 * self.shape * self.length**2)) ** -self.shape

    def diagonal(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x))
