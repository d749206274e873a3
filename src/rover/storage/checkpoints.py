"""The latest complete states of a run, of which one is always whole."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rover.errors import ArtefactError
from rover.storage.tensors import Tensors, read_tensors, write_tensors

CHECKPOINT_KIND = "checkpoint"
_KEPT = 2


class Checkpoints:
    """The files step-N.safetensors in a folder; all but the last two are forgotten.

    Args:
        folder: where they are; it must exist when one is written.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def paths(self) -> list[Path]:
        """Those that are there, the latest one last."""
        return sorted(self.folder.glob("step-*.safetensors"))

    def write(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Write the state after `step` environment steps, then forget all but the last two.

        Raises:
            StorageError: it cannot be written; the earlier ones are as they were.
        """
        path = self.folder / f"step-{step:09d}.safetensors"
        write_tensors(path, tensors, kind=CHECKPOINT_KIND, metadata=state)
        for old in self.paths()[:-_KEPT]:
            old.unlink()

    def read_latest(self) -> Tensors | None:
        """The latest one, verified; None if there is none.

        Raises:
            ArtefactError: it is damaged. The message names the earlier one, if there is one.
        """
        found = self.paths()
        if not found:
            return None
        try:
            return read_tensors(found[-1], kind=CHECKPOINT_KIND)
        except ArtefactError as error:
            earlier = f"; delete it to resume from {found[-2].name}" if len(found) > 1 else ""
            raise ArtefactError(f"{error}{earlier}") from error

    def clear(self) -> None:
        """Delete them all, and their folder if there is nothing else in it."""
        for path in self.paths():
            path.unlink()
        with contextlib.suppress(OSError):
            self.folder.rmdir()
