"""Strict JSON, with finite numbers only: one value per file, or one record per line.

A file of one value is replaced atomically. Records are appended: the metrics of a run. A process
that is killed leaves at most one torn line, the last; whoever reads passes over it, and resuming
cuts it off together with the lines that are newer than the checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pydantic
import safetensors

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, RoverError, shorten
from rover.storage.files import append_to_file, read_file, replace_file

_SHOWN_PROBLEMS = 5
_MAX_REASON = 500  # characters: a message may quote what a file holds
_Model = TypeVar("_Model", bound=pydantic.BaseModel)
# Errors of code that is given a value that does not fit it; the first two are of this package.
_MISFITS = (
    ArtefactError,
    ConfigurationError,
    safetensors.SafetensorError,
    LookupError,
    TypeError,
    ValueError,
    RuntimeError,
    AttributeError,
    OverflowError,
)


def to_json_value(
    value: object, where: str = "", *, convert: Callable[[object, str], object] | None = None
) -> Any:
    """`value` with only the types that JSON has: str, bool, int, float, None, list, dict.

    Numpy scalars become Python numbers, tuples become lists. Nothing else is converted, so that
    what is read is what was written: NaN, and types that JSON does not have, are errors that name
    the key path `where`. `convert` is applied to every value and its path before anything else.
    """
    value = value if convert is None else convert(value, where)
    value = value.item() if isinstance(value, np.generic) else value
    place = where or "the top level"
    if isinstance(value, float) and not math.isfinite(value):
        raise NonFiniteError(
            f"{place} is {value}, which JSON cannot represent; find where it comes from, "
            "or write None if it means 'no value'"
        )
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        items = enumerate(value)
        return [to_json_value(item, f"{where}[{i}]", convert=convert) for i, item in items]
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ArtefactError(
            f"{place} is a {type(value).__name__}, which JSON does not have, or has keys that are "
            "no strings; convert it first (an array with .tolist(), a path or a key with str())"
        )
    prefix = f"{where}." if where else ""
    return {key: to_json_value(v, f"{prefix}{key}", convert=convert) for key, v in value.items()}


def parse_json(text: bytes | str, name: str) -> Any:
    """Strict JSON in UTF-8, with finite numbers only; `name` is what messages call it."""

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError(f"{shorten(digits)} is not a number; write null for 'no value'")
        return number

    def bounded(digits: str) -> int:
        finite(digits)  # JSON has integers that no float holds, and int() takes long for them
        return int(digits)

    try:
        return json.loads(
            text.decode() if isinstance(text, bytes) else text,
            parse_constant=finite,
            parse_float=finite,
            parse_int=bounded,
        )
    except (ValueError, RecursionError) as error:
        raise ArtefactError(
            f"{name} is not JSON: {error}; correct it or restore it from a copy"
        ) from None


def write_json(path: str | os.PathLike[str], obj: object) -> None:
    """Write JSON values, or a pydantic model, atomically: equal content, equal bytes."""
    content = obj.model_dump(mode="json") if isinstance(obj, pydantic.BaseModel) else obj
    # Sorted, so that two runs can be compared by their bytes.
    text = json.dumps(
        to_json_value(content), allow_nan=False, ensure_ascii=False, indent=2, sort_keys=True
    )
    # Lone surrogates, as in the names of files that are not Unicode, become escapes of JSON.
    replace_file(path, text.encode(errors="backslashreplace") + b"\n")


def read_json(
    path: str | os.PathLike[str],
    *,
    model: type[_Model] | None = None,
    newest_format: int | None = None,
) -> _Model | Any:
    """Read a JSON file, as plain values or as a pydantic `model`, up to format `newest_format`.

    ArtefactError: it is missing, no JSON, of a newer format, or does not fit `model`, field by
    field.
    """
    text = read_file(path)
    value = parse_json(text, os.fspath(path))
    stored = value.get("format") if isinstance(value, dict) else None
    if newest_format is not None and isinstance(stored, int) and stored > newest_format:
        raise ArtefactError(
            f"{path} is of format {stored}, written by rover {value.get('version')}; "
            f"this version reads up to format {newest_format}: upgrade rover-rl"
        )
    if model is None:
        return value
    # From the text and not from the value: pydantic takes a list for a tuple in JSON only.
    with fitting(f"{path} does not fit {model.__name__}"):
        return model.model_validate_json(text)


@contextlib.contextmanager
def fitting(problem: str) -> Iterator[None]:
    """Turn errors of code that is given what a file holds into ArtefactErrors of one line.

    The message begins with `problem`, the file and what is wrong with it. Other errors of this
    package, such as of an environment that does not repeat itself, are left as they are.
    """
    try:
        yield
    except _MISFITS as error:
        if isinstance(error, RoverError) and not isinstance(error, _MISFITS[:2]):
            raise
        reason = " ".join(str(error).split())
        if isinstance(error, pydantic.ValidationError):
            reason = describe_problems(error)
        elif isinstance(error, KeyError):
            reason = f"it lacks {reason}"
        # Shortened, since libraries quote whole files in their messages.
        shown = textwrap.shorten(reason, _MAX_REASON, placeholder="...")
        raise ArtefactError(f"{problem}: {shown}") from error


def describe_problems(error: pydantic.ValidationError) -> str:
    """The fields that a pydantic model refused and why, in one line."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'the top level'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    ]
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted names, such as ``learner.batch_size``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_group = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": value}
    return flat


