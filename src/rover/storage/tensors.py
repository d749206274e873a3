"""Named tensors in a sealed safetensors file: policies and checkpoints.

Any program that reads safetensors reads these files too; our header and metadata lie in the string
metadata of the format, under the key ``rover``. Format: 8 bytes, the length of a JSON header
(little-endian), the header, then the bytes of the tensors.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from rover.errors import ArtefactError
from rover.storage.header import (
    DIGEST_DIGITS,
    RESTORE,
    Header,
    check_header,
    check_seal,
    make_header,
    refuse_foreign,
    seal,
)
from rover.storage.json_files import dump_line, parse_json
from rover.storage.storage import format_bytes, read_file, replace_file

_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 16 * 2**20
_RESERVED_NAME = "__metadata__"
# How the digest is introduced in the file. Inside any other string the first quotation mark would
# be escaped, and a tensor of the name "rover" is followed by a brace: this occurs once.
_DIGEST_MARK = b'"rover":"{\\"sha256\\":\\"'

_DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.uint16,
        torch.uint32,
        torch.uint64,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)


@dataclasses.dataclass(frozen=True)
class Tensors:
    """The content of a file of tensors.

    Attributes:
        tensors: by name, on the CPU, each with its own memory.
        metadata: what was stored beside them.
        package_version: the version of rover that wrote the file.
    """

    tensors: dict[str, Tensor]
    metadata: dict[str, Any]
    package_version: str


def write_tensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    *,
    kind: str,
    metadata: Mapping[str, object] | None = None,
) -> None:
    """Write named tensors and metadata atomically; the same content gives the same bytes.

    Args:
        path: destination; its folder must exist.
        tensors: dense tensors of bool, integer or real floating type, of any shape (0-d and
            empty included), device and memory layout; tensors that share memory are stored apart.
        kind: what the file is, such as ``"policy"``; a reader has to ask for the same.
        metadata: JSON-able, numbers finite.

    Raises:
        ArtefactError: a tensor that cannot be stored, or metadata that is not JSON or too large.
        NonFiniteError: NaN or infinity in ``metadata`` (in a tensor they are stored as they are).
        ConfigurationError: ``kind`` is not a short lower-case word.
        StorageError: the disk refused; the previous file is unchanged.
    """
    header = {**make_header(kind), "metadata": dict(metadata or {})}
    content = safetensors.torch.save(_storable(tensors), metadata={"rover": dump_line(header)})
    header_end = _LENGTH_BYTES + _header_length(content)
    if header_end - _LENGTH_BYTES > _MAX_HEADER_BYTES:
        raise ArtefactError(
            f"the names and metadata of {os.fspath(path)} take {format_bytes(header_end)}, more "
            f"than {format_bytes(_MAX_HEADER_BYTES)}; store large things as tensors"
        )
    digest_at = content.index(_DIGEST_MARK, 0, header_end) + len(_DIGEST_MARK)
    replace_file(path, seal(memoryview(content), digest_at=digest_at))


def _storable(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Dense CPU tensors, contiguous, no two of which share memory, sorted by name."""
    seen: set[int] = set()
    result = {}
    for name in sorted(tensors):
        tensor = tensors[name]
        if name == _RESERVED_NAME or not name.isprintable():
            raise ArtefactError(f"a tensor has the name {name!r}; choose another, printable one")
        if tensor.layout != torch.strided or tensor.is_meta or tensor.dtype not in _DTYPES:
            raise ArtefactError(
                f"tensor {name!r} cannot be stored: {tensor.dtype}, {tensor.layout}, on "
                f"{tensor.device}; convert it to a dense tensor of bool, integers or real numbers"
            )
        # A conjugate or negative view is only a flag on shared memory: resolve before storing.
        dense = tensor.detach().resolve_neg().cpu().contiguous()
        address = dense.untyped_storage().data_ptr()
        if address in seen:
            dense = dense.clone()
        seen.add(address)
        result[name] = dense
    return result


def _header_length(content: bytes) -> int:
    return int.from_bytes(content[:_LENGTH_BYTES], "little")


def read_tensors(path: str | os.PathLike[str], *, kind: str) -> Tensors:
    """Read a file of :func:`write_tensors`, after verifying every byte of it.

    Raises:
        ArtefactError: the file is missing, empty, truncated, altered, not ours (a pickle, another
            program's file, anything else), of another kind, or from a newer version of rover.
        StorageError: the operating system does not let it be read.
    """
    content = read_file(path)
    header, metadata = _check(content, kind=kind, path=path)
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise ArtefactError(
            f"{os.fspath(path)} has a digest that fits but tensors that do not ({error}); "
            "it was not made by rover: do not use it"
        ) from None
    ordered = {name: tensors[name] for name in sorted(tensors)}
    return Tensors(ordered, metadata, header.package_version)


def _check(
    content: bytes, *, kind: str, path: str | os.PathLike[str]
) -> tuple[Header, dict[str, Any]]:
    length = _header_length(content)
    header_end = _LENGTH_BYTES + length
    if content[_LENGTH_BYTES : _LENGTH_BYTES + 1] != b"{" or length > _MAX_HEADER_BYTES:
        if len(content) <= _LENGTH_BYTES:
            raise ArtefactError(f"{os.fspath(path)} is truncated or not ours; {RESTORE}")
        refuse_foreign(content, path=path, wanted="a safetensors file")
    if header_end > len(content):
        raise _truncated(path, header_end, len(content))
    outer = _object(content[_LENGTH_BYTES:header_end], path)
    strings = outer.get(_RESERVED_NAME)
    ours = strings.get("rover") if isinstance(strings, dict) else None
    if not isinstance(ours, str):
        raise ArtefactError(
            f"{os.fspath(path)} is a safetensors file of another program: it has no rover header; "
            "give a file that rover wrote"
        )
    fields = _object(ours.encode("utf-8", "replace"), path)
    fields.pop("sha256", None)
    metadata = fields.pop("metadata", None)
    header = check_header(fields, kind=kind, path=path)
    promised = header_end + _data_length(outer)
    if promised > len(content):
        raise _truncated(path, promised, len(content))
    mark = content.find(_DIGEST_MARK, 0, header_end)
    digest_at = mark + len(_DIGEST_MARK)
    if mark < 0 or digest_at + DIGEST_DIGITS > header_end or not isinstance(metadata, dict):
        raise ArtefactError(f"{os.fspath(path)} was altered: its header is damaged; {RESTORE}")
    check_seal(content, digest_at=digest_at, path=path)
    return header, metadata


def _object(text: bytes, path: str | os.PathLike[str]) -> dict[str, Any]:
    value = parse_json(text, what=f"the header of {os.fspath(path)}")
    if not isinstance(value, dict):
        raise ArtefactError(f"the header of {os.fspath(path)} is not a JSON object; {RESTORE}")
    return value


def _data_length(outer: Mapping[str, Any]) -> int:
    """Bytes of tensor data that a header promises; entries that make no sense promise none."""
    ends = [0]
    for entry in outer.values():
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if isinstance(offsets, list) and offsets and isinstance(offsets[-1], int):
            ends.append(offsets[-1])
    return max(ends)


def _truncated(path: str | os.PathLike[str], promised: int, found: int) -> ArtefactError:
    return ArtefactError(
        f"{os.fspath(path)} is truncated: its header promises {promised} bytes, it has {found}; "
        f"{RESTORE}"
    )
