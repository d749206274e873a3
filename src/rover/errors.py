"""Named errors and warnings: what went wrong, where, and what to try.

Every error that a user can meet derives from :class:`RoverError`, so a program can catch them
together; each also derives from the built-in exception that fits it.
"""

from __future__ import annotations

import difflib
import math
import reprlib
import warnings
from collections.abc import Collection
from numbers import Integral
from typing import Any

# Characters of a wrong word that a message repeats.
_SPACE_SHOWN = 200  # characters of a space
_SHOWN = 40

BY_ENVIRONMENT = "raised by the environment"
"""Beginning of the note that an exception of an environment gets."""


class RoverError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigurationError(RoverError, ValueError):
    """A setting is unknown, out of range, or contradicts another one; or a map cannot be used."""


class UnsupportedSpaceError(RoverError, TypeError):
    """An observation or action space that no agent here can work with; the message names it."""


class NonFiniteError(RoverError, ArithmeticError):
    """NaN or infinity where a finite number was needed."""


class SingularSolveError(RoverError, ArithmeticError):
    """A linear system, or the program of an optimum, has no trustworthy solution."""


class ArtefactError(RoverError, ValueError):
    """A file is truncated, altered, not ours, or from a newer version."""


class StorageError(RoverError, OSError):
    """A file or folder cannot be written: full disk, permissions, or a folder in use."""


class ReplayMismatchError(RoverError, RuntimeError):
    """An environment did not repeat itself when its last episode was replayed on resume."""


class RoverWarning(UserWarning):
    """Every warning that this package issues."""


def warn(message: str, *, stacklevel: int) -> None:
    """Issue a :class:`RoverWarning`, as :func:`warnings.warn` does with this level."""
    warnings.warn(message, RoverWarning, stacklevel=stacklevel + 1)


def shorten(word: object) -> str:
    """A wrong word, or what is none, as a message repeats it."""
    word = word if isinstance(word, str) else str(word)
    return repr(word if len(word) <= _SHOWN else f"{word[:_SHOWN]}...")


def abridge(space: object) -> str:
    """A space as a message shows it: boxes print all bounds, which can be hundreds of lines."""
    words = " ".join(str(space).split())
    return words if len(words) <= _SPACE_SHOWN else f"{words[:_SPACE_SHOWN]} …"


def whole_number(name: str, value: Any, *, least: int = 1) -> int:
    """`value` as a whole number from `least` to 2⁶³ − 1; the message of an error names it."""
    # 63 bits fit generators, files and columns of int64. A float such as 1e4 is whole, too, but
    # True is a mistake.
    is_number = isinstance(value, Integral | float) and not isinstance(value, bool)
    if not (is_number and least <= value < 2**63 and int(value) == value):
        raise ConfigurationError(
            f"{name} is {reprlib.repr(value)}, but must be a whole number from {least:,} to 2⁶³ − 1"
        )
    return int(value)


def require_finite(values: Any, what: str, advice: str) -> None:
    """Raise :class:`NonFiniteError` if a tensor or array holds NaN or infinity; the message says
    `what`."""
    # One pass for the sum; the exact count only when the sum, which may overflow, is suspect.
    if not math.isfinite(values.sum().item()):
        bad = int((~(abs(values) < math.inf)).sum())
        if bad:
            raise NonFiniteError(
                f"{what}: {bad} of {math.prod(values.shape)} numbers are NaN or infinite; {advice}"
            )


def nearest(word: str, names: Collection[str]) -> str | None:
    """The name among `names` that `word` most likely meant; None if that is unclear."""
    return next(iter(difflib.get_close_matches(word, names, n=1)), None)


def choose(what: str, name: str, choices: Collection[str]) -> str:
    """`name`, if it is one of the `choices`; the message of an error names the nearest one."""
    if name in list(choices):  # which no value needs a hash for
        return name
    close = nearest(str(name), choices)
    hint = f"did you mean {close!r}?" if close else f"choose one of {', '.join(choices)}"
    raise ConfigurationError(f"unknown {what} {shorten(name)}; {hint}")
