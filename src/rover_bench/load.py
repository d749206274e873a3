"""Studies from their files, and the study of a comparison."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rover.baselines import preset_of
from rover.errors import ArtefactError, ConfigurationError, choose
from rover_bench.measure import finite_problem
from rover_bench.study import Study, merged

_PACKAGED: Final = Path(__file__).parent / "studies"
# The scale of the paper's studies as they stand, which their other scales change.
_BASE_SCALE: Final = "laptop"

SCALES: Final = ("smoke", _BASE_SCALE, "paper")
"""Sizes of a reproduction: to see that it works, for two cores, and as in the paper."""

REPRODUCTIONS: Final = tuple(sorted(file.stem for file in (_PACKAGED / "paper").glob("*.toml")))
"""The paper's figures and tables, and a study that it announces."""


def load_study(source: str | Path | Mapping[str, Any], *, scale: str | None = None) -> Study:
    """A study from its TOML file, or from the same as a mapping.

    Args:
        source: the file or mapping.
        scale: one of its ``scales``; None for the study as it stands.

    Raises:
        ConfigurationError: the file is no study, or has no such scale; one line says what is wrong.
        ArtefactError: there is no such file.
    """
    # A study without a name is called after its file, and so are its CSV files: pages of several
    # studies may lie in one folder.
    where, defaults = "the study", {}
    if not isinstance(source, Mapping):
        where, defaults = str(source), {"name": Path(source).stem, "csv": f"{Path(source).stem}-"}
    try:
        content = _read(source)
        study = Study.make({**defaults, **content})
        # The study as it stands is checked too: it is what a scale is a change of.
        if scale is not None:
            changes = study.scales[choose("scale", scale, study.scales)]
            study = Study.make({**merged({**defaults, **content}, changes), "scales": {}})
        study.check()
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return study


def paper_study(name: str, scale: str) -> Study:
    """The study of one of the paper's figures or tables.

    Args:
        name: one of :data:`REPRODUCTIONS`.
        scale: "smoke", "laptop" or "paper".

    Raises:
        ConfigurationError: no such study or scale.
    """
    path = _PACKAGED / "paper" / f"{choose('figure or table', name, REPRODUCTIONS)}.toml"
    chosen = choose("scale", scale, SCALES)
    return load_study(path, scale=None if chosen == _BASE_SCALE else chosen)


def comparison(
    env: str,
    env_kwargs: Mapping[str, Any],
    agents: Sequence[tuple[str, str | None]],
    *,
    steps: int,
    n_seeds: int,
) -> Study:
    """The study of reward-free agents side by side on one environment.

    Args:
        env: id of the environment.
        env_kwargs: its keyword arguments.
        agents: names of agents with their presets, None for the default one. The folders of their
            runs are AGENT-PRESET/seed-N.
        steps: environment steps of each run, ≥ 1.
        n_seeds: runs of each agent, with the seeds 0 to n_seeds − 1; ≥ 1.

    Raises:
        ConfigurationError: an unknown agent, preset or environment, or numbers out of range.
    """
    options: dict[str, dict[str, str]] = {}
    for agent, wanted in agents:
        preset = preset_of(agent, wanted)
        name, is_default = f"{agent}-{preset}", preset == preset_of(agent)
        options[name] = {"agent": agent, "preset": preset, "folder": name, "title": agent}
        options[name]["caption"] = agent if is_default else name
    problem, remarks = finite_problem(json.dumps([env, dict(env_kwargs)])), ""
    if problem is not None:
        n_states = problem[0].dynamics.n_states
        remarks = (
            f"The environment has {n_states:,} states, so the most entropy is "
            f"{math.log(n_states):.3f} nats."
        )
    words = ", ".join(f"{key}={value}" for key, value in sorted(env_kwargs.items()))
    # The same seeds for every agent, from 0: a comparison with more of them goes on with these.
    seeds = list(range(n_seeds))
    return load_study(
        {
            "extends": "comparison",
            "name": "comparison",
            "csv": "",
            "pictures": {"agents": {"kind": "agents"}},
            "title": f"Reward-free agents on {env}{f' ({words})' if words else ''}",
            "remarks": remarks,
            "run": {"env": env, "env_kwargs": dict(env_kwargs), "steps": steps, "seeds": seeds},
            "axes": {"agent": options},
        }
    )


def _read(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The content of a study, merged into the file that it extends."""
    if isinstance(source, Mapping):
        content, folder = dict(source), Path()
    else:
        path = Path(source)
        folder = path.parent
        if not path.is_file():
            raise ArtefactError(f"{path} is no file; check the path")
        try:
            content = tomllib.loads(path.read_text("utf-8"))
        except ValueError as error:  # not TOML, not UTF-8, or an integer of thousands of digits
            raise ConfigurationError(f"not a TOML file: {error}") from None
    bases = content.pop("extends", [])
    # The first of several bases wins over the others, and the study over all of them. A name
    # without ".toml" is of this package, wherever the study lies.
    for base in reversed([bases] if isinstance(bases, str) else bases):
        under = folder / base if base.endswith(".toml") else _PACKAGED / f"{base}.toml"
        content = merged(_read(under), content)
    return content
