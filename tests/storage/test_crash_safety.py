"""The lock of a run's folder, whatever becomes of its holder.

What writers leave behind that are killed in the middle of a write is what tests/campaign/kills.py
tries.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from rover.errors import StorageError
from rover.storage import RunLock

pytestmark = pytest.mark.slow

_SRC = str(Path(__file__).parents[2] / "src")


def run_python(code: str, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": _SRC, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output


_HOLD = """
import sys, time
from rover.storage import RunLock
with RunLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    holder = run_python(_HOLD, str(tmp_path))
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        words = rf"another process .* in use by process {holder.pid} on"
        with pytest.raises(StorageError, match=words), RunLock(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with RunLock(tmp_path):
        pass


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


def test_forked_children_do_not_prolong_the_lock(tmp_path: Path) -> None:
    assert finish(run_python(_FORK, str(tmp_path))) == "held free\n"


def test_the_lock_excludes_this_process_too_and_can_be_taken_again(tmp_path: Path) -> None:
    lock = RunLock(tmp_path)
    for _ in range(2):
        with (
            lock,
            pytest.raises(StorageError, match=f"in use by process {os.getpid()}"),
            RunLock(tmp_path),
        ):
            pass
    with RunLock(tmp_path):
        assert (tmp_path / ".lock").exists()


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
