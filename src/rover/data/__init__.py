"""Collect: the replay buffer, windows of it, and the loop that steps an environment."""

from rover.data.buffer import GrowingArray, ObservationTable, ReplayBuffer
from rover.data.episodes import episode_bounds
from rover.data.labelling import LabelledTransitions, label
from rover.data.rollout import Collector, StepOutcome, check_spaces, episode_seed
from rover.data.sampling import NStepSampler, NStepWindows
from rover.data.stored import load_buffer

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
