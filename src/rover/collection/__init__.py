"""Collect: the replay buffer, windows of it, and the loop that steps an environment."""

from rover.collection.buffer import GrowingArray, ObservationTable, ReplayBuffer
from rover.collection.episodes import episode_bounds
from rover.collection.labelling import LabelledTransitions, label
from rover.collection.rollout import Collector, StepOutcome, check_spaces, episode_seed
from rover.collection.sampling import NStepSampler, NStepWindows
from rover.collection.stored import load_buffer

__all__ = [
    "Collector",
    "GrowingArray",
    "LabelledTransitions",
    "NStepSampler",
    "NStepWindows",
    "ObservationTable",
    "ReplayBuffer",
    "StepOutcome",
    "check_spaces",
    "episode_bounds",
    "episode_seed",
    "label",
    "load_buffer",
]
