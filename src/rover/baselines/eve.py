"""EVE (Adamczyk et al., 2026): stationary distributions of most entropy, by eigenvectors.

For a deterministic model f the policy that maximises

    H(d_π) − (1/β) E_{x~d_π}[KL(π(·|x) ‖ π₀(·|x))],     d_π its stationary distribution,

is that of a reward −log d(x), which the solution itself makes. For a given reward the solution of
the average-reward problem is spectral: with M(x, y) = d(x)^(−β) Σ_a π₀(a|x) [f(x, a) = y] and its
dominant right and left eigenvectors u and v, π(a|x) ∝ π₀(a|x) u(f(x, a)) and d ∝ u v. So d, u and v
are iterated together. Taking π for π₀ and solving again (posterior policy iteration) raises the
entropy each time, and in the end nothing is left of the regularisation.

The model is estimated from counts: a pair leads where it led most often, and one that was never
tried to an unseen state of its own, so that to visit all states alike is to try it. An end of an
episode, and an unseen state, lead to where episodes begin most often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field

from rover.errors import ConfigurationError
from rover.features import encoder_config, make_encoder
from rover.operators import Dirac
from rover.operators.support import FloatArray, IntArray
from rover.planning.counts import Counts
from rover.policies import CoveragePolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig

_SMALLEST_PROBABILITY = 1e-12
_DAMPING = 0.5


class _EveConfig(AgentConfig):
    """Settings of EVE; it has no network, so its presets do not differ."""

    beta: float = Field(1.0, gt=0, le=10, description="β, inverse weight of the KL term")
    rounds: int = Field(20, ge=1, description="rounds of posterior policy iteration")
    iterations: int = Field(100, ge=1, description="iterations of the eigenvectors in a round")
    max_states: int = Field(5_000, ge=1, description="distinct observations that may be planned")
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")
    seed_steps: int = Field(0, ge=0, description="uniform actions before the first plan")


class Eve(Agent[_EveConfig]):
    """Plans the stationary distribution of most entropy on a deterministic model, by eigenvectors.

    The buffer's distinct observations are the states. It acts by its latest plan, uniformly where
    that has never been, and hands the plan over.
    """

    name = "eve"
    label = "EVE"
    colour = "#117733"
    dashes = "dashed"
    config_class = _EveConfig
    presets = {"fast": {}, "code": {}}  # noqa: RUF012

    def _build(self) -> CoveragePolicy:
        self._rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0]))
        # No bit of an observation is changed, so that equal features are equal states.
        config = encoder_config(self.env.observation_space, kind="identity")
        self._encoder = make_encoder(config, torch.Generator().manual_seed(self.seed))
        self._counts = Counts(self.buffer)
        self._probs: FloatArray = np.ones((0, self.buffer.n_actions))
        return self._package()

    def _act(self, observation: int) -> int:
        n_actions = self.buffer.n_actions
        if observation >= len(self._probs):
            return int(self._rng.integers(n_actions))
        return int(self._rng.choice(n_actions, p=self._probs[observation]))

    def _observe(self, row: int, *, done: bool) -> None:
        if len(self.buffer.observations) > self.config.max_states:
            raise ConfigurationError(
                f"EVE plans on the states that were seen, and this environment showed more than "
                f"max_states = {self.config.max_states} distinct observations: choose another "
                "agent for continuous observations, or raise max_states if they are finite"
            )
        self._counts.extend()
        self._counts.add(row)

    def _update(self) -> dict[str, Any] | None:
        config, step = self.config, self.num_timesteps
        if step < config.seed_steps or step % config.policy_every != 0:
            return None
        entropy = self._plan()
        self._policy = self._package()
        return {"pairs": len(self._counts), "model_entropy": entropy}

    def _plan(self) -> float:
        """Plan anew; the entropy of the stationary distribution on the model, in nats."""
        with self.stopwatch("improve"):
            n_states = len(self.buffer.observations)
            following = _deterministic_model(
                self._counts, self.buffer.n_actions, self.buffer.starts()
            )
            probs, occupancy = most_entropic(
                following,
                beta=self.config.beta,
                rounds=self.config.rounds,
                iterations=self.config.iterations,
            )
            self._probs = probs[:n_states]
        return float(-(occupancy * np.log(np.maximum(occupancy, _SMALLEST_PROBABILITY))).sum())

    def _package(self) -> CoveragePolicy:
        """The policy of the plan, by exact comparison with known states; else uniform."""
        basis = self._encoder.features(self.buffer.observations.rows[: len(self._probs)])
        logits = np.log(np.maximum(self._probs, _SMALLEST_PROBABILITY))
        return CoveragePolicy(
            self._encoder, Dirac(), torch.from_numpy(basis), torch.from_numpy(logits)
        )

    def _agent_state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._counts = Counts(self.buffer)
        # A plan depends on the counts alone, so that a resumed run makes the same one.
        self._plan()
        self._policy = self._package()


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


def most_entropic(
    following: IntArray, *, beta: float, rounds: int, iterations: int
) -> tuple[FloatArray, FloatArray]:
    """Policy whose stationary distribution has the most entropy, on a deterministic model.

    Args:
        following: (S, A) the state that each action leads to; every state reaches every other.
        beta: β of each round.
        rounds: of posterior policy iteration; of a single one the objective is regularised.
        iterations: of the eigenvectors in each round, at most.

    Returns:
        (S, A) action probabilities, and (S,) their stationary distribution on the model.
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
