"""Intrinsic rewards and their settings by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import ValidationError

from rover.baselines.apt import APT, APTConfig
from rover.baselines.cic import CIC, CICConfig
from rover.baselines.maxent import MaxEnt, MaxEntConfig
from rover.baselines.observation import ObservationSpec
from rover.baselines.protocol import IntrinsicReward
from rover.baselines.rnd import RND, RNDConfig
from rover.baselines.smm import SMM, SMMConfig
from rover.errors import ConfigurationError

IntrinsicConfig = RNDConfig | APTConfig | SMMConfig | CICConfig | MaxEntConfig

INTRINSIC_CONFIGS: Mapping[str, type[IntrinsicConfig]] = {
    "apt": APTConfig,
    "cic": CICConfig,
    "maxent": MaxEntConfig,
    "rnd": RNDConfig,
    "smm": SMMConfig,
}
"""The settings of each intrinsic reward, by its name."""


def make_intrinsic_config(name: str, preset: str = "fast", **overrides: Any) -> IntrinsicConfig:
    """The settings of a preset with single ones changed.

    Args:
        name: "apt", "cic", "maxent", "rnd" or "smm".
        preset: "paper", the settings that the paper ran it with, or "fast", smaller networks.
        overrides: settings by name.

    Raises:
        ConfigurationError: an unknown reward, preset or setting (with the nearest known one), or
            a value out of range.
    """
    model = INTRINSIC_CONFIGS[_known(name, "intrinsic reward", INTRINSIC_CONFIGS)]
    settings = {**model.PRESETS[_known(preset, "preset", model.PRESETS)], **overrides}
    for setting in settings:
        _known(setting, f"setting of {name}", model.model_fields)
    try:
        return model(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"{name} setting {place}={first['input']!r}: {first['msg']}"
        ) from error


def make_intrinsic(
    name: str,
    config: IntrinsicConfig,
    spec: ObservationSpec,
    n_actions: int,
    generator: torch.Generator,
) -> IntrinsicReward:
    """Make an intrinsic reward with freshly initialised networks.

    Args:
        name: "apt", "cic", "maxent", "rnd" or "smm".
        config: its settings, of its own class.
        spec: the observations.
        n_actions: number of actions, at least 1.
        generator: source of all randomness; the same state gives the same bits.

    Raises:
        ConfigurationError: an unknown name, settings of another reward, or no actions.
    """
    expected = INTRINSIC_CONFIGS[_known(name, "intrinsic reward", INTRINSIC_CONFIGS)]
    if n_actions < 1:
        raise ConfigurationError(f"n_actions is {n_actions}, but there must be at least one")
    match config:
        case RNDConfig() if expected is RNDConfig:
            return RND(config, spec, generator=generator)
        case APTConfig() if expected is APTConfig:
            return APT(config, spec, n_actions, generator=generator)
        case SMMConfig() if expected is SMMConfig:
            return SMM(config, spec, generator=generator)
        case CICConfig() if expected is CICConfig:
            return CIC(config, spec, generator=generator)
        case MaxEntConfig() if expected is MaxEntConfig:
            return MaxEnt(config, spec)
    raise ConfigurationError(
        f"{name} needs its own settings, {expected.__name__}, and was given "
        f"{type(config).__name__}: use make_intrinsic_config({name!r})"
    )


def _known(name: str, what: str, known: Mapping[str, Any]) -> str:
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {sorted(known)}"
        raise ConfigurationError(f"unknown {what} {name!r}; {hint}")
    return name
