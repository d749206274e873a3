"""R-max (Brafman & Tennenholtz, 2002): count-based planning towards untried pairs; finite states.

It plans towards the nearest untried state-action pair, on a model of the tried ones. This makes it
the reference for how fast a finite environment can be seen when observations identify states. It
is an explorer: the policy that it returns is its latest plan, which leads to pairs unknown then
and does not cover states evenly; once everything is known it is uniform.

The optimistic model: a pair (x, a) is known once it was tried; an unknown pair is believed to lead
to a heaven of reward 1 for ever, and nothing else is rewarded. Values are scaled by 1 − γ, so that
V(x) = max E[γ^T], where T is the number of steps before an unknown pair is tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from pydantic import Field

from rover.arrays import BoolArray, FloatArray
from rover.errors import ConfigurationError
from rover.features import Observations
from rover.policies import StatePolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig
from rover.world.counts import Counts, exploration_values

# exp of it is zero, and zero times it is not NaN, as it would be with −∞.
_LOG_OF_ZERO = -1e3
# Values are sums of powers of γ that may be tiny, so ties are judged relative to their size.
_TIE = 1e-9
_TOLERANCE = 1e-13


class _RmaxConfig(AgentConfig):
    """Settings of R-max; it has no network, so its presets do not differ."""

    max_states: int = Field(5_000, ge=1, description="distinct observations that may be planned")
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")


class _Rmax(Agent[_RmaxConfig]):
    """Plans to the nearest unknown state-action pair; distinct observations are the states.

    A plan is renewed when it is disproved: a pair led where it never led before, or the number of
    tries of a pair with several outcomes has doubled (the doubling rule of Jaksch, Ortner & Auer,
    2010). The policy is the latest plan, ties uniform, and uniform
    on observations that were never seen.
    """

    name = "rmax"
    label = "R-MAX"
    config_class = _RmaxConfig
    presets = {"fast": {}, "published": {}}  # noqa: RUF012

    _plan: FloatArray | None = None  # action values (S, A); None: disproved

    def _build(self) -> StatePolicy:
        self._rng = np.random.default_rng([self.seed, 0])
        self._counts = Counts(self.buffer)
        return self._package(np.ones((0, self.buffer.n_actions)))

    def _act(self, observation: int) -> int:
        values = self._renewed() if self._plan is None else self._plan
        if observation >= len(values):  # nothing is known of a new state
            return int(self._rng.integers(self.buffer.n_actions))
        # Uniform among ties: a fixed order would prefer one direction everywhere.
        best = np.flatnonzero(_optimal(values[observation]))
        return int(best[self._rng.integers(len(best))])

    def _observe(self, row: int, *, done: bool) -> None:
        """Count the transition, and discard the plan if it is disproved."""
        buffer, counts = self.buffer, self._counts
        # Where nothing repeats every pair stays untried, and planning only becomes slower.
        if len(buffer.observations) > self.config.max_states:
            raise ConfigurationError(
                f"{self.label} counts how often each state was seen, and this environment showed "
                f"more than max_states = {self.config.max_states} distinct observations: choose "
                "another agent for continuous observations, or raise max_states if they are finite"
            )
        counts.extend()
        is_new = counts.add(row)
        pair = int(buffer.inputs[row]) * buffer.n_actions + int(buffer.actions[row])
        # At 2, 4, 8, … tries: often enough to follow the frequencies, and seldom enough to stay
        # cheap.
        has_doubled = counts.tries[pair].bit_count() == 1
        if is_new or (has_doubled and pair in counts.varied):
            self._plan = None

    def _update(self) -> dict[str, Any] | None:
        """Plan again when due; figures if the policy was updated."""
        if self.num_timesteps % self.config.policy_every != 0:
            return None
        values = self._renewed()
        self._policy = self._package(values)
        return {
            "pairs": sum(self._counts.first_tries),
            "known_pairs": int(np.count_nonzero(self._counts.tries)),
            "start_value": float(values[self.buffer.episode_starts[-1]].max()),
        }

    def _renewed(self) -> FloatArray:
        assert self.config.discount is not None
        self._counts.extend()
        with self.stopwatch("improve"):
            self._plan = _optimistic_values(
                self._counts, self.buffer.n_actions, discount=self.config.discount
            )
        return self._plan

    def _package(self, values: FloatArray) -> StatePolicy:
        """The policy of action values (S, A) of known states, uniform at all others."""
        logits = torch.from_numpy(np.where(_optimal(values), 0.0, _LOG_OF_ZERO))
        form = Observations.from_space(self.spaces.observation)
        return StatePolicy(form, self.buffer.observations.names[: len(values)], logits)

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        # Neither counts nor plan are stored: they follow from the transitions, to the bit.
        self._counts = Counts(self.buffer)
        self._policy = self._package(self._renewed())


def _optimistic_values(counts: Counts, n_actions: int, *, discount: float) -> FloatArray:
    """Optimal action values (S, A) in [0, 1] of the optimistic model; 0 where none is reached."""
    # Where all is certain the values γ^d, however small, are exact after as many sweeps as steps.
    rows = counts.rows()
    is_certain = not counts.varied and np.count_nonzero(rows.start) <= 1
    return exploration_values(
        np.equal(counts.tries, 0).reshape(-1, n_actions).astype(np.float64),
        rows,
        discount=discount,
        once=True,
        tolerance=0.0 if is_certain else _TOLERANCE,
    ).actions


def _optimal(values: FloatArray) -> BoolArray:
    """Mask of the actions (…, A) that attain the greatest value; all do where all are 0."""
    return np.asarray(values >= values.max(axis=-1, keepdims=True) * (1.0 - _TIE))
