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

from dataclasses import dataclass

import numpy as np
from pydantic import Field

from rover.baselines.shared.counting import CountingAgent, CountingConfig
from rover.operators.support import BoolArray, FloatArray
from rover.planning.counts import Counts
from rover.planning.values import exploration_values
from rover.policies import CoveragePolicy

# exp of it is zero, and zero times it is not NaN, as it would be with −∞.
_LOG_OF_ZERO = -1e3
# Values are sums of powers of γ that may be tiny, so ties are judged relative to their size.
_TIE = 1e-9
_TOLERANCE = 1e-13


class _RmaxConfig(CountingConfig):
    """Settings of R-max."""

    known_after: int = Field(1, ge=1, description="tries after which a state-action pair is known")


class Rmax(CountingAgent[_RmaxConfig]):
    """Plans to the nearest unknown state-action pair.

    A plan is renewed when it is disproved: a pair has become known, a known pair led where it never
    led before, or the number of tries of a pair with several outcomes has doubled (the doubling
    rule of Jaksch, Ortner & Auer, 2010). The policy is the latest plan, ties uniform, and uniform
    on observations that were never seen.
    """

    name = "rmax"
    label = "R-MAX"
    colour = "#999933"
    dashes = "dashed"
    config_class = _RmaxConfig

    def _build(self) -> CoveragePolicy:
        self._plan: _OptimisticPlan | None = None
        return super()._build()

    def _act(self, observation: int) -> int:
        plan = self._plan or self._renew()
        if observation >= len(plan.greedy):  # nothing is known of a new state
            return int(self._rng.integers(self.buffer.n_actions))
        # Uniform among ties: a fixed order would prefer one direction everywhere.
        best = np.flatnonzero(plan.greedy[observation])
        return int(best[self._rng.integers(len(best))])

    def _observe(self, row: int, *, done: bool) -> None:
        """Discard the plan if the transition disproves it."""
        super()._observe(row, done=done)
        buffer = self.buffer
        is_new = self._counts.add(row)
        pair = int(buffer.inputs[row]) * buffer.n_actions + int(buffer.actions[row])
        tries, enough = self._counts.tries[pair], self.config.known_after
        # At 1, 2, 4, … times as many tries as are asked for: often enough to follow the
        # frequencies, and seldom enough to stay cheap.
        doublings, remainder = divmod(tries, enough)
        doubled = remainder == 0 and doublings.bit_count() == 1
        varied = is_new or (doubled and self._counts.varies(pair))
        if tries == enough or (tries > enough and varied):
            self._plan = None

    def _renew(self) -> _OptimisticPlan:
        assert self.config.discount is not None
        self._counts.extend()
        with self.stopwatch("improve"):
            self._plan = _optimistic_plan(
                self._counts,
                self.buffer.n_actions,
                known_after=self.config.known_after,
                discount=self.config.discount,
            )
        return self._plan

    def _replan(self) -> tuple[FloatArray, dict[str, float]]:
        plan = self._renew()
        return np.where(plan.greedy, 0.0, _LOG_OF_ZERO), {
            "known_pairs": int(plan.known.sum()),
            "start_value": float(plan.values[self.buffer.episode_starts[-1]]),
        }


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
    counts: Counts, n_actions: int, *, known_after: int, discount: float
) -> _OptimisticPlan:
    """Plan the shortest way, in expectation of γ^T, to a pair that is not known yet."""
    tries = np.array(counts.tries, np.float64)
    known = (tries >= known_after).reshape(-1, n_actions)
    # Where all is certain the values γ^d, however small, are exact after as many sweeps as steps.
    rows = counts.rows()
    is_certain = not counts.varies() and np.count_nonzero(rows.start) <= 1
    q = exploration_values(
        (~known).astype(np.float64),
        rows,
        discount=discount,
        once=True,
        tolerance=0.0 if is_certain else _TOLERANCE,
    ).actions
    values = q.max(axis=1)
    return _OptimisticPlan(values, q >= values[:, None] * (1.0 - _TIE), known)
