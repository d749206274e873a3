"""JSON that is strict on both sides: finite numbers only, no key twice.

One value per file, replaced atomically, or one record per line, appended: the metrics of a run. A
process that is killed leaves at most one torn line, the last; whoever reads passes over it, and
resuming cuts it off together with the lines that are newer than the checkpoint.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pydantic

from rover.errors import ArtefactError, NonFiniteError, shorten
from rover.storage.files import append_to_file, read_file, replace_file

_SHOWN_PROBLEMS = 5

_Model = TypeVar("_Model", bound=pydantic.BaseModel)


def to_json_value(value: object, *, convert: Callable[[object, str], object] | None = None) -> Any:
    """``value`` with only the types that JSON has: str, bool, int, float, None, list, dict.

    Numpy scalars become Python numbers, tuples become lists. Nothing else is converted, so that
    what is read is what was written.

    Args:
        value: nested mappings with string keys, sequences, and scalars.
        convert: applied to every value and its key path before anything else; what it returns
            takes the place of the value.

    Raises:
        NonFiniteError: NaN or infinity, which JSON cannot say; the message names the key path.
        ArtefactError: a type that JSON does not have, or a key that is not a string.
    """

    def plain(value: object, where: str) -> Any:
        place = where or "the top level"
        if convert is not None:
            value = convert(value, where)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and not math.isfinite(value):
            raise NonFiniteError(
                f"{place} is {value}, which JSON cannot say; find where it comes from, "
                "or write None if it means 'no value'"
            )
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, list | tuple):
            return [plain(item, f"{where}[{i}]") for i, item in enumerate(value)]
        if not isinstance(value, Mapping):
            raise ArtefactError(
                f"{place} is a {type(value).__name__}, which JSON does not have; convert it first "
                "(an array with .tolist(), a path with str())"
            )
        for key in value:
            if not isinstance(key, str):
                raise ArtefactError(
                    f"{place} has the key {key!r}; JSON keys are strings: use str(key)"
                )
        prefix = f"{where}." if where else ""
        return {key: plain(item, f"{prefix}{key}") for key, item in value.items()}

    return plain(value, "")


def parse_json(text: bytes | str, *, what: str) -> Any:
    """Strict JSON in UTF-8; `what` is how messages call it.

    Raises:
        ArtefactError: not JSON (line and column are named), a number that is not finite, a key
            given twice, or nesting too deep.
    """

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            shown = shorten(digits)
            raise ArtefactError(f"{what} holds {shown}, not a number; write null for 'no value'")
        return number

    def bounded(digits: str) -> int:
        if len(digits) > 300:
            finite(digits)  # refuses what no floating number reaches
        return int(digits)

    def unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ArtefactError(f"{what} has the key {twice!r} twice; keep one of them")
        return found

    try:
        return json.loads(
            text.decode() if isinstance(text, bytes) else text,
            parse_constant=finite,
            parse_float=finite,
            parse_int=bounded,
            object_pairs_hook=unique,
        )
    except ArtefactError:
        raise
    except (ValueError, RecursionError) as error:
        raise ArtefactError(
            f"{what} is not JSON: {error}; correct it or restore it from a copy"
        ) from None


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
    # Lone surrogates, as in the names of files that are not Unicode, become escapes of JSON.
    replace_file(path, [text.encode(errors="backslashreplace") + b"\n"])


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


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested values by dotted names, such as ``learner.batch_size``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        is_group = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{name}.") if is_group else {f"{prefix}{name}": value}
    return flat


def describe_problems(error: pydantic.ValidationError) -> str:
    """The fields that a pydantic model refused and why, in one line."""
    problems = [
        f"{'.'.join(map(str, problem['loc'])) or 'the top level'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False)
    ]
    more = len(problems) - _SHOWN_PROBLEMS
    return "; ".join(problems[:_SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")


class JsonLines:
    """A file of records, one JSON object per line; a symbolic link in its place is refused.

    Args:
        path: created by the first :meth:`append`; its folder must exist.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, record: Mapping[str, object]) -> None:
        """Add one line and hand it to the operating system, so that a kill does not lose it.

        Where an earlier process wrote the file, :meth:`truncate_after` comes first.

        Raises:
            NonFiniteError: NaN or infinity; the message names the key path.
            ArtefactError: something that JSON does not have.
            StorageError: the disk refused; the earlier lines are as they were.
        """
        text = json.dumps(to_json_value(record), allow_nan=False, separators=(",", ":"))
        append_to_file(self.path, text.encode() + b"\n")

    def sync(self) -> None:
        """Force the lines to the disk; called before a checkpoint that counts on them.

        Raises:
            StorageError: the disk refused.
        """
        if os.path.lexists(self.path):
            append_to_file(self.path, b"", sync=True)

    def truncate_after(self, count: int) -> None:
        """Keep the first `count` records and cut off the rest; what a resume begins with.

        A torn last line is cut off too. A missing file has nothing to cut off.

        Raises:
            ArtefactError: a torn line in the middle, or fewer than `count` records: lines that
                the checkpoint counts on are gone.
            StorageError: the disk refused.
        """
        records, lines = _parse_lines(self.path, self._content())
        if count > len(records):
            raise ArtefactError(
                f"{self.path} has {len(records)} records but {count} are to be kept: lines are "
                "missing; restore it from a copy, or resume from an earlier checkpoint"
            )
        if count < len(lines):
            replace_file(self.path, lines[:count])

    def digest(self, count: int) -> str:
        """SHA-256 of the first `count` lines, in hexadecimal digits.

        Raises:
            StorageError: the operating system does not let the file be read.
        """
        lines = itertools.islice(io.BytesIO(self._content()), count)
        return hashlib.sha256(b"".join(lines)).hexdigest()

    def _content(self) -> bytes:
        exists = os.path.lexists(self.path)
        return read_file(self.path, allow_empty=True) if exists else b""

    @staticmethod
    def read(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """The records of a file; a torn last line is passed over.

        Raises:
            ArtefactError: a missing file, or a line before the last that is not a JSON object;
                the message names the line.
            StorageError: the operating system does not let it be read.
        """
        return _parse_lines(path, read_file(path, allow_empty=True))[0]


def _parse_lines(
    path: str | os.PathLike[str], text: bytes
) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The records, and all lines: one more than records if the last one is torn."""
    lines = list(io.BytesIO(text))  # splits at line feeds only
    records: list[dict[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        what = f"{os.fspath(path)}, line {number},"
        try:
            record = parse_json(line, what=what)
            if not isinstance(record, dict) or not line.endswith(b"\n"):
                raise ArtefactError(f"{what} is not a whole JSON object; remove the line")
        except ArtefactError:
            if number < len(lines):
                raise
            break
        records.append(record)
    return records, lines
