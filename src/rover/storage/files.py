"""Replace files atomically, lock a folder, and say in plain words why a disk refused.

A file is written beside its destination under a temporary name, forced to the disk, and only then
renamed over it: whoever opens the destination, at any time and after any crash, finds a complete
old file or a complete new one. The temporary files of killed processes are removed when the folder
of their run is locked, and by any later write to their folder once they are an hour old.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Self

import filelock

from rover.errors import ArtefactError, StorageError, shorten

_PROBE_BYTES = 4096  # one block: enough to make a full file system admit it
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})

_ELSEWHERE = "choose another folder"
_FREE_SPACE = "free some space, then continue with `rover resume`"
_ADVICE = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "raise the limit of `ulimit -f`, then continue with `rover resume`",
    errno.EACCES: "change the permissions of the folder or choose another one",
    errno.ENOENT: (
        "create its folder first, or choose another one; a run whose folder was moved goes on "
        "with `rover resume` there"
    ),
    errno.ENOTDIR: f"a part of its path is a file: {_ELSEWHERE}",
    errno.ELOOP: "a symbolic link is not followed here: put a file in its place",
    errno.ENAMETOOLONG: "choose a shorter name",
}

_TEXT_BYTES = 2**28
"""How large a text may be that is read at once."""

_LINKS = ("metrics.jsonl", "checkpoints", "pictures", "tensorboard", "wandb")
"""Folders in that of a run; what is written in them goes where they are."""

_FILE_SUFFIXES = (".json", ".jsonl", ".safetensors")
"""Of what a run writes; nothing that ends so is a folder."""

_SUFFIX = ".rover-tmp"
_ORPHAN_SECONDS = 3600.0  # since the last byte was written


def _format_bytes(count: int) -> str:
    """``1536`` → ``'1.5 KiB'``."""
    power = min(max(count, 1).bit_length() - 1, 49) // 10
    unit = ("bytes", "KiB", "MiB", "GiB", "TiB")[power]
    return f"{count} bytes" if power == 0 else f"{count / 1024**power:.1f} {unit}"


def _storage_error(
    error: OSError, path: str | os.PathLike[str], *, needed_bytes: int = 0, note: str = ""
) -> StorageError:
    """The error to raise for what the operating system said while ``path`` was written."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        reason = "the disk is full" if error.errno == errno.ENOSPC else reason
        folder = path if os.path.isdir(path) else Path(path).parent
        with contextlib.suppress(OSError):
            free = _format_bytes(shutil.disk_usage(folder).free)
            reason += f" ({free} free, {_format_bytes(needed_bytes)} needed)"
    advice = _ADVICE.get(error.errno or 0, _ELSEWHERE)
    translated = StorageError(f"cannot write {os.fspath(path)}: {reason}; {advice}. {note}".strip())
    translated.errno = error.errno
    return translated


def replace_file(path: str | os.PathLike[str], chunks: Sequence[bytes | memoryview]) -> None:
    """Write ``chunks``, one after another, as the new content of ``path``, atomically.

    Args:
        path: destination; its folder must exist. A symbolic link is replaced, not followed.
        chunks: byte buffers; none is copied.

    Raises:
        StorageError: the content could not be written. The previous file is as it was and no
            temporary file is left. (If only the last step fails, synchronising the folder, the
            new file is there but may not survive a power cut.)
    """
    destination = Path(path)
    unchanged = "The previous file is unchanged." if os.path.isfile(path) else ""
    try:
        _remove_orphans(destination.parent, _ORPHAN_SECONDS)
        with _temporary(destination) as temporary:
            _write(temporary, chunks, os.O_EXCL, sync=True)
            os.replace(temporary, destination)
        unchanged = ""
        _sync_folder(destination.parent)
    except OSError as error:
        size = sum(memoryview(chunk).nbytes for chunk in chunks)
        raise _storage_error(error, destination, needed_bytes=size, note=unchanged) from error


def append_to_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
    """Write ``data`` at the end of ``path``, all of it or nothing.

    Args:
        path: created where it is missing; a symbolic link is refused.
        data: may be empty.
        sync: whether to force the whole file to the disk afterwards.

    Raises:
        StorageError: the disk refused; what was in the file before is as it was.
    """
    try:
        _write(path, [data], os.O_APPEND, sync=sync)
    except OSError as error:
        note = "The earlier lines are unchanged."
        raise _storage_error(error, path, needed_bytes=len(data), note=note) from error


