"""What every binary file of ours says about itself, and the seal that makes changes visible.

The header is JSON and begins with the SHA-256 digest of the *whole file*, computed with the 64
digits of the digest itself written as zeros. The digest therefore covers names, types, shapes,
bytes, metadata and every byte of padding: changing any byte of a file makes it refused. It guards
against accidents, not against somebody who computes a new digest; that is why readers also never
unpickle, and check the bounds of what a file claims.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import numpy as np
import pydantic
import torch

from rover.errors import ArtefactError, ConfigurationError
from rover.storage.json_files import describe_problems
from rover.version import __version__

SCHEMA_VERSION = 1
"""Version of the layout of our binary files; a reader refuses files with a higher one."""

DIGEST_DIGITS = 64
EMPTY_DIGEST = "0" * DIGEST_DIGITS
RESTORE = "restore it from a copy, or use an earlier checkpoint"

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_ZIP, _HDF5, _PICKLE = b"PK\x03\x04", b"\x89HDF\r\n\x1a\n", re.compile(rb"\x80[\x02-\x05]")


class Header(pydantic.BaseModel):
    """The fields of a file's header, without the digest."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal["rover"]
    kind: str
    schema_version: int
    package_version: str
    created_by: dict[str, str]


def make_header(kind: str) -> dict[str, Any]:
    """A header with an empty digest, which comes first, for a new file of ``kind``.

    The same kind gives the same header: nothing in it depends on when or where it is made, only
    on the versions of the packages.

    Raises:
        ConfigurationError: ``kind`` is not a short lower-case word.
    """
    if not _KIND.fullmatch(kind):
        raise ConfigurationError(
            f"kind is {kind!r}; use 1 to 40 lower-case letters, digits, '_' or '-', "
            "beginning with a letter, such as 'checkpoint'"
        )
    header = Header(
        format="rover",
        kind=kind,
        schema_version=SCHEMA_VERSION,
        package_version=__version__,
        created_by={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "numpy": np.__version__,
        },
    )
    return {"sha256": EMPTY_DIGEST, **header.model_dump()}


def check_header(fields: Mapping[str, Any], *, kind: str, path: str | os.PathLike[str]) -> Header:
    """Refuse a header of a newer version, of another kind, or with fields that are not ours.

    Args:
        fields: the parsed header without its digest.
        kind: the kind that the caller wants.
        path: for messages.

    Raises:
        ArtefactError: as said.
    """
    version = fields.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise ArtefactError(
            f"{os.fspath(path)} was written by rover {fields.get('package_version')} "
            f"(schema {version}); this is rover {__version__} (schema {SCHEMA_VERSION}): "
            "upgrade rover to read it"
        )
    try:
        header = Header.model_validate(dict(fields))
    except pydantic.ValidationError as error:
        raise ArtefactError(
            f"{os.fspath(path)} has a damaged header ({describe_problems(error)}); {RESTORE}"
        ) from None
    if header.schema_version != SCHEMA_VERSION:
        raise ArtefactError(
            f"{os.fspath(path)} has a damaged header (no schema {version} ever was); {RESTORE}"
        )
    if header.kind != kind:
        raise ArtefactError(
            f"{os.fspath(path)} is a {header.kind}, not a {kind}; give the path of a {kind}"
        )
    return header


def seal(content: memoryview, *, digest_at: int) -> list[bytes | memoryview]:
    """Fill in the digest: chunks that, joined, are ``content`` with its digest in place.

    Args:
        content: a whole file whose 64 digest digits are zeros.
        digest_at: where they begin.
    """
    digest = hashlib.sha256(content).hexdigest().encode()
    return [content[:digest_at], digest, content[digest_at + DIGEST_DIGITS :]]


def check_seal(content: bytes, *, digest_at: int, path: str | os.PathLike[str]) -> None:
    """Refuse a file whose bytes do not have the digest that it carries.

    Raises:
        ArtefactError: the file was altered.
    """
    view = memoryview(content)
    end = digest_at + DIGEST_DIGITS
    digest = hashlib.sha256(view[:digest_at])
    digest.update(EMPTY_DIGEST.encode())
    digest.update(view[end:])
    if digest.hexdigest().encode() != view[digest_at:end]:
        raise ArtefactError(
            f"{os.fspath(path)} was altered after it was written: its SHA-256 digest does not "
            f"match its content; {RESTORE}"
        )


def refuse_foreign(content: bytes, *, path: str | os.PathLike[str], wanted: str) -> NoReturn:
    """Say what a file is that is not ours.

    Args:
        content: the file.
        path: for messages.
        wanted: what it should have been, such as ``"a safetensors file"``.

    Raises:
        ArtefactError: always.
    """
    if content.startswith(_ZIP) or _PICKLE.match(content):
        found = (
            "a pickle, or an archive that holds one (.pt, .pth, .npz); rover never unpickles, "
            "because a pickle can run any program: load it where you trust it and write it anew"
        )
    elif content.startswith(_HDF5):
        found = "an HDF5 file that rover did not write; convert it with rover's own writer"
    else:
        found = "something else, or is damaged at its beginning; check the path"
    raise ArtefactError(f"{os.fspath(path)} is not {wanted} of rover: it is {found}")
