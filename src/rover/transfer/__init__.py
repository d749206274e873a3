"""Transfer: learn tasks from what pretraining left, by interacting or from stored transitions."""

from rover.transfer.components import ComponentActor
from rover.transfer.config import (
    FinetuneConfig,
    OfflineConfig,
    make_finetune_config,
    make_offline_config,
)
from rover.transfer.curves import Curve
from rover.transfer.finetuning import Finetuning
from rover.transfer.offline import OfflineTrained, OfflineTraining, train_offline
from rover.transfer.online import Finetuned, finetune, resume_finetune
from rover.transfer.returns import GreedyEvaluator
from rover.transfer.run_folder import TransferConfig, TransferFolder, read_transfer_config
from rover.transfer.starting import Start, make_start
from rover.transfer.tasks import Task, best_return, goal_distance, make_task, task_of

__all__ = [
    "ComponentActor",
    "Curve",
    "FinetuneConfig",
    "Finetuned",
    "Finetuning",
    "GreedyEvaluator",
    "OfflineConfig",
    "OfflineTrained",
    "OfflineTraining",
    "Start",
    "Task",
    "TransferConfig",
    "TransferFolder",
    "best_return",
    "finetune",
    "goal_distance",
    "make_finetune_config",
    "make_offline_config",
    "make_start",
    "make_task",
    "read_transfer_config",
    "resume_finetune",
    "task_of",
    "train_offline",
]
