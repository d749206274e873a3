"""What is handed over: a policy that needs no data, no model and no agent.

ROVER's policy is softmax(ρ(φ(x)) W) with the encoder φ that was current when it was planned. For a
linear kernel ρ(φ) = φ and W is (z, A); for any other kernel ρ(φ) = k(φ, basis) against the features
of the distinct states that the plan stood on. The buffer never travels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError, NonFiniteError
from rover.features import Encoder, EncoderSpec, make_encoder
from rover.features.encoders import as_tensor
from rover.operators.kernels import Kernel, kernel_parameters, make_kernel
from rover.storage import Tensors, write_tensors

POLICY_KIND = "policy"

Probs = Callable[[NDArray[Any]], NDArray[np.float64]]
"""Action probabilities (n, A) of raw observations (n, *shape)."""


class Policy(Protocol):
    """What a method hands over, and what evaluation needs of it.

    Attributes:
        details: what it was trained on.
    """

    details: dict[str, Any]

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        ...

    def probs(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Action probabilities (n, A) of raw observations (n, *shape)."""
        ...

    def tables(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """The stationary policies (K, n, A) of which each episode draws one, all equally likely."""
        ...

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The stationary policy that one episode follows."""
        ...

    def save(self, path: str | Path) -> None:
        """Write the policy to one file, atomically."""
        ...


class CoveragePolicy(nn.Module):
    """π(a|x) = softmax_a(ρ(φ(x)) W), a differentiable torch module.

    Args:
        encoder: maps observations (n, *shape) to features (n, z).
        kernel: the kernel of ρ; ignored when `basis` is None.
        basis: (u, z) float64 features that ρ compares with, or None for ρ(φ) = φ.
        weights: (q, A) float64, with q = u or q = z.
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    def __init__(
        self,
        encoder: Encoder,
        kernel: Kernel,
        basis: Tensor | None,
        weights: Tensor,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.kernel = kernel
        self.basis: Tensor | None
        # In one order of memory, so that a policy read from its file gives the same bits.
        self.register_buffer("basis", None if basis is None else basis.contiguous())
        self.weights = nn.Parameter(weights.contiguous())
        self.details = dict(details or {})

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return self.weights.shape[1]

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""
        return tuple(self.encoder.spec.observation_shape)

    def regressors(self, observations: Tensor) -> Tensor:
        """ρ(φ(x)), (n, q) float64, of raw observations (n, *shape)."""
        return self._regressors_from_features(self.encoder(observations).double())

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of float64 `regressors` (n, q)."""
        return regressors @ self.weights

    def logits_from_features(self, features: Tensor) -> Tensor:
        """Logits (n, A) of float64 `features` (n, z)."""
        return self.logits_from_regressors(self._regressors_from_features(features))

    def _regressors_from_features(self, features: Tensor) -> Tensor:
        return features if self.basis is None else self.kernel(features, self.basis)

    def forward(self, observations: Tensor) -> Tensor:
        """Logits (n, A), float64, of raw observations (n, *shape)."""
        return self.logits_from_regressors(self.regressors(observations))

    def probs(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """Action probabilities (n, A) of a batch of raw observations (n, *shape).

        Raises:
            ConfigurationError: observations of another shape than the policy was trained on.
            NonFiniteError: the logits are not finite.
        """
        batch = as_tensor(observations).to(self.weights.device)
        if tuple(batch.shape[1:]) != self.observation_shape or batch.ndim == 0:
            raise ConfigurationError(
                f"observations of shape {tuple(batch.shape)} do not fit a policy for batches of "
                f"(n, {', '.join(map(str, self.observation_shape))})"
            )
        with torch.no_grad():
            logits = self(batch)
            if not bool(torch.isfinite(logits).all()):
                raise NonFiniteError("the policy's logits are not finite: look at the observations")
            return torch.softmax(logits, dim=1).cpu().numpy()

    def tables(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Itself alone, (1, n, A)."""
        return self.probs(observations)[None]

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """Itself: every episode follows the one policy, and nothing is drawn."""
        return self.probs

    def act(self, observation: NDArray[Any] | int, rng: np.random.Generator) -> int:
        """One action sampled for one raw observation (*shape)."""
        probabilities = self.probs(np.asarray(observation)[None])[0]
        return int(rng.choice(self.n_actions, p=probabilities))

    def save(self, path: str | Path) -> None:
        """Write the policy to one safetensors file, atomically."""
        tensors = {f"encoder.{k}": v for k, v in self.encoder.state_dict().items()}
        tensors["weights"] = self.weights.detach()
        if self.basis is not None:
            tensors["basis"] = self.basis
        metadata = {
            "encoder": self.encoder.spec.model_dump(mode="json"),
            "kernel": {"name": self.kernel.name, **kernel_parameters(self.kernel)},
            "details": self.details,
        }
        write_tensors(Path(path), tensors, kind=POLICY_KIND, metadata=metadata)


def read_coverage_policy(stored: Tensors) -> CoveragePolicy:
    """The policy of a file that :meth:`CoveragePolicy.save` wrote.

    Raises:
        KeyError, RuntimeError, pydantic.ValidationError: it does not fit.
    """
    tensors, metadata = stored.tensors, stored.metadata
    encoder = make_encoder(
        EncoderSpec.model_validate(metadata["encoder"]), torch.Generator().manual_seed(0)
    )
    encoder.load_state_dict(
        {k.removeprefix("encoder."): v for k, v in tensors.items() if k.startswith("encoder.")}
    )
    encoder.eval()
    return CoveragePolicy(
        encoder,
        make_kernel(**metadata["kernel"]),
        tensors.get("basis"),
        tensors["weights"],
        metadata["details"],
    )
