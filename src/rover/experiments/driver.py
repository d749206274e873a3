"""Rows × seeds of pretraining as run folders.

A finished run is never repeated, and an unfinished one is resumed from its latest checkpoint. A
run folder that holds a run with other settings than the row now asks for is refused, so that a
table never mixes configurations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rover.baselines.peer import Peer, make_agent, resume_agent
from rover.coverage.agent import Rover
from rover.errors import ConfigurationError
from rover.experiments.processes import Status
from rover.experiments.provenance import Session, append_session
from rover.storage import read_json
from rover.training.run_folder import RunConfig, read_run_config


class RunRow(Protocol):
    """What a line of a table must say of its runs."""

    @property
    def name(self) -> str:
        """Short name, also that of the folder of its runs."""
        ...

    @property
    def env_id(self) -> str:
        """Id of the environment."""
        ...

    @property
    def env_kwargs(self) -> Mapping[str, Any]:
        """Its keyword arguments."""
        ...

    @property
    def method(self) -> str:
        """Name of the method."""
        ...

    @property
    def preset(self) -> str:
        """Preset of the method."""
        ...

    @property
    def overrides(self) -> Mapping[str, Any]:
        """Settings that differ from the preset."""
        ...

    @property
    def steps(self) -> int:
        """Environment steps of each run."""
        ...

    @property
    def seeds(self) -> tuple[int, ...]:
        """Seeds of the runs."""
        ...


@dataclass(frozen=True)
class RunTask:
    """One run of a table.

    Attributes:
        row: its line in the table.
        seed: its seed.
        folder: its run folder.
    """

    row: RunRow
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """How progress lines and failures call it."""
        return f"{self.row.name}, seed {self.seed}"

    @property
    def size(self) -> str:
        """How much work it is, in words."""
        return f"{self.row.steps:,} steps"

    def status(self) -> Status:
        """How far it has come: :func:`status_of`."""
        return status_of(self)

    def run(self, session: Session) -> None:
        """Begin the run, or resume it, and bring it to its end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "config.json").exists():
            agent = resume_agent(self.folder)
        else:
            agent = _make_agent(self, run_dir=self.folder)
        append_session(self.folder, session)
        _learn(agent, self)

    def outcome(self) -> str:
        """Its result in a few words."""
        return _outcome(self)


def make_tasks(
    rows: Sequence[RunRow], seeds: Sequence[int] | None, runs_dir: Path
) -> tuple[RunTask, ...]:
    """All runs of `rows`, with their own seeds or with `seeds`, in `runs_dir`/ROW/seed-SEED."""
    return tuple(
        RunTask(row, seed, runs_dir / row.name / f"seed-{seed}")
        for row in rows
        for seed in (row.seeds if seeds is None else seeds)
    )


def status_of(task: RunTask) -> Status:
    """How far the run of `task` has come.

    Raises:
        ConfigurationError: the folder holds a run with other settings; the message names them.
        ArtefactError: a damaged file.
    """
    if not (task.folder / "config.json").exists():
        return "new"
    here = _as_settings(read_run_config(task.folder))
    there = _as_settings(_make_agent(task, run_dir=None).describe(task.row.steps))
    differing = [
        f"{key} {here.get(key)!r}, not {there.get(key)!r}"
        for key in sorted({*here, *there})
        if here.get(key) != there.get(key)
    ]
    if differing:
        raise ConfigurationError(
            f"{task.folder} holds a run with other settings than the row asks for "
            f"({'; '.join(differing)}); delete that folder or choose another one for the runs"
        )
    summary = task.folder / "summary.json"
    if not summary.exists():
        return "unfinished"
    figures = read_json(summary)
    # The last thing that a run writes before its final summary, where its states are known.
    complete = figures["states_total"] is None or (task.folder / "evaluation.h5").exists()
    return "finished" if complete and figures["steps"] >= task.row.steps else "unfinished"


def _outcome(task: RunTask) -> str:
    summary = read_json(task.folder / "summary.json")
    if summary["states_total"] is None:
        return f"{summary['observations']} observations"
    if summary["optimality_ratio"] is None:
        return "the policy was never updated"
    steps = summary["steps_to_95_in_20_episodes"]
    return (
        f"95% in 20 episodes {'not reached' if steps is None else f'after {steps:,} steps'}, "
        f"J/J* {summary['optimality_ratio']:.4f}"
    )


def _learn(agent: Rover | Peer, task: RunTask) -> None:
    if agent.num_timesteps < task.row.steps:
        agent.learn(task.row.steps - agent.num_timesteps)
        return
    raise ConfigurationError(
        f"{task.folder} was stopped between its last step and its final files; delete that folder "
        "and run the row again"
    )


def _make_agent(task: RunTask, *, run_dir: Path | None) -> Rover | Peer:
    row = task.row
    return make_agent(
        row.method,
        row.env_id,
        row.preset,
        env_kwargs=row.env_kwargs,
        seed=task.seed,
        run_dir=run_dir,
        **row.overrides,
    )


def _as_settings(config: RunConfig) -> dict[str, object]:
    """What makes a run what it is, in one level."""
    return {
        **config.settings,
        **config.model_dump(mode="json", exclude={"settings", "format", "version"}),
    }
