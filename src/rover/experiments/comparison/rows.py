"""What is compared: methods with their presets, on one environment."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rover.baselines.methods import METHOD_ENTRIES, check_preset
from rover.errors import ConfigurationError


@dataclass(frozen=True)
class ComparedMethod:
    """One line of a comparison.

    Attributes:
        env_id: id of the environment.
        env_kwargs: its keyword arguments.
        method: name of the method.
        preset: its preset.
        steps: environment steps of each run.
        seeds: seeds of the runs.
        overrides: settings that differ from the preset.
    """

    env_id: str
    env_kwargs: Mapping[str, Any]
    method: str
    preset: str
    steps: int
    seeds: tuple[int, ...]
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of its line and of the folder of its runs."""
        return f"{self.method}-{self.preset}"

    @property
    def style(self) -> str:
        """How pictures call it: the method, with the preset where that is not the default one."""
        is_default = self.preset == METHOD_ENTRIES[self.method].default_preset
        return self.method if is_default else self.name


def make_rows(
    env_id: str,
    env_kwargs: Mapping[str, Any],
    methods: Sequence[tuple[str, str | None]],
    *,
    steps: int,
    n_seeds: int,
) -> tuple[ComparedMethod, ...]:
    """The lines of a comparison.

    Args:
        env_id: id of the environment.
        env_kwargs: its keyword arguments.
        methods: names of methods with their presets, None for the default one.
        steps: environment steps of each run, ≥ 1.
        n_seeds: runs of each method, with the seeds 0 to n_seeds − 1; ≥ 1.

    Raises:
        ConfigurationError: no method, one that is there twice, an unknown method or preset, or
            numbers out of range.
    """
    if steps < 1 or n_seeds < 1:
        raise ConfigurationError(f"steps and n_seeds must be at least 1, not {steps} and {n_seeds}")
    rows = tuple(
        ComparedMethod(
            env_id, env_kwargs, method, check_preset(method, preset), steps, tuple(range(n_seeds))
        )
        for method, preset in methods
    )
    names = [row.name for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not rows:
        what = f"{twice[0]} is there twice" if twice else "there is no method"
        raise ConfigurationError(f"nothing to compare like this: {what}; name each method once")
    return rows


def slug_of(env_id: str, env_kwargs: Mapping[str, Any]) -> str:
    """An environment and its keyword arguments as the name of a folder."""
    words = [env_id.rpartition(":")[2]]
    words += [f"{key}-{value}" for key, value in sorted(env_kwargs.items())]
    return re.sub(r"[^\w.-]+", "-", "-".join(words)).strip("-")
