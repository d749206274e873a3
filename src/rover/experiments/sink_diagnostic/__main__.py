"""``python -m rover.experiments.sink_diagnostic``: repeat the diagnostic and write what it saw."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

from rover.errors import ConfigurationError, RoverError
from rover.experiments.results.provenance import begin_session
from rover.experiments.sink_diagnostic.report import (
    Comparison,
    DiagnosticReport,
    write_diagnostic_report,
    write_picture_arrays,
)
from rover.experiments.sink_diagnostic.rounds import (
    DiagnosticSettings,
    Rounds,
    make_world,
    run_rounds,
)

SWEEP_NORMS = (0.0, 0.01, 0.05, 0.1, 0.2, 1.0, 10.0)

Setting = tuple[str, DiagnosticSettings, float]
"""A label, settings and a sink norm."""


@dataclass(frozen=True)
class Arguments:
    """Repeat the paper's sink diagnostic; write docs/results/sink_diagnostic.md and .csv."""

    sink_norm: float = 0.1
    """ε of the diagnostic with the sink"""
    rounds: int = 10
    """rounds of each diagnostic"""
    episodes: int = 27
    """episodes of a round's batch"""
    features: Literal["exact", "learned"] = "exact"
    """exact states, or the paper's linear kernel on learned features (slower)"""
    seeds: int = 5
    """seeds, from 0"""
    sweep: bool = True
    """also try other norms and settings"""
    jobs: int = 2
    """processes side by side"""
    arrays: Path = Path("runs/results/sink_diagnostic.h5")
    """file of the picture's arrays"""
    out: Path = Path("docs/results")
    """folder of the report"""


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m rover.experiments.sink_diagnostic")
    try:
        paths = _run(arguments, argv if argv is not None else sys.argv[1:])
    except RoverError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"written: {', '.join(map(str, paths))}\n")
    return 0


def _run(arguments: Arguments, argv: Sequence[str]) -> tuple[Path, ...]:
    if arguments.sink_norm <= 0.0:
        raise ConfigurationError(
            f"sink_norm must be positive, not {arguments.sink_norm:g}: 0 is the diagnostic without "
            "the sink, which is made in any case"
        )
    for name in ("seeds", "jobs"):
        if getattr(arguments, name) < 1:
            raise ConfigurationError(f"{name} must be at least 1, not {getattr(arguments, name)}")
    settings = DiagnosticSettings(
        n_rounds=arguments.rounds, n_episodes=arguments.episodes, features=arguments.features
    )
    session = begin_session(jobs=arguments.jobs)
    wanted = settings_to_compare(settings, arguments.sink_norm, sweep=arguments.sweep)
    comparisons = compare(wanted, seeds=range(arguments.seeds), jobs=arguments.jobs)
    report = DiagnosticReport(
        with_sink=_first(comparisons, arguments.sink_norm),
        without_sink=_first(comparisons, 0.0),
        comparisons=tuple(comparisons),
        session=session,
        command=" ".join(["python -m rover.experiments.sink_diagnostic", *argv]),
    )
    layout = make_world(settings).layout
    write_picture_arrays(report, arguments.arrays, cells=layout.cells, free=layout.free)
    return (*write_diagnostic_report(report, arguments.out), arguments.arrays)


def settings_to_compare(
    settings: DiagnosticSettings, sink_norm: float, *, sweep: bool
) -> list[Setting]:
    """Without and with the sink; with `sweep` also other norms, and the same at other settings."""
    if not sweep:
        return [("as above", settings, 0.0), ("as above", settings, sink_norm)]
    half = max(1, settings.n_episodes // 2)
    others = [
        (f"{half} episodes per round", replace(settings, n_episodes=half)),
        ("no uniform actions", replace(settings, exploration_epsilon=0.0)),
        ("50 mirror-descent steps", replace(settings, mirror_steps=50)),
    ]
    return [
        *(("as above", settings, norm) for norm in sorted({*SWEEP_NORMS, sink_norm})),
        *((label, other, norm) for label, other in others for norm in (0.0, sink_norm, 1.0)),
    ]


def _first(comparisons: Sequence[Comparison], sink_norm: float) -> Comparison:
    return next(c for c in comparisons if c.sink_norm == sink_norm)


def compare(wanted: Sequence[Setting], *, seeds: Sequence[int], jobs: int) -> list[Comparison]:
    """Run every setting for every seed, `jobs` processes side by side."""
    every = list(itertools.product(wanted, seeds))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        rounds: list[Rounds] = list(pool.map(_rounds_of, every))
    return [
        Comparison(
            label,
            settings,
            norm,
            tuple(seeds),
            tuple(rounds[index * len(seeds) : (index + 1) * len(seeds)]),
        )
        for index, (label, settings, norm) in enumerate(wanted)
    ]


def _rounds_of(task: tuple[Setting, int]) -> Rounds:
    (_, settings, norm), seed = task
    return run_rounds(settings, sink_norm=norm, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
