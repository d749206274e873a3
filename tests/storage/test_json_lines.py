from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rover.errors import ArtefactError, NonFiniteError, StorageError
from rover.storage import JsonLines, JsonLinesContent, Truncation

_SHARED_FOLDER = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
records_strategy = st.lists(
    st.dictionaries(
        st.text(), st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    ),
    max_size=6,
)


def write_steps(path: Path, count: int) -> None:
    path.unlink(missing_ok=True)
    with JsonLines(path) as lines:
        for step in range(count):
            lines.append({"step": step, "text": "γ\n\r\u2028"})


def steps(path: Path) -> list[int]:
    return [record["step"] for record in JsonLines.read(path).records]


@_SHARED_FOLDER
@given(records=records_strategy)
def test_round_trip(tmp_path: Path, records: list[dict[str, Any]]) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"")
    with JsonLines(path) as lines:
        for record in records:
            lines.append(record)
    assert JsonLines.read(path) == JsonLinesContent(tuple(records), 0)
    assert path.read_bytes().count(b"\n") == len(records)


def test_every_line_is_there_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "a")
    for step in range(3):
        lines.append({"step": step})
        assert steps(tmp_path / "a")[-1] == step
    lines.sync()
    lines.close()
    lines.close()
    lines.append({"step": 3})  # opens again
    lines.close()
    assert steps(tmp_path / "a") == [0, 1, 2, 3]


@_SHARED_FOLDER
@given(cut=st.integers(0, 10**6))
def test_a_file_cut_anywhere_is_read_and_repaired(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a"
    write_steps(path, 5)
    content = path.read_bytes()
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    complete = content.count(b"\n")
    torn = len(content) - (content.rfind(b"\n") + 1)
    found = JsonLines.read(path)
    assert [record["step"] for record in found.records] == list(range(complete))
    assert found.torn_bytes == torn
    assert JsonLines(path).truncate_after(complete) == Truncation(complete, 0, torn)
    with JsonLines(path) as lines:
        lines.append({"step": complete})
    assert steps(path) == list(range(complete + 1))


@pytest.mark.parametrize("tail", [b"\0\0\0\n", b'{"step":9\n', b"7\n", b'{"step":9}', b"\xff"])
def test_a_torn_last_line_is_reported_cut_off_and_never_appended_to(
    tmp_path: Path, tail: bytes
) -> None:
    path = tmp_path / "a"
    write_steps(path, 2)
    path.write_bytes(path.read_bytes() + tail)
    assert JsonLines.read(path).torn_bytes == len(tail)
    with pytest.raises(ArtefactError, match="ends in a torn line; call truncate_after"):
        JsonLines(path).append({"step": 2})
    assert JsonLines(path).truncate_after(lambda _: True) == Truncation(2, 0, len(tail))
    assert steps(path) == [0, 1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"step":', r"a, line 3, is not JSON: .*correct it"),
        (b"7", "a, line 3, is not a JSON object; remove the line"),
        (b"", "a, line 3, is not JSON"),
    ],
)
def test_a_torn_line_in_the_middle_is_an_error(tmp_path: Path, line: bytes, words: str) -> None:
    path = tmp_path / "a"
    write_steps(path, 4)
    content = path.read_bytes().split(b"\n")
    content[2] = line
    path.write_bytes(b"\n".join(content))
    before = path.read_bytes()
    with pytest.raises(ArtefactError, match=words):
        JsonLines.read(path)
    with pytest.raises(ArtefactError, match=words):
        JsonLines(path).truncate_after(1)
    assert path.read_bytes() == before


