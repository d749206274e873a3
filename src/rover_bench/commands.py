"""``rover compare``, ``sweep``, ``reproduce``: many runs, their tables and pictures."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rover.baselines import agent_names, preset_of
from rover.cli.tables import figures_table, say
from rover.cli.words import Count, Env, EnvId, Flag, Folder, Formats, Logs, Settings
from rover.errors import ConfigurationError, RoverError

if TYPE_CHECKING:
    from rich.table import Table

    from rover_bench import Report, Study

_FAILED = 1
"""Exit code: some runs failed; the others are there."""

# Columns of the table on the screen; the page has all of them, with intervals, and explains them.
_SHOWN = (
    *("states_seen", "observations", "data_cells", "first_arrival", "steps_to_full_coverage"),
    *("resampling_steps", "mean_coverage", "p_coverage_95", "cells"),
    *("optimality_ratio", "drop_optimality_ratio"),
)

_Seeds = Annotated[
    tuple[int, ...],
    Parameter(
        consume_multiple=True,
        show_default=False,
        validator=Number(gte=0),
        help="of every run, in the place of the study's own",
    ),
]
_RunsDir = Annotated[Folder, Parameter(help="folder of the run folders, which studies share")]


@Parameter(name="*")
@dataclass(frozen=True)
class _Making:
    """Flags of every command that makes many runs."""

    settings: Settings = ()
    jobs: Annotated[
        int | None,
        Parameter(
            validator=Number(gte=1, lte=1024),
            help="runs side by side, each in a process and thread of its own [default: 2; Slurm: "
            "1000]",
        ),
    ] = None
    executor: Annotated[
        Literal["local", "ray", "slurm"],
        Parameter(
            help="where runs are made: here, on a Ray cluster or by Slurm; --set gives its settings"
        ),
    ] = "local"
    log: Logs = ()
    formats: Formats = ("png",)


_HERE = _Making()


def compare(
    env_id: EnvId,
    /,
    *,
    env: Env = (),
    agents: Annotated[
        str, Parameter(alias="--methods", metavar="NAME[:PRESET],...", show_default=False)
    ] = ",".join(agent_names()),
    presets: Annotated[str, Parameter(metavar="PRESET,...")] = "default",
    n_seeds: Annotated[Count, Parameter(name="--seeds")] = 5,
    steps: Count = 10_000,
    making: _Making = _HERE,
    out: Folder | None = None,
) -> int:
    """Run several agents on an environment.

    Each agent runs with several seeds. Tables are Markdown and CSV: mean,
    interquartile mean, 95% bootstrap intervals; figures are made too.

    Every run is a run folder, OUT/AGENT-PRESET/seed-N, that `rover evaluate` and
    `rover plot` read. Finished runs are not repeated, and stopped runs are
    resumed: to continue after an interruption, or to add agents or seeds, give
    the same OUT. All agents make the same number of environment steps.

    `rover settings` lists the agents.

    examples:

        rover compare rover/MultiRooms-v0 --env observation=onehot --steps 20000
        rover compare rover/MiddleRoom-v0 --agents rover,rnd,mepol --seeds 3
        rover compare rover/TwoRooms-v0 --agents rover,rover:paper,apt:published
        rover compare rover/Maze-v0 --agents rnd,smm --presets default,paper

    Args:
        env_id: Gymnasium id, such as rover/Maze-v0
        agents: agents, with their presets where they differ from --presets [default: all]
        presets: presets of each agent that names none: default (ROVER's default, fast of the
            others), paper (ROVER's paper, published of the others), or both as default,paper
        n_seeds: runs of each agent, with the seeds 0, 1, ...
        steps: environment steps of each run
        out: folder of runs, tables and figures [default: runs/compare/ENV and its keywords]
    """
    env_kwargs = dict(env)
    chosen = _read_agents(agents, presets)
    from rover_bench import comparison, run_study

    study = comparison(env_id, env_kwargs, chosen, steps=steps, n_seeds=n_seeds)
    # Runs and page of a comparison share a folder, as the same OUT is to go on with both.
    folder = out or Path("runs") / "compare" / study.cases()[0].env_name
    words = ["compare", env_id]
    for key, value in env_kwargs.items():
        words += ["--env", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    words += ["--agents", agents, "--presets", presets]
    words += ["--seeds", str(n_seeds), "--steps", str(steps)]
    report = _run(partial(run_study, study), words, making, runs_dir=folder, out=folder)
    say(_table(report), "Interquartile means over runs; > marks a lower bound.\n")
    return _finish(report)


def sweep(
    study: Annotated[Path, Parameter(name="STUDY.toml")],
    /,
    *,
    seeds: _Seeds = (),
    making: _Making = _HERE,
    runs_dir: _RunsDir = Path("runs"),
    out: Folder | None = None,
    report_only: Flag = False,
) -> int:
    """Run a study, and write its page, tables and figures.

    Finished runs are not repeated, unfinished ones are resumed, and missing
    pretrained runs are made first. Studies share their runs.

    examples:

        rover sweep experiments/results.toml --jobs 4
        rover sweep experiments/results.toml --seeds 0 1 --out pages
        rover sweep experiments/results.toml --report-only
        rover sweep experiments/results.toml --executor slurm --set minutes=120

    Args:
        study: what is run and shown
        out: folder of the page [default: STUDY.toml's]
        report_only: run nothing
    """
    from rover_bench import load_study, run_study

    loaded = load_study(study)
    _refuse_modules(loaded, study)
    # the page names the command, without folders that only this machine has
    words = ["sweep", study.name if study.is_absolute() else str(study)]
    words += ["--seeds", *map(str, seeds)] if seeds else []
    words += [] if out is None or out.is_absolute() else ["--out", str(out)]
    make = partial(run_study, loaded, seeds=seeds or None, report_only=report_only)
    return _finish(_run(make, words, making, runs_dir=runs_dir, out=out or study.parent))


def _refuse_modules(study: Study, path: Path) -> None:
    """Refuse a study from a file that would have a module imported."""
    for env_id in {case.env for case in study.cases() if ":" in case.env}:
        raise ConfigurationError(
            f"{path} names the environment {env_id!r}, but no file can have a module imported: "
            "name the environment alone there, and give --import "
            f"{env_id.partition(':')[0]} if you trust that module"
        )


def reproduce(
    name: Annotated[str, Parameter(name="NAME")],
    /,
    *,
    scale: Literal["smoke", "laptop", "paper"] = "laptop",
    seeds: _Seeds = (),
    making: _Making = _HERE,
    runs_dir: _RunsDir = Path("runs"),
    out: Folder = Path("results"),
    report_only: Flag = False,
) -> int:
    """Reproduce a figure or table of the ROVER paper.

    NAME is one of sink, behaviour, coverage, snapshots, tabular-transfer,
    model-free, goal-distance, scaling, offline, heatmaps, sensitivity, dense,
    pixel-sink; or all. Each writes its page OUT/NAME.md, CSV files and figures.
    They share their runs; finished runs are not repeated, and stopped ones are
    resumed.

    examples:

        rover reproduce sink
        rover reproduce scaling --seeds 100 101
        rover reproduce all --scale smoke --out smoke --runs-dir smoke/runs

    Args:
        name: of the figure or table
        scale: smoke: minutes for all of them, shows that they work; laptop: a day on two cores;
            paper: the paper's seeds and budgets, for a cluster
        out: folder of the pages
        report_only: run nothing
    """
    from rover.errors import choose
    from rover_bench import paper_study, run_study
    from rover_bench.load import REPRODUCTIONS

    every = choose("figure or table", name, (*REPRODUCTIONS, "all")) == "all"
    # Of all figures one that cannot be made does not keep the others from being made.
    failed: dict[str, str] = {}
    for one in REPRODUCTIONS if every else (name,):
        words = ["reproduce", one, "--scale", scale]
        words += ["--seeds", *map(str, seeds)] if seeds else []
        try:
            study = paper_study(one, scale)
            make = partial(run_study, study, seeds=seeds or None, report_only=report_only)
            report = _run(make, words, making, runs_dir=runs_dir, out=out)
            if _finish(report):
                failed[one] = f"{len(report.failures)} runs failed"
        except RoverError as error:
            if not every:
                raise
            failed[one] = " ".join(str(error).split())
    if every:
        for one, reason in failed.items():
            sys.stderr.write(f"rover: failed: {one}: {reason}\n")
    return _FAILED if failed else 0


def _run(
    make: Callable[..., Report], words: Sequence[str], making: _Making, **places: Path
) -> Report:
    """Report of `make`, with a line for every run; `words` are the command that pages name."""
    from rover.training.config import validate_settings
    from rover_bench import EXECUTORS

    place = validate_settings(type(EXECUTORS[making.executor]), dict(making.settings))
    words = words if making.jobs is None else [*words, "--jobs", str(making.jobs)]
    try:
        return make(
            jobs=making.jobs or place.usual_jobs,
            executor=place,
            log=making.log,
            formats=making.formats,
            command=shlex.join(["rover", *words]),
            say=say,
            **places,
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("; the same command goes on where it stopped") from None


def _read_agents(agents: str, presets: str) -> list[tuple[str, str]]:
    """Agents with their presets from the words of the command line, each pair once."""
    chosen: list[tuple[str, str]] = []
    for word in agents.split(","):
        name, colon, preset = word.strip().partition(":")
        for one in [preset] if colon else presets.split(","):
            both = {"default": None, "paper": "paper" if name == "rover" else "published"}
            chosen.append((name, preset_of(name, both.get(one.strip(), one.strip()))))
    return list(dict.fromkeys(chosen))


def _table(report: Report) -> Table:
    """Interquartile means of the agents, as far as they have them."""
    from rover_bench import METRICS

    shown, case = report.measured(_SHOWN), report.cases[0]
    title = f"{report.study.title}, {case.steps:,} steps, {len(case.seeds)} seeds"
    columns: dict[str, dict[str, str]] = {}
    for name in shown:
        cells = columns.setdefault(METRICS[name].short or METRICS[name].heading, {})
        for number, case in enumerate(report.cases):
            if (aggregate := report.summarise([case], name)) is not None:
                value = aggregate.estimate("iqm").value
                text = METRICS[name].format(value, aggregate.limit)
                cells[f"case{number}"] = f"{aggregate.bound}{text}"
    rows = [(case.name, f"{{case{number}}}") for number, case in enumerate(report.cases)]
    return figures_table(title, columns, rows)


def _finish(report: Report) -> int:
    """Print what was written and what failed; the exit code."""
    for path in report.files:
        kind = "pictures:" if path.parent.name == "pictures" else "tables:"
        say(f"{kind:10}{path}")
    for failure in report.failures:
        sys.stderr.write(f"rover: failed: {' '.join(failure.split())}\n")
    return _FAILED if report.failures else 0
