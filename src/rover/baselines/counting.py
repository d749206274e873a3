"""Agents that plan on counts, where every distinct observation is a state."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import Field

from rover.arrays import FloatArray
from rover.errors import ConfigurationError
from rover.features import encoder_config, make_encoder
from rover.operators import Dirac
from rover.policies import CoveragePolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig
from rover.world.counts import Counts


class CountingConfig(AgentConfig):
    """Settings of a planner on counts; it has no network, so its presets do not differ."""

    max_states: int = Field(5_000, ge=1, description="distinct observations that may be planned")
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")


ConfigT = TypeVar("ConfigT", bound=CountingConfig)


class CountingAgent(Agent[ConfigT]):
    """Agent that counts the outcomes of each state and action, and returns a table of logits.

    The buffer's distinct observations are the states. A subclass plans (:meth:`_replan`) and acts.
    """

    _is_new = False  # the latest transition led where its pair never led before

    presets = {"fast": {}, "published": {}}  # noqa: RUF012

    def _build(self) -> CoveragePolicy:
        self._rng = np.random.default_rng([self.seed, 0])
        # No bit of an observation is changed, so that equal features are equal states.
        config = encoder_config(self.spaces.observation, kind="identity")
        self._encoder = make_encoder(config, torch.Generator().manual_seed(self.seed))
        self._counts = Counts(self.buffer)
        return self._package(np.ones((0, self.buffer.n_actions)))

    @abstractmethod
    def _replan(self) -> tuple[FloatArray, dict[str, float]]:
        """Plan on the counts; the logits (S, A) of the plan, and figures of it."""

    def _observe(self, row: int, *, done: bool) -> None:
        # Where nothing repeats every pair stays untried, and planning only becomes slower.
        if len(self.buffer.observations) > self.config.max_states:
            raise ConfigurationError(
                f"{self.label} counts how often each state was seen, and this environment showed "
                f"more than max_states = {self.config.max_states} distinct observations: choose "
                "another agent for continuous observations, or raise max_states if they are finite"
            )
        self._counts.extend()
        self._is_new = self._counts.add(row)

    def _update(self) -> dict[str, Any] | None:
        """Plan again when due; figures if the policy was updated."""
        if self.num_timesteps % self.config.policy_every != 0:
            return None
        logits, figures = self._replan()
        self._policy = self._package(logits)
        return {"pairs": self._counts.n_pairs, **figures}

    def _package(self, logits: FloatArray) -> CoveragePolicy:
        """The policy of these logits, by exact comparison with known states.

        An observation that equals none of them has logits 0, which is the uniform policy.
        """
        basis = self._encoder.features(self.buffer.observations.rows[: len(logits)])
        return CoveragePolicy(
            self._encoder, Dirac(), torch.from_numpy(basis), torch.from_numpy(logits)
        )

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        # Neither counts nor plan are stored: they follow from the transitions, to the bit.
        self._counts = Counts(self.buffer)
        self._policy = self._package(self._replan()[0])
