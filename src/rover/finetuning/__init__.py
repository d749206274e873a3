"""Transfer: learn tasks from what pretraining left, by interacting or from stored transitions."""

from rover.finetuning.components import ComponentActor
from rover.finetuning.config import (
    FinetuneConfig,
    OfflineConfig,
    make_finetune_config,
    make_offline_config,
)
from rover.finetuning.curves import Curve
from rover.finetuning.finetuning import Finetuning
from rover.finetuning.offline import OfflineTrained, OfflineTraining, train_offline
from rover.finetuning.online import Finetuned, finetune, resume_finetune
from rover.finetuning.returns import GreedyEvaluator
from rover.finetuning.run_folder import TransferConfig, TransferFolder, read_transfer_config
from rover.finetuning.starting import Start, make_start
from rover.finetuning.tasks import Task, best_return, goal_distance, make_task, task_of

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
