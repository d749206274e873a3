import json
import math
from pathlib import Path

import numpy as np
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rover.errors import ArtefactError, NonFiniteError, StorageError
from rover.storage import JsonLines, read_json, write_json

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


class Settings(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    discount: float
    shape: tuple[int, ...] = (2, 3)


_SHARED_FOLDER = settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.slow
@_SHARED_FOLDER
@given(value=json_values)
def test_round_trip(tmp_path, value):
    write_json(tmp_path / "a.json", value)
    lines = JsonLines(tmp_path / "lines")
    lines.append({"value": value})
    for found in (read_json(tmp_path / "a.json"), lines.read(lines.path)[-1]["value"]):
        assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_files_are_stable_and_made_for_people(tmp_path):
    write_json(tmp_path / "a", {"b": [1], "a": "γ"})
    write_json(tmp_path / "b", {"a": "γ", "b": (np.int64(1),)})
    assert (tmp_path / "a").read_text() == '{\n  "a": "γ",\n  "b": [\n    1\n  ]\n}\n'
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_models_come_back_and_refuse_what_does_not_fit(tmp_path):
    written = Settings(discount=0.99, shape=(4, 5))
    write_json(tmp_path / "a", written)
    assert read_json(tmp_path / "a", model=Settings) == written
    write_json(tmp_path / "a", {"discount": "high", "shape": [1, "x"], "temperature": 1})
    with pytest.raises(ArtefactError, match="does not fit Settings") as caught:
        read_json(tmp_path / "a", model=Settings)
    for field in ("discount: Input should", "shape.1: Input should", "temperature: Extra inputs"):
        assert field in str(caught.value)
    write_json(tmp_path / "a", {"discount": 1.0, **{f"x{i}": 0 for i in range(8)}})
    with pytest.raises(ArtefactError, match="and 3 more"):
        read_json(tmp_path / "a", model=Settings)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"returns": [{}, {"mean": math.nan}]}, r"returns\[1\]\.mean is nan, which JSON"),
        ([np.float32("-inf")], r"^\[0\] is -inf"),
        ({"a": np.zeros(2)}, r"^a is a ndarray, which JSON does not have.*tolist"),
        ([{2: 1}], r"^\[0\] is a dict, .* or has keys that are no strings"),
    ],
)
def test_values_that_json_does_not_have_are_refused(tmp_path, value, words):
    (tmp_path / "a").write_text("{}")
    with pytest.raises((NonFiniteError, ArtefactError), match=words):
        write_json(tmp_path / "a", value)
    assert (tmp_path / "a").read_text() == "{}"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{\n"a": x}', r"a.json is not JSON: .* line 2 column 6 .*; correct it"),
        (b'{"a": NaN}', "'NaN' is not a number; write null"),
        (b"[1e999]", "'1e999' is not a number"),
        (b'"\xff"', "can't decode byte 0xff in position 1"),
        (b"[" * 10**6, "recursion depth"),
    ],
)
def test_files_that_are_not_json_are_refused(tmp_path, text, words):
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(ArtefactError, match=words):
        read_json(tmp_path / "a.json")


def write_steps(path: Path, count: int) -> None:
    path.unlink(missing_ok=True)
    lines = JsonLines(path)
    for step in range(count):
        lines.append({"step": step, "text": "γ\n\r\u2028"})


def steps(path: Path) -> list[int]:
    return [record["step"] for record in JsonLines.read(path)]


@_SHARED_FOLDER
@given(cut=st.integers(0, 10**6))
def test_a_file_cut_anywhere_is_read_and_repaired(tmp_path, cut):
    path = tmp_path / "a"
    write_steps(path, 5)
    content = path.read_bytes()
    content = content[: cut % (len(content) + 1)]
    path.write_bytes(content)
    complete = content.count(b"\n")
    assert steps(path) == list(range(complete))
    lines = JsonLines(path)
    lines.cut(content.rfind(b"\n") + 1)
    lines.append({"step": complete})
    assert steps(path) == list(range(complete + 1))
    assert lines.n_bytes == len(path.read_bytes())


@pytest.mark.parametrize(
    ("torn", "words"),
    [
        (b"\0\0\0\n", "is not JSON"),
        (b'{"step":\n', "is not JSON: .*correct it"),
        (b"7\n", "is not a whole JSON object; remove the line"),
        (b"\xff", "is not JSON"),
    ],
)
def test_a_torn_line_is_passed_over_at_the_end_and_an_error_in_the_middle(tmp_path, torn, words):
    path = tmp_path / "a"
    write_steps(path, 2)
    content = path.read_bytes()
    path.write_bytes(content + torn)
    assert steps(path) == [0, 1]
    path.write_bytes(content + torn.rstrip() + b"\n" + content)
    with pytest.raises(ArtefactError, match=f"a, line 3, {words}"):
        JsonLines.read(path)


def test_lines_after_a_checkpoint_are_cut_off_and_missing_ones_are_an_error(tmp_path):
    path = tmp_path / "a"
    write_steps(path, 3)
    lines = JsonLines(path)
    lines.cut(len(path.read_bytes()))
    kept, digest = lines.n_bytes, lines.digest(lines.n_bytes)
    lines.append({"step": 3})
    assert lines.digest(kept) == digest
    lines.cut(kept)
    assert steps(path) == [0, 1, 2]
    with pytest.raises(ArtefactError, match=f"has {kept} bytes but {kept + 1} are to be kept"):
        lines.cut(kept + 1)
    JsonLines(tmp_path / "missing").cut(0)
    JsonLines(tmp_path / "missing").sync()
    assert not (tmp_path / "missing").exists()


def test_a_refused_line_is_not_read(tmp_path, disk_error, refuse_writes):
    code, words = disk_error
    lines = JsonLines(tmp_path / "a")
    lines.append({"step": 0})
    with pytest.raises(NonFiniteError, match=r"^losses\.encoder is nan"):
        lines.append({"step": 1, "losses": {"encoder": float("nan")}})
    refuse_writes(code)
    with pytest.raises(StorageError, match=words):
        lines.append({"step": 1, "text": "a" * 100})
    assert JsonLines.read(tmp_path / "a") == [{"step": 0}]  # half of a line is passed over
