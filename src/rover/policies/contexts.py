"""Policies for contextual environments, with and without a memory of the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.contexts.codes import Array32, ObservationCodes
from rover.contexts.exploration_values import ExplorationValueModel
from rover.contexts.graph import MAX_TRIES
from rover.contexts.image_blocks import n_numbers
from rover.contexts.memory import EpisodeMemory
from rover.features.networks import cast_observations
from rover.operators.support import FloatArray
from rover.policies.policy import Policy, Probs
from rover.storage import check_tensors

_FORMS = {
    "numbers": "torch.int64 values",
    "values": "{dtype} values",
    "means": "torch.float32 values",
    "projection": "torch.float32 values directions",
    "relevant": "torch.int64 relevant",
    "joint": "{dtype} joint relevant",
    "inverses": "torch.float32 actions features features",
    "weights": "torch.float32 features actions",
    "kept": f"torch.float64 {MAX_TRIES + 1}",
}
_OF_CODES = ("numbers", "values", "means", "projection", "relevant", "joint")


class ContextPolicy(Policy):
    """Heads for what is new to its episode, by exploration values from all episodes of pretraining.

    Without a memory it is stationary, softmax(values / temperature). With one it notes what an
    episode has shown, and follows the plan on the graph of that, which :meth:`reset` forgets:
    call it when an episode begins. Roll-outs of this package, which draw a component for each
    episode, do. Asked for the probabilities at an observation that no episode is said of, it
    answers as without its memory.

    Args:
        codes: features of observations.
        model: exploration values of features.
        kept: κ of :class:`~rover.contexts.graph.EpisodeGraph`.
        observation_shape: shape of one observation.
        discount: γ of plans.
        temperature: > 0, in units of values.
        has_memory: follow the plan of the episode.
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    file_type = "context"

    def __init__(
        self,
        codes: ObservationCodes,
        model: ExplorationValueModel,
        kept: FloatArray,
        *,
        observation_shape: tuple[int, ...],
        discount: float,
        temperature: float,
        has_memory: bool,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(model.weights.shape[1], observation_shape, details=details)
        self._codes, self._model, self._kept = codes, model, kept
        self.discount, self.temperature, self.has_memory = discount, temperature, has_memory
        self._walk: _Walk | None = None

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape), without a memory."""
        features = self._codes(self._checked(observations).numpy())
        values = self._model.values(self._model.means(features), self._model.sinks(features))
        return torch.from_numpy(values / self.temperature)

    def _checked(self, observations: NDArray[Any] | Tensor) -> Tensor:
        """A batch of observations (n, *shape) in the dtype of the codes, if it is one."""
        dtype = torch.from_numpy(self._codes.values).dtype
        return cast_observations(super()._checked(observations), dtype)

    def with_memory(self, has_memory: bool) -> ContextPolicy:
        """The policy with or without a memory, with the same exploration values."""
        return self._changed(self._model, has_memory, {})

    def features(self, observations: NDArray[Any]) -> Array32:
        """φ (n, m) of raw observations (n, *shape)."""
        return self._codes(observations)

    def with_values(self, weights: Array32) -> ContextPolicy:
        """The policy with a memory that adds φᵀ weights (m, A) to the means of its values."""
        model = self._model
        raised = ExplorationValueModel(
            model.inverses, model.weights + weights, ridge=model.ridge, optimism=model.optimism
        )
        return self._changed(raised, True, self.details)

    def _changed(
        self, model: ExplorationValueModel, has_memory: bool, details: Mapping[str, Any]
    ) -> ContextPolicy:
        return ContextPolicy(
            self._codes,
            model,
            self._kept,
            observation_shape=self.observation_shape,
            discount=self.discount,
            temperature=self.temperature,
            has_memory=has_memory,
            details=details,
        )

    def reset(self) -> None:
        """Forget the episode: the next observation begins another one."""
        self._walk = None

    def choose(
        self, observation: NDArray[Any], rng: np.random.Generator, component: int | None = None
    ) -> int:
        """The number of an action for an observation, the next of the episode since `reset`."""
        if not self.has_memory:
            return super().choose(observation, rng, component)
        self._walk = self._walk or self._begin()
        batch = self._checked(np.asarray(observation)[None])
        return self._walk.act(batch.numpy()[0], rng)

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The policy that one episode follows, from its first observation on."""
        if not self.has_memory:
            return super().sample_component(rng)
        # Ties from a generator of their own: how many are drawn depends on the episode.
        walk, ties = self._begin(), np.random.default_rng(rng.integers(2**63))

        def probs(observations: NDArray[Any]) -> FloatArray:
            (observation,) = observations
            return np.eye(self.n_actions)[
                [walk.act(self._checked(observation[None]).numpy()[0], ties)]
            ]

        return probs

    def _begin(self) -> _Walk:
        memory = EpisodeMemory(
            self.n_actions, discount=self.discount, codes=self._codes, model=self._model
        )
        return _Walk(memory, self._kept)

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        codes, model = self._codes, self._model
        tables = {name: getattr(codes, name) for name in _OF_CODES}
        tables |= {"inverses": model.inverses, "weights": model.weights, "kept": self._kept}
        return {
            "observation_shape": list(self.observation_shape),
            "ridge": model.ridge,
            "optimism": model.optimism,
            "discount": self.discount,
            "temperature": self.temperature,
            "has_memory": self.has_memory,
            "block_side": codes.side,
            "tables": {name: torch.from_numpy(table) for name, table in tables.items()},
        }

    @classmethod
    def from_content(cls, content: Mapping[str, Any], **own_parts: Any) -> Self:
        """Read what :meth:`content` returned."""
        stored = content["tables"]
        shape = tuple(int(length) for length in content["observation_shape"])
        dtype = stored["values"].dtype  # the observations' too
        forms = {name: form.format(dtype=dtype) for name, form in _FORMS.items()}
        sizes = check_tensors(stored, forms, owner="the policy")
        if sizes["features"] != 1 + sizes["directions"] + sizes["joint"] or sizes["actions"] < 1:
            raise ValueError("its features do not fit its codes, or it has no actions")
        side = int(content.get("block_side", 0))
        if side < 0 or (side > 0 and len(shape) not in (2, 3)):
            raise ValueError("it sees blocks of what is no picture")
        places, n_seen = torch.cat([stored["numbers"], stored["relevant"]]), n_numbers(shape, side)
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < n_seen:
            raise ValueError("it reads numbers that its observations do not have")
        discount, temperature = float(content["discount"]), float(content["temperature"])
        if not (0.0 < discount < 1.0 and temperature > 0.0):
            raise ValueError("its discount or temperature is out of range")
        tables = {name: table.numpy() for name, table in stored.items()}
        ridge, optimism = float(content["ridge"]), float(content["optimism"])
        return cls(
            ObservationCodes(**{k: tables[k] for k in _OF_CODES}, width=sizes["joint"], side=side),
            ExplorationValueModel(
                tables["inverses"], tables["weights"], ridge=ridge, optimism=optimism
            ),
            tables["kept"],
            observation_shape=shape,
            discount=discount,
            temperature=temperature,
            has_memory=bool(content["has_memory"]),
        )


class _Walk:
    """An episode in progress, and the plan that is followed through it."""

    def __init__(self, memory: EpisodeMemory, kept: FloatArray) -> None:
        self._memory, self._kept = memory, kept
        self._action = -1

    def act(self, observation: NDArray[Any], rng: np.random.Generator) -> int:
        """The action at the next observation of the episode; ties are drawn."""
        memory = self._memory
        node, is_new = memory.see(np.ascontiguousarray(observation))
        if memory.node >= 0:
            memory.move(self._action, node, is_new=is_new)
        else:
            memory.node = node
        self._action = memory.act(self._kept, rng)
        return self._action
