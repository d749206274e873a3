"""What the pictures of a run are made from, read from its folder and checked."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.errors import ArtefactError, ConfigurationError
from rover.plots.curves import FloatArray, Records, read_series
from rover.storage import JsonLines, read_arrays, read_json

RUN_FORMAT = 1
"""The newest format of run folders that can be read."""

FINITE_ARRAYS = ("policy_probs", "occupancy", "optimal_occupancy", "trajectories", "buffer_visits")
GRID_ARRAYS = ("cells", "free")
VECTOR_ARRAYS = ("observations", "visits")


@dataclass(frozen=True)
class RunFiles:
    """The content of a run folder.

    Attributes:
        path: the folder.
        method: name of the method.
        env_id: of the environment, or "an environment without an id".
        seed: of the run.
        discount: γ of the exact occupancy.
        total_timesteps: how long the run was meant to be.
        is_complete: whether the run wrote what it writes at its end.
        summary: of summary.json; empty before the first checkpoint.
        records: of metrics.jsonl; empty before the first policy update.
        arrays: of evaluation.h5; empty where there is none.
    """

    path: Path
    method: str
    env_id: str
    seed: int
    discount: float
    total_timesteps: int
    is_complete: bool
    summary: dict[str, Any]
    records: Records
    arrays: dict[str, NDArray[Any]]

    @property
    def is_finite(self) -> bool:
        """Whether the true states are known."""
        return "occupancy" in self.arrays

    @property
    def is_grid(self) -> bool:
        """Whether the states lie on a map."""
        return self.is_finite and "cells" in self.arrays

    @property
    def is_vector(self) -> bool:
        """Whether the observations are vectors and the states unknown."""
        return "observations" in self.arrays


def read_run_files(run_dir: str | Path) -> RunFiles:
    """Read the folder of a run, finished or not.

    Raises:
        ArtefactError: no run there, a damaged file, or one from a newer version.
        StorageError: a file cannot be read.
    """
    path = Path(run_dir)
    if not (path / "config.json").exists():
        raise ArtefactError(f"{path} holds no run: it has no config.json")
    config = read_json(path / "config.json", newest_format=RUN_FORMAT)
    method, seed, total, discount = _checked_config(path / "config.json", config)
    metrics, evaluation = path / "metrics.jsonl", path / "evaluation.h5"
    summary = read_json(path / "summary.json") if (path / "summary.json").exists() else {}
    _check_summary(path / "summary.json", summary)
    arrays = read_arrays(evaluation, kind="evaluation").arrays if evaluation.exists() else {}
    if arrays:
        _check_arrays(evaluation, arrays)
    return RunFiles(
        path=path,
        method=method,
        env_id=str(config.get("env_id") or "an environment without an id"),
        seed=seed,
        discount=discount,
        total_timesteps=total,
        is_complete=(path / "policy.safetensors").exists(),
        summary=summary,
        records=JsonLines.read(metrics).records if metrics.exists() else (),
        arrays=arrays,
    )


def read_stored_series(metrics: Path, key: str) -> tuple[FloatArray, FloatArray]:
    """Steps (T,) and values (T,) of a metrics.jsonl; T = 0 where no record has a value.

    Raises:
        ArtefactError: no such file, or a damaged one.
        StorageError: it cannot be read.
    """
    try:
        return read_series(JsonLines.read(metrics).records, key)
    except ConfigurationError as error:
        raise ArtefactError(f"{metrics} is damaged: {error}") from error


def _checked_config(file: Path, config: Any) -> tuple[str, int, int, float]:
    """Method, seed, total steps and discount."""
    try:
        operator.index(config["format"])  # there, and a number: read_json looked at its size only
        return (
            str(config["method"]),
            int(config["seed"]),
            int(config["total_timesteps"]),
            float(config["settings"]["discount"]),
        )
    except KeyError as error:
        raise ArtefactError(f"{file} lacks {error}; restore it from a copy") from None
    except (TypeError, ValueError) as error:
        raise ArtefactError(
            f"{file} is not the configuration of a run ({error}); restore it from a copy"
        ) from None


def _check_summary(file: Path, summary: Any) -> None:
    if not isinstance(summary, dict):
        raise ArtefactError(f"{file} is not a JSON object; restore it from a copy")
    for key in ("steps", "states_total", "uniform_ratio"):
        value = summary.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ArtefactError(f"{file}: {key} is {value!r}, not a number; restore it from a copy")


def _check_arrays(file: Path, arrays: dict[str, NDArray[Any]]) -> None:
    needed: tuple[str, ...] = FINITE_ARRAYS if "occupancy" in arrays else VECTOR_ARRAYS
    if not set(GRID_ARRAYS).isdisjoint(arrays):
        needed += GRID_ARRAYS
    missing = [name for name in needed if name not in arrays]
    if missing:
        raise ArtefactError(
            f"{file} lacks the arrays {', '.join(missing)}; finish the run with "
            "`rover resume` to write it anew"
        )
    for name, array in arrays.items():
        if not np.isfinite(array).all() and name != "rollouts":
            raise ArtefactError(f"{file}: {name} holds NaN or infinity; write it anew")
