"""JSON that is strict on both sides: finite numbers only, no key twice, written atomically."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar, overload

import numpy as np
import pydantic

from rover.errors import ArtefactError, NonFiniteError
from rover.storage.storage import read_file, replace_file

_MAX_DEPTH = 100  # far above any honest file, far below the interpreter's recursion limit
_SHOWN_PROBLEMS = 5

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


def to_json_value(value: object, *, where: str = "") -> Any:
    """``value`` with only the types that JSON has: str, bool, int, float, None, list, dict.

    Numpy scalars become Python numbers, tuples become lists. Nothing else is converted, so that
    what is read is what was written.

    Args:
        value: nested mappings with string keys, sequences, and scalars.
        where: the key path of ``value``, for messages.

    Raises:
        NonFiniteError: NaN or infinity, which JSON cannot say; the message names the key path.
        ArtefactError: a type that JSON does not have, a key that is not a string, text that is
            not valid Unicode, or nesting deeper than 100 (a structure that contains itself).
    """
    return _to_json_value(value, where, 0)


def _to_json_value(value: object, where: str, depth: int) -> Any:
    place = where or "the top level"
    if depth > _MAX_DEPTH:
        raise ArtefactError(
            f"{place[:60]}...: nested deeper than {_MAX_DEPTH}; flatten it (does it hold itself?)"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NonFiniteError(
                f"{place} is {value}, which JSON cannot say; find where it comes from, "
                "or write None if it means 'no value'"
            )
        return value
    if isinstance(value, str):
        return _checked_text(value, place)
    if isinstance(value, Mapping):
        return {
            _checked_key(key, place): _to_json_value(
                item, f"{where}.{key}" if where else str(key), depth + 1
            )
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _to_json_value(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)
        ]
    raise ArtefactError(
        f"{place} is a {type(value).__name__}, which JSON does not have; convert it first "
        "(an array with .tolist(), a path with str())"
    )


def _checked_key(key: object, place: str) -> str:
    if not isinstance(key, str):
        raise ArtefactError(f"{place} has the key {key!r}; JSON keys are strings: use str(key)")
    return _checked_text(key, place)


def _checked_text(text: str, place: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ArtefactError(f"{place} holds text that is not valid Unicode: {text!r}") from None
    return text


def dump_line(value: object) -> str:
    """One line of ASCII JSON with keys in the order given; equal values give equal text.

    Raises:
        NonFiniteError, ArtefactError: as :func:`to_json_value`.
    """
    return json.dumps(to_json_value(value), allow_nan=False, separators=(",", ":"))


def parse_json(text: str | bytes, *, what: str) -> Any:
    """Parse strict JSON.

    Args:
        text: the JSON; bytes are UTF-8.
        what: how messages call it, such as ``"runs/a/config.json"``.

    Raises:
        ArtefactError: not JSON (line and column are named), a number that is not finite, a key
            given twice, or nesting too deep.
    """

    def refuse_constant(name: str) -> NoReturn:
        raise ArtefactError(f"{what} holds {name}, which is not JSON; write null for 'no value'")

    def finite(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refuse_constant(digits)

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise ArtefactError(f"{what} has the key {key!r} twice; keep one of them")
            found[key] = value
        return found

    try:
        if isinstance(text, bytes):
            text = text.decode()
        return json.loads(
            text, parse_constant=refuse_constant, parse_float=finite, object_pairs_hook=unique
        )
    except ArtefactError:
        raise
    except json.JSONDecodeError as error:
        raise ArtefactError(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}; "
            "correct it or restore it from a copy"
        ) from None
    except UnicodeDecodeError as error:
        raise ArtefactError(
            f"{what} is not JSON: byte {error.start} is not UTF-8 text; restore it from a copy"
        ) from None
    except RecursionError:
        raise ArtefactError(f"{what} is nested too deeply to be one of our files") from None
    except ValueError as error:  # an integer with more digits than Python agrees to convert
        raise ArtefactError(f"{what} holds a number that cannot be read: {error}") from None


def write_json(path: str | os.PathLike[str], obj: object) -> None:
    """Write ``obj`` atomically as indented JSON with sorted keys: equal content, equal bytes.

    Args:
        path: destination; its folder must exist.
        obj: JSON-able content, or a pydantic model.

    Raises:
        NonFiniteError: NaN or infinity; the message names the key path.
        ArtefactError: something that JSON does not have.
        StorageError: the disk refused; the previous file is unchanged.
    """
    content = obj.model_dump(mode="json") if isinstance(obj, pydantic.BaseModel) else obj
    text = json.dumps(
        to_json_value(content), allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True
    )
    replace_file(path, [text.encode() + b"\n"])


@overload
def read_json(
    path: str | os.PathLike[str], *, model: None = None, newest_format: int | None = None
) -> Any: ...
@overload
def read_json(
    path: str | os.PathLike[str], *, model: type[_Model], newest_format: int | None = None
) -> _Model: ...
def read_json(
    path: str | os.PathLike[str],
    *,
    model: type[_Model] | None = None,
    newest_format: int | None = None,
) -> _Model | Any:
    """Read a JSON file, as plain values or as a pydantic ``model``.

    Args:
        path: the file.
        model: what it should hold; None: anything.
        newest_format: the largest ``format`` of the file that this version can read.

    Raises:
        ArtefactError: missing or empty file, not JSON, one of a newer format, or content that does
            not fit ``model`` (each field that does not fit is named).
        StorageError: the operating system does not let it be read.
    """
    text = read_file(path)
    value = parse_json(text, what=os.fspath(path))
    found = value.get("format") if isinstance(value, dict) else None
    if newest_format is not None and isinstance(found, int) and found > newest_format:
        raise ArtefactError(
            f"{os.fspath(path)} is of format {found}, written by rover {value.get('version')}; "
            f"this version reads up to format {newest_format}: upgrade rover-rl"
        )
    if model is None:
        return value
    try:
        return model.model_validate_json(text)
    except pydantic.ValidationError as error:
        raise ArtefactError(
            f"{os.fspath(path)} does not fit {model.__name__}: {describe_problems(error)}"
        ) from None


def describe_problems(error: pydantic.ValidationError) -> str:
    """The fields that a pydantic model refused and why, in one line."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'the top level'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    ]
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
