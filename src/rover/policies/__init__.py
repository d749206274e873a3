"""Policies that agents return, with save and load."""

from rover.policies.contexts import ContextPolicy as ContextPolicy
from rover.policies.coverage import CoveragePolicy as CoveragePolicy
from rover.policies.loading import load_policy as load_policy
from rover.policies.network import GreedyPolicy as GreedyPolicy
from rover.policies.network import NetworkPolicy as NetworkPolicy
from rover.policies.network import PolicyNetwork as PolicyNetwork
from rover.policies.network import TwinCritics as TwinCritics
from rover.policies.policy import PlannedPolicy as PlannedPolicy
from rover.policies.policy import Policy as Policy
from rover.policies.policy import StatePolicy as StatePolicy
from rover.policies.policy import TabulatedPolicy as TabulatedPolicy
from rover.policies.poses import PosePolicy as PosePolicy
from rover.policies.sampled import SampledPolicy as SampledPolicy
from rover.policies.values import ValuePolicy as ValuePolicy
