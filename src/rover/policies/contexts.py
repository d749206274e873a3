"""Policies for worlds that change with every episode, with and without a memory of the episode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.operators.support import FloatArray
from rover.planning.episode import EpisodeMemory
from rover.planning.observation_codes import Array32, ObservationCodes
from rover.planning.prices import PriceModel
from rover.policies.policy import Policy, Probs

TABLES = (
    *("numbers", "values", "means", "projection", "relevant", "joint"),
    *("inverses", "weights", "kept"),
)
_TIE = 1e-9


class ContextPolicy(Policy):
    """Heads for what is new to its episode, by prices from all episodes of pretraining.

    Without a memory it is stationary, softmax(prices / temperature). With one it notes what an
    episode has shown, and follows the plan on the graph of that, which :meth:`reset` forgets:
    call it when an episode begins. Roll-outs of this package, which draw a component for each
    episode, do. Asked for the probabilities at an observation that no episode is said of, it
    answers as without its memory.

    Args:
        tables: by the names of :data:`TABLES`: ``numbers``, ``values``, ``means``,
            ``projection``, ``relevant`` and ``joint`` of
            :class:`~rover.planning.observation_codes.ObservationCodes`;
            ``inverses`` (A, m, m) and ``weights`` (m, A) of
            :class:`~rover.planning.prices.PriceModel`; ``kept`` κ of
            :class:`~rover.planning.episode_graph.EpisodeGraph`.
        observation_shape: shape of one observation.
        ridge, optimism: of the prices.
        discount: γ of plans.
        temperature: > 0, in units of prices.
        has_memory: follow the plan of the episode.
        details: anything JSON-able that should travel with the policy (environment, seed, …).
    """

    file_type = "context"

    def __init__(
        self,
        tables: Mapping[str, Tensor],
        *,
        observation_shape: tuple[int, ...],
        ridge: float,
        optimism: float,
        discount: float,
        temperature: float,
        has_memory: bool,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(tables["weights"].shape[1], observation_shape, details=details)
        for name in TABLES:
            self.register_buffer(name, tables[name].contiguous())
        self.ridge, self.optimism = ridge, optimism
        self.discount, self.temperature, self.has_memory = discount, temperature, has_memory
        arrays = {name: tables[name].numpy() for name in TABLES}
        self._codes = ObservationCodes(
            arrays["numbers"],
            arrays["values"],
            arrays["means"],
            arrays["projection"],
            arrays["relevant"],
            arrays["joint"],
            width=len(arrays["joint"]),
        )
        self._model = PriceModel(
            arrays["inverses"], arrays["weights"], ridge=ridge, optimism=optimism
        )
        self._kept: FloatArray = arrays["kept"]
        self._walk: _Walk | None = None

    def component_logits(self, observations: Tensor, component: int = 0) -> Tensor:
        """Logits (n, A) of raw observations (n, *shape), without a memory."""
        features = self._codes(observations.numpy())
        prices = self._model.prices(self._model.means(features), self._model.sinks(features))
        return torch.from_numpy(prices / self.temperature)

    def with_memory(self, has_memory: bool) -> ContextPolicy:
        """The policy with or without a memory, on the same prices."""
        tables = {name: getattr(self, name) for name in TABLES}
        return ContextPolicy(tables, **{**self._settings(), "has_memory": has_memory})

    def features(self, observations: NDArray[Any]) -> Array32:
        """φ (n, m) of raw observations (n, *shape)."""
        return self._codes(observations)

    def with_worth(self, weights: Array32) -> ContextPolicy:
        """The policy with a memory for which φᵀ weights (m, A) is added to the prices' means."""
        tables = {name: getattr(self, name) for name in TABLES}
        tables["weights"] = tables["weights"] + torch.from_numpy(weights)
        settings = {**self._settings(), "has_memory": True, "details": self.details}
        return ContextPolicy(tables, **settings)

    def reset(self) -> None:
        """Forget the episode: the next observation begins another one."""
        self._walk = None

    def act(
        self,
        observation: NDArray[Any] | int,
        rng: np.random.Generator,
        component: int | None = None,
    ) -> int:
        """One action for one raw observation (*shape), the next of the episode since `reset`."""
        if not self.has_memory:
            return super().act(observation, rng, component)
        self._walk = self._walk or self._begin()
        batch = self._checked(np.asarray(observation)[None])
        return self._walk.act(batch.numpy()[0], rng)

    def sample_component(self, rng: np.random.Generator) -> Probs:
        """The policy that one episode follows, from its first observation on."""
        if not self.has_memory:
            return super().sample_component(rng)
        walk, ties = self._begin(), np.random.default_rng(rng.integers(2**63))

        def probs(observations: NDArray[Any]) -> FloatArray:
            (observation,) = observations
            return np.eye(self.n_actions)[[walk.act(observation, ties)]]

        return probs

    def _begin(self) -> _Walk:
        memory = EpisodeMemory(
            self.n_actions, discount=self.discount, codes=self._codes, model=self._model
        )
        return _Walk(memory, self._kept)

    def _settings(self) -> dict[str, Any]:
        return {
            "observation_shape": self.observation_shape,
            "ridge": self.ridge,
            "optimism": self.optimism,
            "discount": self.discount,
            "temperature": self.temperature,
            "has_memory": self.has_memory,
        }

    def content(self) -> dict[str, Any]:
        """Content of the policy's file, beside its details."""
        tables = {name: getattr(self, name) for name in TABLES}
        shape = list(self.observation_shape)
        return {**self._settings(), "observation_shape": shape, "tables": tables}


class _Walk:
    """An episode in progress, and the plan that is followed through it."""

    def __init__(self, memory: EpisodeMemory, kept: FloatArray) -> None:
        self._memory, self._kept = memory, kept
        self._action = -1
        self._values: FloatArray | None = None

    def act(self, observation: NDArray[Any], rng: np.random.Generator) -> int:
        """The action at the next observation of the episode; ties are drawn."""
        memory = self._memory
        node, is_new = memory.see(np.ascontiguousarray(observation))
        if memory.node >= 0:
            is_first = memory.graph.tries[memory.node, self._action] == 0
            is_plan_off = memory.graph.add(memory.node, self._action, node)
            if is_new or is_first or is_plan_off:
                self._values = None
        memory.node = node
        if self._values is None:
            self._values = memory.values(self._kept)
        values = self._values[node]
        self._action = int(rng.choice(np.flatnonzero(values >= values.max() - _TIE)))
        return self._action


def context_policy(
    codes: ObservationCodes,
    model: PriceModel,
    kept: FloatArray,
    *,
    observation_shape: tuple[int, ...],
    discount: float,
    temperature: float,
    has_memory: bool,
) -> ContextPolicy:
    """The policy of a regression, a copy that no later step changes.

    Args:
        codes: features of observations; what they have spare is left out.
        model: the regression.
        kept: κ.
        observation_shape, discount, temperature, has_memory: of :class:`ContextPolicy`.
    """
    joint = codes.joint
    used = codes.dim - codes.width + len(joint)
    tables = {
        "numbers": codes.numbers,
        "values": codes.values,
        "means": codes.means,
        "projection": codes.projection,
        "relevant": codes.relevant,
        "joint": joint,
        "inverses": model.inverses[:, :used, :used],
        "weights": model.weights[:used],
        "kept": kept,
    }
    return ContextPolicy(
        {name: torch.from_numpy(np.array(table)) for name, table in tables.items()},
        observation_shape=observation_shape,
        ridge=model.ridge,
        optimism=model.optimism,
        discount=discount,
        temperature=temperature,
        has_memory=has_memory,
    )
