"""Runs rows × seeds as run folders, each run in a process of its own.

A finished run is never repeated, an unfinished one is resumed from its latest checkpoint, and one
that fails is reported while the others go on. A run folder that holds a run with other settings
than the row now asks for is refused, so that a table never mixes configurations.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, Protocol

from rover.agents import Peer, Rover, make_agent, resume_agent
from rover.agents.run_folder import RunConfig, read_run_config
from rover.artefacts import read_json
from rover.errors import ConfigurationError, RoverError
from rover.experiments.provenance import Session, append_session, begin_session

Reporter = Callable[[str], None]

# One thread each: more would change the bits, and two runs would fight over the cores.
_ONE_THREAD: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


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


@dataclass(frozen=True)
class Failure:
    """A run that did not end well.

    Attributes:
        task: the run.
        message: what went wrong.
    """

    task: RunTask
    message: str


def make_tasks(
    rows: Sequence[RunRow], seeds: Sequence[int] | None, runs_dir: Path
) -> tuple[RunTask, ...]:
    """All runs of `rows`, with their own seeds or with `seeds`, in `runs_dir`/ROW/seed-SEED."""
    return tuple(
        RunTask(row, seed, runs_dir / row.name / f"seed-{seed}")
        for row in rows
        for seed in (row.seeds if seeds is None else seeds)
    )


def status_of(task: RunTask) -> Literal["new", "unfinished", "finished"]:
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


def run_tasks(tasks: Sequence[RunTask], *, jobs: int, report: Reporter) -> tuple[Failure, ...]:
    """Bring every task to its end, `jobs` at a time.

    Args:
        tasks: the runs.
        jobs: processes side by side, ≥ 1.
        report: receives one line when a run begins and one when it ends.

    Returns:
        The runs that failed, in the order of `tasks`.

    Raises:
        ConfigurationError: `jobs` is not positive.
    """
    if jobs < 1:
        raise ConfigurationError(f"jobs must be at least 1, not {jobs}")
    session = begin_session(jobs=jobs)
    lines = _Lines(report, len(tasks))
    workers = _Workers()
    with _environment(_ONE_THREAD), ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_bring_to_end, task, session, lines, workers) for task in tasks]
        try:
            outcomes = [future.result() for future in futures]
        except BaseException:  # above all KeyboardInterrupt: every run can be resumed
            pool.shutdown(wait=False, cancel_futures=True)
            workers.stop()
            raise
    return tuple(outcome for outcome in outcomes if outcome is not None)


class _Workers:
    """The processes that are running, so that they can be stopped.

    Attributes:
        are_stopped: whether all were told to end; then none begins any more.
    """

    def __init__(self) -> None:
        self._running: set[BaseProcess] = set()
        self.are_stopped = False
        self._lock = threading.Lock()

    def start(self, process: BaseProcess) -> None:
        """Start `process`, unless all are to stop."""
        with self._lock:
            if self.are_stopped:
                raise KeyboardInterrupt
            process.start()
            self._running.add(process)

    def forget(self, process: BaseProcess) -> None:
        """`process` has ended."""
        with self._lock:
            self._running.discard(process)

    def stop(self) -> None:
        """End every process, and let none begin."""
        with self._lock:
            self.are_stopped = True
            for process in self._running:
                process.terminate()


class _Lines:
    """Numbered progress lines."""

    def __init__(self, report: Reporter, total: int) -> None:
        self._report = report
        self._total = total
        self._ended = 0
        self._lock = threading.Lock()

    def say(self, task: RunTask, what: str) -> None:
        with self._lock:
            self._report(f"{task.name}: {what}")

    def end(self, task: RunTask, what: str) -> None:
        with self._lock:
            self._ended += 1
            self._report(f"[{self._ended}/{self._total}] {task.name}: {what}")


def _bring_to_end(
    task: RunTask, session: Session, lines: _Lines, workers: _Workers
) -> Failure | None:
    began = time.perf_counter()
    try:
        status = status_of(task)
        if status == "finished":
            lines.end(task, "finished already")
            return None
        verb = "starts" if status == "new" else "is resumed"
        lines.say(task, f"{verb}, {task.row.steps:,} steps")
        message = _run_in_process(task, session, workers)
    except RoverError as error:
        message = f"{type(error).__name__}: {error}"
    if workers.are_stopped:
        lines.say(task, "stopped")
        return Failure(task, "stopped")
    if message is not None:
        lines.end(task, f"FAILED: {message}")
        return Failure(task, message)
    lines.end(task, f"done in {time.perf_counter() - began:.0f} s; {_outcome(task)}")
    return None


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


def _run_in_process(task: RunTask, session: Session, workers: _Workers) -> str | None:
    """Run `task` in a process of its own; what went wrong, or None."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(task, session, sender), daemon=True)
    workers.start(process)
    sender.close()  # so that a process that is killed leaves an end of file, not silence
    try:
        message: str | None = receiver.recv()
    except EOFError:
        process.join()
        return (
            f"its process ended with exit code {process.exitcode} without a word (killed for lack "
            "of memory?); run the command again to resume it"
        )
    finally:
        receiver.close()
        workers.forget(process)
    process.join()
    return message


def _run(task: RunTask, session: Session, outcome: Connection) -> None:
    """What a worker process does."""
    # An interrupt from the keyboard reaches all processes; it is the parent that ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        task.folder.mkdir(parents=True, exist_ok=True)
        if (task.folder / "config.json").exists():
            agent = resume_agent(task.folder)
        else:
            agent = _make_agent(task, run_dir=task.folder)
        append_session(task.folder, session)
        _learn(agent, task)
        outcome.send(None)
    except RoverError as error:
        outcome.send(f"{type(error).__name__}: {error}")
    except Exception as error:
        # Not one of ours, so where it happened matters.
        traceback.print_exc()
        outcome.send(f"{type(error).__name__}: {error}")


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


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which processes started inside the `with` block inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
