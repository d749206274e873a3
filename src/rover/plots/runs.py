"""The content of run folders, as pictures need it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, StrictInt

from rover.errors import ArtefactError
from rover.plots.panels import FloatArray
from rover.plots.style import AgentStyle, assign_styles
from rover.storage import (
    RUN_FORMAT,
    JsonLines,
    check_manifest,
    fitting,
    flatten,
    is_complete,
    read_json,
    read_sealed,
    refuse_links,
)

IntArray = NDArray[np.int64]

ENDED: Final = -1
"""Marks the steps of a trajectory after its episode has ended."""

_MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))
"""Displacements by the actions of our grid worlds, for runs of earlier versions."""

_AT_THE_END = ("mean_coverage", "cells", "knn_entropy")
"""Quantities that are measured now and then, and once more at the end, for the summary."""


_TEXTS = ConfigDict(str_max_length=4096)  # a picture takes forever to draw a text without end


class _Task(BaseModel):
    """The entries of a task that pictures need."""

    model_config = _TEXTS

    env_id: str
    env_kwargs: dict[str, Any]
    goal_name: str | None = None


class _RunConfig(BaseModel):
    """The entries of config.json that pictures need."""

    model_config = _TEXTS

    format: StrictInt
    kind: Literal["pretrain", "finetune", "adapt", "offline"]
    agent: str | None = None
    style: AgentStyle | None = None
    algorithm: str | None = None
    preset: str = ""
    seed: int
    env_id: str | None = None
    task: _Task | None = None
    source: str | None = None
    transfer: str | None = None
    freeze: Any = None
    total_timesteps: int = 0
    settings: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> _RunConfig:
        if not (folder / "config.json").exists():
            raise ArtefactError(f"{folder} holds no run: it has no config.json")
        return read_json(folder / "config.json", model=cls, newest_format=RUN_FORMAT)


class _Summary(BaseModel):
    """The entries of summary.json that pictures need; all None before the end of a run."""

    steps: StrictInt | None = None
    states_total: StrictInt | None = None
    uniform_ratio: float | None = None
    mean_coverage: float | None = None
    uniform_coverage: float | None = None
    optimal_coverage: float | None = None
    cells: float | None = None
    uniform_cells: float | None = None
    knn_entropy: float | None = None
    uniform_knn_entropy: float | None = None
    best_possible_return: float | None = None

    @property
    def best_ratio(self) -> float | None:
        """J/J* of the policy that is optimal for J, where that is known."""
        return None if self.uniform_ratio is None else 1.0


@dataclass(frozen=True, eq=False)
class GridMap:
    """The map that states lie on.

    Attributes:
        cells: (S, 2) as (x, y), y down the map; several states may share one.
        free: (height, width), True where there is no wall.
        moves: (A, 2), where each action leads; (0, 0) for those that do not move.
        marks: (n, 3), the (x, y) and the character of what stands there.
        walls: (m, 4), the ends (x, y, x, y) of walls between cells.
    """

    cells: IntArray
    free: NDArray[np.bool_]
    moves: IntArray = field(default_factory=lambda: np.array(_MOVES))
    marks: IntArray = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    walls: FloatArray = field(default_factory=lambda: np.zeros((0, 4)))

    def place(self, values: NDArray[Any]) -> FloatArray:
        """Values (S,) of states as (height, width); those of states that share a cell are added."""
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

    Attributes:
        path: the folder.
        config: of config.json.
        summary: of summary.json.
        records: of metrics.jsonl; empty before the first policy update or measurement.
        arrays: of the evaluation file; empty where there is none.
        is_complete: whether the run wrote what it writes at its end.
    """

    path: Path
    config: _RunConfig
    summary: _Summary
    records: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, NDArray[Any]]
    is_complete: bool

    @classmethod
    def read(cls, run_dir: str | Path) -> RunFiles:
        """Read the folder of a run, finished or not.

        Raises:
            ArtefactError: no run there, a damaged file, one of another run, or one from a newer
                version.
            StorageError: a file cannot be read, or a folder of the run is a symbolic link.
        """
        path = Path(run_dir)
        check_manifest(path)
        refuse_links(path)
        summary, metrics = path / "summary.json", path / "metrics.jsonl"
        evaluation = path / "evaluation.safetensors"
        return cls(
            path=path,
            config=_RunConfig.read(path),
            summary=read_json(summary, model=_Summary) if summary.exists() else _Summary(),
            records=JsonLines.read(metrics) if metrics.exists() else (),
            arrays=_read_arrays(evaluation) if evaluation.exists() else {},
            is_complete=is_complete(path),
        )

    @property
    def is_task(self) -> bool:
        """Tell whether the run learned a task."""
        return self.config.kind != "pretrain"

    @property
    def has_policy(self) -> bool:
        """Tell whether pretraining ended, or has at least updated its policy once."""
        return self.is_complete or bool(self.records)

    @property
    def grid(self) -> GridMap | None:
        """The map, where the true states are known and lie on one."""
        if "cells" not in self.arrays:
            return None
        names = (field.name for field in fields(GridMap))
        return GridMap(**{name: self.arrays[name] for name in names if name in self.arrays})

    @cached_property
    def _pretrained(self) -> _RunConfig:
        """The configuration of the run that declares the agent: this one, or its source."""
        config, source = self.config, Path(self.config.source or "")
        is_run = config.source is not None and (source / "config.json").exists()
        return _RunConfig.read(source) if is_run and config.style is None else config

    @property
    def agent(self) -> str:
        """The agent; of a task, the start: agent, agent-PART where not the policy, or scratch."""
        source = Path(self.config.source or "")
        name = self._pretrained.agent or source.name or "own policy"
        transfer = self.config.transfer
        return name if transfer in (None, "policy") else f"{name}-{transfer}"

    @staticmethod
    def styles_of(runs: Runs) -> dict[str, AgentStyle]:
        """A style for each of the agents, from what their runs declare."""
        pretrained = [run._pretrained for group in runs.values() for run in group]
        return assign_styles(runs, {str(p.agent): p.style for p in pretrained if p.style})

    @property
    def environment(self) -> str:
        """The environment, and the task if there is one, in words."""
        task = self.config.task
        if task is None:
            return self.config.env_id or "an environment without an id"
        title = task.env_id.rpartition("/")[2]
        goal = task.goal_name or task.env_kwargs.get("goal")
        if goal is not None:
            title += f", goal {tuple(goal) if isinstance(goal, list) else goal}"
        return f"{title}, dense reward" if task.env_kwargs.get("reward") == "dense" else title

    @property
    def settings(self) -> dict[str, Any]:
        """All settings by dotted names, such as ``learner.batch_size``; preset and freeze."""
        own = {"preset": self.config.preset, "freeze": self.config.freeze}
        return flatten({**own, **self.config.settings})

    def series(self, key: str) -> tuple[FloatArray, FloatArray]:
        """Steps (T,) and values (T,) of the records in which `key` has a value; T = 0 for none.

        Raises:
            ArtefactError: a record without a step, or with something that is no number.
        """
        with fitting(f"{self.path / 'metrics.jsonl'} is damaged: a record of {key}"):
            known = [(r["step"], r[key]) for r in self.records if r.get(key) is not None]
            last = getattr(self.summary, key) if key in _AT_THE_END else None
            if last is not None and self.is_complete:
                known.append((self.summary.steps, last))
            table = np.array(known, np.float64).reshape(-1, 2)
        steps, first = np.unique(table[:, 0], return_index=True)
        return steps, table[first, 1]

    def sampled_occupancy(self) -> FloatArray:
        """The discounted occupancy that the sampled episodes estimate, (S,), summing to 1.

        Each visit at time t counts γ^t, and the total is normalised: the estimate of the occupancy
        of the process that starts anew at the end of an episode, up to the episodes' truncation.

        Raises:
            ArtefactError: the configuration says no discount.
        """
        discount = self.config.settings.get("discount")
        if not (isinstance(discount, float) and 0.0 < discount < 1.0):
            raise ArtefactError(f"{self.path / 'config.json'} says no discount: it is damaged")
        trajectories = self.arrays["trajectories"]  # (E, H + 1)
        discounts = discount ** np.arange(trajectories.shape[1])
        weights = np.broadcast_to(discounts, trajectories.shape)
        alive = trajectories != ENDED
        n_states = len(self.arrays["policy_probs"])
        counts = np.bincount(trajectories[alive], weights=weights[alive], minlength=n_states)
        return np.asarray(counts / counts.sum(), np.float64)


