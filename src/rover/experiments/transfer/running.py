"""Runs of the transfer experiments: pretrain what is missing, then learn every task from it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rover.experiments.comparison.rows import slug_of
from rover.experiments.driver import RunTask, make_tasks
from rover.experiments.processes import Failure, Reporter, Status, run_tasks
from rover.experiments.provenance import Session, append_session
from rover.experiments.transfer.finished import is_finished, run_folder
from rover.experiments.transfer.rows import TransferRow
from rover.finetuning import finetune, make_task, resume_finetune, train_offline
from rover.finetuning.run_folder import read_transfer_config
from rover.policies.loading import load_policy
from rover.storage import RunLock, read_json
from rover.training.run_folder import load_run_buffer


@dataclass(frozen=True)
class TransferRun:
    """One run of one row.

    Attributes:
        row: its line in the table.
        seed: its seed, and that of the pretrained run that it starts from.
        folder: its folder.
        source: the pretrained run; None from scratch.
    """

    row: TransferRow
    seed: int
    folder: Path
    source: Path | None

    @property
    def is_finished(self) -> bool:
        """Whether its summary, which is written last, is there."""
        return is_finished(self.folder)

    def execute(self) -> None:
        """Learn the task.

        Raises:
            ArtefactError: the folder holds something else.
        """
        row = self.row
        if self.folder.exists():
            # Interrupted half-way; another process that is at it has the lock.
            if row.study != "offline" and read_transfer_config(self.folder).task is not None:
                resume_finetune(self.folder)
                return
            with RunLock(self.folder):
                read_transfer_config(self.folder)
                shutil.rmtree(self.folder)
        task = make_task(
            row.env_id, {"observation": row.observation}, goal=row.goal, reward=row.reward
        )
        settings: dict[str, Any] = dict(row.overrides)
        name = None if self.source is None else "/".join(self.source.parts[-3:])
        if row.study == "offline":
            assert self.source is not None
            train_offline(
                load_run_buffer(self.source),
                task.make_env(),
                updates=row.amount,
                algorithm=row.algorithm,
                seed=self.seed,
                run_dir=self.folder,
                source=name,
                **settings,
            )
            return
        finetune(
            None if self.source is None else load_policy(self.source / "policy.safetensors"),
            task.make_env(),
            total_timesteps=row.amount,
            algorithm=row.algorithm,
            transfer=row.transfer,
            seed=self.seed,
            run_dir=self.folder,
            source=name,
            **settings,
        )


@dataclass(frozen=True)
class TransferJob:
    """Runs that one process makes one after the other: all tasks from one pretrained run.

    Attributes:
        name: how progress lines call it.
        runs: the runs, at least one.
        folder: that of its record of machines and versions.
    """

    name: str
    runs: tuple[TransferRun, ...]
    folder: Path

    @property
    def size(self) -> str:
        """How much work it is, in words."""
        return f"{sum(not run.is_finished for run in self.runs)} of {len(self.runs)} runs"

    def status(self) -> Status:
        """How far it has come."""
        finished = sum(run.is_finished for run in self.runs)
        if finished == len(self.runs):
            return "finished"
        return "unfinished" if finished else "new"

    def run(self, session: Session) -> None:
        """Make the runs that are missing."""
        for run in self.runs:
            if not run.is_finished:
                run.execute()
                append_session(run.folder, session)

    def outcome(self) -> str:
        """The final greedy returns."""
        returns = [read_json(run.folder / "summary.json")["greedy_return"] for run in self.runs]
        return "returns " + ", ".join(f"{value:g}" for value in returns)


def make_runs(
    rows: Sequence[TransferRow], folder: Path, pretrained: Path, seeds: Sequence[int] | None = None
) -> tuple[TransferRun, ...]:
    """All runs of `rows`.

    Args:
        rows: the lines of the tables.
        folder: of the runs.
        pretrained: folder of the pretrained runs, by environment, as `rover compare` leaves them.
        seeds: only these, of those that the rows have.
    """
    runs = []
    for row in rows:
        pretraining = row.pretraining
        for seed in row.seeds:
            if seeds is not None and seed not in seeds:
                continue
            source = None
            if pretraining is not None:
                place = pretrained / slug_of(pretraining.env_id, pretraining.env_kwargs)
                source = place / pretraining.name / f"seed-{seed}"
            runs.append(TransferRun(row, seed, run_folder(folder, row, seed), source))
    return tuple(runs)


def make_jobs(runs: Sequence[TransferRun], folder: Path) -> tuple[TransferJob, ...]:
    """Group runs by what they start from, so that a process is started once for all of them."""
    groups: dict[str, list[TransferRun]] = {}
    for run in runs:
        row = run.row
        environment = slug_of(row.env_id, {"observation": row.observation})
        name = f"{row.study}, {environment}, {row.method}, seed {run.seed}"
        groups.setdefault(name, []).append(run)
    return tuple(TransferJob(name, tuple(group), folder) for name, group in groups.items())


def pretraining_tasks(runs: Sequence[TransferRun], pretrained: Path) -> tuple[RunTask, ...]:
    """The pretrained runs that `runs` start from, each once."""
    tasks: dict[Path, RunTask] = {}
    for run in runs:
        pretraining = run.row.pretraining
        if pretraining is None:
            continue
        place = pretrained / slug_of(pretraining.env_id, pretraining.env_kwargs)
        for task in make_tasks([pretraining], [run.seed], place):
            tasks[task.folder] = task
    return tuple(tasks.values())


def run_all(
    runs: Sequence[TransferRun], folder: Path, pretrained: Path, *, jobs: int, say: Reporter
) -> tuple[Failure, ...]:
    """Bring every run to its end, and before them the pretrained runs that they start from.

    Studies that ask for the same run share it; it is made once.
    """
    by_folder: dict[Path, TransferRun] = {}
    for run in runs:
        if not run.is_finished:
            by_folder.setdefault(run.folder, run)
    missing = list(by_folder.values())
    tasks = [task for task in pretraining_tasks(missing, pretrained) if task.status() != "finished"]
    failures = run_tasks(tasks, jobs=jobs, report=say)
    failed = {failure.task.folder for failure in failures}
    possible = [run for run in missing if run.source not in failed]
    return (*failures, *run_tasks(make_jobs(possible, folder), jobs=jobs, report=say))
