"""Fine-tuning: learn a task by interacting, from a pretrained policy or from scratch.

The reward is seen only by interacting: nothing that pretraining stored is looked at. A transferred
policy first acts unchanged while the critics learn its values (the warm-up), for a number of steps
and until returns differ; then it learns. Of a set of policies, of skills or a mixture, each episode
of the warm-up follows one; the one with the best returns learns.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn

from rover.envs import Environment, Spaces
from rover.errors import ConfigurationError, choose
from rover.features import Encoder
from rover.features.encoders import tried
from rover.finetuning.config import FinetuneConfig
from rover.finetuning.run import ComponentActor, OnlineRun
from rover.learners import DiscreteDDPG
from rover.policies import (
    ContextPolicy,
    GreedyPolicy,
    NetworkPolicy,
    PlannedPolicy,
    Policy,
    PosePolicy,
    TabulatedPolicy,
    ValuePolicy,
)
from rover.storage import RunConfig

_NEVER_LEARN = GreedyPolicy, ContextPolicy, PosePolicy


class Finetuning(OnlineRun):
    """One run of an actor-critic learner on a task, from the policy `start` or from scratch."""

    activity = "finetune"
    config_class = FinetuneConfig
    config: FinetuneConfig
    _learner: DiscreteDDPG
    _acting: TabulatedPolicy

    def __init__(
        self, run_config: RunConfig, start: nn.Module | None, env: Environment, run_dir: Path | None
    ) -> None:
        super().__init__(run_config, env, run_dir)
        config = self.config
        self._patience = config.stop_after
        transfer = "policy" if run_config.transfer is None else run_config.transfer
        actor, encoder = _initialise_from(start, env.env, transfer, run_config.freeze_encoder)
        # Tables of logits have a step size of their own; all else of a policy is a network.
        is_table = isinstance(actor, PlannedPolicy | ValuePolicy)
        tables = dict.fromkeys(("actor.weights", "actor.table"), config.coverage_learning_rate)
        self._learner = DiscreteDDPG(
            self._observations,
            n_actions=self._buffer.n_actions,
            config=config.learner,
            generator=torch.Generator().manual_seed(run_config.seed),
            actor=actor,
            actor_learning_rates=tables if is_table else None,
            critic_encoder=encoder,
        )
        self._start = start
        self._acting = TabulatedPolicy(
            self._buffer.observations, lambda seen, _: self._learner.actor(seen)
        )
        self._is_from_scratch = actor is None
        self._progress.is_warming_up = actor is not None
        if isinstance(self._learner.actor, ComponentActor):
            self._learner.actor.draw(self._rng)
        # The curve has the same columns before the first update.
        self._progress.latest = dict.fromkeys(("critic_loss", "q_mean", "policy_entropy"))

    def _choose(self) -> int:
        config, step = self.config, self.num_timesteps
        if self._is_from_scratch and step < config.seed_steps:
            return int(self._rng.integers(self._buffer.n_actions))
        # A transferred policy explores by itself until it begins to learn.
        if not self._progress.is_warming_up:
            # From the end of the warm-up on, since until then the transferred policy acted alone.
            decayed = min(1.0, (step - self._progress.warmup_end) / config.exploration_steps)
            start, end = config.exploration_start, config.exploration_end
            if self._rng.random() < start + decayed * (end - start):
                return int(self._rng.integers(self._buffer.n_actions))
        return self._acting.sample(self._collector.observations[0], self._rng)

    def _learn(self, *, done: bool) -> None:
        """End the warm-up and update when due."""
        config, progress = self.config, self._progress
        actor, step = self._learner.actor, self.num_timesteps
        if progress.is_warming_up:
            progress.warmup_end = step
            # Each episode of the warm-up tries one policy of a set; the best of them learns.
            if done and isinstance(actor, ComponentActor):
                earned = int(actor.component), progress.recent_returns[-1]
                progress.component_returns.append(earned)
                actor.draw(self._rng)
                self._acting.forget()
            if progress.is_rewarded and step >= config.seed_steps + config.warmup_steps:
                progress.is_warming_up = False
                if progress.component_returns and isinstance(actor, ComponentActor):
                    pairs = zip(*progress.component_returns, strict=True)
                    components, values = map(np.array, pairs)
                    # By the mean: the draw gave some of them more episodes than others.
                    played = np.unique(components)
                    means = np.array([values[components == k].mean() for k in played])
                    best = played[means == means.max()]
                    actor.component.fill_(int(self._rng.choice(best)))
                self._acting.forget()
        if step <= config.seed_steps or step % config.learner.update_every != 0:
            return
        # Critics learn during the warm-up, so that the first step of the actor has values to climb;
        # not on the step that ends it, which was made by the policy as it was.
        train_actor = step > progress.warmup_end
        with self.stopwatch("improve"):
            if progress.latest["q_mean"] is None:
                # Once, so that what the networks have learned is not moved under them.
                self._learner.centre(self._buffer.observations.rows)
            metrics = self._improve(train_actor=train_actor)
        progress.latest = {name: metrics[name] for name in progress.latest}
        if train_actor:
            self._acting.forget()


def _initialise_from(
    policy: nn.Module | None, env: gym.Env[Any, Any], transfer: str, freezes: bool | None
) -> tuple[nn.Module | None, Encoder | None]:
    """The actor to begin with, and the encoder below new networks; None: new ones. They are copies,
    whose parameters learn where they require gradients."""
    choose("transfer", transfer, ("policy", "encoder", "both"))
    if policy is None:
        return None, None
    if not isinstance(policy, nn.Module) or isinstance(policy, _NEVER_LEARN):
        raise ConfigurationError(
            f"a {type(policy).__name__} has nothing that could learn a task; pass a policy from "
            "rover.load_policy, or a torch module from observations to logits"
        )
    if isinstance(policy, Policy):
        policy.check_fits(env)
    else:
        # The shapes of a module of the user's own are unknown: it is tried out.
        spaces = Spaces.of(env)
        logits = tried(policy, "the module", (1, *spaces.shape), spaces.dtype)
        returned = tuple(getattr(logits, "shape", ()))
        if returned != (1, spaces.n_actions) or not logits.is_floating_point():
            raise ConfigurationError(
                f"the module returned {returned} for one observation; it must return floating-"
                f"point logits of shape (n, {spaces.n_actions})"
            )
    if isinstance(policy, ValuePolicy) and transfer == "policy":
        return policy.trainable(), None  # its table of values learns; its landmarks stay
    # The regressors of a ROVER policy are features of the states it was planned on: were the
    # encoder to move, its weights would mean something else after every step.
    if freezes is None:
        freezes = isinstance(policy, PlannedPolicy)
    # Loaded policies require no gradients; a copy learns, and what was given never changes.
    actor, encoder = copy.deepcopy(policy).train().requires_grad_(True), None
    if isinstance(actor, PlannedPolicy):
        actor.epsilon = 0.0  # how random it is it learns, too
    # The last encoder of a mixture is its latest; all of a policy's stay or learn together.
    encoders = [module for module in actor.modules() if isinstance(module, Encoder)]
    has_weights = bool(encoders and list(encoders[-1].parameters()))
    if transfer != "policy":
        if not has_weights or isinstance(policy, ValuePolicy):
            raise ConfigurationError(
                f"a {type(policy).__name__} like this one has no encoder to transfer: use "
                "transfer='policy', or pretrain with representation='info_nce'"
            )
        encoder = copy.deepcopy(encoders[-1]).requires_grad_(not freezes)
    if transfer == "encoder":
        return None, encoder
    if freezes:
        nn.ModuleList(encoders).requires_grad_(False)
    return ComponentActor(actor) if isinstance(actor, NetworkPolicy) else actor, encoder
