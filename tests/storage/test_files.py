"""Files that are replaced, and the lock of a folder, whatever becomes of disk and processes."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rover.errors import ArtefactError, StorageError
from rover.storage import JsonLines, check_writable, replace_file, run_lock
from rover.storage.files import read_file


def test_replaces_a_file_or_a_link_with_ordinary_permissions(tmp_path):
    path, other = tmp_path / "a", tmp_path.parent / "theirs"
    other.write_bytes(b"old content that is longer")
    path.symlink_to(other)
    replace_file(path, b"new content")
    assert path.read_bytes() == b"new content"
    assert other.read_bytes() == b"old content that is longer"  # the link is replaced
    umask = os.umask(0o022)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert os.listdir(tmp_path) == ["a"]


def test_any_refusal_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path, refuse_writes, disk_error
):
    code, words = disk_error
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    refuse_writes(code)
    with pytest.raises(StorageError, match=words) as caught:
        replace_file(path, b"new content")
    assert str(path) in str(caught.value)
    assert caught.value.errno == code
    assert path.read_bytes() == b"old"
    with pytest.raises(StorageError, match=words):
        check_writable(tmp_path)  # writes for real
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.EDQUOT, "quota"), KeyboardInterrupt()])
def test_refusals_after_the_last_byte_count_too(tmp_path, monkeypatch, call, error):
    def refuse(*_: object) -> None:
        raise error  # network file systems report a full disk this late

    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises((StorageError, KeyboardInterrupt), match=r"quota|^$"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]


def append(path: Path) -> None:
    JsonLines(path).append({"step": 0})


@pytest.mark.parametrize(
    ("write", "links"),
    [(lambda path: replace_file(path, b"new"), ()), (append, ("link",))],
    ids=["replace", "append"],
)
def test_destinations_that_are_not_files(tmp_path, write, links):
    (tmp_path / "file").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    words = {
        "missing/a": "no such file or directory; create its folder first",
        "folder": "is a directory",
        "file/a": "a part of its path is a file",
        "a" * 300: "name too long; choose a shorter name",
        **dict.fromkeys(links, "a symbolic link is not followed here"),
    }
    for name, message in words.items():
        with pytest.raises(StorageError, match=message):
            write(tmp_path / name)
    with pytest.raises(StorageError, match="file is a file, not a folder; choose another"):
        check_writable(tmp_path / "file")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder", "link"]
    assert (tmp_path / "file").read_bytes() == b"theirs"


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: replace_file(folder / "a", b"new"),
        lambda folder: append(folder / "a"),
        lambda folder: run_lock(folder).__enter__(),
        lambda folder: check_writable(folder / "new"),
        lambda folder: read_file(folder / "secret"),
    ],
)
def test_without_permission(unwritable_folder, write):
    with pytest.raises(StorageError, match="permission denied; change the permissions"):
        write(unwritable_folder)


def test_files_that_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(2**42)  # takes no room on the disk
    for name, words in (
        ("missing", "missing does not exist; check the path"),
        ("pipe", "pipe is a folder or a device; give the path of a file"),
        ("large", r"has 4\.4 TB, more than the 268\.4 MB that are"),
    ):
        with pytest.raises(ArtefactError, match=words):
            read_file(tmp_path / name)


_HOLD = """
import sys, time
from rover.storage import run_lock
with run_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""
_FORK = """
import os, signal, sys, time
from rover.storage import run_lock
lock = run_lock(sys.argv[1])
lock.__enter__()
ready, tell = os.pipe()
child = os.fork()
if child == 0:
    os.write(tell, b"x")
    time.sleep(60)
os.read(ready, 1)
try:
    run_lock(sys.argv[1]).__enter__()
except OSError:
    print("held", end=" ")  # the child closing its copy does not release ours
lock.__exit__(None, None, None)
with run_lock(sys.argv[1]):
    print("free")  # although the child lives
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
"""


def run_python(code: str, folder: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", code, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free(tmp_path):
    holder = run_python(_HOLD, tmp_path)
    try:
        assert holder.stdout.readline() == "held\n"
        words = rf"another process .* in use by process {holder.pid} on"
        with pytest.raises(StorageError, match=words), run_lock(tmp_path):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    words = f"by process {os.getpid()}"
    for _ in range(2):  # can be taken again, and excludes this process too
        with run_lock(tmp_path), pytest.raises(StorageError, match=words), run_lock(tmp_path):
            pass


@pytest.mark.slow
def test_forked_children_do_not_prolong_the_lock(tmp_path):
    assert run_python(_FORK, tmp_path).communicate(timeout=60)[0] == "held free\n"


def test_folders_that_cannot_be_locked(tmp_path, monkeypatch):
    def assert_refused(folder: Path, words: str) -> None:
        with pytest.raises(StorageError, match=words), run_lock(folder):
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


def test_orphans_go_once_nobody_can_be_writing_them(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    orphans = [tmp_path / ".a.1234.rover-tmp", tmp_path / "checkpoints" / ".step-1.9.rover-tmp"]
    others = [tmp_path / name for name in (".a.tmp", "a.rover-tmp")]
    for file in (*orphans, *others):
        file.write_bytes(b"half")
    with run_lock(tmp_path):
        assert not any(file.exists() for file in orphans)
    assert all(file.exists() for file in others)
