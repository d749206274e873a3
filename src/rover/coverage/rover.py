"""ROVER: collect → represent → estimate → improve, without any reward (paper, Algorithm 1)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rover.coverage.config import RoverConfig
from rover.coverage.estimation import Estimate, Nystrom, fit_estimate, outcome_variance
from rover.coverage.plan import CollectionPlan, FeaturePolicy, Plan, Warmth, improve
from rover.coverage.representing import Represented
from rover.data import ReplayBuffer, StepOutcome
from rover.errors import ConditioningWarning, SingularSolveError
from rover.features import EncoderSpec
from rover.operators import (
    StepRule,
    TransitionCounts,
    backtracking_steps,
    constant_steps,
    growing_steps,
    make_kernel,
    merge_transitions,
)
from rover.policies.coverage import CoveragePolicy
from rover.storage import (
    generator_state,
    restore_generator,
)
from rover.training.timing import Stopwatch

_Planned = TypeVar("_Planned")

_RIDGE_ATTEMPTS = 4
"""Tries of a plan, each with ten times the ridge of the one before."""

_STEP_RULES = {
    "growing": growing_steps,
    "backtracking": backtracking_steps,
    "constant": constant_steps,
}


class RoverMethod:
    """The algorithm, as the pretraining loop sees it: act, observe, update.

    Args:
        config: resolved settings.
        spec: the encoder for this environment's observations.
        buffer: the replay buffer, which the loop fills.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.

    Attributes:
        policy: the policy that is handed over, planned from the initial states.
    """

    name = "rover"

    def __init__(
        self,
        config: RoverConfig,
        spec: EncoderSpec,
        buffer: ReplayBuffer,
        *,
        seed: int,
        stopwatch: Stopwatch,
    ) -> None:
        self.config = config
        self._buffer = buffer
        self._stopwatch = stopwatch
        action_seed, batch_seed = np.random.SeedSequence([seed, 0]).spawn(2)
        self._rng = np.random.default_rng(action_seed)
        self._batch_rng = np.random.default_rng(batch_seed)
        parameters = {} if config.bandwidth is None else {"bandwidth": config.bandwidth}
        assert config.kernel is not None
        self._kernel = make_kernel(config.kernel, **parameters)
        self._represented = Represented(
            spec,
            config,
            buffer,
            self._kernel,
            generator=torch.Generator().manual_seed(seed),
            rng=self._batch_rng,
        )
        assert config.max_exact_states is not None
        self._nystrom = Nystrom(
            config.max_exact_states,
            config.n_anchors,
            config.anchor_spacing,
            config.projection_ridge,
        )
        self._step_rule: StepRule = _STEP_RULES[config.step_rule](config.step_size)
        self._collection = CollectionPlan(
            discount=config.collection_discount,
            n_steps=config.collection_mirror_steps,
            step_rule=growing_steps(config.step_size),
            every=config.collection_every,
            novelty_threshold=config.novelty_threshold,
            greedy=config.greedy,
            stopwatch=stopwatch,
        )
        self._steps = 0
        self._warmth: Warmth | None = None
        self.policy = self._package(self._uniform_policy())

    def act(self, observation: int) -> int:
        """The action to take on the observation with this index in the buffer."""
        config = self.config
        if self._steps < config.seed_steps or (
            config.exploration_epsilon > 0.0 and self._rng.random() < config.exploration_epsilon
        ):
            return int(self._rng.integers(self._buffer.n_actions))
        if config.collect == "policy" or len(self._buffer) == 0:
            return self.policy.act(self._buffer.observations.rows[observation], self._rng)
        if not self._collection.is_current:
            self._plan_robustly(lambda growth, _: self._plan_from(observation, growth))
        with self._stopwatch("collect"):
            if not self._collection.expects_news:
                return self.policy.act(self._buffer.observations.rows[observation], self._rng)
            return self._collection.action(self._features_of(observation), self._rng)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn of the transition that the last action led to."""
        self._steps += 1
        if self.config.collect == "plan" and self._collection.is_current:
            with self._stopwatch("collect"):
                taught = self._collection.taught_by(
                    self._features_of(outcome.observation),
                    outcome.action,
                    self._features_of(outcome.successor),
                )
            if taught or outcome.done:
                self._collection.discard()

    def update(self) -> dict[str, Any] | None:
        """Represent, estimate and improve when due; metrics if the policy was updated.

        Afterwards nothing that was planned on the old features is left.
        """
        config = self.config
        if self._steps < config.seed_steps:
            return None
        metrics: dict[str, Any] = {}
        if self._steps % config.encoder_every == 0:
            with self._stopwatch("represent"):
                metrics |= self._represented.train()
            if self._represented.follows_data:
                self._collection.discard()
        if self._steps % config.policy_every != 0:
            return None
        with self._stopwatch("represent"):
            self._represented.recompute()
            metrics |= self._represented.diagnose()
        pairs = self._buffer.n_pairs
        plan = self._plan_robustly(
            lambda growth, first_try: self._plan_policy(pairs, growth, may_be_warm=first_try)
        )
        descent, anchors = plan.descent, plan.estimate.anchors
        # A descent that ended in rejected steps leaves a step size too small to begin with.
        step_size = max(descent.step_size, config.step_size)
        self._warmth = Warmth(anchors, pairs, descent.dual, step_size)
        self.policy = self._package(plan.policy)
        self._collection.discard()
        return metrics | {
            "model_objective": descent.occupancy.objective,
            "sink_mass": descent.occupancy.sink_mass,
            "column_sum_max": plan.estimate.worst_column(),
            "mirror_steps": len(descent.objectives) - 1,
            "anchors": len(anchors),
            "pairs": pairs,
        }

    def _plan_robustly(self, plan: Callable[[float, bool], _Planned]) -> _Planned:
        """`plan(ridge growth, is first try)`, with ever larger ridges while the model creates mass.

        Raises:
            SingularSolveError: no ridge up to a thousand times the configured one helps.
        """
        growth = 1.0
        for attempt in range(_RIDGE_ATTEMPTS):
            try:
                return plan(growth, attempt == 0)
            except SingularSolveError as error:
                problem = error
            growth *= 10.0
            if attempt < _RIDGE_ATTEMPTS - 1:
                warnings.warn(
                    f"step {self._steps}: {problem}; planning again with {growth:g} x ridge",
                    ConditioningWarning,
                    stacklevel=2,
                )
        raise SingularSolveError(f"step {self._steps}: {problem}") from problem

    def _plan_from(self, observation: int, ridge_growth: float) -> None:
        """Renew the collection plan, on an estimate trusted as far as outcomes repeat."""
        config = self.config
        assert config.ridge is not None
        counts = self._buffer.counts()
        ridge = max(config.ridge, config.doubt * outcome_variance(counts))
        estimate = self._fit(counts, ridge=ridge * ridge_growth, current=observation)
        self._collection.renew(estimate, self._kernel, observation)

    def _plan_policy(self, pairs: int, ridge_growth: float, *, may_be_warm: bool) -> Plan:
        config = self.config
        assert config.discount is not None
        assert config.ridge is not None
        sampled = config.plan_transitions
        counts = self._buffer.counts() if sampled is None else self._sample_counts(sampled)
        estimate = self._fit(counts, ridge=config.ridge * ridge_growth, current=None)
        warmup = min(1.0, self._steps / config.sink_warmup) if config.sink_warmup else 1.0
        warmth = self._warmth
        step_rule, dual = self._step_rule, None
        warm = config.warm_start and may_be_warm
        if warm and warmth is not None and warmth.fits(estimate, pairs):
            dual = warmth.dual
            step_rule = replace(step_rule, initial=warmth.step_size)
        with self._stopwatch("improve"):
            return improve(
                estimate,
                self._kernel,
                estimate.start,
                discount=config.discount,
                sink_norm=config.sink_norm * warmup,
                n_steps=config.mirror_steps,
                step_rule=step_rule,
                tolerance=config.mirror_tolerance,
                dual=dual,
            )

    def _fit(self, counts: TransitionCounts, *, ridge: float, current: int | None) -> Estimate:
        with self._stopwatch("represent"):
            features = self._represented.features()
        with self._stopwatch("estimate"):
            return fit_estimate(
                features,
                counts,
                self._buffer.starts(),
                self._kernel,
                n_actions=self._buffer.n_actions,
                ridge=ridge,
                nystrom=self._nystrom,
                current=current,
            )

    def _sample_counts(self, n_sampled: int) -> TransitionCounts:
        rows = self._batch_rng.integers(len(self._buffer), size=n_sampled)
        buffer = self._buffer
        return merge_transitions(
            buffer.inputs[rows],
            buffer.actions[rows],
            buffer.successors[rows],
            buffer.terminated[rows],
        )

    def _features_of(self, observation: int) -> Tensor:
        return self._represented.features().values[observation : observation + 1]

    def _uniform_policy(self) -> FeaturePolicy:
        width = self._represented.encoder.feature_dim
        linear = self.config.kernel == "linear"
        basis = None if linear else torch.zeros(0, width, dtype=torch.float64)
        rows = width if linear else 0
        weights = torch.zeros(rows, self._buffer.n_actions, dtype=torch.float64)
        return FeaturePolicy(self._kernel, basis, weights)

    def _package(self, policy: FeaturePolicy) -> CoveragePolicy:
        """A policy with its own frozen encoder: the two change together or not at all."""
        encoder = self._represented.encoder.frozen()
        return CoveragePolicy(encoder, policy.kernel, policy.basis, policy.weights)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on, right after a policy update."""
        tensors = {f"representation.{k}": v for k, v in self._represented.state().items()}
        tensors |= {f"policy.encoder.{k}": v for k, v in self.policy.encoder.state_dict().items()}
        tensors["policy.weights"] = self.policy.weights.detach()
        if self.policy.basis is not None:
            tensors["policy.basis"] = self.policy.basis
        if self._warmth is not None:
            tensors["warmth.anchors"] = torch.from_numpy(self._warmth.anchors)
            tensors["warmth.dual"] = self._warmth.dual
        return tensors, {
            "steps": self._steps,
            "warmth": None
            if self._warmth is None
            else {"pairs": self._warmth.pairs, "step_size": self._warmth.step_size},
            "rng": generator_state(self._rng),
            "batch_rng": generator_state(self._batch_rng),
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned; the buffer must be restored already."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self._represented.load_state(part("representation."))
        weights = tensors["policy.weights"]
        self.policy = self._package(
            FeaturePolicy(self._kernel, tensors.get("policy.basis"), weights)
        )
        self.policy.encoder.load_state_dict(part("policy.encoder."))
        self._steps = int(state["steps"])
        if state["warmth"] is not None:
            stored = part("warmth.")
            self._warmth = Warmth(
                stored["anchors"].numpy(),
                int(state["warmth"]["pairs"]),
                stored["dual"],
                float(state["warmth"]["step_size"]),
            )
        self._rng.bit_generator.state = restore_generator(state["rng"]).bit_generator.state
        self._batch_rng.bit_generator.state = restore_generator(
            state["batch_rng"]
        ).bit_generator.state
        self._collection.discard()
