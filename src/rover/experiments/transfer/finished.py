"""Finished runs of the transfer experiments, read back from their folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rover.errors import ArtefactError, RoverError
from rover.experiments.provenance import Session, read_provenance
from rover.experiments.transfer.rows import TransferRow
from rover.plots.run_files import read_stored_series
from rover.plots.task_pictures import flatten_settings
from rover.storage import read_json

SUMMARY_KEYS: Final = (
    "steps",
    "best_possible_return",
    "greedy_return",
    "best_greedy_return",
    "steps_to_first_success",
    "steps_to_best_return",
    "steps_to_stay_at_best",
    "area_under_curve",
    "wall_seconds",
)
"""What tables need of summary.json."""


@dataclass(frozen=True)
class FinishedRun:
    """The figures of a run.

    Attributes:
        seed: its seed.
        summary: the contents of summary.json.
        steps: (n,) where the policy was evaluated; increasing, n ≥ 1.
        returns: (n,) greedy returns.
        sessions: where and when it was made.
        goal: the goal's cell (x, y); None for a task without one.
    """

    seed: int
    summary: dict[str, Any]
    steps: tuple[int, ...]
    returns: tuple[float, ...]
    sessions: tuple[Session, ...]
    goal: tuple[int, int] | None = None


def run_folder(folder: Path, row: TransferRow, seed: int) -> Path:
    """Where a run of `row` is, in the folder of all runs."""
    return folder / row.name / f"seed-{seed}"


def is_finished(folder: Path) -> bool:
    """Whether the run in `folder` has its summary, which is written last."""
    return (folder / "summary.json").exists()


def read_run(folder: Path, row: TransferRow, seed: int) -> FinishedRun:
    """What a finished run left.

    Args:
        folder: of the run.
        row: what it should be a run of.
        seed: its seed.

    Raises:
        ArtefactError: it is not finished, damaged, or was made with other settings than the row
            asks for; the message names them.
    """
    if not is_finished(folder):
        raise ArtefactError(f"{folder} is not finished; run its study again")
    described = read_json(folder / "transfer.json")
    _check_settings(folder, described, row, seed)
    summary = read_json(folder / "summary.json")
    missing = [key for key in SUMMARY_KEYS if key not in summary]
    if missing:
        raise ArtefactError(
            f"{folder / 'summary.json'} lacks {', '.join(missing)}: another version wrote it; "
            "delete that folder and run its study again"
        )
    steps, returns = read_stored_series(folder / "metrics.jsonl", "greedy_return")
    if len(steps) == 0:
        raise ArtefactError(
            f"{folder / 'metrics.jsonl'} holds no greedy return; delete that folder and run its "
            "study again"
        )
    goal = (described.get("task") or {}).get("goal")
    return FinishedRun(
        seed,
        summary,
        tuple(map(int, steps)),
        tuple(map(float, returns)),
        read_provenance(folder).sessions,
        None if goal is None else (int(goal[0]), int(goal[1])),
    )


def _check_settings(folder: Path, described: Any, row: TransferRow, seed: int) -> None:
    is_offline = row.study == "offline"
    expected = {
        "kind": "offline" if is_offline else "online",
        "algorithm": row.algorithm,
        "seed": seed,
        "amount": row.amount,
        "transfer": None if is_offline or row.is_from_scratch else row.transfer,
        **dict(row.overrides),
    }
    found = described if isinstance(described, dict) else {}
    settings = found.get("settings")
    flat = flatten_settings(settings) if isinstance(settings, dict) else {}
    found |= {name: flat.get(name) for name, _ in row.overrides}
    differing = [
        f"{key} {found.get(key)!r}, not {value!r}"
        for key, value in expected.items()
        if found.get(key) != value
    ]
    if differing:
        raise ArtefactError(
            f"{folder} holds a run with other settings than the row asks for "
            f"({'; '.join(differing)}); delete that folder or choose another one for the runs"
        )


@dataclass(frozen=True)
class FoundRuns:
    """The finished runs of one row.

    Attributes:
        row: the line of the table.
        runs: its finished runs, in the order of their seeds; those that are not there are missing.
        failures: one sentence for each run that is there and cannot be read.
    """

    row: TransferRow
    runs: tuple[FinishedRun, ...]
    failures: tuple[str, ...] = ()


def find_runs(rows: Sequence[TransferRow], folder: Path) -> tuple[FoundRuns, ...]:
    """The finished runs of each row in `folder`, of all the row's own seeds."""
    found = []
    for row in rows:
        runs: list[FinishedRun] = []
        failures: list[str] = []
        for seed in row.seeds:
            place = run_folder(folder, row, seed)
            if not is_finished(place):
                continue
            try:
                runs.append(read_run(place, row, seed))
            except RoverError as error:
                failures.append(f"{row.name}, seed {seed}: {type(error).__name__}: {error}")
        found.append(FoundRuns(row, tuple(runs), tuple(failures)))
    return tuple(found)
