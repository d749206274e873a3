"""The names of all methods and presets; importing this imports no method and no torch."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from rover.errors import ConfigurationError


@dataclass(frozen=True)
class MethodEntry:
    """What can be said of a method without building it.

    Attributes:
        summary: one line.
        presets: names of its presets, the default one first.
    """

    summary: str
    presets: tuple[str, ...] = ("fast", "paper")

    @property
    def default_preset(self) -> str:
        """The preset of a run that names none."""
        return self.presets[0]


METHOD_ENTRIES: Mapping[str, MethodEntry] = {
    "rover": MethodEntry("occupancy coverage by planning on a learned model", ("default", "paper")),
    "random": MethodEntry("uniform actions: what every method has to beat"),
    "rmax": MethodEntry("heads for what was never tried, by counts; for finite states"),
    "rnd": MethodEntry("random network distillation: error at predicting random features"),
    "smm": MethodEntry("state marginal matching: skills on a VAE's density of the states"),
    "apt": MethodEntry("active pretraining: distance to nearest neighbours in learned features"),
    "maxent": MethodEntry("a mixture of policies that maximises entropy by kernel density"),
    "cic": MethodEntry("contrastive intrinsic control: skills told apart by their transitions"),
    "mepol": MethodEntry("k-NN state entropy by on-policy search; is told where states lie"),
}
"""All methods, ROVER first."""

METHODS = tuple(METHOD_ENTRIES)
PEERS = METHODS[1:]
BONUS_METHODS = ("rnd", "smm", "apt", "maxent", "cic")
"""The peers that are a learner with an intrinsic reward."""


def check_method(method: str, known: tuple[str, ...] = METHODS) -> str:
    """`method`, if it is `known`.

    Raises:
        ConfigurationError: it is not; the message names the nearest one.
    """
    if method in known:
        return method
    close = difflib.get_close_matches(method, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(known)}"
    raise ConfigurationError(f"unknown method {method!r}; {hint}")


def check_preset(method: str, preset: str | None) -> str:
    """`preset` if the method has it; its default one for None.

    Raises:
        ConfigurationError: unknown method, or a preset of other methods.
    """
    presets = METHOD_ENTRIES[check_method(method)].presets
    if preset is None:
        return presets[0]
    if preset not in presets:
        choices = " or ".join(map(repr, presets))
        raise ConfigurationError(
            f"unknown preset {preset!r} of method {method!r}; choose {choices}"
        )
    return preset