class JsonLines:
    """A file of records, one JSON object per line; a symbolic link in its place is refused.

    Args:
        path: created by the first :meth:`append`; its folder must exist.

    Attributes:
        n_bytes: of the lines that this object wrote, or kept by :meth:`cut`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path, self.n_bytes = Path(path), 0

    def append(self, record: Mapping[str, object]) -> None:
        """Add one line and hand it to the operating system, so that a kill does not lose it.

        Where an earlier process wrote the file, :meth:`cut` comes first.
        """
        # One write for a line: a kill tears at most the last one.
        text = json.dumps(to_json_value(record), allow_nan=False, separators=(",", ":"))
        append_to_file(self.path, text.encode() + b"\n")
        self.n_bytes += len(text.encode()) + 1

    def sync(self) -> None:
        """Force the lines to the disk; called before a checkpoint that counts on them."""
        if os.path.lexists(self.path):
            append_to_file(self.path, b"", sync=True)

    def cut(self, n_bytes: int) -> None:
        """Keep the first `n_bytes` and cut off what follows them, whole lines or torn ones."""
        text = self._text()
        # Fewer bytes than the checkpoint vouches for: lines were lost that no replay brings back.
        if len(text) < n_bytes:
            raise ArtefactError(
                f"{self.path} has {len(text)} bytes but {n_bytes} are to be kept: lines are "
                "missing; restore it from a copy, or resume from an earlier checkpoint"
            )
        if len(text) > n_bytes:
            replace_file(self.path, text[:n_bytes])
        self.n_bytes = n_bytes

    def digest(self, n_bytes: int) -> str:
        """SHA-256 of the first `n_bytes`, in hexadecimal digits."""
        return hashlib.sha256(self._text()[:n_bytes]).hexdigest()

    def _text(self) -> bytes:
        return read_file(self.path) if os.path.lexists(self.path) else b""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """The records of a file; a torn last line is passed over, any other one an error."""
        records: list[dict[str, Any]] = []
        lines = list(io.BytesIO(read_file(path)))  # splits at line feeds only
        for number, line in enumerate(lines, start=1):
            name = f"{path}, line {number},"
            try:
                record = parse_json(line, name)
                if not isinstance(record, dict) or not line.endswith(b"\n"):
                    raise ArtefactError(f"{name} is not a whole JSON object; remove the line")
            except ArtefactError:
                if number < len(lines):
                    raise
                break
            records.append(record)
        return records
