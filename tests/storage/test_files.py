from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rover.errors import ArtefactError, StorageError
from rover.storage import JsonLines, RunLock, check_writable, replace_file
from rover.storage.files import read_file


def test_replaces_a_file_or_a_link_with_ordinary_permissions(tmp_path: Path) -> None:
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
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
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
def test_refusals_after_the_last_byte_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
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
def test_destinations_that_are_not_files(
    tmp_path: Path, write: Callable[[Path], None], links: tuple[str, ...]
) -> None:
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
        lambda folder: RunLock(folder).__enter__(),
        lambda folder: check_writable(folder / "new"),
        lambda folder: read_file(folder / "secret"),
    ],
)
def test_without_permission(unwritable_folder: Path, write: Callable[[Path], object]) -> None:
    with pytest.raises(StorageError, match="permission denied; change the permissions"):
        write(unwritable_folder)


def test_files_that_are_not_read(tmp_path: Path) -> None:
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
