"""From diagnostics to docs/results/sink_diagnostic.md and .csv, and the arrays of the picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rover.experiments.provenance import Session, describe_sessions
from rover.experiments.sink_diagnostic.rounds import DiagnosticSettings, IntArray, Rounds
from rover.storage import check_writable, write_arrays
from rover.storage.storage import replace_file

ARRAYS_KIND = "sink-diagnostic"

VISIBLE = 0.05
"""Difference in the share of states seen again below which the report says that there is none."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Diagnostics of equal settings, at one sink norm, for several seeds.

    Attributes:
        label: what distinguishes the settings, in words.
        settings: the settings.
        sink_norm: ε; 0 is "without the sink".
        seeds: the seeds.
        rounds: the diagnostic of each seed.
    """

    label: str
    settings: DiagnosticSettings
    sink_norm: float
    seeds: tuple[int, ...]
    rounds: tuple[Rounds, ...]

    @property
    def visits(self) -> IntArray:
        """(seeds, R, S) visits."""
        return np.stack([run.visits for run in self.rounds])

    @property
    def mean_states_seen(self) -> float:
        """States seen per round, mean over seeds and the rounds after the uniform first."""
        return float(np.mean([run.states_seen[1:] for run in self.rounds]))

    @property
    def fewest_states_seen(self) -> float:
        """States seen in the worst round after the first, mean over seeds."""
        return float(np.mean([run.states_seen[1:].min() for run in self.rounds]))

    @property
    def mean_retained(self) -> float:
        """Share of a round's states that the next visits again, mean over seeds and rounds."""
        return float(np.mean([run.retained for run in self.rounds]))

    @property
    def mean_kept(self) -> float:
        """Share of all states ever seen that the last round visits, mean over seeds."""
        return float(np.mean([run.kept[-1] for run in self.rounds]))


@dataclass(frozen=True)
class DiagnosticReport:
    """All that the files say.

    Attributes:
        with_sink: the diagnostic shown, with the sink.
        without_sink: the same at ε = 0.
        comparisons: those two, other norms, and other settings.
        session: where and when it was made.
        command: the command line that made it.
    """

    with_sink: Comparison
    without_sink: Comparison
    comparisons: tuple[Comparison, ...]
    session: Session
    command: str


def write_picture_arrays(
    report: DiagnosticReport, path: Path, *, cells: IntArray, free: NDArray[np.bool_]
) -> None:
    """Write the arrays that ``rover.plots.draw_sink_diagnostic`` draws.

    ``visits_with`` and ``visits_without`` (R, S) are those of the first seed; ``all_with`` and
    ``all_without`` (seeds, R, S) those of every seed; ``cells`` (S, 2) and ``free`` (height, width)
    say where the states lie.
    """
    check_writable(path.parent)
    shown, bare = report.with_sink, report.without_sink
    write_arrays(
        path,
        {
            "visits_with": shown.visits[0],
            "visits_without": bare.visits[0],
            "all_with": shown.visits,
            "all_without": bare.visits,
            "cells": cells,
            "free": free,
        },
        kind=ARRAYS_KIND,
        metadata={"sink_norm": shown.sink_norm, "seeds": list(shown.seeds)},
    )


def write_diagnostic_report(report: DiagnosticReport, folder: Path) -> tuple[Path, Path]:
    """Write sink_diagnostic.md and .csv to `folder`, which is made if need be; their paths."""
    check_writable(folder)
    paths = folder / "sink_diagnostic.md", folder / "sink_diagnostic.csv"
    for path, text in zip(paths, (markdown(report), csv_text(report)), strict=True):
        replace_file(path, [text.encode()])
    return paths


