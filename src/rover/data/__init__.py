"""Collect: the buffer of transitions, batches, roll-outs, and tasks on stored transitions."""

from rover.data.batch import Batch as Batch
from rover.data.batch import draw_transitions as draw_transitions
from rover.data.batch import gather as gather
from rover.data.batch import n_step_batch as n_step_batch
from rover.data.batch import sample_windows as sample_windows
from rover.data.buffer import Buffer as Buffer
from rover.data.checking import check_env as check_env
from rover.data.relabel import label as label
from rover.data.relabel import relabel as relabel
from rover.data.rollout import Collector as Collector
from rover.data.rollout import RunningEpisode as RunningEpisode
from rover.data.rollout import as_reward as as_reward
from rover.data.rollout import check_repeats as check_repeats
from rover.data.rollout import check_same_spaces as check_same_spaces
from rover.data.table import ObservationTable as ObservationTable
from rover.transitions import TransitionCounts as TransitionCounts
from rover.transitions import merge_transitions as merge_transitions
