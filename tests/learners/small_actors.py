"""Actors and encoders to start a learner from, built by hand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from small_batches import N_ACTIONS, ONE_HOT, VECTORS, make_observations
from torch import Tensor, nn

from rover.features import Encoder, EncoderSpec, make_encoder
from rover.learners import PolicySpec, make_policy_network
from rover.operators import make_kernel
from rover.policies.coverage import CoveragePolicy


def pretrained_encoder(spec: EncoderSpec = ONE_HOT, *, frozen: bool = True) -> Encoder:
    """A deep encoder of vectors with features of width 6."""
    deep = spec.model_copy(update={"hidden_sizes": (12,), "feature_dim": 6, "normalization": "l2"})
    encoder = make_encoder(deep, torch.Generator().manual_seed(3))
    return encoder.frozen() if frozen else encoder


def coverage_policy(spec: EncoderSpec = ONE_HOT, *, frozen: bool = True) -> CoveragePolicy:
    encoder = pretrained_encoder(spec, frozen=frozen)
    with torch.no_grad():
        basis = encoder(make_observations(spec, 7)).double()
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(7, N_ACTIONS, dtype=torch.float64, generator=generator)
    return CoveragePolicy(encoder, make_kernel("gaussian", bandwidth=0.5), basis, weights)


class Partly(nn.Module):
    """Two layers, of which only the second learns."""

    def __init__(self) -> None:
        super().__init__()
        self.below = nn.Linear(9, 5).requires_grad_(False)
        self.above = nn.Linear(5, N_ACTIONS)

    def forward(self, observations: Tensor) -> Tensor:
        logits: Tensor = self.above(torch.tanh(self.below(observations)))
        return logits


def drawn(module: nn.Module) -> nn.Module:
    """The module with weights from a seed of its own."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


def network() -> nn.Module:
    spec = PolicySpec(encoder=ONE_HOT, n_actions=N_ACTIONS, hidden_sizes=(8,))
    return drawn(make_policy_network(spec, torch.Generator()))


ACTORS: dict[str, tuple[EncoderSpec, Callable[[], nn.Module]]] = {
    "coverage policy": (ONE_HOT, coverage_policy),
    "coverage policy, its encoder learns": (ONE_HOT, lambda: coverage_policy(frozen=False)),
    "coverage policy of vectors": (VECTORS, lambda: coverage_policy(VECTORS)),
    "linear": (ONE_HOT, lambda: drawn(nn.Linear(9, N_ACTIONS))),
    "linear in float64": (VECTORS, lambda: drawn(nn.Linear(4, N_ACTIONS).double())),
    "partly frozen": (ONE_HOT, lambda: drawn(Partly())),
    "network": (ONE_HOT, network),
}
