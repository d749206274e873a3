"""ROVER: collect → represent → estimate → improve, without any reward (paper, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rover.agents.config import RoverConfig
from rover.agents.planning import (
    CollectionPlan,
    FeaturePolicy,
    Nystrom,
    Plan,
    Warmth,
    fit_model,
    improve,
)
from rover.agents.policy import CoveragePolicy
from rover.agents.representing import Represented
from rover.agents.timing import Stopwatch
from rover.artefacts import (
    generator_state,
    restore_generator,
)
from rover.collection import ReplayBuffer, StepOutcome
from rover.mirror_descent import StepRule, backtracking_steps, constant_steps, growing_steps
from rover.operators import TransitionCounts, TransitionModel, make_kernel, merge_transitions
from rover.representation import EncoderSpec

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
            self._collection.renew(self._fit(None, current=observation), observation)
        with self._stopwatch("collect"):
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
        plan = self._plan_policy()
        self._warmth = Warmth.of(plan)
        self.policy = self._package(plan.policy)
        self._collection.discard()
        descent, support = plan.descent, plan.model.support
        return metrics | {
            "model_objective": descent.occupancy.objective,
            "sink_mass": descent.occupancy.sink_mass,
            "column_sum_max": float(plan.model.column_sums().max()),
            "mirror_steps": len(descent.objectives) - 1,
            "anchors": len(support.anchors),
            "pairs": len(support.pair_inputs),
        }

    def _plan_policy(self) -> Plan:
        config = self.config
        assert config.discount is not None
        model = self._fit(config.plan_transitions, current=None)
        warmup = min(1.0, self._steps / config.sink_warmup) if config.sink_warmup else 1.0
        warmth = self._warmth
        step_rule, dual = self._step_rule, None
        if config.warm_start and warmth is not None and warmth.fits(model.support):
            dual = warmth.dual
            step_rule = replace(step_rule, initial=warmth.step_size)
        with self._stopwatch("improve"):
            return improve(
                model,
                model.support.start,
                discount=config.discount,
                sink_norm=config.sink_norm * warmup,
                n_steps=config.mirror_steps,
                step_rule=step_rule,
                tolerance=config.mirror_tolerance,
                dual=dual,
            )

    def _fit(self, n_sampled: int | None, *, current: int | None) -> TransitionModel:
        config = self.config
        assert config.ridge is not None
        with self._stopwatch("represent"):
            features = self._represented.features()
        with self._stopwatch("estimate"):
            return fit_model(
                features,
                self._buffer.counts() if n_sampled is None else self._sample_counts(n_sampled),
                self._buffer.starts(),
                self._kernel,
                n_actions=self._buffer.n_actions,
                ridge=config.ridge,
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
            tensors["warmth.anchors"] = self._warmth.anchors
            tensors["warmth.pairs"] = self._warmth.pairs
            tensors["warmth.dual"] = self._warmth.dual
        return tensors, {
            "steps": self._steps,
            "step_size": None if self._warmth is None else self._warmth.step_size,
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
        if state["step_size"] is not None:
            self._warmth = Warmth(**part("warmth."), step_size=float(state["step_size"]))
        self._rng.bit_generator.state = restore_generator(state["rng"]).bit_generator.state
        self._batch_rng.bit_generator.state = restore_generator(
            state["batch_rng"]
        ).bit_generator.state
        self._collection.discard()
