"""Episodes of the policies that a run had on its way, for the pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

MAX_KEPT = 12
N_RECORDED = 4
"""Snapshots in evaluation.h5: the first, two between, and the last."""


class Snapshots:
    """Keeps the episodes of at most twelve policies, spread evenly over all updates so far.

    Whenever there are more, every other one is forgotten, and from then on only every second as
    many are kept: what is kept follows from the number of updates alone, and not from how long the
    run is going to be. The latest policy is always there.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[int, NDArray[np.int16]]] = []
        self._latest: tuple[int, NDArray[np.int16]] | None = None
        self._n_seen = 0
        self._stride = 1

    def append(self, step: int, trajectories: NDArray[np.int64]) -> None:
        """Note the episodes (E, H + 1) of the policy after environment step number `step`."""
        self._latest = (step, trajectories.astype(np.int16))
        if self._n_seen % self._stride == 0:
            self._kept.append(self._latest)
        self._n_seen += 1
        if len(self._kept) > MAX_KEPT:
            self._kept = self._kept[::2]
            self._stride *= 2

    def record(self) -> dict[str, NDArray[Any]]:
        """snapshot_steps (n,) and snapshot_trajectories (n, E, H + 1), n ≤ 4; empty before any."""
        if self._latest is None:
            return {}
        last = self._latest
        every = [*(entry for entry in self._kept if entry[0] < last[0]), last]
        steps = np.array([step for step, _ in every])
        wanted = np.linspace(steps[0], steps[-1], N_RECORDED)
        chosen = np.unique(np.abs(steps[None, :] - wanted[:, None]).argmin(axis=1))
        return {
            "snapshot_steps": steps[chosen],
            "snapshot_trajectories": np.stack([every[index][1] for index in chosen]),
        }

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON-able state of a checkpoint."""
        every = [*self._kept, *([] if self._latest is None else [self._latest])]
        tensors = {
            f"{index}": torch.from_numpy(trajectories)
            for index, (_, trajectories) in enumerate(every)
        }
        return tensors, {
            "steps": [step for step, _ in every],
            "n_seen": self._n_seen,
            "stride": self._stride,
        }

    def load_state(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        every = [
            (int(step), tensors[f"{index}"].numpy()) for index, step in enumerate(state["steps"])
        ]
        self._latest = every[-1] if every else None
        self._kept = every[:-1]
        self._n_seen = int(state["n_seen"])
        self._stride = int(state["stride"])
