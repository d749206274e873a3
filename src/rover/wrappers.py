"""Wrappers that make an environment one that an agent can work with, or can be measured in."""

from rover.envs import DiscreteActions, GoalObservation

__all__ = ["DiscreteActions", "GoalObservation"]
