"""Collect: the replay buffer and the loop that steps an environment."""

from rover.collection.buffer import ObservationTable, ReplayBuffer
from rover.collection.rollout import Collector, StepOutcome, check_spaces, episode_seed

__all__ = [
    "Collector",
    "ObservationTable",
    "ReplayBuffer",
    "StepOutcome",
    "check_spaces",
    "episode_seed",
]
