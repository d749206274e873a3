"""Learn tasks from what pretraining left, by interacting or from stored transitions.

A call of ``learn`` makes a run and finishes it. ``run`` has the parts common to all runs, from the
curve to the final policy, and learning offline; ``online`` is fine-tuning, ``adaptation`` adapting;
``tasks`` defines tasks and their best returns, ``config`` the settings.
"""

from rover.finetuning.config import AdaptConfig as AdaptConfig
from rover.finetuning.config import FinetuneConfig as FinetuneConfig
from rover.finetuning.config import OfflineConfig as OfflineConfig
from rover.finetuning.learn import adapt as adapt
from rover.finetuning.learn import finetune as finetune
from rover.finetuning.learn import resume_task as resume_task
from rover.finetuning.learn import train_offline as train_offline
from rover.finetuning.run import TaskResult as TaskResult
from rover.finetuning.tasks import Task as Task
