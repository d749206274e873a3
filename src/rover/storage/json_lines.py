"""An append-only file of records, one JSON object per line: the metrics of a run.

A process that is killed leaves at most one torn line, the last; whoever reads is told of it, and
resuming cuts it off together with the lines that are newer than the checkpoint.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rover.errors import ArtefactError, StorageError
from rover.storage.json_files import dump_line, parse_json
from rover.storage.storage import read_file, storage_error, write_all

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class JsonLinesContent:
    """What a file of records holds.

    Attributes:
        records: the complete lines, in order.
        torn_bytes: the length of the torn last line; 0 if there is none.
    """

    records: tuple[Record, ...]
    torn_bytes: int


@dataclasses.dataclass(frozen=True)
class Truncation:
    """What :meth:`JsonLines.truncate_after` kept and dropped.

    Attributes:
        kept: number of records that are left.
        dropped: number of complete records that were cut off.
        torn_bytes: the length of the torn last line that was cut off; 0 if there was none.
    """

    kept: int
    dropped: int
    torn_bytes: int


class JsonLines:
    """Append records to ``path``; a context manager that closes the file.

    The file is created by the first :meth:`append`; its folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._file: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def append(self, record: Mapping[str, object]) -> None:
        """Add one line and hand it to the operating system, so that a kill does not lose it.

        Raises:
            NonFiniteError: NaN or infinity; the message names the key path.
            ArtefactError: something that JSON does not have, or a file that ends in a torn line.
            StorageError: the disk refused; the earlier lines are as they were.
        """
        line = dump_line(dict(record)).encode() + b"\n"
        try:
            if self._file is None:
                self._file = self._open()
            before = os.fstat(self._file).st_size
            try:
                write_all(self._file, line)
            except BaseException:
                # Half a line would make every later line unreadable.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, before)
                raise
        except OSError as error:
            if isinstance(error, StorageError):
                raise
            raise self._refusal(error, len(line)) from error

    def sync(self) -> None:
        """Force the lines to the disk; called before a checkpoint that counts on them.

        Raises:
            StorageError: the disk refused.
        """
        if self._file is not None:
            try:
                os.fsync(self._file)
            except OSError as error:
                raise self._refusal(error) from error

    def close(self) -> None:
        """Force the lines to the disk and close the file; a later append opens it again.

        Raises:
            StorageError: the disk refused.
        """
        try:
            self.sync()
        finally:
            if self._file is not None:
                file, self._file = self._file, None
                os.close(file)

    def truncate_after(self, keep: int | Callable[[Record], bool]) -> Truncation:
        """Cut off the torn last line and the records after a point; what a resume begins with.

        Args:
            keep: how many records to keep, or a predicate: the records before the first one that
                it refuses are kept, such as ``lambda record: record["step"] <= step``.

        Returns:
            What was kept and dropped. A missing file has nothing to drop.

        Raises:
            ArtefactError: a torn line in the middle, or fewer records than ``keep``: lines that
                the checkpoint counts on are gone.
            StorageError: the disk refused.
        """
        self.close()
        records, ends, torn_bytes = _parse(self.path) if self._exists() else ([], [0], 0)
        if callable(keep):
            refused = (index for index, record in enumerate(records) if not keep(record))
            kept = next(refused, len(records))
        else:
            kept = keep
        if not 0 <= kept <= len(records):
            raise ArtefactError(
                f"{self.path} has {len(records)} records but {kept} are to be kept: lines are "
                "missing; restore it from a copy, or resume from an earlier checkpoint"
            )
        if kept < len(records) or torn_bytes:
            try:
                with self.path.open("r+b") as file:
                    file.truncate(ends[kept])
                    os.fsync(file.fileno())
            except OSError as error:
                raise self._refusal(error) from error
        return Truncation(kept, len(records) - kept, torn_bytes)

    @staticmethod
    def read(path: str | os.PathLike[str]) -> JsonLinesContent:
        """The records of a file, and whether its last line is torn.

        Raises:
            ArtefactError: a missing file, or a line before the last that is not a JSON object;
                the message names the line.
            StorageError: the operating system does not let it be read.
        """
        records, _, torn_bytes = _parse(path)
        return JsonLinesContent(tuple(records), torn_bytes)

    def _exists(self) -> bool:
        try:
            self.path.stat()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._refusal(error) from error
        return True

    def _open(self) -> int:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            if os.fstat(file).st_size and _parse(self.path)[2]:
                raise ArtefactError(
                    f"{self.path} ends in a torn line; call truncate_after before appending to it"
                )
        except BaseException:
            os.close(file)
            raise
        return file

    def _refusal(self, error: OSError, needed_bytes: int | None = None) -> StorageError:
        note = "The earlier lines are unchanged."
        return storage_error(error, self.path, needed_bytes=needed_bytes, note=note)


def _parse(path: str | os.PathLike[str]) -> tuple[list[Record], list[int], int]:
    """Records, the byte offset before each and after the last, and the torn bytes at the end."""
    content = read_file(path, allow_empty=True)
    records: list[Record] = []
    ends = [0]
    for line in io.BytesIO(content):  # splits at line feeds only
        end = ends[-1] + len(line)
        what = f"{os.fspath(path)}, line {len(records) + 1},"
        try:
            if not line.endswith(b"\n"):
                raise ArtefactError(f"{what} is torn")
            record = parse_json(line, what=what)
            if not isinstance(record, dict):
                raise ArtefactError(f"{what} is not a JSON object; remove the line")
        except ArtefactError:
            if end == len(content):
                return records, ends, len(line)
            raise
        records.append(record)
        ends.append(end)
    return records, ends, 0
