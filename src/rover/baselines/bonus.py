"""A learner with an intrinsic reward: RND, SMM, APT, MAXENT and CIC are this with five rewards.

Each update draws windows of the buffer, lets the reward value and learn from every step in them,
and hands n-step returns to the learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from rover.baselines.rewards import IntrinsicReward, RunningMoments
from rover.data import gather, n_step_batch, sample_windows
from rover.envs import finite_dynamics
from rover.errors import ConfigurationError
from rover.features import Observations, copied_tensors, restore_tensors
from rover.learners import DDPGConfig, DiscreteDDPG
from rover.policies import NetworkPolicy, PolicyNetwork, TabulatedPolicy
from rover.training.agent import Agent
from rover.training.config import AgentConfig, merge_settings

_IntrinsicT = TypeVar("_IntrinsicT", bound=BaseModel)


class BonusConfig(AgentConfig, Generic[_IntrinsicT]):
    """Settings of an agent that is a learner with an intrinsic reward.

    Settings of the learner and of the reward are nested; each agent has its own.
    """

    device: Literal["cpu", "cuda"] = Field(
        "cpu",
        description="where the networks learn; a GPU pays off with preset `published`; its "
        "results are not the same to the bit",
    )
    learner: DDPGConfig = Field(description="settings of the learner")
    intrinsic: _IntrinsicT = Field(description="settings of the intrinsic reward")
    n_steps: int = Field(1, ge=1, description="steps of a return before it is bootstrapped")
    window: Literal["sum", "first", "last"] = Field(
        "sum",
        description="a return sums the rewards of all its steps; or it has one reward, of the "
        "observation that it begins or ends with, and one γ before its bootstrap",
    )
    learner_discount: float = Field(0.99, gt=0, lt=1, description="γ of the learner's returns")
    reward_scale: Literal["raw", "std", "standard"] = Field(
        "raw",
        description="rewards as they are, in units of their running standard deviation, or less "
        "their running mean too",
    )
    exploration_epsilon: float = Field(0.25, ge=0, le=1, description="share of uniform actions")
    seed_steps: int = Field(2000, ge=0, description="uniform actions before anything is learned")
    policy_every: int = Field(500, ge=1, description="environment steps between snapshots")
    skill_every: int | None = Field(
        None, ge=1, description="environment steps before a new skill; None: each episode"
    )
    checkpoint_every: int = Field(5000, ge=1, description="environment steps between checkpoints")


# Settings in which preset ``fast`` differs from ``published``, beside smaller networks and returns.
#
# The reward moves while it is being learned, and a softmax actor without entropy soon prefers one
# action everywhere: it covers less than uniform actions do. In units of a standard
# deviation one entropy coefficient serves all rewards. On Two Rooms J/J* of the policies is 21 to
# 80 without them (10,000 steps), 1.1 to 1.8 with them (8,000 steps, on the seeds that they were
# chosen on), and 2.03 for uniform actions.
_FAST: Mapping[str, Any] = {
    "learner": {"batch_size": 128, "update_every": 4, "entropy_coefficient": 2.0},
    "reward_scale": "standard",
    "seed_steps": 500,
}


class BonusAgent(Agent[BonusConfig[Any]]):
    """DDPG on an intrinsic reward.

    A subclass declares its ``name`` and ``label``, its ``reward_class``, the
    ``config_class`` (:class:`BonusConfig` of the reward's settings) and its presets
    (:meth:`make_presets`).
    """

    reward_class: ClassVar[type[IntrinsicReward[Any]]]

    @staticmethod
    def make_presets(
        *, published: Mapping[str, Any], fast: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """The presets "published", of what the publications set beside the learner of the ROVER
        paper, and "fast", of what it sets beside smaller learners, standardised rewards and
        entropy."""
        large = {"learner": DDPGConfig.PUBLISHED, "intrinsic": {}}
        return {
            "fast": merge_settings({"intrinsic": {}, **_FAST}, fast),
            "published": merge_settings(large, published),
        }

    def _skill_dim(self) -> int:
        return self.reward_class.skill_dim(self.config.intrinsic)

    def _build(self) -> NetworkPolicy:
        config, n_actions, skill_dim = self.config, self.buffer.n_actions, self._skill_dim()
        # Two streams: how often batches are drawn must not change how the agent acts.
        self._rng, self._batch_rng = np.random.default_rng([self.seed, 0]).spawn(2)
        problem = finite_dynamics(self.env)
        states = None if problem is None else problem.observations
        observations = Observations.from_space(self.spaces.observation, states)
        if config.device == "cuda" and not torch.cuda.is_available():
            raise ConfigurationError(
                "device=cuda, and torch finds no GPU: install a build of torch with CUDA, or leave "
                "device at cpu"
            )
        with torch.device(config.device):
            generator = torch.Generator(config.device).manual_seed(self.seed)
            self._reward = self.reward_class(config.intrinsic, observations, n_actions, generator)
            self._learner = DiscreteDDPG(
                observations,
                n_actions=n_actions,
                config=config.learner,
                skill_dim=skill_dim,
                generator=generator,
            )
        self._reward_moments = RunningMoments(1)
        self._evaluation_skills: Tensor | None = None
        self._skills: dict[int, NDArray[np.float32]] = {}  # of episodes in progress
        if skill_dim:
            rng = np.random.default_rng([self.seed, 4])
            # Drawn once, from a stream of their own: figures of a run differ by its policies, not
            # by skills.
            skills = self._reward.evaluation_skills(rng)
            self._evaluation_skills = torch.from_numpy(skills)
        self._figures_of_update: dict[str, float] = {}  # none before the first update
        self._tabulated = TabulatedPolicy(self.buffer.observations, self._logits)
        return self._package()

    def _act(self, observation: int) -> int:
        config, episode = self.config, self._collector.episodes[self._collector.turn]
        if self._skill_dim() and episode not in self._skills:
            self._skills[episode] = self._reward.sample_skill(self._rng)
        if self._skill is not (skill := self._skills.get(episode)):
            self._skill = skill
            self._tabulated.forget()
        is_seeding = self.num_timesteps < config.seed_steps
        if is_seeding or self._rng.random() < config.exploration_epsilon:
            return int(self._rng.integers(self.buffer.n_actions))
        with self.stopwatch("collect"):
            return self._tabulated.sample(observation, self._rng)

    def _logits(self, observations: Tensor, rows: Tensor) -> Tensor:
        """Logits (n, A) of the policy with the skill that is being followed."""
        device, skills = self.config.device, None
        if self._skill is not None:
            skills = torch.from_numpy(self._skill).to(device).expand(len(observations), -1)
        logits: Tensor = self._learner.actor(observations.to(device), skills)
        return logits.cpu()

    def _observe(self, row: int, *, done: bool) -> None:
        reached = self.buffer.observations.rows[self.buffer.successors[row]]
        episode, every = int(self.buffer.episodes[row]), self.config.skill_every
        self._reward.note(reached, done=done, episode=episode)
        if done:
            self._skills.pop(episode, None)
        if every is not None and self.num_timesteps % every == 0:
            self._skills.clear()

    def _update(self) -> dict[str, Any] | None:
        """One update of reward and learner when due; figures when a snapshot is."""
        config = self.config
        is_due = self.num_timesteps % config.learner.update_every == 0
        if self.num_timesteps >= config.seed_steps and is_due:
            self._learn()
            self._tabulated.forget()
        if self.num_timesteps % config.policy_every != 0:
            return None
        self._policy = self._package()
        # A resumed run begins here with nothing tabulated, and rounding depends on what was.
        self._tabulated.forget()
        return dict(self._figures_of_update)

    def _learn(self) -> None:
        """One update of reward and learner on windows of the buffer."""
        config, buffer = self.config, self.buffer
        if not self._figures_of_update:
            # Once, so that what is learned is not moved under the networks.
            self._learner.centre(buffer.observations.rows)
        n, k = config.learner.batch_size, config.n_steps
        rows, lengths = sample_windows(buffer, n, self._batch_rng, n_steps=k)
        last = rows[:, -1]
        # What fills a short window up would count twice among neighbours and in what is learned.
        inside = np.arange(k) < lengths[:, None]  # (n, k)
        if config.window == "sum":
            batch = gather(buffer, rows[inside])
        else:
            # As the published code has it: from the first state of a window to its last, as if it
            # were a step.
            batch = gather(buffer, rows[:, 0], buffer.successors[last])
            if config.window == "first":
                batch = replace(batch, valued=batch.index)
        with self.stopwatch("represent"):
            batch = batch.to(config.device)
            raw, figures = self._reward.update(batch)
            raw = raw.cpu()
            rewards = self._scaled(raw)
        with self.stopwatch("improve"):
            if config.window == "sum":
                of_steps = torch.zeros(inside.shape, dtype=torch.float32)
                of_steps[torch.from_numpy(inside)] = rewards
                batch, returns, discounts = n_step_batch(
                    buffer, rows, lengths, of_steps, discount=config.learner_discount
                )
            else:
                goes_on = torch.from_numpy(~buffer.terminated[last])
                returns, discounts = rewards, (config.learner_discount * goes_on).float()
            rewards, discounts = returns.to(config.device), discounts.to(config.device)
            learned = self._learner.update(batch.to(config.device), rewards, discounts)
        learned = {name: learned[name] for name in ("critic_loss", "q_mean", "policy_entropy")}
        self._figures_of_update = figures | {"reward_mean": float(raw.mean())} | learned

    def _scaled(self, rewards: Tensor) -> Tensor:
        """Rewards (n,) at unit scale, by the moments of all rewards so far.

        Intrinsic rewards differ by orders of magnitude, from 10⁻² to 10³, and an entropy
        coefficient means nothing unless they do not. Where episodes are only ever truncated,
        subtracting the mean changes every policy's return alike; a terminated episode then counts
        as if average rewards followed, as they do after the reset, and not as if there were none.
        """
        if self.config.reward_scale == "raw":
            return rewards
        moments = self._reward_moments
        moments.update(rewards[:, None])
        shift = float(moments.mean[0]) if self.config.reward_scale == "standard" else 0.0
        return ((rewards.double() - shift) / float(moments.scale[0])).float()

    def _package(self) -> NetworkPolicy:
        """Copy of the current policy, unaffected by later updates."""
        return NetworkPolicy([self._snapshot()], self._evaluation_skills)

    def _snapshot(self) -> PolicyNetwork:
        network = self._learner.policy_module()
        assert isinstance(network, PolicyNetwork)  # no other actor was given
        return network.cpu()

    def _agent_state(self) -> dict[str, Any]:
        return {
            "learner": self._learner.state(),
            "reward": self._reward.state(),
            "reward_moments": copied_tensors(self._reward_moments.state_dict()),
            "skills": {str(episode): skill for episode, skill in self._skills.items()},
            "figures": self._figures_of_update,
        }

    def _load_agent_state(self, state: Mapping[str, Any]) -> None:
        self._learner.load_state(state["learner"])
        self._reward.load_state(state["reward"])
        moments = dict(self._reward_moments.named_buffers())
        restore_tensors(moments, state["reward_moments"], owner="the scale of the rewards")
        self._skills = {int(episode): skill for episode, skill in state["skills"].items()}
        self._figures_of_update = dict(state["figures"])
        self._tabulated.forget()
        self._policy = self._package()
