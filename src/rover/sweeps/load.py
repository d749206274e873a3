"""Studies from their files: a user's own, and those of the paper's figures and tables."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from rover.errors import ConfigurationError
from rover.storage.files import read_file
from rover.sweeps.study import Study, merged
from rover.training.config import choose

_PACKAGED: Final = Path(__file__).parent
_BASE_SCALE: Final = "laptop"
"""The scale of the paper's studies as they stand, which their other scales change."""

SCALES: Final = ("smoke", _BASE_SCALE, "paper")
"""How large a reproduction is: to see that it works, for two cores, and as in the paper."""

REPRODUCTIONS: Final = (
    *("sink", "behaviour", "coverage", "snapshots", "tabular-transfer", "model-free"),
    *("goal-distance", "scaling", "offline", "heatmaps", "sensitivity", "dense"),
    *("propositions", "matched-occupancy", "pixel-sink"),
)
"""The paper's figures and tables, its propositions, and two studies that it announces."""


def load_study(source: str | Path | Mapping[str, Any], *, scale: str | None = None) -> Study:
    """A study from its TOML file, or from the same as a mapping.

    Args:
        source: the file or mapping.
        scale: one of its ``scales``; None for the study as it stands.

    Raises:
        ConfigurationError: the file is no study, or has no such scale; one line says what is wrong.
        ArtefactError: there is no such file.
    """
    where, own = "the study", {}
    if not isinstance(source, Mapping):
        where, own = str(source), {"name": Path(source).stem, "csv": f"{Path(source).stem}-"}
    try:
        content = _read(source)
        study = Study.make({**own, **content})
        if scale is not None:
            changes = study.scales[choose("scale", scale, tuple(study.scales))]
            study = Study.make({**merged({**own, **content}, changes), "scales": {}})
        study.check()
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return study


def paper_study(name: str, scale: str) -> Study:
    """The study of one of the paper's figures or tables.

    Args:
        name: one of :data:`REPRODUCTIONS` that is a study.
        scale: "smoke", "laptop" or "paper".

    Raises:
        ConfigurationError: no such study or scale.
    """
    path = _PACKAGED / "paper" / f"{name}.toml"
    chosen = choose("scale", scale, SCALES)
    return load_study(path, scale=None if chosen == _BASE_SCALE else chosen)


def _read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The content of a study, on top of that of the file that it extends."""
    if isinstance(source, Mapping):
        content, folder = dict(source), Path()
    else:
        folder = Path(source).parent
        try:
            content = tomllib.loads(read_file(Path(source)).decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"not a TOML file: {error}") from None
    bases = content.pop("extends", ())
    for base in reversed([bases] if isinstance(bases, str) else bases):
        is_path = str(base).endswith(".toml")
        under = _read(folder / base if is_path else _PACKAGED / f"{base}.toml")
        content = merged(under, content)
    return content
