"""Memory of one episode: its graph, the exploration values of its nodes, and the plan on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.contexts.codes import Array32, ObservationCodes
from rover.contexts.exploration_values import ExplorationValueModel
from rover.contexts.graph import EpisodeGraph, grown
from rover.operators.support import FloatArray

TIE = 1e-9
"""Value up to which two actions are equal."""


class EpisodeMemory:
    """Memory of what an episode has shown, and a plan on it that heads for what is new.

    Exploration values are a regression over all episodes before.

    Args:
        n_actions: A.
        discount: γ of the plan.
        codes: features of observations; None while there is no regression.
        model: exploration values of untried actions; None: there is no plan yet.

    Attributes:
        graph: the nodes, tries and outcomes.
        node: the current one; −1 before the first.
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
        self._plan: FloatArray | None = None  # Q (n, A)
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
        """Take another regression for the nodes, with observations (n, *shape)."""
        self._codes, self._model, self._plan = codes, model, None
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

    def learn(self, node: int, action: int, target: float) -> None:
        """Update the regression with the target of a try, and the values of all nodes."""
        assert self._model is not None
        n = self.graph.n
        known = (self._features[:n], self._means[:n], self._sinks[:n])
        self._model.learn(self._features[node], action, target, *known)

    def move(self, action: int, node: int, *, is_new: bool, ends: bool = False) -> None:
        """Take in an action that led from the current node to another, or ended the episode.

        The plan holds while the episode shows nothing unexpected.
        """
        is_first = self.graph.tries[self.node, action] == 0
        changes = self.graph.add(self.node, action, None if ends else node)
        if is_new or is_first or changes:
            self._plan = None
        self.node = node

    def act(self, kept: FloatArray, rng: np.random.Generator) -> int:
        """The action with the largest value at the current node; ties are drawn.

        Without a regression it is the one that was tried least.

        Args:
            kept: κ (MAX_TRIES + 1,) of :class:`~rover.contexts.graph.EpisodeGraph`.
            rng: draws one of equal actions.
        """
        if self._model is None:
            tries = self.graph.tries[self.node]
            return int(rng.choice(np.flatnonzero(tries == tries.min())))
        if self._plan is None:
            n = self.graph.n
            values = self._model.values(self._means[:n], self._sinks[:n])
            self._plan = self.graph.values(values, kept)
        values = self._plan[self.node]
        return int(rng.choice(np.flatnonzero(values >= values.max() - TIE)))
