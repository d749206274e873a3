"""Policies that agents return, with save and load."""

from rover.policies.contexts import ContextPolicy
from rover.policies.coverage import CoveragePolicy, PlannedPolicy, StatePolicy, TabulatedPolicy
from rover.policies.loading import load_policy
from rover.policies.network import GreedyPolicy, NetworkPolicy, PolicyNetwork, TwinCritics
from rover.policies.policy import Policy
from rover.policies.poses import PosePolicy
from rover.policies.sampled import SampledPolicy
from rover.policies.values import ValuePolicy

__all__ = [
    "ContextPolicy",
    "CoveragePolicy",
    "GreedyPolicy",
    "NetworkPolicy",
    "PlannedPolicy",
    "Policy",
    "PolicyNetwork",
    "PosePolicy",
    "SampledPolicy",
    "StatePolicy",
    "TabulatedPolicy",
    "TwinCritics",
    "ValuePolicy",
    "load_policy",
]
