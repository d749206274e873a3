"""Memory of one episode: its graph, and the price of every action at what was seen in it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.operators.support import FloatArray
from rover.planning.episode_graph import EpisodeGraph, grown
from rover.planning.exploration_values import ExplorationValueModel
from rover.planning.observation_codes import Array32, ObservationCodes


class EpisodeMemory:
    """Memory of what an episode has shown, priced by a regression over all episodes before it.

    Args:
        n_actions: A.
        discount: γ of the plan.
        codes: features of observations; None while there are no prices.
        model: prices of untried actions; None: every action is worth 1.

    Attributes:
        graph: the nodes, tries and outcomes.
        node: where the episode stands.
    """

    def __init__(
        self,
        n_actions: int,
        *,
        discount: float,
        codes: ObservationCodes | None,
        model: ExplorationValueModel | None,
    ) -> None:
        self.graph = EpisodeGraph(n_actions, discount=discount)
        self.node = -1
        self._codes, self._model = codes, model
        self._nodes: dict[bytes, int] = {}
        width = 0 if codes is None else codes.dim
        self._features: Array32 = np.zeros((1, width), np.float32)
        self._means: Array32 = np.zeros((1, n_actions), np.float32)
        self._sinks: Array32 = np.ones((1, n_actions), np.float32)

    def see(self, observation: NDArray[Any], *, extend: bool = False) -> tuple[int, bool]:
        """The node of an observation (*shape), and whether it is new to the episode."""
        key = observation.tobytes()
        node = self._nodes.get(key)
        if node is not None:
            return node, False
        node = self._nodes[key] = self.graph.add_node()
        if node == len(self._features):
            for name in ("_features", "_means", "_sinks"):
                setattr(self, name, grown(getattr(self, name)))
        if self._codes is not None:
            self._set(slice(node, node + 1), self._codes(observation[None], extend=extend))
        return node, True

    def renew(
        self, codes: ObservationCodes, model: ExplorationValueModel, observations: NDArray[Any]
    ) -> None:
        """Price the nodes, with observations (n, *shape), by another model."""
        self._codes, self._model = codes, model
        self._features = np.zeros((len(self._means), codes.dim), np.float32)
        self._set(slice(self.graph.n), codes(observations, extend=True))

    def _set(self, nodes: slice, features: Array32) -> None:
        assert self._model is not None
        self._features[nodes] = features
        self._means[nodes] = self._model.means(features)
        self._sinks[nodes] = self._model.sinks(features)

    def features(self, node: int) -> Array32:
        """φ (m,) of a node."""
        return np.asarray(self._features[node])

    def exploration_values(self, node: int) -> FloatArray:
        """Exploration values (A,) of the actions at a node."""
        assert self._model is not None
        return self._model.values(self._means[node], self._sinks[node])

    def learn(self, node: int, action: int, worth: float) -> None:
        """Let the regression take in what a try was worth; prices of all nodes follow."""
        assert self._model is not None
        n = self.graph.n
        known = (self._features[:n], self._means[:n], self._sinks[:n])
        self._model.learn(self._features[node], action, worth, *known)

    def values(self, kept: FloatArray) -> FloatArray:
        """Q (n, A) of a plan on the graph, with κ (MAX_TRIES + 1,)."""
        assert self._model is not None
        n = self.graph.n
        return self.graph.values(self._model.values(self._means[:n], self._sinks[:n]), kept)
