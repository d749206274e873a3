"""Occupancy coverage by planning on a learned transition model (paper, Algorithm 1).

collect → represent → estimate → improve: the agent follows an exploration plan made from where it
stands, chooses or trains its representation, makes the rows of its model, and plans the policy
that it returns from the initial states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rover.coverage.config import PRESETS, RoverConfig
from rover.coverage.cover import Cover
from rover.coverage.explore import LandmarkExplorer
from rover.coverage.improve import Improvement, PlanningModel, improve
from rover.coverage.published import kernel_planning_model
from rover.coverage.run import CoverageRun, _is_due
from rover.policies import Policy

# They are returned or measured only, and a plan on 2,000 landmarks takes seconds.
_LANDMARKS_SHARE = 0.2  # share of all steps between two policies on landmarks, which do not collect


class Rover(CoverageRun):
    """Reward-free pretraining by occupancy coverage.

    Args:
        env: a Gymnasium environment: its id, a function that makes it, or an instance. An instance
            is evaluated in itself, after the run; the others make a second one. Actions must be
            Discrete, or a bounded Box of up to 32 numbers; observations Discrete, a vector Box or
            a uint8 image Box. Its reward is never looked at.
        preset: ``"default"``, the best settings known; ``"paper"``, what its text says; or what the
            authors published, ``"code-2026-06"``.
        env_kwargs: keyword arguments of an environment given by its id.
        seed: everything random follows from it; one seed gives the same bits on one CPU.
        run_dir: folder for the run's files, which must not hold a run yet; None leaves no files.
        overrides: single settings, the fields of :class:`~rover.coverage.config.RoverConfig`.
            ``kernel``, ``encoder``, ``representation``, ``cover`` and ``target`` may also be your
            own: a :class:`~rover.operators.Kernel`, a torch module
            (:func:`~rover.features.custom_encoder`), a
            :class:`~rover.features.RepresentationLoss`, a function from observations
            (n, *shape) to what is to be covered of each, (n, k), and one to their weights (n,) ≥ 0
            in the distribution that is to be covered, or an array of one weight a state (S,).

    Raises:
        ConfigurationError: unknown or contradictory settings.
        UnsupportedSpaceError: an observation or action space that cannot be handled.

    Example:
        >>> agent = Rover("rover/MultiRooms-v0", seed=1).learn(1000)
        >>> agent.policy.probs(observations)
    """

    name, label = "rover", "ROVER"
    config_class, presets = RoverConfig, PRESETS

    # collect

    def _act(self, observation: int) -> int:
        with self.stopwatch("collect"):
            share, rng = self.config.exploration_epsilon, self._rng
            is_seed = self.num_timesteps < self.config.seed_steps
            if is_seed or (share > 0.0 and rng.random() < share):
                return int(rng.integers(self.buffer.n_actions))
            if self._poses is not None:
                inferred = self._poses.act(observation, rng)
                if inferred is not None:
                    return inferred
            if self._explorer is not None:
                self._explorer.turn_to(self._collector.episodes[self._collector.turn])
                action = self._explorer.act(observation, rng)
                if action is not None:
                    return action
        if self._explorer is not None:
            self._renew_policy()
        return self._tabulated.sample(observation, rng)

    def _observe(self, row: int, *, done: bool) -> None:
        with self.stopwatch("collect"):
            if self._poses is not None:
                self._infer_poses(self._poses)
            if self._explorer is not None and self.world.chosen != "poses":
                self._explorer.observe(row, done=done)

    def _update(self) -> Mapping[str, Any] | None:
        step = self.num_timesteps
        if step < self.config.seed_steps:
            return None
        # Known dynamics contain all contexts, so they are planned on directly.
        is_open = self.measures.evaluator is None
        if self.world.chosen == "contexts" or (is_open and self._recognises_contexts()):
            return self._update_in_contexts()
        figures = self._represent()
        if figures is None:
            return None
        # Only a policy that is followed or measured is worth planning.
        if not self._explores or self.measures.is_due(step):
            figures |= self._plan_and_follow()
        for explorer in (self._explorer, self._poses):
            if explorer is not None:
                explorer.forget_plan()
        return figures | {"exact_states": self.world.kind == "states"}

    # represent

    def _represent(self) -> dict[str, Any] | None:
        """Train the representation and suit it to the world, each when due; figures if a policy is
        due."""
        figures, step, share = dict[str, Any](), self.num_timesteps, self.config.policy_share
        with self.stopwatch("represent"):
            seen = self._representation
            if seen is not None and step % self.config.encoder_every == 0:
                figures |= seen.train()
            if not _is_due(self.config, step, 0.0):
                return None
            if isinstance(self._explorer, LandmarkExplorer):
                share = max(share, _LANDMARKS_SHARE)
            self._suit()
            if not _is_due(self.config, step, share):
                return None
            if self._representation is not None:
                self._representation.renew()
            return figures

    # estimate and improve

    def _improve(self) -> tuple[Policy, Improvement]:
        """A policy of mirror descent on the model of states, of landmarks, or of a kernel."""
        config, seen, cover, buffer = self.config, self._representation, self._cover, self.buffer
        with self.stopwatch("estimate"):
            known = None if self._poses is None else self._poses.states()
            states = None if known is None else known[0]
            encoder = None if seen is None else seen.policy_encoder()
            if states is not None:
                cover = Cover(states.buffer, (0, 1, 2))  # poses, whatever acts have changed
            if states is not None or seen is None or encoder is None:
                model = PlanningModel.of_states(states or self.world, None, config, cover)
            elif seen.plans_on == "kernel":
                model = kernel_planning_model(seen, cover, config, buffer, self._batch_rng)
            elif seen.plans_on == "landmarks":
                landmarks, most = self.world.landmarks(seen.sums), config.n_landmarks
                model, encoder = PlanningModel.of_landmarks(landmarks, encoder, cover, most=most)
            else:
                model = PlanningModel.of_states(self.world, seen.features(), config, cover)
        with self.stopwatch("improve"):
            step, explores = self.num_timesteps, self._explores
            plan = improve(model, self._warm_start, config, step=step, is_exploring=explores)
        return self._package(encoder, model.basis, plan.weights, states), plan
