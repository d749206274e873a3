"""One process per run folder: an advisory lock that the kernel releases when its holder dies."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from rover.errors import StorageError
from rover.storage.storage import storage_error, write_all

_FILE_NAME = ".lock"
_MAX_HOLDER_BYTES = 512
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP})


class RunLock:
    """Hold the folder of a run for this process: ``with RunLock(folder): ...``.

    The lock is an ``flock`` on the file ``.lock`` in the folder. That file stays: only the lock on
    it means something, and the kernel takes it back however the holder ends, killed included.
    Processes forked while it is held, such as those of vector environments, do not prolong it.

    Raises:
        StorageError: on entering, if another process holds the folder (the message names it), or
            if the lock cannot be taken there.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._file: int | None = None

    def __enter__(self) -> Self:
        path = self.folder / _FILE_NAME
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise storage_error(error, path) from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # For the message that another process will show; the lock does not depend on it.
            os.ftruncate(file, 0)
            write_all(file, f"process {os.getpid()} on {socket.gethostname()}".encode())
        except BlockingIOError:
            holder = os.pread(file, _MAX_HOLDER_BYTES, 0).decode(errors="replace")
            os.close(file)
            raise StorageError(
                f"{self.folder} is in use by {holder or 'another process'}; wait until it ends, "
                "stop it, or choose another folder"
            ) from None
        except OSError as error:
            os.close(file)
            if error.errno in _NO_LOCKS:
                raise StorageError(
                    f"cannot lock {self.folder}: its file system has no file locks; choose a "
                    "folder on a local disk"
                ) from error
            raise storage_error(error, path) from error
        self._file = file
        _held.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _close_in_forked_child() -> None:
    # An flock lives until every copy of its descriptor is closed: drop the child's copy.
    for lock in list(_held):
        lock._close()


os.register_at_fork(after_in_child=_close_in_forked_child)
