import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_NOBODY = 65534
_DISK_ERRORS = {
    errno.ENOSPC: "the disk is full; free some space.*rover resume",
    errno.EACCES: "permission denied; change the permissions",
    errno.EIO: "input/output error; choose another folder",
}


@contextlib.contextmanager
def plain_user() -> Iterator[None]:
    """A context in which permissions count, also where the tests run as root."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def unwritable_folder():
    """A folder in which this process may not write, and a file in it that it may not read."""
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are private to their owner
        folder = Path(name, "theirs")
        folder.parent.chmod(0o755)
        folder.mkdir()
        (folder / "secret").write_bytes(b"secret")
        (folder / "secret").chmod(0)
        folder.chmod(0o555)
        with plain_user():
            yield folder
        folder.chmod(0o755)


@pytest.fixture
def refuse_writes(monkeypatch):
    """Let every second ``os.write`` fail with an error number, after half of the data went out."""

    def refuse(code: int) -> None:
        real_write, calls = os.write, [0]

        def write(file: int, data: bytes | memoryview) -> int:
            calls[0] += 1
            if calls[0] % 2 == 0:
                raise OSError(code, os.strerror(code))
            return real_write(file, memoryview(data)[: max(1, len(data) // 2)])

        monkeypatch.setattr(os, "write", write)

    return refuse


@pytest.fixture(params=_DISK_ERRORS, ids=lambda code: errno.errorcode[code])
def disk_error(request):
    """An error number and the words that it has to become."""
    return request.param, _DISK_ERRORS[request.param]
