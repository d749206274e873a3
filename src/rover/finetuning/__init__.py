"""Learn tasks from what pretraining left, by interacting or from stored transitions."""

from rover.finetuning.config import FinetuneConfig, OfflineConfig
from rover.finetuning.learn import finetune, resume_task, train_offline
from rover.finetuning.online import Finetuning
from rover.finetuning.run import Learned
from rover.finetuning.tasks import Task, check_rewarded, make_task

__all__ = [
    "FinetuneConfig",
    "Finetuning",
    "Learned",
    "OfflineConfig",
    "Task",
    "check_rewarded",
    "finetune",
    "make_task",
    "resume_task",
    "train_offline",
]
