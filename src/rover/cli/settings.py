"""``rover settings``: what --set can set."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.baselines import agent_class, agent_names, agent_summaries, preset_of
from rover.cli.tables import say
from rover.errors import choose

TASKS = ("adapt", "ddpg", "sac", "offline-cql", "offline-ddpg")
_KINDS = {bool: "true|false", int: "whole number", float: "number", types.NoneType: "none"}
_SIGNS = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}


def settings(
    name: Annotated[str | None, Parameter(name="NAME")] = None,
    /,
    *,
    preset: str | None = None,
) -> None:
    """List settings with their ranges and values.

    NAME is an agent of `rover pretrain`; a learner of `rover finetune`: ddpg, sac,
    or offline-cql and offline-ddpg with --offline; or adapt. Without NAME the
    agents are listed. Single settings are given with --set NAME=VALUE.

    examples:

        rover settings
        rover settings rover
        rover settings rnd --preset fast

    Args:
        name: of an agent, a learner, or adapt
        preset: the preset whose values are shown [default: all]
    """
    if name is None:
        say(*(f"{agent:8} {line}" for agent, line in agent_summaries().items()))
        return
    presets = settings_of(choose("name", name, (*agent_names(), *TASKS)))
    if preset is not None:
        chosen = preset_of(name, preset) if name in agent_names() else preset
        presets = {choose("preset", chosen, presets): presets[chosen]}
    for setting, kind, shown, meaning in setting_rows(presets):
        # One value where the presets agree: most settings differ in none of them.
        values = "; ".join(f"{one}: {value}" for one, value in shown.items())
        values = values if len(set(shown.values())) > 1 else next(iter(shown.values()))
        say(f"{setting} = {kind}  [{values}]", f"    {meaning}")


def settings_of(name: str) -> dict[str, BaseModel]:
    """The configuration of an agent, a learner or adapt in each of its presets."""
    if name in agent_names():
        from rover.training.config import merge_settings, validate_settings

        agent = agent_class(name)
        return {
            preset: validate_settings(agent.config_class, merge_settings(values, {}))
            for preset, values in agent.presets.items()
        }
    from rover.finetuning import AdaptConfig, FinetuneConfig, OfflineConfig

    if name == "adapt":
        return {"fast": AdaptConfig.make("plan", "fast")}
    config = OfflineConfig if name.startswith("offline-") else FinetuneConfig
    algorithm = name.removeprefix("offline-")
    return {preset: config.make(algorithm, preset) for preset in ("fast", "paper")}


def setting_rows(
    presets: Mapping[str, BaseModel],
) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Dotted name, type and range, value in each preset, and meaning of each setting."""
    for rows in zip(*(_flatten(config) for config in presets.values()), strict=True):
        name, field, _ = rows[0]
        shown = {preset: _show(row[2]) for preset, row in zip(presets, rows, strict=True)}
        yield name, _show_kind(field), shown, field.description or ""


def _flatten(config: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Dotted name, field and value of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, field, value


def _show_kind(field: FieldInfo) -> str:
    """The type and range of a field."""
    is_union = typing.get_origin(field.annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(field.annotation) if is_union else (field.annotation,)
    kinds = [
        "|".join(map(str, typing.get_args(member)))
        if typing.get_origin(member) is Literal
        else _KINDS.get(member, "[N,N,...]" if typing.get_origin(member) is tuple else "word")
        for member in members
    ]
    bounds = (
        f" {sign} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, sign in _SIGNS.items()
        if hasattr(limit, name)
    )
    return "|".join([kinds[0] + ",".join(bounds), *kinds[1:]])


def _show(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return f"[{','.join(map(str, value))}]" if isinstance(value, tuple) else str(value)
