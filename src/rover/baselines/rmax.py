"""R-max, the classical explorer of finite problems (Brafman & Tennenholtz, 2002).

It heads for the nearest state-action pair that was never tried, on a model of those that were. That
makes it the honest reference for how fast a finite environment can be seen when every observation
is a state with a name. It is an explorer and not a coverage policy: what it hands over is its
latest plan, which leads to what was unknown then and says nothing of how to visit all states in
proportion; once everything is known it is uniform.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from rover.baselines.optimistic_planning import OptimisticPlan, plan_optimistically
from rover.coverage.config import validate_settings
from rover.coverage.encoding import DEFAULT_DISCOUNT, observation_dtype
from rover.data import ReplayBuffer, StepOutcome
from rover.errors import ConfigurationError
from rover.features import Encoder, EncoderSpec, make_encoder
from rover.operators import Dirac
from rover.policies.coverage import CoveragePolicy
from rover.storage import generator_state, restore_generator
from rover.training.timing import Stopwatch

# exp of it is zero, and zero times it is not NaN, as it would be with −∞.
_LOG_OF_ZERO = -1e3


class RmaxConfig(BaseModel):
    """Settings of R-max; it has no network, so its presets do not differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    known_after: int = Field(1, ge=1, description="tries after which a state-action pair is known")
    discount: float | None = Field(
        None, gt=0, lt=1, description="γ of the plan; None: the environment's own, else 0.99"
    )
    max_states: int = Field(5_000, ge=1, description="distinct observations that may be planned")
    policy_every: int = Field(50, ge=1, description="environment steps between policy updates")
    exploration_epsilon: float = Field(0.0, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(0, ge=0, description="uniform actions before the first plan")
    evaluation_episodes: int = Field(20, ge=1, description="episodes of each coverage figure")
    checkpoint_every: int = Field(500, ge=1, description="environment steps between checkpoints")
    threads: int = Field(1, ge=1, description="torch threads; part of what fixes the bits")


def make_rmax_config(preset: str = "fast", **overrides: Any) -> RmaxConfig:
    """The configuration of preset ``fast`` or ``paper``, which are the same here.

    Raises:
        ConfigurationError: unknown preset or setting, or a value out of range.
    """
    if preset not in ("fast", "paper"):
        raise ConfigurationError(f"unknown preset {preset!r}; choose 'fast' or 'paper'")
    return validate_settings(RmaxConfig, overrides)


class RmaxMethod:
    """R-max as the pretraining loop sees it.

    A plan is renewed when it is disproved: a pair has become known, a known pair led where it never
    led before, or the number of tries of a pair with several outcomes has doubled (the doubling
    rule of Jaksch, Ortner & Auer, 2010). Ties are broken uniformly by the rng.

    Args:
        config: settings, with the discount filled in.
        encoder: passes observations on unchanged.
        buffer: the replay buffer, which the loop fills; its distinct observations are the states.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.

    Attributes:
        policy: the latest plan, ties uniform, uniform on observations that were never seen.
    """

    name = "rmax"

    def __init__(
        self,
        config: RmaxConfig,
        encoder: Encoder,
        buffer: ReplayBuffer,
        *,
        seed: int,
        stopwatch: Stopwatch,
    ) -> None:
        self.config = config
        self._encoder = encoder
        self._buffer = buffer
        self._stopwatch = stopwatch
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 0]))
        self._steps = 0
        self._outcomes: dict[tuple[int, int], dict[tuple[int, bool], int]] = {}
        self._plan: OptimisticPlan | None = None
        uniform = np.ones((0, buffer.n_actions), np.bool_)
        self.policy = self._package(uniform)

    def act(self, observation: int) -> int:
        """The action to take on the observation with this index in the buffer."""
        config, n_actions = self.config, self._buffer.n_actions
        if self._steps < config.seed_steps or (
            config.exploration_epsilon > 0.0 and self._rng.random() < config.exploration_epsilon
        ):
            return int(self._rng.integers(n_actions))
        if self._plan is None:
            self._renew()
        assert self._plan is not None
        if observation >= len(self._plan.greedy):  # nothing is known of a new state
            return int(self._rng.integers(n_actions))
        best = np.flatnonzero(self._plan.greedy[observation])
        return int(best[self._rng.integers(len(best))])

    def observe(self, outcome: StepOutcome) -> None:
        """Learn of the transition that the last action led to.

        Raises:
            ConfigurationError: there are too many distinct observations for them to be states.
        """
        self._steps += 1
        if len(self._buffer.observations) > self.config.max_states:
            raise ConfigurationError(
                f"R-max counts how often each state was seen, and this environment showed more "
                f"than max_states = {self.config.max_states} distinct observations: choose another "
                "method for continuous observations, or raise max_states if they are finite"
            )
        seen = self._outcomes.setdefault((outcome.observation, outcome.action), {})
        key = (outcome.successor, outcome.terminated)
        is_new = key not in seen
        seen[key] = seen.get(key, 0) + 1
        tries, enough = sum(seen.values()), self.config.known_after
        doublings, remainder = divmod(tries, enough)
        doubled = remainder == 0 and doublings.bit_count() == 1
        if tries == enough or (tries > enough and (is_new or (len(seen) > 1 and doubled))):
            self._plan = None

    def update(self) -> dict[str, Any] | None:
        """Plan anew and hand over the plan when due; metrics if the policy was updated."""
        config = self.config
        if self._steps < config.seed_steps or self._steps % config.policy_every != 0:
            return None
        plan = self._renew()
        self.policy = self._package(plan.greedy)
        return {
            "pairs": self._buffer.n_pairs,
            "known_pairs": int(plan.known.sum()),
            "start_value": float(plan.values[self._buffer.latest_start]),
        }

    def _renew(self) -> OptimisticPlan:
        assert self.config.discount is not None
        with self._stopwatch("improve"):
            self._plan = plan_optimistically(
                self._buffer.counts(),
                n_states=len(self._buffer.observations),
                n_actions=self._buffer.n_actions,
                starts=self._buffer.starts(),
                known_after=self.config.known_after,
                discount=self.config.discount,
            )
        return self._plan

    def _package(self, greedy: np.ndarray[Any, np.dtype[np.bool_]]) -> CoveragePolicy:
        """The policy that is uniform over `greedy` (S, A), by exact comparison with known states.

        An observation that equals none of them has logits 0, which is the uniform policy.
        """
        basis = self._encoder.features(self._buffer.observations.rows[: len(greedy)])
        share = greedy / greedy.sum(axis=1, keepdims=True)  # (S, A)
        log_probs = np.where(greedy, np.log(np.where(greedy, share, 1.0)), _LOG_OF_ZERO)
        return CoveragePolicy(
            self._encoder, Dirac(), torch.from_numpy(basis), torch.from_numpy(log_probs)
        )

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on, right after a policy update."""
        return {}, {"steps": self._steps, "rng": generator_state(self._rng)}

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already."""
        self._steps = int(state["steps"])
        self._rng = restore_generator(state["rng"])
        self._outcomes = {}
        counts = self._buffer.counts()
        for x, action, successor, terminated, count in zip(
            counts.inputs.tolist(),
            counts.actions.tolist(),
            counts.successors.tolist(),
            counts.terminated.tolist(),
            counts.counts.tolist(),
            strict=True,
        ):
            self._outcomes.setdefault((x, action), {})[successor, terminated] = int(count)
        self.policy = self._package(self._renew().greedy)


