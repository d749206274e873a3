"""Learn tasks from what pretraining left, by interacting or from stored transitions."""

from rover.finetuning.config import AdaptConfig, FinetuneConfig, OfflineConfig
from rover.finetuning.learn import adapt, finetune, resume_task, train_offline
from rover.finetuning.online import Finetuning
from rover.finetuning.run import TaskResult
from rover.finetuning.tasks import Task, check_rewarded, make_task

__all__ = [
    "AdaptConfig",
    "FinetuneConfig",
    "Finetuning",
    "OfflineConfig",
    "Task",
    "TaskResult",
    "adapt",
    "check_rewarded",
    "finetune",
    "make_task",
    "resume_task",
    "train_offline",
]
