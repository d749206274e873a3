"""The greedy policy of action values: what value-based learners hand over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import NonFiniteError
from rover.features import make_encoder
from rover.features.encoders import as_tensor
from rover.learners import PolicySpec, TwinCritics
from rover.policies.coverage import POLICY_KIND, Probs
from rover.storage import Tensors, write_tensors


class GreedyPolicy(nn.Module):
    """Takes the action with the greatest min(Q1, Q2)(x, ·); the first of several.

    Args:
        critics: the action values.
        spec: encoder, number of actions and hidden layers of `critics`.
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    def __init__(
        self, critics: TwinCritics, spec: PolicySpec, details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self.critics = critics
        self.spec = spec
        self.details: dict[str, Any] = dict(details or {})

    @property
    def n_actions(self) -> int:
        """Number of actions A."""
        return self.spec.n_actions

    def forward(self, observations: Tensor) -> Tensor:
        """Action values min(Q1, Q2) (n, A) of raw observations (n, *shape)."""
        q: Tensor = self.critics(observations)
        return q.amin(dim=0)

    def probs(self, observations: NDArray[Any] | Tensor) -> NDArray[np.float64]:
        """One-hot action probabilities (n, A) of raw observations (n, *shape).

        Raises:
            ConfigurationError: observations of another shape or dtype.
            NonFiniteError: values that are not finite.
        """
        with torch.no_grad():
            values = self(as_tensor(observations))
        if not bool(torch.isfinite(values).all()):
            raise NonFiniteError("the policy's values are not finite: look at the observations")
        chosen: NDArray[np.int64] = values.argmax(dim=1).cpu().numpy()
        return np.eye(self.n_actions, dtype=np.float64)[chosen]

    def tables(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Itself alone, (1, n, A)."""
        return self.probs(observations)[None]

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """Itself: every episode follows the one policy, and nothing is drawn."""
        return self.probs

    def act(self, observation: NDArray[Any] | int, rng: np.random.Generator) -> int:
        """The action on one raw observation (*shape); nothing is drawn."""
        return int(self.probs(np.asarray(observation)[None])[0].argmax())

    def save(self, path: str | Path) -> None:
        """Write the policy to one safetensors file, atomically."""
        tensors = {f"critics.{k}": v for k, v in self.critics.state_dict().items()}
        metadata = {"critics": self.spec.model_dump(mode="json"), "details": self.details}
        write_tensors(Path(path), tensors, kind=POLICY_KIND, metadata=metadata)


def read_greedy_policy(stored: Tensors) -> GreedyPolicy:
    """The policy of a file that :meth:`GreedyPolicy.save` wrote.

    Raises:
        KeyError, RuntimeError, ConfigurationError, pydantic.ValidationError: it does not fit.
    """
    spec = PolicySpec.model_validate(stored.metadata["critics"])
    blank = torch.Generator().manual_seed(0)
    critics = TwinCritics(
        make_encoder(spec.encoder, blank),
        n_actions=spec.n_actions,
        hidden_sizes=spec.hidden_sizes,
        generator=blank,
    )
    critics.load_state_dict({k.removeprefix("critics."): v for k, v in stored.tensors.items()})
    return GreedyPolicy(critics.eval(), spec, stored.metadata["details"])
