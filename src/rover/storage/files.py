"""Atomic writes, bounded reads and locks, with a remedy for whatever a disk refuses.

A file is written beside its destination under a temporary name, forced to the disk, and only then
renamed over it: whoever opens the destination, at any time and after any crash, finds a complete
old file or a complete new one. Temporary files of killed processes go when their run is locked.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import filelock
from rich.filesize import decimal as format_bytes

from rover.errors import ArtefactError, StorageError, shorten

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
# Entries of a run's folder that later writes would follow if they were symbolic links.
_LINKS = ("metrics.jsonl", "checkpoints", "pictures", "tensorboard", "wandb")
# Text that is larger is not ours, and would fill the memory.
_MAX_TEXT_BYTES = 2**28
_SUFFIX = ".rover-tmp"


@contextlib.contextmanager
def _access(path: str | os.PathLike[str], verb: str = "write") -> Iterator[None]:
    """Turn errors of the operating system into StorageErrors with a remedy."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        is_full, code = error.errno == errno.ENOSPC, error.errno or 0
        reason = "the disk is full" if is_full else (error.strerror or str(error)).lower()
        advice = _ADVICE.get(code, _ELSEWHERE)
        translated = StorageError(f"cannot {verb} {path}: {reason}; {advice}")
        translated.errno = error.errno
        raise translated from error


def replace_file(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` as the new content of `path`, atomically; a symbolic link is replaced.

    StorageError: it could not be written; the previous file is as it was, with no temporary one
    left.
    """
    path = Path(path)
    with _access(path):
        with _temporary(path) as temporary:
            # On the disk before it is renamed: a power cut must not leave the new name with
            # nothing in it.
            _write(temporary, data, os.O_EXCL, sync=True)
            os.replace(temporary, path)
        _sync_folder(path.parent)  # the new name is on the disk only after this


@contextlib.contextmanager
def _temporary(destination: Path) -> Iterator[Path]:
    """A new name beside `destination` that no file has afterwards."""
    # In the same folder, since a file is renamed in one step only within a file system.
    path = destination.with_name(f".{destination.name}.{secrets.token_hex(8)}{_SUFFIX}")
    try:
        yield path
    finally:  # also after an interrupt from the keyboard
        with contextlib.suppress(OSError):
            path.unlink()


def append_to_file(path: str | os.PathLike[str], data: bytes, *, sync: bool = False) -> None:
    """Append `data` to `path`, which is created if it is missing; no link is followed."""
    with _access(path):
        _write(path, data, os.O_APPEND, sync=sync)


def _write(path: str | os.PathLike[str], data: bytes, flags: int, *, sync: bool) -> None:
    # O_NOFOLLOW: a link in the place of a file would let a run write elsewhere.
    file = os.open(path, flags | os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    try:
        rest = memoryview(data)
        while rest.nbytes:  # os.write may take only a part
            rest = rest[os.write(file, rest) :]
        if sync:
            os.fsync(file)
    finally:
        os.close(file)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:  # some file systems cannot do it
            raise
    finally:
        os.close(file)


def check_writable(folder: str | os.PathLike[str], *, needed_bytes: int = 0) -> None:
    """Create `folder` with its parents and prove, by writing a block, that it can be used.

    Called before a run begins, so that a folder that cannot be used costs no work.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder} is a file, not a folder; {_ELSEWHERE}")
    with _access(folder):
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free  # quotas are not in it, but refuse the block
        with _temporary(folder / "probe") as probe:
            _write(probe, bytes(4096), os.O_EXCL, sync=True)  # a block: full disks refuse it
    if free < needed_bytes:
        raise StorageError(
            f"{folder} has too little space: {format_bytes(free)} free, "
            f"{format_bytes(needed_bytes)} needed; free some space or {_ELSEWHERE}"
        )


def checked_path(path: str | os.PathLike[str]) -> Path:
    """`path`, unless no file can have that name: StorageError."""
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            os.stat(os.fspath(path) or "\0")  # "" would be a missing file, "\0" is no name
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is empty, or holds a null character"
        raise StorageError(f"the path {shorten(path)} cannot be used: {reason}") from None
    return Path(path)


def read_file(path: str | os.PathLike[str], *, n_bytes: int = -1) -> bytes:
    """The content of a regular file, or its first `n_bytes`; symbolic links are followed.
    ArtefactError: it is missing, a folder or a device, or larger than 256 MiB."""
    if not os.path.exists(path):
        raise ArtefactError(f"{path} does not exist; check the path")
    if not os.path.isfile(path):  # opening a pipe would wait for its writer
        raise ArtefactError(f"{path} is a folder or a device; give the path of a file")
    with _access(path, "read"), open(path, "rb") as file:
        # Asked of the file that is open, which nobody exchanges before it is read.
        size = os.fstat(file.fileno()).st_size
        if n_bytes < 0 and size > _MAX_TEXT_BYTES:
            raise ArtefactError(
                f"{path} has {format_bytes(size)}, more than the {format_bytes(_MAX_TEXT_BYTES)} "
                "that are read of such a file; restore it from a copy"
            )
        return file.read(n_bytes)


def file_digest(path: str | os.PathLike[str]) -> str:
    """SHA-256 of a file's content, in hexadecimal digits."""
    with _access(path, "read"), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def refuse_links(folder: str | os.PathLike[str]) -> None:
    """Check that no link leads what a run writes in `folder` elsewhere."""
    for path in (Path(folder) / name for name in _LINKS):
        if path.is_symlink():
            raise StorageError(
                f"{path} is a symbolic link, and a run writes only in its own folder; remove the "
                f"link or {_ELSEWHERE}"
            )


@contextlib.contextmanager
def run_lock(folder: str | os.PathLike[str], *, patience: float = 0.0) -> Iterator[None]:
    """Hold the folder of a run for this process inside a `with` block; another holder has
    `patience` seconds to let go of it, before a StorageError that names it.

    The lock is one of the operating system on the file ``.lock`` in the folder, which stays there:
    the system takes the lock back however its holder ends, killed included. Processes forked while
    it is held, such as workers of vector environments, do not prolong it.
    """
    folder = Path(folder)
    file = folder / ".lock"
    lock = filelock.FileLock(file, thread_local=False, fallback_to_soft=False)
    refuse_links(folder)
    with _access(file):
        folder.stat()  # a missing folder is an error: the library would create it
        try:
            lock.acquire(timeout=patience)
        except filelock.Timeout:
            holder = file.read_text(errors="replace")[:200]
            raise StorageError(
                f"another process is writing to this run: {folder} is in use by "
                f"{holder or 'it'}; wait until it ends, stop it, or {_ELSEWHERE}"
            ) from None
    try:
        with contextlib.suppress(OSError):  # only for the message that another process will show
            file.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        for place in (folder, folder / "checkpoints"):  # written by the holder only
            for orphan in place.glob(f".*{_SUFFIX}"):
                with contextlib.suppress(OSError):
                    orphan.unlink()
        yield
    finally:
        lock.release()
