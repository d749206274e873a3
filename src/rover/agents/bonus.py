"""A learner with an intrinsic reward: RND, SMM, APT, MAXENT and CIC are this with five rewards.

The reward knows no learner and the learner no reward; they meet here. Each update draws windows of
the buffer, asks for the reward of every step in them, lets the reward learn from the same steps,
and hands n-step returns to the learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rover.agents.network_policy import NetworkPolicy
from rover.agents.peer_config import BonusConfig
from rover.agents.timing import Stopwatch
from rover.artefacts import generator_state, restore_generator
from rover.collection import NStepSampler, ReplayBuffer, StepOutcome
from rover.collection.buffer import GrowingArray
from rover.intrinsic import (
    INTRINSIC_CONFIGS,
    IntrinsicReward,
    MaxEnt,
    ObservationSpec,
    make_intrinsic,
)
from rover.learners import (
    DiscreteDDPG,
    PolicyNetwork,
    learner_encoder_spec,
    n_step_returns,
)
from rover.representation import input_statistics


class BonusMethod:
    """DDPG on an intrinsic reward, as the pretraining loop sees it.

    Args:
        method: name of the intrinsic reward.
        config: settings.
        space: observation space.
        buffer: the replay buffer, which the loop fills.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.

    Attributes:
        name: the method's name.
        policy: the current policy; for MAXENT the mixture of all snapshots that ended a round.
    """

    def __init__(
        self,
        method: str,
        config: BonusConfig,
        spec: ObservationSpec,
        buffer: ReplayBuffer,
        *,
        seed: int,
        stopwatch: Stopwatch,
    ) -> None:
        self.name = method
        self.config = config
        self._spec = spec
        self._buffer = buffer
        self._stopwatch = stopwatch
        acting, drawing = np.random.SeedSequence([seed, 0]).spawn(2)
        self._rng = np.random.default_rng(acting)
        self._batch_rng = np.random.default_rng(drawing)
        evaluation_rng = np.random.default_rng([seed, 4])
        generator = torch.Generator().manual_seed(seed)
        self._reward: IntrinsicReward = make_intrinsic(
            method,
            INTRINSIC_CONFIGS[method].model_validate(config.intrinsic),
            spec,
            buffer.n_actions,
            generator,
        )
        self._learner = DiscreteDDPG(
            learner_encoder_spec(
                spec.shape,
                observation_dtype=spec.dtype,
                n_states=spec.n_states,
                one_hot=spec.one_hot,
                width=config.learner.hidden_sizes[0],
            ),
            n_actions=buffer.n_actions,
            config=config.learner,
            skill_dim=self._reward.skill_dim,
            generator=generator,
        )
        self._sampler = NStepSampler(buffer, n_steps=config.n_steps)
        self._skill_log: GrowingArray | None = None
        self._skill: NDArray[np.float32] | None = None
        self._evaluation_skills: Tensor | None = None
        if self._reward.skill_dim:
            self._skill_log = GrowingArray((self._reward.skill_dim,), np.float32)
            self._skill = self._reward.sample_skill(self._rng)
            self._evaluation_skills = torch.from_numpy(
                self._reward.skills_for_evaluation(config.evaluation_skills, evaluation_rng)
            )
        self._refit_every = int(config.intrinsic.get("refit_every", 0))
        self._rounds: list[PolicyNetwork] = []
        self._is_centered = False
        self._steps = 0
        self._metrics: dict[str, float] = {}
        self.policy = self._package()

    def act(self, observation: int) -> int:
        """The action to take on the observation with this index in the buffer."""
        config = self.config
        if self._steps < config.seed_steps or self._rng.random() < config.exploration_epsilon:
            return int(self._rng.integers(self._buffer.n_actions))
        with self._stopwatch("collect"):
            raw = torch.from_numpy(self._buffer.observations.rows[observation][None])
            skill = None if self._skill is None else torch.from_numpy(self._skill[None])
            logits = self._learner.policy_logits(raw, skill)[0].double()
            probabilities = torch.softmax(logits, dim=0).numpy()
            return int(
                np.searchsorted(np.cumsum(probabilities), self._rng.random()).clip(
                    0, self._buffer.n_actions - 1
                )
            )

    def observe(self, outcome: StepOutcome) -> None:
        """Log the skill of the transition, and draw the next one where it is due."""
        self._steps += 1
        if self._skill_log is None:
            return
        self._skill_log.append(self._skill)
        every = self.config.skill_every
        due = outcome.done if every is None else outcome.done or self._steps % every == 0
        if due:
            self._skill = self._reward.sample_skill(self._rng)

    def update(self) -> dict[str, Any] | None:
        """One update of reward and learner when due; metrics when a snapshot is."""
        config = self.config
        if self._steps >= config.seed_steps and self._steps % config.learner.update_every == 0:
            self._learn()
        if isinstance(self._reward, MaxEnt):
            self._end_round(self._reward)
        if self._steps % config.policy_every != 0:
            return None
        self.policy = self._package()
        return dict(self._metrics)

    def _learn(self) -> None:
        if not self._is_centered and not self._spec.is_categorical:
            # Once, so that what the networks have learned is not moved under them.
            self._learner.set_centering(*input_statistics(self._buffer.observations.rows))
        self._is_centered = True
        config = self.config
        skills = None if self._skill_log is None else self._skill_log.rows
        windows = self._sampler.sample(config.learner.batch_size, self._batch_rng, skills=skills)
        with self._stopwatch("estimate"):
            rewards = self._reward.reward(windows.steps).view(-1, config.n_steps)
        with self._stopwatch("represent"):
            metrics = self._reward.update(windows.steps)
        with self._stopwatch("improve"):
            returns = n_step_returns(
                rewards, windows.terminated, windows.truncated, discount=config.learner_discount
            )
            learned = self._learner.update(windows.batch, returns.returns, returns.discounts)
        self._metrics = metrics | {
            "reward_mean": float(rewards.mean()),
            "critic_loss": learned.critic_loss,
            "policy_entropy": learned.policy_entropy,
        }

    def _end_round(self, reward: MaxEnt) -> None:
        """Add the policy to MAXENT's mixture, and fit the density to what all rounds visited.

        The buffer is what the policies so far have visited, so no further step is spent on
        roll-outs, and every method's budget means the same.
        """
        if self._steps % self._refit_every != 0 or self._steps < self.config.seed_steps:
            return
        self._rounds.append(self._learner.policy_module())
        visits = self._buffer.visits()
        seen = np.flatnonzero(visits)
        with self._stopwatch("represent"):
            observations = torch.from_numpy(self._buffer.observations.rows[seen])
            reward.refit(observations, visits[seen])

    def _package(self) -> NetworkPolicy:
        if self._rounds:
            return NetworkPolicy([*self._rounds, self._learner.policy_module()])
        return NetworkPolicy([self._learner.policy_module()], self._evaluation_skills)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on."""
        tensors = {f"learner.{k}": v for k, v in self._learner.state().items()}
        tensors |= {f"reward.{k}": v for k, v in self._reward.state().items()}
        for number, network in enumerate(self._rounds):
            tensors |= {f"rounds.{number}.{k}": v for k, v in network.state_dict().items()}
        if self._skill_log is not None:
            tensors["skills"] = torch.from_numpy(self._skill_log.rows.copy())
            assert self._skill is not None
            tensors["skill"] = torch.from_numpy(self._skill)
        return tensors, {
            "steps": self._steps,
            "rounds": len(self._rounds),
            "is_centered": self._is_centered,
            "metrics": self._metrics,
            "rng": generator_state(self._rng),
            "batch_rng": generator_state(self._batch_rng),
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""

        def part(prefix: str) -> dict[str, Tensor]:
            return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

        self._learner.load_state(part("learner."))
        self._reward.load_state(part("reward."))
        self._rounds = []
        for number in range(int(state["rounds"])):
            network = self._learner.policy_module()
            network.load_state_dict(part(f"rounds.{number}."))
            self._rounds.append(network)
        if self._skill_log is not None:
            self._skill_log.replace(tensors["skills"].numpy())
            self._skill = tensors["skill"].numpy()
        self._steps = int(state["steps"])
        self._is_centered = bool(state["is_centered"])
        self._metrics = dict(state["metrics"])
        self._rng = restore_generator(state["rng"])
        self._batch_rng = restore_generator(state["batch_rng"])
        self.policy = self._package()


def observation_spec(space: spaces.Space[Any]) -> ObservationSpec:
    """How the peers see an observation space; one-hot vectors are told by their bounds [0, 1]."""
    if isinstance(space, spaces.Discrete):
        return ObservationSpec((), "int64", n_states=int(space.n))
    assert isinstance(space, spaces.Box)
    dtype = str(np.dtype(space.dtype))
    one_hot = len(space.shape) == 1 and bool((space.low == 0).all() and (space.high == 1).all())
    return ObservationSpec(tuple(space.shape), dtype, one_hot=one_hot)  # type: ignore[arg-type]
