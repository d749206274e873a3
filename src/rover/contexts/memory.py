"""Memory of one episode: its graph, the exploration values of its nodes, and the plan on it.

    Q(x, a) = max( κ_n(x, a) q_a(x),  γ Σ_x' P̂(x' | x, a) max Q(x') )

with the exploration value q_a of an untried action and the share κ_n ≤ 1 of it that remains for an
n-th try of the same pair: 0 where observations are states, more where states look alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.contexts.codes import Array32
from rover.contexts.exploration_values import ExplorationValueModel
from rover.world.values import iterate

TIE = 1e-9
"""Value up to which two actions are equal."""


class Graph(NamedTuple):
    """Settings of an episode's graph and of the plan on it.

    Attributes:
        discount: γ of the plan.
        most_tries: of a pair, from which on they count as alike.
        outcomes: different ones of a pair that are stored.
        recent: weight of the latest outcome: in an episode nothing is tried often.
        tolerance: of value iteration.
    """

    discount: float = 0.97
    most_tries: int = 5
    outcomes: int = 4
    recent: float = 0.5
    tolerance: float = 1e-3


GRAPH = Graph()


class EpisodeMemory:
    """Observations of an episode as the nodes of a graph, and a plan that heads for new ones.

    Exploration values are a regression over all episodes before.

    Args:
        n_actions: A.
        model: exploration values of untried actions; None while there is no regression.
        discount: γ of the plan.

    Attributes:
        n: number of nodes.
        node: the current one; −1 before the first.
    """

    def __init__(
        self,
        n_actions: int,
        model: ExplorationValueModel | None = None,
        *,
        discount: float = GRAPH.discount,
    ) -> None:
        self.n, self.node, self._action = 0, -1, -1
        self._model, self._discount = model, discount
        self._plan: FloatArray | None = None  # Q (n, A)
        self._numbers: dict[bytes, int] = {}
        self._observations: list[NDArray[Any]] = []
        shape = (1, n_actions)
        self._tries: IntArray = np.zeros(shape, np.int64)
        self._to: IntArray = np.zeros((*shape, GRAPH.outcomes), np.int64)
        self._shares: FloatArray = np.zeros((*shape, GRAPH.outcomes))
        self._features: Array32 = np.zeros(
            (1, 0 if model is None else len(model.weights)), np.float32
        )
        self._means, self._sinks = np.zeros((2, *shape), np.float32)

    @property
    def tries(self) -> IntArray:
        """Tries (n, A) of every pair."""
        return self._tries[: self.n]

    def add_node(self) -> int:
        """The number of a new node."""
        if self.n == len(self._tries):
            # As many rows of zeros behind.
            for name in ("_tries", "_to", "_shares", "_features", "_means", "_sinks"):
                table = getattr(self, name)
                setattr(self, name, np.concatenate([table, np.zeros_like(table)]))
        self.n += 1
        return self.n - 1

    def see(self, observation: NDArray[Any]) -> tuple[int, bool]:
        """The node of an observation (*shape), and whether it is new to the episode."""
        key = observation.tobytes()
        node = self._numbers.get(key)
        if node is not None:
            return node, False
        node = self._numbers[key] = self.add_node()
        self._observations.append(observation.copy())
        if self._model is not None:
            self._set(self._model, slice(node, node + 1), observation[None])
        return node, True

    def renew(self, model: ExplorationValueModel) -> Array32:
        """Take another regression; the features (n, m) of the nodes."""
        self._model, self._plan = model, None
        self._features = np.zeros((len(self._means), len(model.weights)), np.float32)
        self._set(model, slice(self.n), np.stack(self._observations))
        return self._features[: self.n]

    def _set(self, model: ExplorationValueModel, nodes: slice, observations: NDArray[Any]) -> None:
        self._features[nodes] = features = model.codes(observations)
        self._means[nodes], self._sinks[nodes] = model.means(features), model.sinks(features)

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
        known = (self._features[: self.n], self._means[: self.n], self._sinks[: self.n])
        self._model.learn(self._features[node], action, target, *known)

    def add(self, node: int, action: int, successor: int | None) -> bool:
        """Add a try that led to a node, or to the episode's end; True if a plan changes."""
        self._tries[node, action] += 1
        to, shares = self._to[node, action], self._shares[node, action]
        if successor is None:
            shares[:] = 0.0
            return True
        if self._tries[node, action] == 1:
            to[0], shares[0] = successor, 1.0
            return True
        shares *= 1.0 - GRAPH.recent
        same = np.flatnonzero((to == successor) & (shares > 0.0))
        slot = int(same[0]) if len(same) else int(shares.argmin())
        if not len(same):
            to[slot], shares[slot] = successor, 0.0
        shares[slot] += GRAPH.recent
        shares /= shares.sum()
        return bool(shares[slot] < 1.0)

    def values(self, exploration: FloatArray, kept: FloatArray) -> FloatArray:
        """Q (n, A) of a plan with exploration values q (n, A) and κ (n + 1,) of n-th tries."""
        untried = exploration * kept[np.minimum(self.tries, GRAPH.most_tries)]
        # The first outcome is the only one in most pairs, and all of it in most episodes.
        width = 1 + int(np.flatnonzero(self._shares[: self.n].any(axis=(0, 1))).max(initial=0))
        to = np.ascontiguousarray(self._to[: self.n, :, :width])
        shares = self._discount * self._shares[: self.n, :, :width]

        def backup(values: FloatArray) -> FloatArray:
            return np.asarray(np.maximum(untried, (shares * values[to]).sum(axis=2)))

        return iterate(backup, np.zeros(self.n), tolerance=GRAPH.tolerance).actions

    def move(self, action: int, node: int, *, is_new: bool, ends: bool = False) -> None:
        """Add an action that led from the current node to another, or ended the episode.

        The plan holds while the episode shows nothing unexpected.
        """
        is_first = self.tries[self.node, action] == 0
        changes = self.add(self.node, action, None if ends else node)
        if is_new or is_first or changes:
            self._plan = None
        self.node = node

    def act(self, kept: FloatArray, rng: np.random.Generator) -> int:
        """The action with the largest value at the current node; ties are drawn.

        Without a regression it is the one that was tried least.

        Args:
            kept: κ (n + 1,) of n-th tries.
            rng: draws one of equal actions.
        """
        if self._model is None:
            tries = self.tries[self.node]
            return int(rng.choice(np.flatnonzero(tries == tries.min())))
        if self._plan is None:
            values = self._model.values(self._means[: self.n], self._sinks[: self.n])
            self._plan = self.values(values, kept)
        values = self._plan[self.node]
        return int(rng.choice(np.flatnonzero(values >= values.max() - TIE)))

    def follow(self, observation: NDArray[Any], kept: FloatArray, rng: np.random.Generator) -> int:
        """The action at the next observation (*shape) of an episode that :meth:`act` acts in."""
        node, is_new = self.see(observation)
        if self.node >= 0:
            self.move(self._action, node, is_new=is_new)
        self.node = node
        self._action = self.act(kept, rng)
        return self._action
