from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from rover.errors import ArtefactError, ConfigurationError, StorageError
from rover.storage import check_writable
from rover.storage.storage import format_bytes, read_file, replace_file, storage_error


def test_replaces_with_the_joined_chunks_and_ordinary_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old content that is longer")
    replace_file(path, [b"new ", memoryview(b"content")])
    assert path.read_bytes() == b"new content"
    umask = os.umask(0o022)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask
    assert os.listdir(tmp_path) == ["a"]


def test_any_refusal_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
    code, words = disk_error
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    refuse_writes(code)
    with pytest.raises(StorageError, match=words) as caught:
        replace_file(path, [b"new content"])
    assert str(path) in str(caught.value)
    assert str(caught.value).endswith("The previous file is unchanged.")
    assert caught.value.errno == code
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_refusals_after_the_last_byte_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EDQUOT, "quota")  # network file systems report a full disk this late

    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageError, match="quota"):
        replace_file(path, [b"new"])
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_interrupt_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "a", [b"new"])
    assert os.listdir(tmp_path) == []


def _refuse_folder_sync(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    real_fsync = os.fsync

    def fsync(file: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{file}") or os.path.isdir(f"/dev/fd/{file}"):
            raise OSError(code, os.strerror(code))
        real_fsync(file)

    monkeypatch.setattr(os, "fsync", fsync)


def test_file_systems_that_cannot_synchronise_folders_are_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _refuse_folder_sync(monkeypatch, errno.EINVAL)
    replace_file(tmp_path / "a", [b"new"])
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_failed_folder_sync_does_not_claim_that_the_old_file_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"old")
    _refuse_folder_sync(monkeypatch, errno.EIO)
    with pytest.raises(StorageError) as caught:
        replace_file(tmp_path / "a", [b"new"])
    assert "unchanged" not in str(caught.value)
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_real_size_limit_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(StorageError, match="largest size that this process may write"):
            replace_file(path, [bytes(600), bytes(600)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_orphans_of_dead_writers_are_removed_and_those_of_the_living_kept(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    host = socket.gethostname()
    orphan = tmp_path / f".a.{host}.{dead.pid}-0.tmp"
    others = [
        tmp_path / f".a.{host}.{os.getppid()}-0.tmp",
        tmp_path / f".a.other-{host}.{dead.pid}-0.tmp",
        tmp_path / f".b.{host}.{dead.pid}-0.tmp",
        tmp_path / f".a.{host}.notes.tmp",
    ]
    for file in (orphan, *others):
        file.write_bytes(b"half")
    replace_file(tmp_path / "a", [b"new"])
    assert not orphan.exists()
    assert all(file.exists() for file in others)


def test_the_temporary_files_of_another_user_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(errno.EPERM, "not your process")

    theirs = tmp_path / f".a.{socket.gethostname()}.{os.getppid()}-0.tmp"
    theirs.write_bytes(b"half")
    monkeypatch.setattr(os, "kill", refuse)
    replace_file(tmp_path / "a", [b"new"])
    assert theirs.exists()


def test_a_destination_without_permission(unwritable_folder: Path) -> None:
    with pytest.raises(StorageError, match="permission denied; change the permissions"):
        replace_file(unwritable_folder / "a", [b"new"])


def test_destinations_that_are_not_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(StorageError, match="its folder does not exist; create the folder first"):
        replace_file(tmp_path / "missing" / "a", [b"new"])
    with pytest.raises(StorageError, match="a folder has this name"):
        replace_file(tmp_path / "folder", [b"new"])
    with pytest.raises(StorageError, match="a part of its path is a file"):
        replace_file(tmp_path / "file" / "a", [b"new"])
    with pytest.raises(StorageError, match=r"name is too long.*shorter name"):
        replace_file(tmp_path / ("a" * 300), [b"new"])
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_check_writable_creates_the_folder_and_leaves_it_empty(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a"
    check_writable(folder, needed_bytes=10)
    check_writable(folder)
    assert os.listdir(folder) == []


def test_check_writable_says_how_much_is_free_and_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=3 * 2**20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    check_writable(tmp_path, needed_bytes=3 * 2**20)
    with pytest.raises(StorageError, match=r"3.0 MiB free, 2.0 GiB needed; free some space"):
        check_writable(tmp_path, needed_bytes=2**31)


def test_check_writable_refuses_what_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file is a file, not a folder; choose another"):
        check_writable(tmp_path / "file")
    with pytest.raises(StorageError, match="a part of its path is a file"):
        check_writable(tmp_path / "file" / "a" / "b")
    with pytest.raises(ConfigurationError, match="needed_bytes is -1"):
        check_writable(tmp_path, needed_bytes=-1)


def test_check_writable_refuses_a_folder_without_permission(unwritable_folder: Path) -> None:
    with pytest.raises(StorageError, match="permission denied; change the permissions"):
        check_writable(unwritable_folder)
    with pytest.raises(StorageError, match="permission denied; change the permissions"):
        check_writable(unwritable_folder / "new")


def test_check_writable_writes_for_real(
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
    code, words = disk_error
    refuse_writes(code)
    with pytest.raises(StorageError, match=words):
        check_writable(tmp_path)
    assert os.listdir(tmp_path) == []


def test_read_file_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ArtefactError, match="missing does not exist; check the path"):
        read_file(tmp_path / "missing")
    with pytest.raises(ArtefactError, match="does not exist"):
        read_file(tmp_path / "empty" / "a")
    with pytest.raises(ArtefactError, match="is a folder; give the path of a file"):
        read_file(tmp_path)
    with pytest.raises(ArtefactError, match="pipe is not a regular file"):
        read_file(tmp_path / "pipe")
    with pytest.raises(ArtefactError, match="is empty; it was never written completely"):
        read_file(tmp_path / "empty")
    assert read_file(tmp_path / "empty", allow_empty=True) == b""


def test_read_file_says_that_it_may_not_be_read(
    reachable_folder: Path, plain_user: Callable[[], AbstractContextManager[None]]
) -> None:
    (reachable_folder / "a").write_bytes(b"secret")
    (reachable_folder / "a").chmod(0)
    with (
        plain_user(),
        pytest.raises(StorageError, match=r"cannot read .*: permission denied; check"),
    ):
        read_file(reachable_folder / "a")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**31, "2.0 GiB"),
        (2**41, "2.0 TiB"),
    ],
)
def test_sizes_in_words(count: int, text: str) -> None:
    assert format_bytes(count) == text


def test_a_full_disk_is_named_even_where_its_size_is_unknown(tmp_path: Path) -> None:
    error = storage_error(OSError(errno.ENOSPC, "full"), tmp_path / "missing" / "a")
    assert "the disk is full; free some space" in str(error)
