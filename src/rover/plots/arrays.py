"""The arrays of an evaluation file, checked: what pictures are drawn from fits together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rover.errors import ArtefactError
from rover.storage import read_sealed

Arrays = Mapping[str, NDArray[Any]]

ENDED = -1
"""Marks the steps of a trajectory after its episode has ended."""

_MAX_CELLS = 1_000_000
_ARRAYS: Final[Mapping[str, tuple[str, str]]] = {
    "policy_probs": ("f", "SA"),
    "occupancy": ("f", "S"),
    "optimal_occupancy": ("f", "S"),
    "sampled_visits": ("i", "S"),
    "buffer_visits": ("i", "S"),
    "trajectories": ("i", "ET"),
    "cells": ("i", "S2"),
    "free": ("b", "HW"),
    "moves": ("i", "A2"),
    "marks": ("i", "M3"),
    "walls": ("f", "B4"),
    "snapshot_steps": ("i", "N"),
    "snapshot_trajectories": ("i", "NFU"),
    "observations": ("biuf", "RD"),
    "visits": ("i", "R"),
    "rollouts": ("f", "QLD"),
}
"""Kinds of dtype, and the name of each axis: of one length wherever it stands."""

_TOGETHER: Final = (
    {"policy_probs", "occupancy", "optimal_occupancy", "buffer_visits", "trajectories"},
    {"cells", "free"},
    {"snapshot_steps", "snapshot_trajectories"},
    {"observations", "visits"},
)
_MAY_BE_EMPTY: Final = {"marks", "walls"}
_SIGNED: Final = {"observations", "rollouts", "moves", "walls"}
_NEEDED: Final = {
    **dict.fromkeys(("moves", "marks", "walls"), "cells"),
    "snapshot_steps": "occupancy",
    "cells": "occupancy",
    "rollouts": "observations",
}


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an evaluation file; those that no picture needs are left out.

    Raises:
        ArtefactError: no such file, or arrays that are not those of one run: one is missing, of
            another shape than its likes, not finite, or out of range.
    """
    stored = read_sealed(path, kind="evaluation")
    arrays = {name: array for name, array in stored.items() if name in _ARRAYS}
    try:
        _check_shapes(arrays)
        _check_values(arrays)
    except ValueError as error:
        raise ArtefactError(f"{path} is damaged: {error}; restore it from a copy") from None
    return arrays


def _check_shapes(arrays: Mapping[str, Any]) -> None:
    sizes = {"2": 2, "3": 3, "4": 4}
    for name, array in arrays.items():
        kinds, axes = _ARRAYS[name]
        if not isinstance(array, np.ndarray) or array.dtype.kind not in kinds:
            raise ValueError(f"{name} holds something else")
        if array.ndim != len(axes) or (0 in array.shape and name not in _MAY_BE_EMPTY):
            raise ValueError(f"{name} has shape {array.shape}")
        for axis, size in zip(axes, array.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ValueError(f"{name} has shape {array.shape}, which does not fit the others")
    for names in _TOGETHER:
        if missing := names & arrays.keys() and names - arrays.keys():
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    for name, needed in _NEEDED.items():
        if name in arrays and needed not in arrays:
            raise ValueError(f"it lacks {needed}")


def _check_values(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != "rollouts" and not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")
        if name not in _SIGNED and array.size and array.min() < _least(name):
            raise ValueError(f"{name} has the value {array.min()}")
    if "rollouts" in arrays and np.isinf(arrays["rollouts"]).any():
        raise ValueError("rollouts are infinite")
    for name in ("trajectories", "snapshot_trajectories"):
        if name in arrays:
            paths = arrays[name]
            if paths.max() >= len(arrays["occupancy"]) or paths[..., 0].min() < 0:
                raise ValueError(f"{name} visits states that there are not")
    if "cells" in arrays:
        free = arrays["free"]
        height, width = free.shape
        if free.size > _MAX_CELLS:
            raise ValueError(f"a map of {height:,} by {width:,} cells is too large")
        columns, rows = arrays["cells"].T
        if (columns >= width).any() or (rows >= height).any() or not free[rows, columns].all():
            raise ValueError("its states lie on walls, or outside the map")
        for name in ("moves", "marks", "walls"):
            if name in arrays and np.abs(arrays[name]).max(initial=0) > _MAX_CELLS:
                raise ValueError(f"{name} leave the map")


def _least(name: str) -> int:
    return ENDED if name.endswith("trajectories") else 0
