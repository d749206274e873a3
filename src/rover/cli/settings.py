"""``rover settings``: what --set can set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

from cyclopts import Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.baselines import agent_class, agent_names
from rover.cli.tables import say
from rover.errors import choose

TASKS = ("adapt", "ddpg", "sac", "offline-cql", "offline-ddpg")


def settings(name: Annotated[str | None, Parameter(name="NAME")] = None, /) -> None:
    """List settings with their ranges and values.

    Without NAME the agents are listed. Single settings are given with --set
    NAME=VALUE.

    examples:

        rover settings
        rover settings rover
        rover settings offline-cql

    Args:
        name: an agent of `rover pretrain`; adapt; ddpg or sac of `rover finetune`, offline-cql or
            offline-ddpg with --offline
    """
    if name is None:
        say(*(f"{agent:8} {line}" for agent, line in agent_names().items()))
        return
    for setting, kind, shown, meaning in _setting_rows(name):
        # One value where the presets agree: most settings differ in none of them.
        values = "; ".join(f"{preset}: {value}" for preset, value in shown.items())
        values = values if len(set(shown.values())) > 1 else next(iter(shown.values()))
        say(f"{setting} = {kind}  [{values}]", f"    {meaning}")


def _setting_rows(name: str) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Dotted name, type and range, value in each preset, and meaning of each setting of an agent,
    a learner or adapt."""
    presets = _presets(choose("name", name, (*agent_names(), *TASKS)))
    for rows in zip(*(_flatten(config) for config in presets.values()), strict=True):
        setting, field, _ = rows[0]
        # As JSON, which --set reads.
        values = (json.dumps(row[2], separators=(",", ":")).strip('"') for row in rows)
        of = field.annotation
        name = of.__name__ if type(of) is type else str(of).replace("typing.", "")
        kind = " ".join([name, *map(str, field.metadata)])
        yield setting, kind, dict(zip(presets, values, strict=True)), field.description or ""


def _presets(name: str) -> dict[str, BaseModel]:
    """The configuration in each preset."""
    if name in agent_names():
        agent = agent_class(name)
        return {preset: agent.config_class(**values) for preset, values in agent.presets.items()}
    from rover.finetuning import AdaptConfig, FinetuneConfig, OfflineConfig

    if name == "adapt":
        return {"fast": AdaptConfig.make("plan", "fast")}
    config = OfflineConfig if name.startswith("offline-") else FinetuneConfig
    algorithm = name.removeprefix("offline-")
    return {preset: config.make(algorithm, preset) for preset in ("fast", "paper")}


def _flatten(config: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Dotted name, field and value of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, field, value
