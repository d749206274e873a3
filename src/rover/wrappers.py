"""Wrappers that make an environment one that an agent can work with, or can be measured in."""

from rover.envs.discrete_actions import DiscreteActions
from rover.envs.enumeration import Enumerated

__all__ = ["DiscreteActions", "Enumerated"]
