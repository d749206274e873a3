"""Replace files atomically and say in plain words why a disk refused.

A file is written beside its destination under a temporary name, forced to the disk, and only then
renamed over the destination: whoever opens the destination, at any time and after any crash, finds
a complete old file or a complete new one (POSIX ``rename``; the folder is synchronised afterwards
so that the new name survives a power cut).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import socket
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from rover.errors import ArtefactError, ConfigurationError, StorageError

_PROBE_BYTES = 4096  # one block: enough to make a full file system admit it
_DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_NO_FOLDER_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP})

_REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the disk quota of this user is used up",
    errno.EFBIG: "the file would exceed the largest size that this process may write (`ulimit -f`)",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EEXIST: "a part of its path is a file, not a folder",
    errno.EISDIR: "a folder has this name",
    errno.ENOENT: "its folder does not exist",
    errno.ENAMETOOLONG: "the name is too long for the file system",
}
_ELSEWHERE = "choose another folder"
_ADVICE = {
    errno.ENOSPC: "free some space, then continue with `rover resume`",
    errno.EDQUOT: "free some space or raise the quota, then continue with `rover resume`",
    errno.EFBIG: "raise the limit, then continue with `rover resume`",
    errno.EACCES: "change the permissions of the folder or choose another one",
    errno.EPERM: "change the permissions of the folder or choose another one",
    errno.EROFS: "choose a folder on a file system that can be written",
    errno.ENOENT: "create the folder first, or choose another one",
    errno.ENAMETOOLONG: "choose a shorter name",
}

_temporary_numbers = itertools.count()


def format_bytes(count: int) -> str:
    """``1536`` → ``'1.5 KiB'``."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def storage_error(
    error: OSError, path: str | os.PathLike[str], *, needed_bytes: int | None = None, note: str = ""
) -> StorageError:
    """Translate an :class:`OSError` met while writing ``path`` into words with advice.

    Args:
        error: what the operating system said.
        path: the file or folder that was to be written.
        needed_bytes: how much was to be written, named in the message of a full disk.
        note: what became of the previous content, appended to the message.

    Returns:
        The error to raise; its ``errno`` is that of ``error``.
    """
    code = error.errno or 0
    reason = _REASONS.get(code, error.strerror or str(error))
    if code in _DISK_FULL:
        reason += _free_and_needed(Path(path), needed_bytes)
    message = f"cannot write {os.fspath(path)}: {reason}; {_ADVICE.get(code, _ELSEWHERE)}."
    translated = StorageError(f"{message} {note}".strip())
    translated.errno = error.errno
    return translated


def _free_and_needed(path: Path, needed_bytes: int | None) -> str:
    facts = []
    with contextlib.suppress(OSError):
        folder = path if os.path.isdir(path) else path.parent
        facts.append(f"{format_bytes(shutil.disk_usage(folder).free)} free")
    if needed_bytes is not None:
        facts.append(f"{format_bytes(needed_bytes)} needed")
    return f" ({', '.join(facts)})" if facts else ""


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
    size = sum(memoryview(chunk).nbytes for chunk in chunks)
    replaced = False
    try:
        _remove_orphans(destination)
        temporary = _temporary_path(destination)
        # O_EXCL: never write through something that already lies there.
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                for chunk in chunks:
                    write_all(file, chunk)
                os.fsync(file)
            finally:
                os.close(file)
            os.replace(temporary, destination)
            replaced = True
        except BaseException:  # also an interrupt from the keyboard
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        _sync_folder(destination.parent)
    except OSError as error:
        note = (
            "The previous file is unchanged."
            if os.path.isfile(destination) and not replaced
            else ""
        )
        raise storage_error(error, destination, needed_bytes=size, note=note) from error


def write_all(file: int, data: bytes | memoryview) -> None:
    """Write all of ``data`` to an open file descriptor; ``os.write`` may take only a part."""
    rest = memoryview(data).cast("B")
    while rest.nbytes:
        rest = rest[os.write(file, rest) :]


def _temporary_path(destination: Path) -> Path:
    number = next(_temporary_numbers)
    return destination.with_name(f"{_temporary_prefix(destination)}{os.getpid()}-{number}.tmp")


def _temporary_prefix(destination: Path) -> str:
    # The host is in the name because a process id says nothing about another machine's processes.
    return f".{destination.name}.{socket.gethostname()}."


def _remove_orphans(destination: Path) -> None:
    """Remove temporary files that processes killed while writing ``destination`` have left."""
    prefix = _temporary_prefix(destination)
    for name in os.listdir(destination.parent):
        if name.startswith(prefix) and name.endswith(".tmp"):
            owner = name.removeprefix(prefix).partition("-")[0]
            if owner.isdecimal() and not _is_running(int(owner)):
                with contextlib.suppress(FileNotFoundError):
                    destination.with_name(name).unlink()


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _sync_folder(folder: Path) -> None:
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
        ConfigurationError: ``needed_bytes`` is negative.
    """
    if needed_bytes < 0:
        raise ConfigurationError(f"needed_bytes is {needed_bytes}; give a size in bytes, >= 0")
    folder = Path(folder)
    try:
        if os.path.exists(folder) and not os.path.isdir(folder):
            raise StorageError(f"{folder} is a file, not a folder; {_ELSEWHERE}")
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        with _removed_afterwards(_temporary_path(folder / "probe")) as probe:
            file = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                write_all(file, bytes(_PROBE_BYTES))
                os.fsync(file)
            finally:
                os.close(file)
    except StorageError:
        raise
    except OSError as error:
        raise storage_error(error, folder, needed_bytes=max(needed_bytes, _PROBE_BYTES)) from error
    if free < needed_bytes:
        raise StorageError(
            f"{folder} has too little space: {format_bytes(free)} free, "
            f"{format_bytes(needed_bytes)} needed; free some space or {_ELSEWHERE}"
        )


@contextlib.contextmanager
def _removed_afterwards(path: Path) -> Iterator[Path]:
    try:
        yield path
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def read_file(path: str | os.PathLike[str], *, allow_empty: bool = False) -> bytes:
    """The whole content of a regular file.

    Raises:
        ArtefactError: the file is missing, is a folder or a device, or is empty and
            ``allow_empty`` is false.
        StorageError: the operating system does not let it be read.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ArtefactError(f"{os.fspath(path)} is not a regular file; give a file's path")
            content = file.read()
    except (FileNotFoundError, NotADirectoryError):
        raise ArtefactError(f"{os.fspath(path)} does not exist; check the path") from None
    except IsADirectoryError:
        raise ArtefactError(f"{os.fspath(path)} is a folder; give the path of a file") from None
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror)
        raise StorageError(
            f"cannot read {os.fspath(path)}: {reason}; check the permissions and the disk"
        ) from error
    if not content and not allow_empty:
        raise ArtefactError(
            f"{os.fspath(path)} is empty; it was never written completely: restore it from a copy"
        )
    return content


def _open_without_waiting(path: str, flags: int) -> int:
    # A named pipe would otherwise block until somebody writes to it.
    return os.open(path, flags | os.O_NONBLOCK)
