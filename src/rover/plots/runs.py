"""The content of run folders, as pictures need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rover.arrays import FloatArray, IntArray
from rover.storage import RunConfig, read_json, read_lines, read_run_config, read_tensors

ENDED: Final = -1
"""Marks the steps of a trajectory after its episode has ended."""

# Quantities that are measured now and then, and once more at the end, for the summary.
_AT_THE_END = ("mean_coverage", "cells")


@dataclass(frozen=True, eq=False)
class GridMap:
    """The map that states lie on.

    Attributes:
        cells: (S, 2) as (x, y), y down the map; `free` (height, width), True where there is no
            wall.
        moves: (A, 2), where each action leads.
        marks: (n, 3), the (x, y) and the character of a goal or hole.
    """

    cells: IntArray
    free: NDArray[np.bool_]
    moves: IntArray
    marks: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int64))

    def place(self, values: NDArray[Any]) -> FloatArray:
        """Values (S,) of states as (height, width)."""
        placed = np.zeros(self.free.shape)
        np.add.at(placed, (self.cells[:, 1], self.cells[:, 0]), values)
        return placed

    @property
    def is_wide(self) -> bool:
        """Tell whether maps are better placed below each other than beside each other."""
        height, width = self.free.shape
        return bool(width >= 2 * height)


@dataclass(frozen=True, eq=False)
class RunFiles:
    """The content of a run folder: of pretraining, or of a task that was learned.

    `config` is of config.json, `summary` of summary.json and `records` of metrics.jsonl, empty
    before they are written; `arrays` are of the evaluation file, empty where there is none.
    """

    path: Path
    config: RunConfig
    summary: Mapping[str, Any]
    records: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, NDArray[Any]]
    is_complete: bool

    @classmethod
    def read(cls, run_dir: str | Path) -> RunFiles:
        """Read the folder of a run, finished or not.

        ArtefactError: no run there, a damaged file, or one from a newer version.
        """
        path, config = Path(run_dir), read_run_config(run_dir)
        summary, metrics = path / "summary.json", path / "metrics.jsonl"
        evaluation = path / "evaluation.safetensors"
        found = dict(read_json(summary)) if summary.exists() else {}
        # Files that are written at the end are missing from a run that has not ended.
        return cls(
            path=path,
            config=config,
            summary=found,
            records=read_lines(metrics) if metrics.exists() else (),
            arrays=read_tensors(evaluation, kind="evaluation") if evaluation.exists() else {},
            is_complete=bool(found.get("ended", found.get("complete"))),
        )

    @property
    def grid(self) -> GridMap | None:
        """The map, where the true states are known and lie on one."""
        # Only where states are known does the evaluation say on which cells they lie.
        if "cells" not in self.arrays:
            return None
        return GridMap(*(self.arrays[field.name] for field in fields(GridMap)))

    @property
    def agent(self) -> str:
        """The agent; of a task, the start: agent, agent-PART where not the policy, or scratch."""
        name = self.config.agent or Path(self.config.source or "").name or "own policy"
        transfer = self.config.transfer
        return name if transfer in (None, "policy") else f"{name}-{transfer}"

    @property
    def environment(self) -> str:
        """The environment, and the task if there is one, in words."""
        task = self.config.task
        if task is None:
            return self.config.env_id or "an environment without an id"
        title, kwargs = task["env_id"].rpartition("/")[2], dict(task["env_kwargs"])
        goal = task["goal_name"] or kwargs.get("goal")
        if goal is not None:
            title += f", goal {tuple(goal) if isinstance(goal, list) else goal}"
        return f"{title}, dense reward" if kwargs.get("reward") == "dense" else title

    @property
    def settings(self) -> dict[str, Any]:
        """All settings; preset and freeze_encoder."""
        others = {"preset": self.config.preset, "freeze_encoder": self.config.freeze_encoder}
        return {**others, **self.config.settings}

    def series(self, key: str) -> tuple[FloatArray, FloatArray]:
        """Steps (T,) and values (T,) of the records in which `key` has a value; T = 0 for none.

        ``visited`` and ``uniform_visited`` are the curves of the data that a finished run left.
        """
        if key in ("visited", "uniform_visited"):
            if key not in self.arrays:
                return np.zeros(0), np.zeros(0)
            curve = self.arrays["visited_steps"], self.arrays[key]
            return curve[0].astype(np.float64), curve[1].astype(np.float64)
        measured = [(r["step"], r[key]) for r in self.records if r.get(key) is not None]
        last = self.summary.get(key) if key in _AT_THE_END else None
        if last is not None and self.is_complete:
            measured.append((self.summary["steps"], last))
        table = np.array(measured, np.float64).reshape(-1, 2)
        # The end is measured twice if it was due then anyway.
        steps, first = np.unique(table[:, 0], return_index=True)
        return steps, table[first, 1]


Runs = Mapping[str, Sequence[RunFiles]]
"""An agent, or AGENT-VARIANT → its runs."""
