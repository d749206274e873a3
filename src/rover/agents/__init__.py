"""The agents: ROVER's pretraining loop and the policy that it hands over."""

from rover.agents.agent import Rover
from rover.agents.config import RoverConfig, make_config
from rover.agents.policy import CoveragePolicy, load_policy

__all__ = ["CoveragePolicy", "Rover", "RoverConfig", "load_policy", "make_config"]
