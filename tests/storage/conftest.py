from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

_NOBODY = 65534


@contextlib.contextmanager
def _plain_user() -> Iterator[None]:
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def plain_user() -> Callable[[], AbstractContextManager[None]]:
    """A context in which permissions count, also where the tests run as root."""
    return _plain_user


@pytest.fixture
def reachable_folder() -> Iterator[Path]:
    """An empty folder that a plain user can reach; pytest's own are private to their owner."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def unwritable_folder(reachable_folder: Path) -> Iterator[Path]:
    """A folder in which this process may not write, also where the tests run as root."""
    folder = reachable_folder / "theirs"
    folder.mkdir()
    folder.chmod(0o555)
    with _plain_user():
        yield folder
    folder.chmod(0o755)


@pytest.fixture
def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Let every second ``os.write`` fail with an error number, after half of the data went out."""

    def refuse(code: int) -> None:
        real_write = os.write
        calls = [0]

        def write(file: int, data: bytes | memoryview) -> int:
            calls[0] += 1
            if calls[0] % 2 == 0:
                raise OSError(code, os.strerror(code))
            return real_write(file, memoryview(data)[: max(1, len(data) // 2)])

        monkeypatch.setattr(os, "write", write)

    return refuse


DISK_ERRORS = {
    errno.ENOSPC: "the disk is full; free some space.*rover resume",
    errno.EDQUOT: "quota exceeded; free some space.*rover resume",
    errno.EACCES: "permission denied; change the permissions",
    errno.EROFS: "read-only file system; choose another folder",
    errno.EFBIG: "file too large; raise the limit",
    errno.EIO: "input/output error; choose another folder",
}


@pytest.fixture(params=DISK_ERRORS, ids=lambda code: errno.errorcode[code])
def disk_error(request: pytest.FixtureRequest) -> tuple[int, str]:
    """An error number and the words that it has to become."""
    return request.param, DISK_ERRORS[request.param]
