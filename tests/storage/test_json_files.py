from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rover.errors import ArtefactError, NonFiniteError, StorageError
from rover.storage import read_json, write_json
from rover.storage.json_files import to_json_value

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


class Settings(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)
    discount: float
    shape: tuple[int, ...] = (2, 3)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=json_values)
def test_round_trip(tmp_path: Path, value: Any) -> None:
    write_json(tmp_path / "a.json", value)
    found = read_json(tmp_path / "a.json")
    assert found == value
    assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)  # 1 is not 1.0


def test_files_are_stable_and_made_for_people(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"b": [1], "a": "γ"})
    write_json(tmp_path / "b", {"a": "γ", "b": (np.int64(1),)})
    assert (tmp_path / "a").read_text() == '{\n  "a": "γ",\n  "b": [\n    1\n  ]\n}\n'
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_models_round_trip(tmp_path: Path) -> None:
    written = Settings(discount=0.99, shape=(4, 5))
    write_json(tmp_path / "a", written)
    assert read_json(tmp_path / "a", model=Settings) == written
    with pytest.raises(NonFiniteError, match="discount is nan"):
        write_json(tmp_path / "a", Settings(discount=math.nan))


def test_models_refuse_what_does_not_fit(tmp_path: Path) -> None:
    write_json(tmp_path / "a", {"discount": "high", "shape": [1, "x"], "temperature": 1})
    with pytest.raises(ArtefactError, match="does not fit Settings") as caught:
        read_json(tmp_path / "a", model=Settings)
    for field in ("discount: Input should", r"shape.1: Input should", "temperature: Extra inputs"):
        assert field in str(caught.value)
    write_json(tmp_path / "a", {"discount": 1.0, **{f"x{i}": 0 for i in range(8)}})
    with pytest.raises(ArtefactError, match="and 3 more"):
        read_json(tmp_path / "a", model=Settings)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    (tmp_path / "a").write_text("{}")
    with pytest.raises(NonFiniteError, match=r"evaluation\.returns\[1\]\.mean is -?(nan|inf)"):
        write_json(tmp_path / "a", {"evaluation": {"returns": [{}, {"mean": value}]}})
    with pytest.raises(NonFiniteError, match="the top level is"):
        write_json(tmp_path / "a", value)
    assert (tmp_path / "a").read_text() == "{}"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": np.zeros(2)}, r"^a is a ndarray, which JSON does not have.*tolist"),
        ({"a": {1, 2}}, "^a is a set"),
        ({"a": b"x"}, "^a is a bytes"),
        ({"a": np.complex64(1)}, "^a is a complex"),
        ([{2: 1}], r"^\[0\] has the key 2; JSON keys are strings"),
        ({"a": "\ud800"}, "^a holds text that is not valid Unicode"),
        ({"\ud800": 1}, "^the top level holds text that is not valid Unicode"),
    ],
)
def test_what_json_does_not_have_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ArtefactError, match=words):
        to_json_value(value)


def test_structures_that_hold_themselves_are_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(ArtefactError, match="nested deeper than 100"):
        to_json_value(loop)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"a": 1', r"a.json is not JSON: .* at line 1, column 8; correct it"),
        (b'{\n"a": x}', "at line 2, column 6"),
        (b'{"a": 1} 2', "not JSON: Extra data"),
        (b'{"a": NaN}', "holds NaN, which is not JSON; write null"),
        (b"[-Infinity]", "holds -Infinity"),
        (b"[1e999]", "holds 1e999"),
        (b'{"a": 1, "a": 2}', "has the key 'a' twice; keep one"),
        (b'"\xff"', "byte 1 is not UTF-8 text"),
        (b"[" * 10**6, "nested too deeply"),
        (b"9" * 5000, "holds a number that cannot be read"),
        (b"", "is empty"),
    ],
)
def test_files_that_are_not_json_are_refused(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "a.json").write_bytes(text)
    with pytest.raises(ArtefactError, match=words):
        read_json(tmp_path / "a.json")


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="does not exist"):
        read_json(tmp_path / "a.json", model=Settings)


def test_a_full_disk_keeps_the_old_file(
    tmp_path: Path, refuse_writes: Callable[[int], None], disk_error: tuple[int, str]
) -> None:
    write_json(tmp_path / "a", 1)
    refuse_writes(disk_error[0])
    with pytest.raises(StorageError, match=disk_error[1]):
        write_json(tmp_path / "a", {"b": 2})
    assert read_json(tmp_path / "a") == 1
