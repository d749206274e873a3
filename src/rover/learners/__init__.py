"""Learners: update a policy from transitions and rewards."""

from rover.learners.config import DDPGConfig, make_ddpg_config
from rover.learners.ddpg import DDPGMetrics, DiscreteDDPG
from rover.learners.losses import actor_loss, critic_loss, critic_targets, policy_entropy
from rover.learners.networks import (
    ParallelMLP,
    PolicyNetwork,
    PolicySpec,
    TwinCritics,
    learner_encoder_spec,
    make_policy_network,
)
from rover.learners.returns import NStepReturns, n_step_returns

__all__ = [
    "DDPGConfig",
    "DDPGMetrics",
    "DiscreteDDPG",
    "NStepReturns",
    "ParallelMLP",
    "PolicyNetwork",
    "PolicySpec",
    "TwinCritics",
    "actor_loss",
    "critic_loss",
    "critic_targets",
    "learner_encoder_spec",
    "make_ddpg_config",
    "make_policy_network",
    "n_step_returns",
    "policy_entropy",
]
