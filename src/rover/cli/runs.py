"""Runs that commands make: their folders, and what an interrupted one says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rover.cli.tables import shell


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on where what learns inside a `with` block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        advice = " before anything was written"
        if (folder / "config.json").exists():
            advice = f"; continue with: {shell('rover', 'resume', folder)}"
        raise KeyboardInterrupt(advice) from None


def free_folder(*parts: str) -> Path:
    """The folder under runs/ named after `parts`, ids of environments or words, numbered if it is
    taken."""
    name = "-".join(re.sub(r"[^\w.-]+", "-", part.rpartition(":")[2]) for part in parts)
    # Names of files have at most 255 bytes, and numbers and suffixes follow.
    name = name[:200]
    folder, number = Path("runs") / name, 2
    while folder.exists():
        folder, number = Path("runs") / f"{name}-{number}", number + 1
    return folder