Runs = Mapping[str, Sequence[RunFiles]]
"""An agent, or AGENT-VARIANT → its runs."""


_ARRAYS: Final[Mapping[str, tuple[str, str, str]]] = {
    "policy_probs": ("f", "SA", ""),
    "occupancy": ("f", "S", ""),
    "optimal_occupancy": ("f", "S", ""),
    "buffer_visits": ("i", "S", ""),
    "trajectories": ("i", "ET", "S"),
    "cells": ("i", "S2", "WH"),
    "free": ("b", "HW", ""),
    "moves": ("i", "A2", ""),
    "marks": ("i", "M3", ""),
    "walls": ("f", "B4", ""),
    "snapshot_steps": ("i", "N", ""),
    "snapshot_trajectories": ("i", "NFU", "S"),
    "observations": ("biuf", "RD", ""),
    "rollouts": ("f", "QLD", ""),
}
"""Kinds of dtype, the name of each axis, and the axis, or one for each column, that it indexes."""

_EPISODES = {"policy_probs", "occupancy", "optimal_occupancy", "buffer_visits", "trajectories"}
_TOGETHER: Final = (
    (_EPISODES, _EPISODES),
    ({"cells", "free"}, {"cells", "free", "occupancy"}),
    ({"moves", "marks", "walls"}, {"cells"}),
    ({"snapshot_steps", "snapshot_trajectories"}, {"snapshot_trajectories", "occupancy"}),
    ({"snapshot_trajectories"}, {"snapshot_steps"}),
    ({"rollouts"}, {"observations"}),
)
"""If any array of the first set is present, all of the second are required."""


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an evaluation file that pictures need.

    Raises:
        ArtefactError: no such file, or arrays that are not those of one run: one is missing, of
            another dtype or shape than its likes, infinite, or an index out of range.
    """
    stored = read_sealed(path, kind="evaluation")
    arrays = {name: array for name, array in stored.items() if name in _ARRAYS}
    sizes = {"2": 2, "3": 3, "4": 4}
    with fitting(f"{path} is damaged; restore it from a copy"):
        for names, needed in _TOGETHER:
            if names & arrays.keys() and (missing := needed - arrays.keys()):
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        for name, array in arrays.items():
            kinds, axes, _ = _ARRAYS[name]
            if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
                raise ValueError(f"{name} holds something else")
            if array.ndim != len(axes) or (0 in array.shape and name not in ("marks", "walls")):
                raise ValueError(f"{name} has shape {array.shape}")
            if any(sizes.setdefault(x, n) != n for x, n in zip(axes, array.shape, strict=True)):
                raise ValueError(f"{name} has shape {array.shape}, which does not fit the others")
            if np.isinf(array).any() or (name != "rollouts" and np.isnan(array).any()):
                raise ValueError(f"{name} is not finite")
        for name, array in arrays.items():
            limits = [sizes[axis] for axis in _ARRAYS[name][2]]
            if limits and not (array.min() >= ENDED and (array < limits).all()):
                raise ValueError(f"{name} refers to states or cells that there are not")
    return arrays
