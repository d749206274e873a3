"""Many runs: a study as data, brought to its end, and its tables and pictures.

    study = load_study("experiments/results.toml")
    run_study(study, jobs=2, runs_dir=Path("runs"), out=Path("out"), say=print)

``rover compare`` runs a :func:`comparison`, ``rover reproduce`` a :func:`paper_study`, and both go
the same way.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rover.baselines import preset_of
from rover.errors import ArtefactError, ConfigurationError, RoverError, StorageError
from rover.plots import MeanCurve
from rover.storage import JsonLines, check_writable, read_json
from rover.storage.files import read_file
from rover.training.config import choose
from rover.training.monitor import Log
from rover_bench.execute import execute, reason_of
from rover_bench.executors import EXECUTORS, LocalConfig
from rover_bench.files import redraw, write_report
from rover_bench.html import write_html
from rover_bench.measure import describe_provenance, known_problem, measure, provenance
from rover_bench.metrics import METRICS
from rover_bench.progress import Say
from rover_bench.propositions import check_propositions
from rover_bench.report import Report, Result, markdown_table
from rover_bench.study import SCRATCH, Study, check_number, check_values, merged

__all__ = [
    "EXECUTORS",
    "METRICS",
    "REPRODUCTIONS",
    "SCALES",
    "Report",
    "Study",
    "comparison",
    "describe_provenance",
    "load_study",
    "markdown_table",
    "paper_study",
    "provenance",
    "redraw",
    "reproduce",
    "run_study",
    "study_in",
    "write_html",
]

_PACKAGED: Final = Path(__file__).parent / "studies"
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


def run_study(
    study: Study,
    *,
    jobs: int,
    runs_dir: Path,
    out: Path,
    say: Say,
    seeds: Sequence[int] | None = None,
    command: str = "",
    formats: Sequence[str] = ("png",),
    executor: LocalConfig = EXECUTORS["local"],
    log: Sequence[Log] = (),
    report_only: bool = False,
) -> Report:
    """Bring every run of a study to its end, and write the tables and pictures of those there are.

    Args:
        study: what is run and shown.
        jobs: runs side by side, each in a process and thread of its own; ≥ 1.
        runs_dir: folder of the run folders, which studies share.
        out: folder of the page, the CSV files and the pictures.
        say: receives one line when a run begins and one when it ends.
        seeds: of every case; None for their own.
        command: the command line that the page names.
        formats: of the pictures: png, svg, pdf.
        executor: where runs are made, one of :data:`EXECUTORS` with any settings.
        log: what scalars of the runs are written for, in their folders.
        report_only: whether to run nothing.

    Raises:
        ConfigurationError: options that do not make a run, no jobs, or an executor that is not
            there.
        ArtefactError: no run came to its end; the message has the first reason.
        StorageError: a folder cannot be written.
    """
    cases = study.cases(seeds)
    runs = [run for case in cases for run in case.runs(runs_dir)]
    if not report_only:
        check_writable(runs_dir)  # before any run costs time
        check_writable(out)
        _check_page(study, out)
    finished, failed = execute(
        runs, jobs=jobs, say=say, executor=executor, log=log, report_only=report_only
    )
    failures = [f"{run.name}: {failed[run.folder]}" for run in runs if run.folder in failed]
    results, curves = list[Result](), dict[str, list[Any]]()
    matched = any("planned_ratio_100" in table.figures for table in study.tables.values())
    sittings: list[dict[str, Any]] = []
    for run in finished:
        try:
            figures, curve = measure(run, matched=matched)
            sittings += JsonLines.read(run.folder / "provenance.jsonl")
        except RoverError as error:
            failures.append(f"{run.name}: {reason_of(error)}")
            continue
        results.append(Result(run.case, run.seed, figures, run.folder))
        if curve is not None:
            curves.setdefault(run.case.name, []).append(curve)
    if not results:
        reason = failures[0] if failures else "no run of it is finished"
        raise ArtefactError(f"no run came to its end, so there is nothing to report; {reason}")
    ranges = dict.fromkeys(
        f"{min(case.seeds)} to {max(case.seeds)}" if len(case.seeds) > 1 else str(case.seeds[0])
        for case in cases
    )
    starts = any(case.learn and case.agent != SCRATCH for case in cases)
    after = "; each run starts from the pretrained run of its own seed" if starts else ""
    report = Report(
        study,
        cases,
        tuple(results),
        {name: MeanCurve.of_runs(group) for name, group in curves.items()},
        (f"Seeds: {' or '.join(ranges)}{after}.", *describe_provenance(sittings)),
        tuple(failures),
        command,
    )
    return write_report(report, out, formats=formats)


def reproduce(name: str, scale: str, **options: Any) -> Report:
    """Reproduce one of the paper's figures or tables, or check its propositions.

    Args:
        name: one of :data:`REPRODUCTIONS`.
        scale: "smoke", "laptop" or "paper".
        options: as of :func:`run_study`.

    Raises:
        ConfigurationError: no such figure or scale.
        RoverError: as :func:`run_study`.
    """
    if choose("figure or table", name, REPRODUCTIONS) == "propositions":
        return check_propositions(scale=choose("scale", scale, SCALES), **options)
    return run_study(paper_study(name, scale), **options)


def _check_page(study: Study, out: Path) -> None:
    """Refuse to write over a page of somebody else's, which may well lie beside a study.

    Raises:
        StorageError: there is one.
    """
    page = out / f"{study.name}.md"
    if page.exists() and not (out / f"{study.csv}provenance.json").exists():
        raise StorageError(
            f"{page} was not made from a study: move it, or choose another folder for the page"
        )


# --- studies --------------------------------------------------------------------------------------


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


def study_in(path: Path) -> Study:
    """The study of a page, as it was when the page was written.

    Args:
        path: the page, NAME.md, or its folder, if that has no other.

    Raises:
        ArtefactError: there is none, or more than one.
    """
    folder = path if path.is_dir() else path.parent
    said = [read_json(file).get("study") for file in folder.glob("*provenance.json")]
    found = [one for one in said if path.is_dir() or (one or {}).get("name") == path.stem]
    if len(found) != 1 or found[0] is None:
        raise ArtefactError(
            f"{path} does not say of which one study it is; give the page itself, NAME.md, or the "
            f"study's file and --out {folder}"
        )
    return load_study(found[0])


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
    known, remarks = known_problem(env, json.dumps(dict(env_kwargs))), ""
    if known is not None:
        n_states = known[0].dynamics.n_states
        remarks = (
            f"The environment has {n_states:,} states, so the most entropy is "
            f"{math.log(n_states):.3f} nats."
        )
    words = ", ".join(f"{key}={value}" for key, value in sorted(env_kwargs.items()))
    check_number(n_seeds * len(options))
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


def _read(source: str | Path | Mapping[str, Any], above: Sequence[Path] = ()) -> dict[str, Any]:
    """The content of a study, on top of that of the file that it extends; `above` extend it."""
    if isinstance(source, Mapping):
        content, folder = dict(source), Path()
    else:
        path = Path(source)
        folder, above = path.parent, [*above, path.resolve()]
        data = read_file(path)
        try:
            content = tomllib.loads(data.decode())
        except RecursionError:
            raise ConfigurationError("arrays or tables are nested too deep") from None
        except ValueError as error:  # not TOML, not UTF-8, or an integer of thousands of digits
            raise ConfigurationError(f"not a TOML file: {error}") from None
    check_values(content)
    bases = content.pop("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not (isinstance(bases, Sequence) and all(isinstance(base, str) for base in bases)):
        raise ConfigurationError("extends: a name or an array of names")
    for base in reversed(bases):
        if not base.isprintable():
            raise ConfigurationError(f"extends: {base!r} is not the name of a file")
        under = folder / base if base.endswith(".toml") else _PACKAGED / f"{base}.toml"
        if under.resolve() in above:
            raise ConfigurationError(f"extends: {base} extends itself")
        content = merged(_read(under, above), content)
    return content
