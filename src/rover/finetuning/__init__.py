"""Learn tasks from what pretraining left, by interacting or from stored transitions.

A call of ``learn`` makes a run and finishes it. ``run`` has the parts common to all runs, from the
curve to the final policy, and learning offline; ``online`` is fine-tuning, ``adaptation`` adapting;
``tasks`` defines tasks and their best returns, ``config`` the settings.
"""

from rover.finetuning.config import AdaptConfig, FinetuneConfig, OfflineConfig
from rover.finetuning.learn import adapt, finetune, resume_task, train_offline
from rover.finetuning.run import TaskResult
from rover.finetuning.tasks import Task

__all__ = [
    "AdaptConfig",
    "FinetuneConfig",
    "OfflineConfig",
    "Task",
    "TaskResult",
    "adapt",
    "finetune",
    "resume_task",
    "train_offline",
]
