"""CPU time of updates with what the optimiser does beside torch.optim, and without it.

Run as ``python benchmarks/optimizer.py``; docs/decisions/transfer.md#the-learners has the decisions. All pairs are
measured in turn in one process:

    kernel      Fine-tuning from scratch on Multi-Rooms, with the step of
                :class:`rover.features.Optimizer`, and with that of ``torch.optim.AdamW``. What a
                process pays once, for importing torch.optim's compiler, is printed first.
    layout      An update of actor and critics of 1,024 units on 108 one-hot states, with weights
                that lie in memory as their gradients come, and in C order.
    denormals   A step of a layer of 1,024 by 1,024 weights without a gradient, with moments of
                1e-40, a denormal number, as dead units have after 90,000 steps: with such numbers
                taken for zero, and as they are.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest import mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np
import torch
from torch import nn

import rover
from rover.data import Batch
from rover.features import Observations, Optimizer
from rover.learners import DDPGConfig, DiscreteDDPG

sys.path.append(str(Path(__file__).parent))
from common import begin, parser

N_STATES = 108
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


def large_learner() -> DiscreteDDPG:
    """Actor and critics of the paper's sizes, on one-hot vectors of 108 states."""
    config = DDPGConfig.model_validate(DDPGConfig.PUBLISHED)
    observations = Observations((N_STATES,), "float32", one_hot=True)
    generator = torch.Generator().manual_seed(0)
    return DiscreteDDPG(
        config.encoder(observations), n_actions=4, config=config, generator=generator
    )


def update_seconds(learner: DiscreteDDPG, updates: int) -> float:
    """CPU seconds of updates on batches of 1,024 transitions."""
    rng, n = np.random.default_rng(0), learner.config.batch_size
    index, next_index = (torch.from_numpy(rng.integers(N_STATES, size=n)) for _ in range(2))
    actions = torch.from_numpy(rng.integers(4, size=n))
    batch = Batch(torch.eye(N_STATES), index, actions, next_index)
    returns, discounts = torch.rand(n), torch.full((n,), 0.99)
    began = time.process_time()
    for _ in range(updates):
        learner.update(batch, returns, discounts)
    return time.process_time() - began


def of_layout(is_as_gradients: bool, updates: int) -> float:
    """CPU seconds with weights that lie as their gradients come, or in C order."""
    name = "rover.learners.networks._transposed_parameter"
    plain = mock.patch(name, lambda weights: nn.Parameter(weights.contiguous()))
    with nullcontext() if is_as_gradients else plain:
        learner = large_learner()
    update_seconds(learner, 3)
    return update_seconds(learner, updates)


def of_denormals(is_flushed: bool, updates: int) -> float:
    """CPU seconds of steps on denormal moments, taken for zero or as they are."""
    weights = nn.Parameter(torch.ones(1024, 1024))
    optimizer = Optimizer("weights", {"weights": weights}, learning_rate=1e-4)
    optimizer.backward(0.0 * weights.sum())
    for name in ("exp_avg", "exp_avg_sq"):
        optimizer.tensors()[f"optimizer.{name}.weights"].fill_(1e-40)
    with nullcontext() if is_flushed else mock.patch("torch.set_flush_denormal"):
        began = time.process_time()
        for _ in range(updates):
            optimizer.apply()
        return time.process_time() - began


def of_kernel(step: Callable[[Optimizer], None], steps: int) -> float:
    """CPU seconds of fine-tuning from scratch, with that step."""
    task = gym.make("rover/MultiRooms-v0", goal=(21, 4))
    with mock.patch.object(Optimizer, "apply", step):
        began = time.process_time()
        rover.finetune(None, task, total_timesteps=steps, seed=100)
        return time.process_time() - began


def main() -> None:
    """Print the seconds of each pair, and their ratios."""
    arguments = parser(__doc__)
    arguments.add_argument("--steps", type=int, default=2500, help="of fine-tuning")
    arguments.add_argument("--updates", type=int, default=50, help="of large networks")
    arguments.add_argument("--repeats", type=int, default=7)
    asked = arguments.parse_args()
    begin()
    began = time.perf_counter()
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)], fused=True)
    print(f"import of torch.optim and a first optimiser: {time.perf_counter() - began:.2f} s")
    of_kernel(_STEP, asked.steps)
    for name, ours, other in (
        ("kernel", partial(of_kernel, _STEP), partial(of_kernel, _library_step)),
        ("layout", partial(of_layout, True), partial(of_layout, False)),
        ("denormals", partial(of_denormals, True), partial(of_denormals, False)),
    ):
        n = asked.steps if name == "kernel" else asked.updates
        seconds = np.array([(ours(n), other(n)) for _ in range(asked.repeats)])
        with_it, without = np.median(seconds, axis=0)
        ratios = seconds[:, 1] / seconds[:, 0]
        print(
            f"{name}: with {with_it:.2f} s, without {without:.2f} s, "
            f"ratios {ratios.min():.2f} to {ratios.max():.2f}, median {np.median(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
