"""The episodes of a few policies on a run's way, for its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_SNAPSHOTS = 12
RECORDED_SNAPSHOTS = 4


class Snapshots:
    """Keeps the episodes of at most twelve policies, spread evenly over all updates so far.

    Whenever there are more, every other one is forgotten, and from then on only every second as
    many are kept: what is kept follows from the number of updates alone, and not from how long the
    run is going to be. The latest policy is always there.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, NDArray[np.int16]]] = []
        self._n_seen = 0
        self._stride = 1

    def append(self, step: int, trajectories: NDArray[np.int64]) -> None:
        """Note the episodes (E, H + 1) of the policy after environment step number `step`."""
        if self._entries and (self._n_seen - 1) % self._stride:
            self._entries.pop()  # was there as the latest only
        self._entries.append((step, trajectories.astype(np.int16)))
        if self._n_seen % self._stride == 0 and len(self._entries) > MAX_SNAPSHOTS:
            self._entries = self._entries[::2]
            self._stride *= 2
        self._n_seen += 1

    def record(self) -> dict[str, NDArray[Any]]:
        """snapshot_steps (n,) and snapshot_trajectories (n, E, H + 1), n ≤ 4; empty before any."""
        if not self._entries:
            return {}
        steps = np.array([step for step, _ in self._entries])
        wanted = np.linspace(steps[0], steps[-1], RECORDED_SNAPSHOTS)
        chosen = np.unique(np.abs(steps[None, :] - wanted[:, None]).argmin(axis=1))
        return {
            "snapshot_steps": steps[chosen],
            "snapshot_trajectories": np.stack([self._entries[index][1] for index in chosen]),
        }

    def state(self) -> dict[str, Any]:
        """Everything that is kept."""
        return {
            "steps": [step for step, _ in self._entries],
            "trajectories": [trajectories for _, trajectories in self._entries],
            "n_seen": self._n_seen,
            "stride": self._stride,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state` returned."""
        self._entries = list(zip(state["steps"], state["trajectories"], strict=True))
        kinds = {(episodes.shape, episodes.dtype) for _, episodes in self._entries}
        if len(kinds) > 1 or not all(isinstance(step, int) for step, _ in self._entries):
            raise ValueError("its snapshots do not fit each other")
        self._n_seen, self._stride = int(state["n_seen"]), int(state["stride"])
