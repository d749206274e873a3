"""Settings from --set NAME=VALUE, and the list of them."""

from __future__ import annotations

import types
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.cli.values import parse_number, split_pairs
from rover.errors import ConfigurationError, nearest, shorten

_LONGEST_NUMBER = 40
"""Characters of a number that a setting takes."""


def read_settings(
    words: Sequence[str], presets: Mapping[str, BaseModel], flags: Collection[str]
) -> dict[str, Any]:
    """Settings by their dotted names; configurations check the values.

    Args:
        words: NAME=VALUE.
        presets: configurations that have the settings.
        flags: of the command, which no setting replaces.

    Raises:
        ConfigurationError: not NAME=VALUE, a name given twice, or one that no setting has.
    """
    given = split_pairs("--set", words, "checkpoint_every=1000")
    fields = {name: field for name, field, _ in _flatten(next(iter(presets.values())))}
    for name in given:
        if name not in fields:
            flag, found = "--" + name.replace("_", "-"), find_setting(name, presets)
            inside = [known for known in fields if known.startswith(f"{name}.")]
            close = found[0] if found else nearest(name, fields)
            hint = f"did you mean {close!r}?" if close else "--help-settings lists them"
            hint = f"use {flag}" if flag in flags else hint
            hint = f"give one of its group, as in --set {inside[0]}=..." if inside else hint
            raise ConfigurationError(f"unknown setting {shorten(name)}; {hint}")
    for name, text in given.items():
        if len(text) > _LONGEST_NUMBER and {int, float} & set(_members(fields[name])):
            raise ConfigurationError(f"setting {name}={shorten(text)} is no number of usual size")
    return {name: _plain(text, fields[name]) for name, text in given.items()}


def find_setting(name: str, presets: Mapping[str, BaseModel]) -> tuple[str, bool] | None:
    """The setting of this name, or the only one whose last part it is; and whether it is a bool."""
    fields = {known: f for p in presets.values() for known, f, _ in _flatten(p)}
    found = [known for known in fields if known.rpartition(".")[2] == name]
    full = name if name in fields else found[0] if len(found) == 1 else None
    return None if full is None else (full, fields[full].annotation is bool)


def describe_settings(presets: Mapping[str, BaseModel]) -> str:
    """All settings: name, type and range, values in the presets, meaning."""
    lines = []
    for rows in zip(*(_flatten(config) for config in presets.values()), strict=True):
        name, field, _ = rows[0]
        shown = {preset: _show(row[2]) for preset, row in zip(presets, rows, strict=True)}
        values = "; ".join(f"{preset}: {value}" for preset, value in shown.items())
        values = values if len(set(shown.values())) > 1 else next(iter(shown.values()))
        lines += [f"{name} = {_show_kind(field)}  [{values}]", f"    {field.description or ''}"]
    return "\n".join(lines)


def _flatten(config: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Dotted name, field and value of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, field, value


def _members(field: FieldInfo) -> list[Any]:
    """The types that a field allows, ``tuple`` and ``Literal`` by their origin."""
    unions, members = (typing.Union, types.UnionType), [field.annotation]
    if typing.get_origin(field.annotation) in unions:
        members = list(typing.get_args(field.annotation))
    return members


def _plain(text: str, field: FieldInfo) -> Any:
    """`text` as what a field of this type is validated from."""
    members = _members(field)
    if text in ("none", "null") and types.NoneType in members:
        return None
    if any(typing.get_origin(member) is tuple for member in members):
        return tuple(parse_number(item.strip()) for item in text.strip("[]()").split(","))
    return parse_number(text) if {int, float} & set(members) else text


def _show_kind(field: FieldInfo) -> str:
    """The type and range of a field."""
    words = {bool: "true|false", int: "whole number", float: "number", types.NoneType: "none"}
    kinds = [
        "|".join(map(str, typing.get_args(member)))
        if typing.get_origin(member) is typing.Literal
        else words.get(member, "N,N,..." if typing.get_origin(member) is tuple else "word")
        for member in _members(field)
    ]
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    bounds = (
        f" {sign} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, sign in signs.items()
        if hasattr(limit, name)
    )
    return "|".join([kinds[0] + ",".join(bounds), *kinds[1:]])


def _show(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
