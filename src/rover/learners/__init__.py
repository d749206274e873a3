"""Learners: update a policy from transitions and rewards."""

from rover.learners.actor_critic import ActorCritic, ActorCriticMetrics
from rover.learners.actor_trainer import RegressorActor
from rover.learners.config import (
    CQLConfig,
    DDPGConfig,
    SACConfig,
    make_cql_config,
    make_ddpg_config,
    make_sac_config,
)
from rover.learners.cql import CQLMetrics, DiscreteCQL
from rover.learners.ddpg import DDPGMetrics, DiscreteDDPG
from rover.learners.losses import (
    actor_loss,
    actor_loss_grad,
    conservative_loss,
    conservative_loss_grad,
    critic_loss,
    critic_loss_grad,
    critic_targets,
    double_q_targets,
    policy_entropy,
    soft_critic_targets,
)
from rover.learners.networks import (
    ParallelMLP,
    PolicyNetwork,
    PolicySpec,
    TwinCritics,
    learner_encoder_spec,
    make_policy_network,
)
from rover.learners.returns import NStepReturns, n_step_returns
from rover.learners.sac import DiscreteSAC, SACMetrics

__all__ = [
    "ActorCritic",
    "ActorCriticMetrics",
    "CQLConfig",
    "CQLMetrics",
    "DDPGConfig",
    "DDPGMetrics",
    "DiscreteCQL",
    "DiscreteDDPG",
    "DiscreteSAC",
    "NStepReturns",
    "ParallelMLP",
    "PolicyNetwork",
    "PolicySpec",
    "RegressorActor",
    "SACConfig",
    "SACMetrics",
    "TwinCritics",
    "actor_loss",
    "actor_loss_grad",
    "conservative_loss",
    "conservative_loss_grad",
    "critic_loss",
    "critic_loss_grad",
    "critic_targets",
    "double_q_targets",
    "learner_encoder_spec",
    "make_cql_config",
    "make_ddpg_config",
    "make_policy_network",
    "make_sac_config",
    "n_step_returns",
    "policy_entropy",
    "soft_critic_targets",
]
