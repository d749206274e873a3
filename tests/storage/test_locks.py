"""The lock of a run's folder, whatever becomes of its holder.

Writers that are killed in the middle of a write are tried in tests/campaign/test_kills.py.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rover.errors import StorageError
from rover.storage import RunLock

pytestmark = pytest.mark.slow

_HOLD = """
import sys, time
from rover.storage import RunLock
with RunLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""
_FORK = """
import os, signal, sys, time
from rover.storage import RunLock
lock = RunLock(sys.argv[1])
lock.__enter__()
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    time.sleep(60)
os.read(ready, 1)
try:
    RunLock(sys.argv[1]).__enter__()
except OSError:
    print("held", end=" ")  # the child closing its copy does not release ours
lock.__exit__(None, None, None)
with RunLock(sys.argv[1]):
    print("free")  # although the child lives
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def run_python(code: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", code, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = run_python(_HOLD, tmp_path)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        words = rf"another process .* in use by process {holder.pid} on"
        with pytest.raises(StorageError, match=words), RunLock(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    lock, other = RunLock(tmp_path), RunLock(tmp_path)
    for _ in range(2):  # can be taken again, and excludes this process too
        with lock, pytest.raises(StorageError, match=f"by process {os.getpid()}"), other:
            pass


def test_forked_children_do_not_prolong_the_lock(tmp_path: Path) -> None:
    assert run_python(_FORK, tmp_path).communicate(timeout=60)[0] == "held free\n"


def test_folders_that_cannot_be_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def assert_refused(folder: Path, words: str) -> None:
        with pytest.raises(StorageError, match=words), RunLock(folder):
            pass

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    assert_refused(tmp_path / "a", "create its folder first")
    with monkeypatch.context() as broken:
        broken.setattr(fcntl, "flock", refuse)
        assert_refused(tmp_path, "no locks available; choose another folder")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / ".lock").unlink()
    (tmp_path / ".lock").symlink_to(tmp_path / "theirs")
    assert_refused(tmp_path, "a symbolic link is not")
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_orphans_go_once_nobody_can_be_writing_them(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    orphans = [tmp_path / ".a.1234.rover-tmp", tmp_path / "checkpoints" / ".step-1.9.rover-tmp"]
    others = [tmp_path / name for name in (".a.tmp", "a.rover-tmp")]
    for file in (*orphans, *others):
        file.write_bytes(b"half")
    with RunLock(tmp_path):
        assert not any(file.exists() for file in orphans)
    assert all(file.exists() for file in others)
