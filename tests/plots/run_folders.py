"""Small run folders of every kind, written through rover.storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.storage import JsonLines, write_arrays, write_json

# Two rooms of 2 x 2 with a door: 9 free cells in a map 5 wide and 2 high.
FREE = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], np.bool_)
CELLS = np.argwhere(FREE)[:, ::-1].astype(np.int64).copy()  # (9, 2) as (x, y), row-major
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
    }


def grid_arrays() -> dict[str, NDArray[Any]]:
    return finite_arrays() | {"cells": CELLS, "free": FREE}


def vector_arrays(d: int = 2) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    rollouts = rng.normal(size=(3, 6, d))
    rollouts[1, 4:] = np.nan
    return {
        "observations": rng.normal(size=(40, d)).astype(np.float32),
        "visits": rng.integers(1, 9, 40),
        "rollouts": rollouts,
    }


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


def unknown_records(n: int = 4) -> list[dict[str, Any]]:
    return [
        {"step": 50 * i, "observations": 30 * i, "states_seen": None, "sink_mass": 0.5**i}
        for i in range(1, n + 1)
    ]


def write_run(
    folder: Path,
    *,
    records: list[dict[str, Any]],
    arrays: dict[str, NDArray[Any]] | None,
    finished: bool = True,
    env_id: str | None = "rover/TwoRooms-v0",
    **config: Any,
) -> Path:
    folder.mkdir()
    write_json(
        folder / "config.json",
        {
            "format": 1,
            "version": "0.1.0",
            "method": "rover",
            "seed": 3,
            "env_id": env_id,
            "total_timesteps": 400,
            "settings": {"discount": 0.9},
        }
        | config,
    )
    with JsonLines(folder / "metrics.jsonl") as metrics:
        for record in records:
            metrics.append(record)
    if finished:
        (folder / "policy.safetensors").write_bytes(b"only its presence matters here")
        known = arrays is not None and "occupancy" in arrays
        write_json(
            folder / "summary.json",
            {
                "steps": 400,
                "states_total": N_STATES if known else None,
                "uniform_ratio": 2.5 if known else None,
            },
        )
    if arrays is not None:
        write_arrays(folder / "evaluation.h5", arrays, kind="evaluation", metadata={})
    return folder
