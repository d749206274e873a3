"""EVE (Adamczyk et al., 2026): stationary distributions of most entropy, by eigenvectors.

For a deterministic model f the policy that maximises

    H(d_π) − (1/β) E_{x~d_π}[KL(π(·|x) ‖ π₀(·|x))],     d_π its stationary distribution,

is the policy for the reward −log d(x), with d its own stationary distribution. For a given reward
the average-reward problem is spectral: with M(x, y) = d(x)^(−β) Σ_a π₀(a|x) [f(x, a) = y] and its
dominant right and left eigenvectors u and v, π(a|x) ∝ π₀(a|x) u(f(x, a)) and d ∝ u v. So d, u and v
are iterated together. Taking π for π₀ and solving again (posterior policy iteration) raises the
entropy each time, and in the end nothing is left of the regularisation.

The model is estimated from counts: a pair leads where it led most often, and one that was never
tried to an unseen state of its own, so that to visit all states alike is to try it. An end of an
episode, and an unseen state, lead to where episodes begin most often.
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from rover.baselines.shared.counting import CountingAgent, CountingConfig
from rover.operators.support import FloatArray, IntArray
from rover.policies import CoveragePolicy
from rover.world.counts import Counts

_SMALLEST_PROBABILITY = 1e-12
_DAMPING = 0.5


class _EveConfig(CountingConfig):
    """Settings of EVE."""

    beta: float = Field(1.0, gt=0, le=10, description="β, inverse weight of the KL term")
    rounds: int = Field(20, ge=1, description="rounds of posterior policy iteration")
    iterations: int = Field(100, ge=1, description="iterations of the eigenvectors in a round")


class _Eve(CountingAgent[_EveConfig]):
    """Plans the stationary distribution of most entropy on a deterministic model, by eigenvectors.

    It acts by its latest plan, uniformly where that has never been, and hands the plan over.
    """

    name = "eve"
    label = "EVE"
    colour = "#117733"
    dashes = "dashed"
    config_class = _EveConfig

    def _build(self) -> CoveragePolicy:
        self._probs: FloatArray = np.ones((0, self.buffer.n_actions))
        return super()._build()

    def _act(self, observation: int) -> int:
        n_actions = self.buffer.n_actions
        if observation >= len(self._probs):
            return int(self._rng.integers(n_actions))
        return int(self._rng.choice(n_actions, p=self._probs[observation]))

    def _replan(self) -> tuple[FloatArray, dict[str, float]]:
        buffer, config = self.buffer, self.config
        with self.stopwatch("improve"):
            following = _deterministic_model(self._counts, buffer.n_actions, buffer.starts())
            probs, occupancy = _most_entropic(
                following, beta=config.beta, rounds=config.rounds, iterations=config.iterations
            )
        # The states that were seen come first; nobody acts in those that are only assumed.
        self._probs = probs[: len(buffer.observations)]
        # Of the stationary distribution on the model, in nats.
        entropy = -(occupancy * np.log(np.maximum(occupancy, _SMALLEST_PROBABILITY))).sum()
        logits: FloatArray = np.log(np.maximum(self._probs, _SMALLEST_PROBABILITY))
        return logits, {"model_entropy": float(entropy)}


def _deterministic_model(
    counts: Counts, n_actions: int, starts: tuple[IntArray, FloatArray]
) -> IntArray:
    """State that each pair of the model leads to, (N + U, A), of N seen and U unseen states."""
    counts.extend()
    begin = int(starts[0][starts[1].argmax()])
    pairs, to, times = counts.outcomes()
    n_pairs = len(counts.tries)
    following = np.full(n_pairs, -1, np.int64)
    order = np.lexsort((to, times))  # the most frequent one last, which stays
    following[pairs[order]] = np.where(to[order] < 0, begin, to[order])
    untried = np.flatnonzero(np.array(counts.tries) == 0)
    n_states = n_pairs // n_actions
    following[untried] = n_states + np.arange(len(untried))
    beyond = np.full((len(untried), n_actions), begin)
    return np.concatenate([following.reshape(-1, n_actions), beyond])


def _most_entropic(
    following: IntArray, *, beta: float, rounds: int, iterations: int
) -> tuple[FloatArray, FloatArray]:
    """Policy (S, A) whose stationary distribution (S,) has the most entropy, on a deterministic
    model, and that distribution.

    Args:
        following: (S, A) the state that each action leads to; every state reaches every other.
        beta: β of each of the `rounds` of posterior policy iteration; of a single one the objective
            is regularised. The eigenvectors have `iterations` in each, at most.
    """
    n_states, n_actions = following.shape
    prior = np.full((n_states, n_actions), 1.0 / n_actions)
    right, left = np.ones((2, n_states))
    occupancy = np.full(n_states, 1.0 / n_states)
    for _ in range(rounds):
        for _ in range(iterations):
            # In units of the mean occupancy: a factor of M changes no eigenvector.
            weight = (n_states * np.maximum(occupancy, _SMALLEST_PROBABILITY)) ** -beta
            onward = weight * (prior * right[following]).sum(axis=1)
            flow = (weight * left)[:, None] * prior
            back: FloatArray = np.zeros(n_states)
            back += np.bincount(following.ravel(), flow.ravel(), minlength=n_states)
            # Means of logarithms: of a periodic chain plain powers go round for ever.
            right, left = _damped(right, onward), _damped(left, back)
            renewed = _damped(occupancy, right * left / (right @ left))
            change = np.abs(renewed / renewed.sum() - occupancy).max()
            occupancy = renewed / renewed.sum()
            if change < 1e-10 / n_states:
                break
        prior = prior * right[following]
        prior = np.maximum(prior / prior.sum(axis=1, keepdims=True), _SMALLEST_PROBABILITY)
        prior /= prior.sum(axis=1, keepdims=True)
        # The new prior is the policy, whose own right eigenvector is constant.
        left, right = occupancy.copy(), np.ones(n_states)
    return prior, occupancy


def _damped(old: FloatArray, new: FloatArray) -> FloatArray:
    """Geometric mean of the two, in units of its largest entry."""
    tiny = np.finfo(np.float64).tiny
    mean = np.exp(
        (1.0 - _DAMPING) * np.log(np.maximum(old, tiny)) + _DAMPING * np.log(np.maximum(new, tiny))
    )
    return np.asarray(mean / mean.max())
