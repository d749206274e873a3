import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rover

TINY = ["pretrain", "rover/Corridor-v0", "--env", "length=5", "--set", "policy_every=10", "--steps"]
"""A run of a tenth of a second, but for its number of steps."""


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    """Start ``python`` with these words, and this package."""
    places = [str(Path(rover.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join([*options.pop("places", ()), *places])
    variables = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen([sys.executable, *words], env=variables, **options)


def until(is_so: Callable[[], bool], seconds: float = 120.0) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def python(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python`` to its end."""
    process = start(*words, **options)
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def shell(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run ``python -m rover`` to its end."""
    return python("-m", "rover", *words, **options)