def make_rmax_method(
    config: RmaxConfig,
    env: gym.Env[Any, Any],
    buffer: ReplayBuffer,
    *,
    seed: int,
    stopwatch: Stopwatch,
) -> RmaxMethod:
    """R-max for an environment; the discount is filled in.

    Raises:
        ConfigurationError: observations of a dtype that encoders do not take.
    """
    if config.discount is None:
        suggested = getattr(env.unwrapped, "suggested_discount", None)
        config = config.model_copy(
            update={"discount": DEFAULT_DISCOUNT if suggested is None else suggested}
        )
    encoder = make_encoder(_exact_spec(env.observation_space), torch.Generator().manual_seed(seed))
    return RmaxMethod(config, encoder, buffer, seed=seed, stopwatch=stopwatch)


def _exact_spec(space: spaces.Space[Any]) -> EncoderSpec:
    """An encoder that changes no bit of an observation, so that equal features are equal states."""
    shape = tuple(space.shape or ())
    if isinstance(space, spaces.Discrete):
        return EncoderSpec(
            kind="identity",
            observation_shape=(),
            observation_dtype="int64",
            n_states=int(space.n),
        )
    size = int(np.prod(shape))
    return EncoderSpec(
        kind="scale",
        observation_shape=shape,
        observation_dtype=observation_dtype(space),
        low=(0.0,) * size,
        high=(1.0,) * size,
    )
