from __future__ import annotations

import os
from pathlib import Path

import rover

TINY = ["pretrain", "rover/Corridor-v0", "--env", "length=5", "--set", "policy_every=10", "--steps"]
"""A run of a tenth of a second, but for its number of steps."""


def child_environment() -> dict[str, str]:
    path = os.pathsep.join([str(Path(rover.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
