"""Memory of one episode: its graph, the exploration values of its nodes, and the plan on it.

    Q(x, a) = max( κ_n(x, a) q_a(x),  γ Σ_x' P̂(x' | x, a) max Q(x') )

with the exploration value q_a of an untried action and the share κ_n ≤ 1 of it that remains for an
n-th try of the same pair: 0 where observations are states, more where states look alike.

Exploration values are a closed-form regression over all episodes, with a sink:

    w_a = G_a⁻¹ Σ φ y,   G_a = λ I + Σ φ φᵀ,   s_a(φ) = k(o, o) − φᵀ (I − λ G_a⁻¹) φ

is kernel ridge regression of the targets of tries of an action, with its posterior variance in the
sink: 1 where nothing alike was tried and λ / (n + λ) after n tries of the same. A try is added by
one step of Sherman and Morrison (1950), to the regression and to the values of any number of
observations at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sger

from rover.arrays import FloatArray, IntArray
from rover.contexts.codes import Array32, ObservationCodes
from rover.operators.values import TIE, iterate

# 0.1 opens no more doors, and left one policy of DoorKey at .55; 1 opens fewer.
LAMBDA = 0.3
"""λ of regressions."""
# 1 in MultiRoom-N6 and 2 in KeyCorridor were no better beyond the noise of the seeds.
OPTIMISM = 3.0
"""Exploration value of a full sink; values are at most about as large."""


def ridge_inverse(features: Array32, ridge: float) -> Array32:
    """(λ I + Σ φ φᵀ)⁻¹ (m, m) of features (n, m)."""
    gram = (features.T @ features).astype(np.float64)
    gram[np.diag_indices(len(gram))] += ridge
    return np.asarray(np.linalg.inv(gram), np.float32)


def fold_in(inverse: Array32, features: Array32) -> tuple[Array32, float]:
    """Add φ φᵀ for one φ (m,) to the matrix G with the inverse (m, m), which is changed in place:
    G⁻¹ φ (m,) and 1 + φᵀ G⁻¹ φ, both before."""
    direction = inverse @ features
    scale = 1.0 + float(features @ direction)
    # In place, without a matrix for the product: the view of a symmetric matrix is in BLAS's order.
    sger(-1.0 / scale, direction, direction, a=inverse.T, overwrite_a=1)
    return direction, scale


def leverage(inverse: Array32, features: Array32) -> Array32:
    """φᵀ G⁻¹ φ (n,) of features (n, m)."""
    return np.asarray(np.einsum("nm,nm->n", features @ inverse, features))


def action_inverses(
    features: Array32, before: IntArray, actions: IntArray, n_actions: int
) -> Array32:
    """G_a⁻¹ (A, m, m) of tries (n,) by the observations, with features (N, m), that they begin
    in."""
    tried = (features[before[actions == action]] for action in range(n_actions))
    return np.stack([ridge_inverse(phi, LAMBDA) for phi in tried])


def fitted_iteration(
    features: Array32,
    tries: tuple[IntArray, IntArray, IntArray],
    inverses: Array32,
    values: Callable[[Array32], NDArray[np.floating]],
    rewards: Array32,
    onward: Array32,
    *,
    sweeps: int,
) -> tuple[Array32, Array32]:
    """Fitted value iteration with the targets y = r + β v(x') of n tries, by one regression for
    each action: weights (m, A), and the targets (n,) that they were fitted to.

    Observations have features φ (N, m); a try begins in one, with an action, and leads to another;
    values v (N,) follow from weights, and β is `onward`.
    """
    before, actions, after = tries
    rows = [np.flatnonzero(actions == action) for action in range(len(inverses))]
    tried = [features[before[each]] for each in rows]
    weights = np.zeros((inverses.shape[1], len(rows)), np.float32)
    for _ in range(sweeps):
        targets = (rewards + onward * values(weights)[after]).astype(np.float32)
        for action, (each, phi, inverse) in enumerate(zip(rows, tried, inverses, strict=True)):
            weights[:, action] = inverse @ (phi.T @ targets[each])
    return weights, targets


@dataclass
class ExplorationValueModel:
    """The regression of every action on features of observations."""

    codes: ObservationCodes
    inverses: Array32  # G_a⁻¹ (A, m, m)
    weights: Array32  # w_a (m, A)

    def sinks(self, features: Array32) -> Array32:
        """s_a (n, A) in [0, 1] of features (n, m)."""
        unknown = 1.0 - np.square(features).sum(axis=1)
        within = [LAMBDA * leverage(inverse, features) for inverse in self.inverses]
        sinks = np.stack(within, axis=1) + unknown[:, None]
        return np.asarray(sinks.clip(0.0, 1.0), np.float32)

    def values(self, means: Array32, sinks: Array32) -> FloatArray:
        """Values of means and sinks of one shape."""
        return np.maximum(means, 0.0).astype(np.float64) + OPTIMISM * sinks


DISCOUNT = 0.97
"""γ of the plan on an episode's graph."""

MOST_TRIES, _OUTCOMES = 5, 4
"""Tries of a pair from which on they count as alike, and different outcomes that are stored."""

_RECENT = 0.5  # weight of the latest outcome: in an episode nothing is tried often


class EpisodeMemory:
    """Observations of an episode as the nodes of a graph, and a plan that heads for new ones.

    The model has the exploration values of untried actions; None while there is no regression. Of
    n nodes `node` is the current one, −1 before the first. Tables have rows to spare: tries of
    every pair (n, A), and features φ (n, m).
    """

    def __init__(self, n_actions: int, model: ExplorationValueModel | None = None) -> None:
        self.n, self.node, self._action = 0, -1, -1
        self._model = model
        self._plan: FloatArray | None = None  # Q (n, A)
        self._numbers: dict[bytes, int] = {}
        self._observations: list[NDArray[Any]] = []
        shape = (1, n_actions)
        self.tries: IntArray = np.zeros(shape, np.int64)
        self._to: IntArray = np.zeros((*shape, _OUTCOMES), np.int64)
        self._shares: FloatArray = np.zeros((*shape, _OUTCOMES))
        self.features: Array32 = np.zeros(
            (1, 0 if model is None else len(model.weights)), np.float32
        )
        self._means, self._sinks = np.zeros((2, *shape), np.float32)

    def see(self, observation: NDArray[Any]) -> tuple[int, bool]:
        """The node of an observation (*shape), and whether it is new to the episode."""
        key = observation.tobytes()
        node = self._numbers.get(key)
        if node is not None:
            return node, False
        node = self._numbers[key] = self.n
        if node == len(self.tries):
            # As many rows of zeros behind.
            for name in ("tries", "_to", "_shares", "features", "_means", "_sinks"):
                table = getattr(self, name)
                setattr(self, name, np.concatenate([table, np.zeros_like(table)]))
        self.n += 1
        self._observations.append(observation.copy())
        if self._model is not None:
            self._set(self._model, slice(node, node + 1), observation[None])
        return node, True

    def renew(self, model: ExplorationValueModel) -> Array32:
        """Take another regression; the features (n, m) of the nodes."""
        self._model, self._plan = model, None
        self.features = np.zeros((len(self._means), len(model.weights)), np.float32)
        self._set(model, slice(self.n), np.stack(self._observations))
        return self.features[: self.n]

    def _set(self, model: ExplorationValueModel, nodes: slice, observations: NDArray[Any]) -> None:
        self.features[nodes] = features = model.codes(observations)
        self._means[nodes], self._sinks[nodes] = features @ model.weights, model.sinks(features)

    def exploration_values(self, node: int) -> FloatArray:
        """Exploration values (A,) of the actions at a node."""
        assert self._model is not None
        return self._model.values(self._means[node], self._sinks[node])

    def learn(self, node: int, action: int, target: float) -> None:
        """Add the target y of a try to the regression, and update the values of all nodes."""
        model, n, features = self._model, self.n, self.features[node]
        assert model is not None
        missed = target - float(features @ model.weights[:, action])
        direction, scale = fold_in(model.inverses[action], features)
        model.weights[:, action] += direction * np.float32(missed / scale)
        along = self.features[:n] @ direction
        self._means[:n, action] += along * np.float32(missed / scale)
        self._sinks[:n, action] -= np.float32(LAMBDA / scale) * np.square(along)

    def add(self, node: int, action: int, successor: int | None) -> bool:
        """Add a try that led to a node, or to the episode's end; True if a plan changes."""
        self.tries[node, action] += 1
        to, shares = self._to[node, action], self._shares[node, action]
        if successor is None:
            shares[:] = 0.0
            return True
        shares *= 1.0 - _RECENT
        same = np.flatnonzero((to == successor) & (shares > 0.0))
        slot = int(same[0]) if len(same) else int(shares.argmin())
        if not len(same):
            to[slot], shares[slot] = successor, 0.0
        shares[slot] += _RECENT
        shares /= shares.sum()
        return bool(shares[slot] < 1.0 or self.tries[node, action] == 1)

    def values(self, exploration: FloatArray, kept: FloatArray) -> FloatArray:
        """Q (n, A) of a plan with exploration values q (n, A) and κ (n + 1,) of n-th tries."""
        untried = exploration * kept[np.minimum(self.tries[: self.n], MOST_TRIES)]
        # The first outcome is the only one in most pairs, and all of it in most episodes.
        width = 1 + int(np.flatnonzero(self._shares[: self.n].any(axis=(0, 1))).max(initial=0))
        to = np.ascontiguousarray(self._to[: self.n, :, :width])
        shares = DISCOUNT * self._shares[: self.n, :, :width]

        def backup(values: FloatArray) -> FloatArray:
            return np.asarray(np.maximum(untried, (shares * values[to]).sum(axis=2)))

        return iterate(backup, np.zeros(self.n), tolerance=1e-3).actions

    def move(self, action: int, node: int, *, is_new: bool, ends: bool = False) -> None:
        """Add an action that led from the current node to another, or ended the episode.

        The plan holds while the episode shows nothing unexpected.
        """
        if self.add(self.node, action, None if ends else node) or is_new:
            self._plan = None
        self.node = node

    def act(self, kept: FloatArray, rng: np.random.Generator) -> int:
        """The action with the largest value at the current node, with κ (n + 1,) of n-th tries; the
        one that was tried least without a regression; ties are drawn."""
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