def csv_text(report: DiagnosticReport) -> str:
    """One line per setting, norm, seed and round."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["settings", "sink_norm", "seed", "round", "states_seen", "retained", "kept", "sink_mass"]
    )
    for comparison in report.comparisons:
        for seed, run in zip(comparison.seeds, comparison.rounds, strict=True):
            retained = ["", *(f"{share:.6f}" for share in run.retained)]
            for index, seen in enumerate(run.states_seen):
                writer.writerow(
                    [
                        comparison.label,
                        f"{comparison.sink_norm:g}",
                        seed,
                        index + 1,
                        seen,
                        retained[index],
                        f"{run.kept[index]:.6f}",
                        f"{run.sink_mass[index]:.6f}",
                    ]
                )
    return text.getvalue()


def markdown(report: DiagnosticReport) -> str:
    """The two rows of the picture in numbers, the sweep, and how both were made."""
    shown, bare = report.with_sink, report.without_sink
    settings, n_states = shown.settings, shown.visits.shape[2]
    parts = [
        "# The sink, and what happens without it",
        "A zero-memory buffer: each round collects a batch with the current policy, fits the "
        "transition operator on that batch alone, and plans the next policy from the start. "
        "Without the sink, mass that the batch does not support vanishes at no cost "
        "(J = ‖μ‖², which is ε = 0), so a plan leaves the batch as fast as it can, for places "
        "that an earlier batch knew. With the sink that mass costs ε² m².",
        f"{settings.env_id}, {n_states} states; {_features(settings)}; {settings.n_episodes} "
        f"episodes per round; γ = {settings.discount:g}, λ = {settings.ridge:g}; "
        f"{settings.mirror_steps} mirror-descent steps of η = {settings.step_size:g}, best kept; "
        f"{settings.exploration_epsilon:.0%} uniform actions while collecting; seeds "
        f"{', '.join(map(str, shown.seeds))}. The first round is the uniform policy's in both.",
        "## Round by round",
        "Mean over seeds. *Again*: share of the states of the round before "
        "that were visited again. *Kept*: share of all states seen so far that the round visited. "
        "*Sink*: discounted occupancy that the plan made after the round sends out of the data.",
        _round_table(bare, shown),
        "## Which norm, and which settings",
        "Means over the same seeds and all rounds after the first. *Worst*: states seen in the "
        "worst round of a seed. ε = 0 is without the sink.",
        _sweep_table(report.comparisons),
        _where_it_does_not_show(report),
        "## How it was made",
        f"    {report.command}",
        "\n".join(f"- {line}" for line in describe_sessions([report.session])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _features(settings: DiagnosticSettings) -> str:
    if settings.features == "exact":
        return "exact states"
    return (
        "linear kernel on L1-normalised learned features, "
        f"{settings.encoder_updates} encoder updates per round"
    )


def _round_table(bare: Comparison, shown: Comparison) -> str:
    names = ("without", f"ε = {shown.sink_norm:g}")
    heads = [f"{what}, {name}" for what in ("seen", "again", "kept", "sink") for name in names]
    lines = [_line(["round", *heads]), _line(["---:"] * (len(heads) + 1))]
    means = [
        [
            np.mean([run.states_seen for run in comparison.rounds], axis=0),
            np.mean([[np.nan, *run.retained] for run in comparison.rounds], axis=0),
            np.mean([run.kept for run in comparison.rounds], axis=0),
            np.mean([run.sink_mass for run in comparison.rounds], axis=0),
        ]
        for comparison in (bare, shown)
    ]
    for index in range(shown.settings.n_rounds):
        cells = [f"{means[side][0][index]:.1f}" for side in (0, 1)]
        for measure in (1, 2):
            cells += [_share(means[side][measure][index]) for side in (0, 1)]
        cells += [f"{means[side][3][index]:.2f}" for side in (0, 1)]
        lines.append(_line([str(index + 1), *cells]))
    return "\n".join(lines)


def _sweep_table(comparisons: Sequence[Comparison]) -> str:
    heads = ["settings", "ε", "states seen", "worst", "again", "kept in the last round"]
    lines = [_line(heads), _line(["---", *(["---:"] * (len(heads) - 1))])]
    lines += [
        _line(
            [
                comparison.label,
                f"{comparison.sink_norm:g}",
                f"{comparison.mean_states_seen:.1f}",
                f"{comparison.fewest_states_seen:.1f}",
                _share(comparison.mean_retained),
                _share(comparison.mean_kept),
            ]
        )
        for comparison in comparisons
    ]
    return "\n".join(lines)


def _where_it_does_not_show(report: DiagnosticReport) -> str:
    """The settings at which the sink retains hardly more than nothing does; empty for none."""
    norm = report.with_sink.sink_norm
    by_norm = {
        wanted: {c.label: c.mean_retained for c in report.comparisons if c.sink_norm == wanted}
        for wanted in (0.0, norm)
    }
    alike = [
        f"{label} ({_share(without)} without, {_share(by_norm[norm][label])} with)"
        for label, without in by_norm[0.0].items()
        if by_norm[norm][label] - without < VISIBLE
    ]
    if not alike:
        return ""
    return (
        f"Where the effect does not show, or hardly (less than {VISIBLE:.0%} more seen again at "
        f"ε = {norm:g} than without the sink): {'; '.join(alike)}."
    )


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.0%}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
