"""ROVER's policy, and policies that are tabulated on the observations of a buffer."""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.data import ObservationTable
from rover.data.table import name_of
from rover.errors import ArtefactError, require_finite
from rover.features import Encoder, EncoderConfig, Observations, make_encoder
from rover.features.networks import as_stored
from rover.operators import Kernel, make_kernel
from rover.operators.kernels import KERNELS
from rover.policies.policy import Policy

# Up to so many known observations the policy is tabulated on all of them at once.
_TABLE_ROWS = 256


class PlannedPolicy(Policy):
    """π(a|x) = softmax_a(ρ(x) W), with regressors ρ(x) of an observation.

    Args:
        weights: W, (q, A) float64.
        observation_shape: shape of one observation.
        epsilon: share of uniform actions in it, in [0, 1): (1 − ε) π(a|x) + ε / A.
    """

    covers_by_draws = True

    def __init__(
        self,
        weights: Tensor,
        observation_shape: tuple[int, ...],
        epsilon: float,
    ) -> None:
        super().__init__(weights.shape[1], observation_shape)
        self.epsilon = epsilon
        # In one order of memory, so that a policy read from its file gives the same bits.
        self.weights = nn.Parameter(weights.contiguous())

    @abstractmethod
    def regressors(self, observations: Tensor) -> Tensor:
        """ρ(x), (n, q), of raw observations (n, *shape)."""

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of float64 `regressors` (n, q)."""
        return regressors @ self.weights

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A), float64, of raw observations (n, *shape)."""
        logits = self.logits_from_regressors(self.regressors(observations))
        if self.epsilon == 0.0:
            return logits
        # Uniform actions are mixed into probabilities; no shift of logits does the same at every
        # state.
        probs = torch.softmax(logits, dim=1)
        # Logits are free up to a constant: the logarithms of the mixed probabilities are some.
        return torch.log((1.0 - self.epsilon) * probs + self.epsilon / self.n_actions)


class StatePolicy(PlannedPolicy):
    """π(a|x) = softmax_a(W_x) of exact states: a row of logits for each, all alike elsewhere.

    Args:
        form: of the observations.
        names: (N, 16) uint8 that identify states, as of :func:`rover.data.table.name_of`.
        weights: (N, A) float64 logits.
        epsilon: as of :class:`PlannedPolicy`.
    """

    file_type = "states"

    def __init__(
        self,
        form: Observations,
        names: NDArray[np.uint8],
        weights: Tensor,
        *,
        epsilon: float = 0.0,
    ) -> None:
        super().__init__(weights, form.shape, epsilon)
        self.form, self.names = form, names
        self._dtype = getattr(torch, form.dtype)
        self._rows = {name.tobytes(): row for row, name in enumerate(names)}

    def regressors(self, observations: Tensor) -> Tensor:
        """The row of W (n, 1) of each observation (n, *shape), N of an unknown one."""
        batch = as_stored(observations, self.observation_shape, self._dtype)
        rows = batch.detach().cpu().numpy() + 0  # zeros of either sign are the same
        index = [self._rows.get(name_of(row), len(self._rows)) for row in rows]
        return torch.tensor(index, dtype=torch.int64, device=self.weights.device)[:, None]

    def logits_from_regressors(self, regressors: Tensor) -> Tensor:
        """Logits (n, A) of rows of W (n, 1)."""
        rows, logits = regressors[:, 0], self.weights.new_zeros(len(regressors), self.n_actions)
        is_known = rows < len(self.weights)  # and not the whole table for each action
        logits[is_known] = self.weights[rows[is_known]]
        return logits

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        names, weights, form = content["names"], content["weights"], dict(content["form"])
        if names.shape != (len(weights), 16) or names.dtype != np.uint8:
            raise ArtefactError(f"{names.shape} of {names.dtype} are no names of {len(weights)}")
        form["shape"] = tuple(form["shape"])
        return cls(Observations(**form), names, weights, epsilon=float(content["epsilon"]))

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        form = asdict(self.form) | {"shape": list(self.form.shape)}
        weights = self.weights.detach()
        return {"form": form, "names": self.names, "weights": weights, "epsilon": self.epsilon}


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


class TabulatedPolicy:
    """π(·|x) on the rows of a table, kept until :meth:`forget`.

    One evaluation on all that is known costs little more than one on a single observation, as long
    as there are few and they are no images.

    Args:
        table: the observations.
        logits: (n, A) of observations (n, *shape) of the table and their rows (n,), ascending.
    """

    def __init__(self, table: ObservationTable, logits: Callable[[Tensor, Tensor], Tensor]) -> None:
        self._table = table
        self._logits = logits
        # Cumulative probabilities by observation: a draw is one bisection.
        self._entries: dict[int, list[float]] = {}

    def forget(self) -> None:
        """The policy has changed."""
        self._entries = {}

    def sample(self, observation: int, rng: np.random.Generator) -> int:
        """An action drawn from π(·|x), x in row `observation` of the table."""
        if observation not in self._entries:
            rows = self._table.rows
            is_image = len(self._table.shape) == 3
            # Just after the policy has changed, a small table is evaluated whole.
            at_once = not self._entries and len(rows) <= _TABLE_ROWS and not is_image
            wanted = np.arange(len(rows)) if at_once else np.array([observation])
            with torch.no_grad():
                logits = self._logits(torch.from_numpy(rows[wanted]), torch.from_numpy(wanted))
            require_finite(logits, "the policy's logits", "look at the observations")
            sums = torch.softmax(logits.double(), dim=1).cumsum(dim=1)
            self._entries.update(zip(wanted.tolist(), sums.tolist(), strict=True))
        cumulative = self._entries[observation]
        # The last sum may miss 1 by a rounding error.
        return bisect_right(cumulative, rng.random() * cumulative[-1])
