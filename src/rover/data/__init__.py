"""Collect: the buffer of transitions, batches, roll-outs, and tasks on stored transitions."""

from rover.data.batch import Batch, draw_transitions, gather, n_step_batch, sample_windows
from rover.data.buffer import Buffer
from rover.data.checking import check_env
from rover.data.relabel import label, relabel
from rover.data.rollout import (
    Collector,
    RunningEpisode,
    as_reward,
    check_repeats,
    check_same_spaces,
)
from rover.data.table import ObservationTable
from rover.transitions import TransitionCounts, merge_transitions

__all__ = [
    "Batch",
    "Buffer",
    "Collector",
    "ObservationTable",
    "RunningEpisode",
    "TransitionCounts",
    "as_reward",
    "check_env",
    "check_repeats",
    "check_same_spaces",
    "draw_transitions",
    "gather",
    "label",
    "merge_transitions",
    "n_step_batch",
    "relabel",
    "sample_windows",
]