def _write(
    path: str | os.PathLike[str], chunks: Sequence[bytes | memoryview], flags: int, *, sync: bool
) -> None:
    flags |= os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    file = os.open(path, flags, 0o666)
    try:
        before = os.fstat(file).st_size
        try:
            for chunk in chunks:
                rest = memoryview(chunk).cast("B")
                while rest.nbytes:  # os.write may take only a part
                    rest = rest[os.write(file, rest) :]
        except BaseException:
            with contextlib.suppress(OSError):  # half a line would make later ones unreadable
                os.ftruncate(file, before)
            raise
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def _temporary(destination: Path) -> Iterator[Path]:
    """A new name beside ``destination`` that no file has afterwards."""
    path = destination.with_name(f".{destination.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        yield path
    finally:  # also after an interrupt from the keyboard
        with contextlib.suppress(OSError):
            path.unlink()


def _remove_orphans(folder: Path, seconds: float) -> None:
    """Remove temporary files in ``folder`` that nobody has written to for ``seconds``."""
    for path in folder.glob(f".*{_SUFFIX}"):
        with contextlib.suppress(OSError):  # an orphan never stands in the way of a write
            if time.time() - path.lstat().st_mtime >= seconds:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":  # folders cannot be opened there
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:  # some file systems cannot synchronise folders
            raise
    finally:
        os.close(file)


def check_writable(folder: str | os.PathLike[str], *, needed_bytes: int = 0) -> None:
    """Create ``folder`` where it is missing and prove that files can be written in it.

    Called before a run begins, so that a folder that cannot be used costs no work. The proof is a
    real block, written, forced to the disk and removed; permissions alone promise less.

    Args:
        folder: created with its parents.
        needed_bytes: what the run is going to store, >= 0.

    Raises:
        StorageError: not a folder, no permission, a read-only file system, or too little space
            (the message says how much is free and how much is needed).
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file, not a folder; {_ELSEWHERE}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        with _temporary(folder / "probe") as probe:
            _write(probe, [bytes(_PROBE_BYTES)], os.O_EXCL, sync=True)
    except OSError as error:
        raise _storage_error(error, folder, needed_bytes=max(needed_bytes, _PROBE_BYTES)) from error
    if free < needed_bytes:
        raise StorageError(
            f"{folder} has too little space: {_format_bytes(free)} free, "
            f"{_format_bytes(needed_bytes)} needed; free some space or {_ELSEWHERE}"
        )


def checked_path(path: str | os.PathLike[str]) -> Path:
    """`path`, if the operating system can have a file of this name.

    Raises:
        StorageError: the name is empty, too long, or holds a character that no name can hold.
    """
    if not os.fspath(path):
        raise StorageError("a path is empty: give the path of a file or folder")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass  # it can have one
    except ValueError:
        raise StorageError(f"{shorten(path)} holds a character that no path can hold") from None
    except OSError as error:
        raise StorageError(f"{shorten(path)} cannot be used: {error.strerror}") from None
    return Path(path)


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BufferedReader]:
    """A file that is read inside a `with` block.

    Raises:
        StorageError: the operating system does not let it be read.
    """
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise StorageError(
            f"cannot read {os.fspath(path)}: {error.strerror}; check the permissions and the disk"
        ) from error


def read_file(
    path: str | os.PathLike[str],
    *,
    allow_empty: bool = False,
    beginning: int = -1,
    max_bytes: int = _TEXT_BYTES,
) -> bytes:
    """The content of a regular file.

    Args:
        path: the file; symbolic links are followed.
        allow_empty: whether a file without a byte is a file like another.
        beginning: how much of its beginning to read, in bytes; −1: all of it.
        max_bytes: how large a file is read at all.

    Raises:
        ArtefactError: the file is missing, is a folder or a device, is too large, or is empty
            and ``allow_empty`` is false.
        StorageError: the operating system does not let it be read.
    """
    name = os.fspath(path)
    if not os.path.exists(path):
        raise ArtefactError(f"{name} does not exist; check the path")
    if not os.path.isfile(path):
        raise ArtefactError(f"{name} is a folder or a device; give the path of a file")
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size if beginning < 0 else 0
        try:
            if size > max_bytes:
                raise MemoryError
            content = file.read(beginning)
        except MemoryError:
            raise ArtefactError(
                f"{name} has {_format_bytes(size)}, more than the {_format_bytes(max_bytes)} "
                "that are read of such a file, or than there is memory for; restore it from a copy"
            ) from None
    if not content and not allow_empty:
        raise ArtefactError(f"{name} is empty; restore it from a copy")
    return content


def file_digest(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal digits.

    Raises:
        StorageError: the operating system does not let it be read.
    """
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_links(folder: str | os.PathLike[str]) -> None:
    """Check that whatever a run writes in its `folder` can be written, and is not led elsewhere.

    Raises:
        StorageError: a folder in it is a symbolic link, or in the place of a file; the message
            names it.
    """
    for name in _LINKS:
        path = Path(folder) / name
        if path.is_symlink():
            raise StorageError(
                f"{path} is a symbolic link, and a run writes only in its own folder; remove the "
                f"link or {_ELSEWHERE}"
            )
    for path in Path(folder).glob("*.*"):
        if path.is_dir() and path.suffix in _FILE_SUFFIXES:
            raise StorageError(
                f"{path} is a folder, where a run has a file; move it away or {_ELSEWHERE}"
            )


class RunLock:
    """Hold the folder of a run for this process: ``with RunLock(folder): ...``.

    The lock is one of the operating system on the file ``.lock`` in the folder, which stays there:
    the system takes the lock back however its holder ends, killed included. Processes forked while
    it is held, such as those of vector environments, do not prolong it.

    Args:
        folder: of the run.
        patience: seconds in which another holder may still let go of it.

    Raises:
        StorageError: on entering, if another process holds the folder (the message names it), or
            if the lock cannot be taken there, or a folder in it is a symbolic link.
    """

    def __init__(self, folder: str | os.PathLike[str], *, patience: float = 0.0) -> None:
        self.folder, self._patience = Path(folder), patience
        self._file = self.folder / ".lock"
        self._lock = filelock.FileLock(self._file, thread_local=False, fallback_to_soft=False)

    def __enter__(self) -> Self:
        refuse_links(self.folder)
        try:
            self.folder.stat()  # a missing folder is an error: the library would create it
            self._lock.acquire(timeout=self._patience)
        except filelock.Timeout:
            holder = ""
            with contextlib.suppress(OSError):
                holder = self._file.read_text(errors="replace")[:200]
            raise StorageError(
                f"another process is writing to this run: {self.folder} is in use by "
                f"{holder or 'it'}; wait until it ends, stop it, or {_ELSEWHERE}"
            ) from None
        except OSError as error:
            raise _storage_error(error, self._file) from error
        with contextlib.suppress(OSError):  # only for the message that another process will show
            self._file.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        for folder in (self.folder, self.folder / "checkpoints"):  # written by the holder only
            _remove_orphans(folder, 0.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()
