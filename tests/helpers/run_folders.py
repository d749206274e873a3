"""Small run folders of every kind, written through rover.storage."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.plots import RunFiles
from rover.storage import append_line, read_json, write_json, write_tensors

# Two rooms of 2 x 2 with a door: 9 free cells in a map 5 wide and 2 high.
FREE = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], np.bool_)
CELLS = np.argwhere(FREE)[:, ::-1].astype(np.int64).copy()  # (9, 2) as (x, y), row-major
MOVES = np.array([(0, -1), (0, 1), (-1, 0), (1, 0)])  # up, down, left, right, with y down
MARKS = np.zeros((0, 3), np.int64)
N_STATES = len(CELLS)


def finite_arrays(n_states: int = N_STATES) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    trajectories = rng.integers(n_states, size=(50, 8))
    trajectories[3, 5:] = -1
    return {
        "policy_probs": rng.dirichlet(np.ones(4), size=n_states),
        "occupancy": rng.dirichlet(np.ones(n_states)),
        "optimal_occupancy": np.full(n_states, 1.0 / n_states),
        "trajectories": trajectories,
        "sampled_visits": np.bincount(trajectories[trajectories >= 0], minlength=n_states),
        "buffer_visits": np.arange(n_states),
        "uniform_occupancy": rng.dirichlet(np.ones(n_states)),
        "uniform_buffer_visits": np.arange(n_states) // 2,
    }


def grid_arrays() -> dict[str, NDArray[Any]]:
    return finite_arrays() | {"cells": CELLS, "free": FREE, "moves": MOVES, "marks": MARKS}


def finite_records(n: int = 4) -> list[dict[str, Any]]:
    return [
        {
            "step": 50 * number,
            "episode": number,
            "observations": 2 * number,
            "states_seen": 2 * number,
            "coverage": number / n,
            "objective": 0.3,
            "optimality_ratio": 1.0 + 1.0 / number,
            "sink_mass": 0.5**number,
        }
        for number in range(1, n + 1)
    ]


def write_folder(
    folder: Path,
    config: dict[str, Any],
    records: list[dict[str, Any]],
    summary: dict[str, Any] | None,
    arrays: dict[str, NDArray[Any]] | None = None,
) -> Path:
    """The files that runs of every kind have; a run without a summary has not ended."""
    folder.mkdir(parents=True)
    about = {"format": 4, "version": "0.3.0", "preset": "fast"}
    write_json(folder / "config.json", about | config)
    for record in records:
        append_line(folder / "metrics.jsonl", record)
    if arrays is not None:
        write_tensors(folder / "evaluation.safetensors", arrays, kind="evaluation")
    if summary is not None:
        write_json(folder / "summary.json", {**summary, "complete": True})
    return folder


def make_incomplete(folder: Path) -> None:
    """Leave a finished run as one that was stopped after its last checkpoint."""
    file = folder / "summary.json"
    write_json(file, {**read_json(file), "complete": False})


def write_run(
    folder: Path,
    agent: str = "rover",
    *,
    records: list[dict[str, Any]],
    arrays: dict[str, NDArray[Any]] | None,
    finished: bool = True,
    **changes: Any,
) -> Path:
    """A run of pretraining."""
    config = {
        "kind": "pretrain",
        "agent": agent,
        "seed": 3,
        "env_id": "rover/TwoRooms-v0",
        "total_timesteps": 400,
        "settings": {"discount": 0.9},
    }
    known = arrays is not None and "occupancy" in arrays
    summary = {
        "steps": 400,
        "states_total": N_STATES if known else None,
        "uniform_ratio": 2.5 if known else None,
    }
    return write_folder(folder, config | changes, records, summary if finished else None, arrays)


def snapshot_arrays(n: int = 4) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    return grid_arrays() | {
        "snapshot_steps": 100 * np.arange(1, n + 1),
        "snapshot_trajectories": rng.integers(N_STATES, size=(n, 3, 6)).astype(np.int16),
    }


def read_run(folder: Path, agent: str = "rover", **options: Any) -> RunFiles:
    """A finished run on the map, written and read back."""
    options = {"records": finite_records(), "arrays": snapshot_arrays(), **options}
    return RunFiles.read(write_run(folder, agent, **options))


TASK = {
    "env_id": "rover/MultiRooms-v0",
    "env_kwargs": {"observation": "onehot", "goal": [21, 4], "reward": "sparse"},
    "goal_name": "room5",
}


def write_task_run(
    folder: Path, returns: tuple[float, ...] = (-300.0, -26.0), **changes: Any
) -> Path:
    """A run that learned a task."""
    config = {
        "kind": "finetune",
        "algorithm": "ddpg",
        "agent": "rover",
        "source": "runs/rooms",
        "transfer": "policy",
        "seed": 0,
        "task": TASK,
        "total_timesteps": 500,
        "settings": {"n_steps": 1, "learner": {"batch_size": 64}},
    }
    records = [{"step": 500 * i, "greedy_return": value} for i, value in enumerate(returns)]
    write_folder(folder, config | changes, records, {"best_possible_return": -26.0})
    return folder
