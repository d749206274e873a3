"""Runs that commands make: their folders, and how they are watched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rover.cli import advised
from rover.cli.tables import shell
from rover.training.monitor import Log


class Watching(NamedTuple):
    """Flags of every command that makes a run."""

    log: tuple[Log, ...] = ()
    no_progress: bool = False


@contextmanager
def watched(folder: Path, watching: Watching, *, unit: str = "step") -> Iterator[dict[str, Any]]:
    """Arguments by which what learns inside a `with` block is watched; a signal ends it with a line
    that says how far it came, in what the run counts (`unit`), and how to go on."""
    reached = 0  # steps at the latest record, which is all that an interrupted run has to say

    def note(record: Mapping[str, Any]) -> None:
        nonlocal reached
        reached = record["step"]
        # A library may have swallowed the exception of a signal; here nothing is half written.
        raise_if_stopped()

    def advice() -> str:
        if not (folder / "config.json").exists():  # there is nothing to resume
            return f" at {unit} {reached} before anything was written"
        return f" at {unit} {reached}; continue with: {shell('rover', 'resume', folder)}"

    with advised(advice) as raise_if_stopped:
        progress_bar = not watching.no_progress
        yield {"progress_bar": progress_bar, "log": watching.log, "callback": note}


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