def test_truncation_by_count_and_by_step(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write_steps(path, 6)
    lines = JsonLines(path)
    lines.append({"step": 6})
    assert lines.truncate_after(5) == Truncation(5, 2, 0)
    assert lines.truncate_after(lambda record: record["step"] <= 2) == Truncation(3, 2, 0)
    lines.append({"step": 3})
    lines.close()
    assert steps(path) == [0, 1, 2, 3]
    assert lines.truncate_after(0) == Truncation(0, 4, 0)
    assert path.read_bytes() == b""
    assert JsonLines(tmp_path / "missing").truncate_after(0) == Truncation(0, 0, 0)
    assert not (tmp_path / "missing").exists()


def test_missing_records_are_an_error(tmp_path: Path) -> None:
    write_steps(tmp_path / "a", 3)
    with pytest.raises(ArtefactError, match="has 3 records but 5 are to be kept: lines are miss"):
        JsonLines(tmp_path / "a").truncate_after(5)
    with pytest.raises(ArtefactError, match="has 0 records but 1"):
        JsonLines(tmp_path / "missing").truncate_after(1)
    with pytest.raises(ArtefactError, match="does not exist"):
        JsonLines.read(tmp_path / "missing")


def test_records_that_cannot_be_written(tmp_path: Path) -> None:
    with JsonLines(tmp_path / "a") as lines:
        lines.append({"step": 0})
        with pytest.raises(NonFiniteError, match=r"^losses\.encoder is nan"):
            lines.append({"step": 1, "losses": {"encoder": float("nan")}})
        with pytest.raises(ArtefactError, match=r"^path is a PosixPath"):
            lines.append({"path": tmp_path})
        lines.append({"step": 1})
    assert steps(tmp_path / "a") == [0, 1]


def test_a_refused_line_leaves_nothing_of_itself(
    tmp_path: Path, disk_error: tuple[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    code, words = disk_error
    real_write = os.write
    with JsonLines(tmp_path / "a") as lines:
        lines.append({"step": 0})

        def write(file: int, data: bytes | memoryview) -> int:
            if len(data) < 10:
                raise OSError(code, os.strerror(code))
            return real_write(file, memoryview(data)[:-5])

        with monkeypatch.context() as full:
            full.setattr(os, "write", write)
            with pytest.raises(StorageError, match=f"{words}.*The earlier lines are unchanged"):
                lines.append({"step": 1, "text": "a" * 100})
        assert JsonLines.read(tmp_path / "a") == JsonLinesContent(({"step": 0},), 0)
        lines.append({"step": 1})
    assert steps(tmp_path / "a") == [0, 1]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs the device /dev/full")
def test_a_device_that_is_really_full() -> None:
    lines = JsonLines("/dev/full")
    with pytest.raises(StorageError, match="cannot write /dev/full: the disk is full"):
        lines.append({"step": 0})


def test_refusals_to_open(unwritable_folder: Path) -> None:
    with pytest.raises(StorageError, match="permission denied"):
        JsonLines(unwritable_folder / "a").append({"step": 0})
    with pytest.raises(StorageError, match="a folder has this name"):
        JsonLines(unwritable_folder).append({"step": 0})
    with pytest.raises(StorageError, match="its folder does not exist"):
        JsonLines(unwritable_folder / "missing" / "a").append({"step": 0})
    with pytest.raises(StorageError, match="name is too long"):
        JsonLines(unwritable_folder / ("a" * 300)).truncate_after(0)


def test_a_file_that_may_be_written_but_not_read(
    reachable_folder: Path, plain_user: Callable[[], AbstractContextManager[None]]
) -> None:
    write_steps(reachable_folder / "a", 1)
    (reachable_folder / "a").chmod(0o222)
    with (
        plain_user(),
        pytest.raises(StorageError, match=r"cannot read .*a: permission denied"),
    ):
        JsonLines(reachable_folder / "a").append({"step": 1})


@pytest.mark.parametrize("action", ["sync", "close", "truncate_after"])
def test_a_refused_synchronisation_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    write_steps(tmp_path / "a", 2)
    lines = JsonLines(tmp_path / "a")
    calls: dict[str, Callable[[], object]] = {
        "sync": lines.sync,
        "close": lines.close,
        "truncate_after": lambda: lines.truncate_after(1),
    }
    if action != "truncate_after":
        lines.append({"step": 2})
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", refuse)
        with pytest.raises(StorageError, match="Input/output error"):
            calls[action]()
    lines.close()
