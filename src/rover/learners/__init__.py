"""Learners: update a policy from transitions and rewards."""

from rover.learners.actor_critic import DiscreteDDPG, DiscreteSAC
from rover.learners.config import CQLConfig, DDPGConfig, SACConfig
from rover.learners.critics import DiscreteCQL
from rover.learners.networks import PolicyNetwork, PolicyNetworkConfig, TwinCritics

__all__ = [
    "CQLConfig",
    "DDPGConfig",
    "DiscreteCQL",
    "DiscreteDDPG",
    "DiscreteSAC",
    "PolicyNetwork",
    "PolicyNetworkConfig",
    "SACConfig",
    "TwinCritics",
]
