"""R-max (Brafman & Tennenholtz, 2002): heads for what was never tried, by counts; finite states.

It heads for the nearest state-action pair that was never tried, on a model of those that were. That
makes it the honest reference for how fast a finite environment can be seen when every observation
is a state with a name. It is an explorer: the policy that it hands over is its latest
plan, which leads to what was unknown then and says nothing of how to visit all states in
proportion; once everything is known it is uniform.

The optimistic model: a pair (x, a) is known once it was tried often enough; an unknown pair is
believed to lead to a heaven of reward 1 for ever, and nothing else is rewarded. Values are scaled
by 1 − γ, so that V(x) = max E[γ^T], where T is the number of steps before an unknown pair is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from pydantic import Field
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.sparse.linalg import spsolve

from rover.errors import ConfigurationError, ConvergenceError
from rover.features import encoder_config, make_encoder
from rover.operators import Dirac, TransitionCounts
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.policies import CoveragePolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig

# exp of it is zero, and zero times it is not NaN, as it would be with −∞.
_LOG_OF_ZERO = -1e3
# Values are sums of powers of γ that may be tiny, so ties are judged relative to their size.
_TIE = 1e-9


class _RmaxConfig(AgentConfig):
    """Settings of R-max; it has no network, so its presets do not differ."""

    known_after: int = Field(1, ge=1, description="tries after which a state-action pair is known")
    max_states: int = Field(5_000, ge=1, description="distinct observations that may be planned")
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")
    exploration_epsilon: float = Field(0.0, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(0, ge=0, description="uniform actions before the first plan")


class Rmax(Agent[_RmaxConfig]):
    """Plans to the nearest unknown state-action pair.

    The buffer's distinct observations are the states. A plan is renewed when it is disproved: a
    pair has become known, a known pair led where it never led before, or the number of tries of a
    pair with several outcomes has doubled (the doubling rule of Jaksch, Ortner & Auer, 2010). Ties
    are broken uniformly. The policy is the latest plan, ties uniform, and uniform on observations
    that were never seen.
    """

    name = "rmax"
    label = "R-MAX"
    colour = "#999933"
    dashes = "dashed"
    config_class = _RmaxConfig
    presets = {"fast": {}, "code": {}}  # noqa: RUF012

    def _build(self) -> CoveragePolicy:
        self._rng = np.random.default_rng(np.random.SeedSequence([self.seed, 0]))
        # No bit of an observation is changed, so that equal features are equal states.
        config = encoder_config(self.env.observation_space, kind="identity")
        self._encoder = make_encoder(config, torch.Generator().manual_seed(self.seed))
        self._outcomes: dict[tuple[int, int], dict[tuple[int, bool], int]] = {}
        self._plan: _OptimisticPlan | None = None
        return self._package(np.ones((0, self.buffer.n_actions), np.bool_))

    def _act(self, observation: int) -> int:
        config, n_actions = self.config, self.buffer.n_actions
        if self.num_timesteps < config.seed_steps or (
            config.exploration_epsilon > 0.0 and self._rng.random() < config.exploration_epsilon
        ):
            return int(self._rng.integers(n_actions))
        plan = self._plan or self._renew()
        if observation >= len(plan.greedy):  # nothing is known of a new state
            return int(self._rng.integers(n_actions))
        best = np.flatnonzero(plan.greedy[observation])
        return int(best[self._rng.integers(len(best))])

    def _observe(self, row: int, *, done: bool) -> None:
        """Discard the plan if the transition disproves it."""
        buffer = self.buffer
        if len(buffer.observations) > self.config.max_states:
            raise ConfigurationError(
                f"R-max counts how often each state was seen, and this environment showed more "
                f"than max_states = {self.config.max_states} distinct observations: choose another "
                "agent for continuous observations, or raise max_states if they are finite"
            )
        pair = int(buffer.inputs[row]), int(buffer.actions[row])
        seen = self._outcomes.setdefault(pair, {})
        outcome = int(buffer.successors[row]), bool(buffer.terminated[row])
        is_new = outcome not in seen
        seen[outcome] = seen.get(outcome, 0) + 1
        tries, enough = sum(seen.values()), self.config.known_after
        doublings, remainder = divmod(tries, enough)
        doubled = remainder == 0 and doublings.bit_count() == 1
        if tries == enough or (tries > enough and (is_new or (len(seen) > 1 and doubled))):
            self._plan = None

    def _update(self) -> dict[str, Any] | None:
        """Plan anew and hand over the plan when due; figures if the policy was updated."""
        config, step = self.config, self.num_timesteps
        if step < config.seed_steps or step % config.policy_every != 0:
            return None
        plan = self._renew()
        self._policy = self._package(plan.greedy)
        return {
            "pairs": len(self.buffer.pairs),
            "known_pairs": int(plan.known.sum()),
            "start_value": float(plan.values[self.buffer.latest_start]),
        }

    def _renew(self) -> _OptimisticPlan:
        assert self.config.discount is not None
        with self.stopwatch("improve"):
            self._plan = _optimistic_plan(
                self.buffer.counts(),
                n_states=len(self.buffer.observations),
                n_actions=self.buffer.n_actions,
                starts=self.buffer.starts(),
                known_after=self.config.known_after,
                discount=self.config.discount,
            )
        return self._plan

    def _package(self, greedy: BoolArray) -> CoveragePolicy:
        """The policy that is uniform over `greedy` (S, A), by exact comparison with known states.

        An observation that equals none of them has logits 0, which is the uniform policy.
        """
        basis = self._encoder.features(self.buffer.observations.rows[: len(greedy)])
        logits = np.where(greedy, 0.0, _LOG_OF_ZERO)
        return CoveragePolicy(
            self._encoder, Dirac(), torch.from_numpy(basis), torch.from_numpy(logits)
        )

    def _agent_state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._outcomes = {}
        columns = vars(self.buffer.counts()).values()
        for x, action, successor, terminated, count in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            self._outcomes.setdefault((x, action), {})[successor, terminated] = int(count)
        self._policy = self._package(self._renew().greedy)


@dataclass(frozen=True)
class _OptimisticPlan:
    """The optimal values of the optimistic model, and every action that attains them.

    Attributes:
        values: (S,) in [0, 1]: E[γ^T] until an unknown pair is tried; 0 where none can be reached.
        greedy: (S, A) true for each optimal action; all are where nothing unknown can be reached.
        known: (S, A) whether a pair was tried often enough.
    """

    values: FloatArray
    greedy: BoolArray
    known: BoolArray


def _optimistic_plan(
    counts: TransitionCounts,
    *,
    n_states: int,
    n_actions: int,
    starts: tuple[IntArray, FloatArray],
    known_after: int,
    discount: float,
) -> _OptimisticPlan:
    """Plan the shortest way, in expectation of γ^T, to a pair that is not known yet.

    Q(x, a) = 1 for an unknown pair and γ Σ_x' P̂(x'|x, a) V(x') for a known one, with P̂ the
    relative frequencies. A terminated transition goes on where episodes begin (`starts`: states
    (q,) and how often (q,), may be empty), as exploration does. If every known outcome is certain,
    V(x) = γ^d(x) with the graph distance d, found by breadth-first search; else policy iteration
    with sparse solves ends at the exact optimum.
    """
    pair = counts.inputs * n_actions + counts.actions  # (r,)
    tries = np.bincount(pair, counts.counts, minlength=n_states * n_actions)
    known = (tries >= known_after).reshape(n_states, n_actions)
    used = tries[pair] >= known_after
    # Terminated transitions to several states are one outcome, state S: an episode begins.
    targets = np.where(counts.terminated, n_states, counts.successors)
    model = sparse.csr_array(
        (counts.counts[used], (pair[used], targets[used])),
        shape=(n_states * n_actions, n_states + 1),
    )
    model.sum_duplicates()
    model.data /= np.repeat(tries, np.diff(model.indptr))
    start = np.bincount(starts[0], starts[1], minlength=n_states) / max(starts[1].sum(), 1.0)
    is_certain = bool((model.data == 1.0).all()) and int(np.count_nonzero(start)) <= 1
    plan = _shortest_paths if is_certain else _policy_iteration
    values, greedy = plan(model, known, start, discount)
    return _OptimisticPlan(values, greedy, known)


def _shortest_paths(
    model: sparse.csr_array, known: BoolArray, start: FloatArray, discount: float
) -> tuple[FloatArray, BoolArray]:
    """Values (S,) and optimal actions (S, A) where P̂, `model` (S·A, S + 1), is deterministic."""
    n_states, n_actions = known.shape
    triplets = model.tocoo()
    states, actions = np.divmod(triplets.row, n_actions)
    begin = int(start.argmax()) if start.any() else n_states
    targets = np.where(triplets.col == n_states, begin, triplets.col)
    sources = np.flatnonzero(~known.all(axis=1))
    distance = np.full(n_states + 1, np.inf)  # the last entry: no episode begins anywhere
    if len(sources):
        shape = (n_states + 1, n_states + 1)
        backward = sparse.csr_array((np.ones(len(targets)), (targets, states)), shape=shape)
        distance = dijkstra(backward, indices=sources, unweighted=True, min_only=True)
    cost = np.zeros(known.shape)  # (S, A)
    cost[states, actions] = 1.0 + distance[targets]
    return discount ** distance[:n_states], cost == distance[:n_states, None]


def _policy_iteration(
    model: sparse.csr_array, known: BoolArray, start: FloatArray, discount: float
) -> tuple[FloatArray, BoolArray]:
    """Values (S,) and optimal actions (S, A) for any P̂, `model` (S·A, S + 1)."""
    n_states, n_actions = known.shape
    everyone = np.arange(n_states)
    # V(beginning) = Σ p(x) V(x), without a discount.
    begin = sparse.csr_array(np.append(start, 0.0)[None])
    chosen = known.argmin(axis=1)  # an unknown action where there is one
    for _ in range(n_states * n_actions + 1):
        followed = sparse.vstack([discount * model[everyone * n_actions + chosen], begin])
        reward = np.append(~known[everyone, chosen], False).astype(np.float64)
        solution = spsolve((sparse.eye_array(n_states + 1) - followed).tocsc(), reward)
        expected = (model @ np.clip(solution, 0.0, 1.0)).reshape(known.shape)
        q = np.where(known, discount * expected, 1.0)
        best = q.max(axis=1)
        better = best > q[everyone, chosen] * (1.0 + _TIE)
        if not better.any():
            return best, q >= best[:, None] * (1.0 - _TIE)
        chosen = np.where(better, q.argmax(axis=1), chosen)
    raise ConvergenceError(
        f"policy iteration over {n_states} states did not settle: lower the discount {discount}"
    )
