"""CPU time of an update with the fused kernel called directly, and with torch.optim.AdamW.

Run as ``python benchmarks/optimizer.py``. Fine-tuning from scratch on Multi-Rooms is run with
:class:`rover.features.Optimizer` as it is and with its step taken by ``torch.optim.AdamW``, in turn
in one process. What a process pays once, for importing torch.optim's compiler, is printed first.
docs/design/optimizer.md has the decision.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch

import rover
from rover.features import Optimizer

sys.path.append(str(Path(__file__).parent))
from common import begin, parser

_STEP = Optimizer.apply


def _library_step(self: Optimizer) -> None:
    """Take the step by ``torch.optim``, with the moments that it keeps itself."""
    if not hasattr(self, "_adamw"):
        groups = [
            {"params": group[0], "lr": self.learning_rate if rate is None else rate}
            for rate, group in self._groups.items()
        ]
        weight_decay = self._weight_decay
        self._adamw = torch.optim.AdamW(groups, weight_decay=weight_decay, fused=True)
    self.n_updates += 1
    self._adamw.step()


def finetuning_seconds(steps: int) -> float:
    """CPU seconds of fine-tuning from scratch."""
    task = gym.make("rover/MultiRooms-v0", goal=(21, 4))
    began = time.process_time()
    rover.finetune(None, task, total_timesteps=steps, seed=100)
    return time.process_time() - began


def main() -> None:
    """Print the seconds of both, and their ratio."""
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=2500)
    arguments.add_argument("--repeats", type=int, default=7)
    asked = arguments.parse_args()
    begin()
    began = time.perf_counter()
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True)
    print(f"import of torch.optim and a first optimiser: {time.perf_counter() - began:.2f} s")
    finetuning_seconds(asked.steps)
    ratios = []
    for _ in range(asked.repeats):
        seconds = []
        for step in (_STEP, _library_step):
            Optimizer.apply = step  # type: ignore[method-assign]
            seconds.append(finetuning_seconds(asked.steps))
        ratios.append(seconds[1] / seconds[0])
        print(f"direct {seconds[0]:.2f} s, torch.optim {seconds[1]:.2f} s: {ratios[-1]:.3f}")
    print(f"median ratio {np.median(ratios):.3f}")


if __name__ == "__main__":
    main()
