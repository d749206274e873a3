"""ROVER's policy between states, with an encoder of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from rover.features import Encoder, EncoderConfig, make_encoder
from rover.operators import Kernel, make_kernel
from rover.operators.kernels import KERNELS
from rover.policies.policy import PlannedPolicy


class CoveragePolicy(PlannedPolicy):
    """ROVER's policy between states, π(a|x) = softmax_a(ρ(φ(x)) W), with its own frozen encoder φ.

    For a linear kernel ρ(φ) = φ and W is (z, A); for any other kernel ρ(φ) = k(φ, basis) against
    the features of the distinct states that the plan stood on. The buffer never travels.

    Args:
        encoder: maps observations (n, *shape) to features (n, z).
        kernel: the kernel of ρ; ignored when `basis` is None.
        basis: (u, z) float64 features that ρ compares with, or None for ρ(φ) = φ.
        weights: (q, A) float64, with q = u or q = z.
        epsilon: share of uniform actions in it, in [0, 1): (1 − ε) π(a|x) + ε / A.
    """

    file_type = "coverage"

    def __init__(
        self,
        encoder: Encoder,
        kernel: Kernel,
        basis: Tensor | None,
        weights: Tensor,
        *,
        epsilon: float = 0.0,
    ) -> None:
        super().__init__(weights, encoder.config.observation_shape, epsilon)
        self.encoder = encoder
        self.kernel = kernel
        self.basis: Tensor | None
        self.register_buffer("basis", None if basis is None else basis.contiguous())

    def regressors(self, observations: Tensor) -> Tensor:
        """ρ(φ(x)), (n, q) float64, of raw observations (n, *shape)."""
        features: Tensor = self.encoder(observations.to(self.weights.device)).double()
        return features if self.basis is None else self.kernel(features, self.basis)

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned, with the parts that are the user's own."""
        encoder, kernel = _stored_encoder(content, own_parts["encoder"]), own_parts["kernel"]
        if kernel is None or content["kernel"]["name"] != "custom":
            kernel = make_kernel(**content["kernel"])
        epsilon = float(content.get("epsilon", 0.0))  # files of version 0.2 do not say it
        return cls(encoder, kernel, content["basis"], content["weights"], epsilon=epsilon)

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        return {
            "encoder": self.encoder.config.model_dump(mode="json"),
            "encoder_weights": self.encoder.state_dict(),
            "kernel": _stored(self.kernel),
            "basis": self.basis,
            "weights": self.weights.detach(),
            "epsilon": self.epsilon,
        }


def _stored_encoder(content: Mapping[str, Any], module: nn.Module | None = None) -> Encoder:
    """The frozen encoder in the content of a policy; `module`: the user's own module."""
    config = EncoderConfig.model_validate(content["encoder"])
    encoder = make_encoder(config, torch.Generator(), module=module)
    encoder.load_state_dict(content["encoder_weights"])
    return encoder.eval()


def _stored(kernel: Kernel) -> dict[str, Any]:
    """Name and parameters of a kernel; "custom" for an object of the user's."""
    if type(kernel) not in KERNELS.values():
        # Nothing that a file names is imported, so code of a user never goes into one.
        return {"name": "custom"}
    return {"name": kernel.name, **asdict(cast(Any, kernel))}
