"""Policies for contextual environments, with and without a memory of the episode."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.arrays import FloatArray
from rover.contexts.codes import ObservationCodes
from rover.contexts.explorer import ContextExplorer
from rover.contexts.memory import (
    LAMBDA,
    OPTIMISM,
    EpisodeMemory,
    ExplorationValueModel,
    action_inverses,
    fitted_iteration,
)
from rover.data import Buffer
from rover.features import as_tensor
from rover.policies.policy import Policy, Probs

_TEMPERATURE = 0.1  # temperature of the policy without a memory, in units of exploration values
_REWARD_SWEEPS = 30
_OF_CODES = tuple(part.name for part in fields(ObservationCodes))


class ContextPolicy(Policy):
    """Policy that heads for what is new to its episode, by exploration values of pretraining.

    It follows the plan on the graph of what the episode has shown, until :meth:`reset`: call it
    when an episode begins; roll-outs of this package do. `probs`, which have no memory, are
    softmax(values / temperature).

    Args:
        model: exploration values of observations.
        kept: κ of ``rover.contexts.memory``.
        observation_shape: shape of one observation.
    """

    file_type = "context"

    def __init__(
        self, model: ExplorationValueModel, kept: FloatArray, *, observation_shape: tuple[int, ...]
    ) -> None:
        super().__init__(model.weights.shape[1], observation_shape)
        self._model, self._kept = model, kept
        self._memory: EpisodeMemory | None = None

    @classmethod
    def of(cls, explorer: ContextExplorer, shape: tuple[int, ...]) -> Self | None:
        """The policy of an explorer's regression as it is now, for observations (*shape); None
        before the first one."""
        if explorer.model is None:
            return None
        model = copy.deepcopy(explorer.model)  # which later tries change
        return cls(model, explorer.kept, observation_shape=shape)

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape), without a memory."""
        features = self._model.codes(self._checked(observations).numpy())
        means = features @ self._model.weights
        values = self._model.values(means, self._model.sinks(features))
        return torch.from_numpy(values / _TEMPERATURE)

    def _checked(self, observations: NDArray[Any] | Tensor) -> Tensor:
        """A batch of observations (n, *shape) in the dtype of the codes, if it is one."""
        dtype = torch.from_numpy(self._model.codes.values).dtype
        return as_tensor(super()._checked(observations), dtype)

    def with_rewards(
        self, buffer: Buffer, earned: FloatArray, ends: FloatArray, discount: float
    ) -> ContextPolicy:
        """The policy that heads for a reward, too, by fitted value iteration.

        Values of the reward are Q_a(x) = φᵀ u_a, with the features of exploration values, and are
        added to the means of these.

        Args:
            buffer: transitions; the regression uses the first n ≥ 1.
            earned: their rewards (n,), at least 0 and not all 0.
            ends: (n,) 1 where the task ends, else 0.
            discount: γ in (0, 1).
        """
        actions, inputs, successors = (
            column[: len(earned)] for column in (buffer.actions, buffer.inputs, buffer.successors)
        )
        # No more rows than these transitions have: a product's last bits may depend on its size.
        n_observations = 1 + int(max(inputs.max(), successors.max()))
        features = self._model.codes(buffer.observations.rows[:n_observations])
        weights, targets = fitted_iteration(
            features,
            (inputs, actions, successors),
            action_inverses(features, inputs, actions, self.n_actions),
            # Never below 0: where nothing is predicted the exploration value decides alone.
            lambda weights: np.maximum((features @ weights).max(axis=1), 0.0),
            earned.astype(np.float32),
            (discount * (1.0 - ends)).astype(np.float32),
            sweeps=_REWARD_SWEEPS,
        )
        # The largest value is a full sink's, so that a reward that is paid again and again counts
        # no more.
        scale = np.float32(OPTIMISM / max(float(targets.max()), 1e-6))
        model = replace(self._model, weights=self._model.weights + scale * weights)
        changed = ContextPolicy(model, self._kept, observation_shape=self.observation_shape)
        changed.details = dict(self.details)
        return changed

    def reset(self) -> None:
        """Forget the episode: the next observation begins another one."""
        self._memory = None

    def choose(
        self, observation: NDArray[Any], rng: np.random.Generator, component: int | None = None
    ) -> int:
        """The number of an action for an observation, the next of the episode since `reset`."""
        self._memory = self._memory or self._begin()
        batch = self._checked(np.asarray(observation)[None])
        return self._memory.follow(batch.numpy()[0], self._kept, rng)

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The policy that one episode follows, from its first observation on."""
        # Ties from a generator of their own: how many are drawn depends on the episode.
        memory, ties = self._begin(), np.random.default_rng(rng.integers(2**63))

        def probs(observations: NDArray[Any]) -> FloatArray:
            (observation,) = self._checked(observations).numpy()
            return np.eye(self.n_actions)[[memory.follow(observation, self._kept, ties)]]

        return probs

    def _begin(self) -> EpisodeMemory:
        return EpisodeMemory(self.n_actions, self._model)

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        model, codes = self._model, self._model.codes
        tables = {name: getattr(codes, name) for name in _OF_CODES}
        tables |= {"inverses": model.inverses, "weights": model.weights, "kept": self._kept}
        return {
            "observation_shape": list(self.observation_shape),
            "ridge": LAMBDA,
            "optimism": OPTIMISM,
            "has_memory": True,
            "tables": {name: torch.from_numpy(table) for name, table in tables.items()},
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        stored = content["tables"]
        shape = tuple(int(length) for length in content["observation_shape"])
        tables = {name: table.numpy() for name, table in stored.items()}
        codes = ObservationCodes(**{name: tables[name] for name in _OF_CODES})
        return cls(
            ExplorationValueModel(codes, tables["inverses"], tables["weights"]),
            tables["kept"],
            observation_shape=shape,
        )
