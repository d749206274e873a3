"""Files come back as they were written, are torn nowhere in silence, and have one writer."""

import math
import os
import signal

import numpy as np
import pytest
import torch
from command_line import start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rover.errors import ArtefactError, NonFiniteError, StorageError
from rover.storage import (
    append_line,
    read_json,
    read_lines,
    read_run_config,
    read_tensors,
    replace_file,
    run_lock,
    write_json,
    write_tensors,
)

IN_ONE_FOLDER = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
tables = arrays.arrays(
    st.sampled_from([np.bool_, np.uint8, np.int64, np.float32, np.float64]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0),
)


def nested(leaves: st.SearchStrategy) -> st.SearchStrategy:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=12,
    )


def same(one: object, other: object) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | torch.Tensor):
        a, b = np.asarray(one), np.asarray(other)
        same_bits = (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
        return type(one) is type(other) and same_bits
    return type(one) is type(other) and one == other


@IN_ONE_FOLDER
@given(value=nested(scalars))
def test_json_comes_back(tmp_path, value):
    write_json(tmp_path / "a", value)
    append_line(tmp_path / "lines", {"value": value})
    for found in (read_json(tmp_path / "a"), read_lines(tmp_path / "lines")[-1]["value"]):
        assert same(found, value)


@IN_ONE_FOLDER
@given(value=st.dictionaries(st.text(), nested(scalars | tables | tables.map(torch.from_numpy))))
def test_tensors_come_back_in_the_same_bytes(tmp_path, value):
    write_tensors(tmp_path / "a", value, kind="policy")
    assert same(read_tensors(tmp_path / "a", kind="policy"), value)
    write_tensors(tmp_path / "b", value, kind="policy")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_views_and_shared_memory_are_stored_as_values(tmp_path):
    whole = torch.arange(6.0).reshape(2, 3)
    value = {"row": whole[1], "columns": whole.T, "again": whole, "back": np.arange(4)[::-1]}
    write_tensors(tmp_path / "a", value, kind="policy")
    assert same(read_tensors(tmp_path / "a", kind="policy"), value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"returns": [{}, {"mean": math.nan}]}, r"returns\[1\]\.mean is nan"),
        ([np.float32("-inf")], r"\[0\] is -inf"),
        ({"a": {1, 2}}, r"a is a set"),
        ([{2: 1}], r"\[0\] is a dict, .* keys that are no strings"),
    ],
)
def test_what_is_not_stored_is_refused_and_the_old_file_stays(tmp_path, value, words):
    (tmp_path / "a").write_text("{}")
    with pytest.raises((NonFiniteError, ArtefactError), match=words):
        write_json(tmp_path / "a", value)
    assert (tmp_path / "a").read_text() == "{}"


def test_a_file_of_tensors_that_is_cut_anywhere_is_refused(tmp_path):
    write_tensors(tmp_path / "a", {"x": torch.arange(5), "y": [1, "γ"]}, kind="policy")
    whole = (tmp_path / "a").read_bytes()
    for length in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:length])
        with pytest.raises(ArtefactError, match="no file of rover, or is damaged; restore it"):
            read_tensors(tmp_path / "a", kind="policy")


def test_lines_that_are_cut_anywhere_lose_the_torn_one_alone(tmp_path):
    for step in range(3):
        append_line(tmp_path / "a", {"step": step, "text": "γ\n\r\u2028"})
    whole = (tmp_path / "a").read_bytes()
    for length in range(len(whole) + 1):
        (tmp_path / "a").write_bytes(whole[:length])
        steps = [record["step"] for record in read_lines(tmp_path / "a")]
        assert steps == list(range(whole[:length].count(b"\n")))
    (tmp_path / "a").write_bytes(b"{\n{}\n")
    with pytest.raises(ArtefactError, match="is not JSON in lines"):
        read_lines(tmp_path / "a")


def test_other_kinds_newer_formats_and_foreign_files_are_named(tmp_path):
    write_tensors(tmp_path / "a", {}, kind="buffer")
    with pytest.raises(ArtefactError, match="is a buffer, not a policy; give the path of a policy"):
        read_tensors(tmp_path / "a", kind="policy")
    newer = (tmp_path / "a").read_bytes().replace(b'\\"format\\":3', b'\\"format\\":9')
    (tmp_path / "a").write_bytes(newer)
    with pytest.raises(ArtefactError, match=r"of format 9, written by rover .*: use that version"):
        read_tensors(tmp_path / "a", kind="buffer")
    torch.save({"x": torch.ones(2)}, tmp_path / "pickle")
    for name in ("pickle", "missing"):
        with pytest.raises(ArtefactError, match="is no file of rover"):
            read_tensors(tmp_path / name, kind="policy")
    config = {"format": 9, "version": "7.0", "kind": "pretrain"}
    write_json(tmp_path / "config.json", config)
    with pytest.raises(ArtefactError, match=r"format 9, written by rover 7\.0; this is rover"):
        read_run_config(tmp_path)
    write_json(tmp_path / "config.json", {**config, "format": 4})
    with pytest.raises(ArtefactError, match=r"does not describe a run; .*preset: Field required"):
        read_run_config(tmp_path)
    for text in (b'{"a": x}', b'"\xff"', b"[" * 10**6):
        (tmp_path / "a").write_bytes(text)
        with pytest.raises(ArtefactError, match="a is not JSON; correct it or restore it"):
            read_json(tmp_path / "a")


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, call, error
):
    def refuse(*_: object) -> None:
        raise error

    (tmp_path / "a").write_bytes(b"old")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises((StorageError, KeyboardInterrupt), match=r"cannot write .*No space|^$"):
        replace_file(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a"]
    with pytest.raises(StorageError, match=r"cannot write .*No such file or directory"):
        append_line(tmp_path / "missing" / "a", {})


HOLD = """
import sys, time
from rover.storage import run_lock
with run_lock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_has_one_writer_and_is_free_and_clean_after_a_kill(tmp_path):
    holder = start("-c", HOLD, str(tmp_path))
    try:
        assert holder.stdout.readline() == "held\n"
        (tmp_path / ".a.1234.rover-tmp").write_bytes(b"half")
        with pytest.raises(StorageError, match="is in use; wait until"):
            run_lock(tmp_path).__enter__()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    for _ in range(2):  # it can be taken again, and excludes this process too
        with run_lock(tmp_path), pytest.raises(StorageError, match="is in use"):
            run_lock(tmp_path).__enter__()
    assert os.listdir(tmp_path) == [".lock"]
