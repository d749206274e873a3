"""A learner with an intrinsic reward: RND, SMM, APT, MAXENT and CIC are this with five rewards.

The reward knows no learner and the learner no reward; they meet here. Each update draws windows of
the buffer, asks for the reward of every step in them, lets the reward learn from the same steps,
and hands n-step returns to the learner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from rover.baselines.making import make_intrinsic
from rover.baselines.maxent import MaxEnt, MaxEntConfig
from rover.baselines.observation import ObservationSpec
from rover.baselines.peer_config import BonusConfig
from rover.baselines.protocol import IntrinsicReward
from rover.baselines.reward_scaling import RewardScaler
from rover.baselines.skill_log import SkillLog
from rover.baselines.skills import OneHotSkills
from rover.coverage.encoding import observation_dtype
from rover.data import NStepSampler, NStepWindows, ReplayBuffer, StepOutcome
from rover.envs import finite_dynamics
from rover.features import input_statistics
from rover.learners import DiscreteDDPG, PolicyNetwork, learner_encoder_spec, n_step_returns
from rover.policies.network import NetworkPolicy
from rover.policies.tabulated import TabulatedPolicy
from rover.storage import generator_state, restore_generator
from rover.training.timing import Stopwatch
from rover.types import Batch


class BonusMethod:
    """DDPG on an intrinsic reward, as the pretraining loop sees it.

    Args:
        method: name of the intrinsic reward.
        config: settings.
        spec: the observations.
        buffer: the replay buffer, which the loop fills.
        seed: seed of everything random in the method.
        stopwatch: measures the phases.

    Attributes:
        name: the method's name.
        policy: the latest snapshot; for MAXENT the mixture with every policy that ended a round.
    """

    def __init__(
        self,
        method: str,
        config: BonusConfig[Any],
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
        generator = torch.Generator().manual_seed(seed)
        self._reward: IntrinsicReward = make_intrinsic(
            method, config.intrinsic, spec, buffer.n_actions, generator
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
        self._scaler = RewardScaler(config.reward_scale)
        self._skills: SkillLog | None = None
        self._evaluation_skills: Tensor | None = None
        if self._reward.skill_dim:
            self._skills = SkillLog(self._reward, every=config.skill_every, rng=self._rng)
            self._evaluation_skills = self._draw_evaluation_skills(np.random.default_rng([seed, 4]))
        self._rounds: list[PolicyNetwork] = []
        self._is_centered = False
        self._steps = 0
        self._metrics: dict[str, float] = {}
        self._tabulated = TabulatedPolicy(buffer.observations, self._logits)
        self.policy = self._package()

    def _draw_evaluation_skills(self, rng: np.random.Generator) -> Tensor:
        """The skills (K, k) that the policy is measured with: all of them where they are few."""
        few = isinstance(self._reward, OneHotSkills)
        n = self._reward.skill_dim if few else self.config.evaluation_skills
        return torch.from_numpy(self._reward.skills_for_evaluation(n, rng))

    def act(self, observation: int) -> int:
        """The action to take on the observation with this index in the buffer."""
        config = self.config
        if self._steps < config.seed_steps or self._rng.random() < config.exploration_epsilon:
            return int(self._rng.integers(self._buffer.n_actions))
        with self._stopwatch("collect"):
            return self._tabulated.sample(observation, self._rng)

    def _logits(self, observations: Tensor, rows: Tensor) -> Tensor:
        """Logits (n, A) of the policy with the skill that is being followed."""
        skills = None
        if self._skills is not None:
            skills = torch.from_numpy(self._skills.current).expand(len(observations), -1)
        return self._learner.policy_logits(observations, skills)

    def observe(self, outcome: StepOutcome) -> None:
        """Log the skill of the transition, and draw the next one where it is due."""
        self._steps += 1
        if self._skills is not None and self._skills.note(outcome, self._rng):
            self._tabulated.forget()

    def update(self) -> dict[str, Any] | None:
        """One update of reward and learner when due; metrics when a snapshot is.

        Raises:
            ConfigurationError: a batch too small for the reward's nearest neighbours.
            NonFiniteError: the reward or the learner broke down.
        """
        config = self.config
        if self._steps >= config.seed_steps:
            self._end_round()
            if self._steps % config.learner.update_every == 0:
                self._learn()
                self._tabulated.forget()
        if self._steps % config.policy_every != 0:
            return None
        self.policy = self._package()
        # A resumed run begins here with nothing tabulated, and rounding depends on what was.
        self._tabulated.forget()
        return dict(self._metrics)

    def _learn(self) -> None:
        config = self.config
        if not (self._is_centered or self._spec.is_categorical):
            # Once, so that what the networks have learned is not moved under them.
            self._learner.set_centering(*input_statistics(self._buffer.observations.rows))
        self._is_centered = True
        skills = None if self._skills is None else self._skills.rows
        windows = self._sampler.sample(config.learner.batch_size, self._batch_rng, skills=skills)
        steps, kept = _counted_steps(windows)
        with self._stopwatch("estimate"):
            raw = self._reward.reward(steps)
            rewards = torch.zeros(windows.rows.size)
            rewards[kept] = self._scaler(raw)
        with self._stopwatch("represent"):
            metrics = self._reward.update(steps)
        with self._stopwatch("improve"):
            returns = n_step_returns(
                rewards.view(windows.rows.shape),
                windows.terminated,
                windows.truncated,
                discount=config.learner_discount,
            )
            learned = self._learner.update(windows.batch, returns.returns, returns.discounts)
        self._metrics = metrics | {
            "reward_mean": float(raw.mean()),
            "critic_loss": learned.critic_loss,
            "q_mean": learned.q_mean,
            "policy_entropy": learned.policy_entropy,
        }

    def _end_round(self) -> None:
        """Add the policy to MAXENT's mixture, and fit the density to what all rounds visited.

        The first round is that of the seed steps, and its policy the new, uniform one. The buffer
        is what the policies so far have visited, so no further step is spent on roll-outs, and
        every method's budget means the same.
        """
        reward, settings = self._reward, self.config.intrinsic
        if not (isinstance(reward, MaxEnt) and isinstance(settings, MaxEntConfig)):
            return
        if (self._steps - self.config.seed_steps) % settings.refit_every != 0:
            return
        self._rounds.append(self._snapshot())
        visits = self._buffer.visits()
        seen = np.flatnonzero(visits)
        with self._stopwatch("represent"):
            observations = torch.from_numpy(self._buffer.observations.rows[seen])
            reward.refit(observations, visits[seen])

    def _package(self) -> NetworkPolicy:
        return NetworkPolicy([*self._rounds, self._snapshot()], self._evaluation_skills)

    def _snapshot(self) -> PolicyNetwork:
        network = self._learner.policy_module()
        assert isinstance(network, PolicyNetwork)  # no other actor was given
        return network

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that the next step depends on, right after a snapshot."""
        tensors = {f"learner.{k}": v for k, v in self._learner.state().items()}
        tensors |= {f"reward.{k}": v for k, v in self._reward.state().items()}
        for number, network in enumerate(self._rounds):
            tensors |= {f"rounds.{number}.{k}": v for k, v in network.state_dict().items()}
        if self._skills is not None:
            tensors |= {f"skills.{k}": v for k, v in self._skills.state().items()}
        return tensors, {
            "steps": self._steps,
            "rounds": len(self._rounds),
            "is_centered": self._is_centered,
            "metrics": self._metrics,
            "reward_scale": self._scaler.state(),
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
            network = self._snapshot()
            network.load_state_dict(part(f"rounds.{number}."))
            self._rounds.append(network)
        if self._skills is not None:
            self._skills.load_state(part("skills."))
        self._scaler.load_state(state["reward_scale"])
        self._steps = int(state["steps"])
        self._is_centered = bool(state["is_centered"])
        self._metrics = dict(state["metrics"])
        self._rng = restore_generator(state["rng"])
        self._batch_rng = restore_generator(state["batch_rng"])
        self._tabulated.forget()
        self.policy = self._package()


def _counted_steps(windows: NStepWindows) -> tuple[Batch, Tensor | slice]:
    """The steps before the ends of their windows, and where they stand among all n·k.

    What is repeated to fill a window up would count several times among nearest neighbours and in
    what the reward learns.
    """
    steps, n_steps = windows.steps, windows.rows.shape[1]
    kept = np.flatnonzero(np.arange(n_steps) < windows.lengths[:, None])
    if len(kept) == windows.rows.size:
        return steps, slice(None)
    places = torch.from_numpy(kept)
    counted = Batch(
        steps.observations,
        steps.index[places],
        steps.actions[places],
        steps.next_index[places],
        None if steps.skills is None else steps.skills[places],
    )
    return counted, places


def observation_spec(env: gym.Env[Any, Any]) -> ObservationSpec:
    """How the peers see the observations of an environment.

    Vectors are taken for one-hot where the environment's states are known and say so.

    Raises:
        ConfigurationError: observations of a dtype that encoders do not take.
    """
    space = env.observation_space
    dtype = observation_dtype(space)
    if isinstance(space, spaces.Discrete):
        return ObservationSpec((), dtype, n_states=int(space.n))
    assert isinstance(space, spaces.Box)
    shape = tuple(space.shape)
    unit = len(shape) == 1 and bool((space.low == 0).all() and (space.high == 1).all())
    problem = finite_dynamics(env) if unit else None
    return ObservationSpec(
        shape, dtype, one_hot=problem is not None and _is_one_hot(problem.observations)
    )


def _is_one_hot(observations: NDArray[Any]) -> bool:
    return bool(
        ((observations == 0) | (observations == 1)).all() and (observations.sum(axis=1) == 1).all()
    )
