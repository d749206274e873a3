"""Collect: the replay buffer, windows of it, and the loop that steps an environment."""

from rover.collection.buffer import GrowingArray, ObservationTable, ReplayBuffer
from rover.collection.rollout import Collector, StepOutcome, check_spaces, episode_seed
from rover.collection.sampling import NStepSampler, NStepWindows

__all__ = [
    "Collector",
    "GrowingArray",
    "NStepSampler",
    "NStepWindows",
    "ObservationTable",
    "ReplayBuffer",
    "StepOutcome",
    "check_spaces",
    "episode_seed",
]
