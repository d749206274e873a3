"""Jobs side by side, each in a process and thread of its own.

A finished job is never repeated, and one that fails is reported while the others go on.
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
from typing import Literal, Protocol

from rover.errors import ConfigurationError, RoverError
from rover.experiments.provenance import Session, begin_session

Reporter = Callable[[str], None]
Status = Literal["new", "unfinished", "finished"]

# One thread each: more would change the bits, and two runs would fight over the cores.
_ONE_THREAD: Mapping[str, str] = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Job(Protocol):
    """One piece of work that leaves its result in files; it must survive pickling."""

    @property
    def name(self) -> str:
        """How progress lines and failures call it."""
        ...

    @property
    def folder(self) -> Path:
        """Where its files are."""
        ...

    @property
    def size(self) -> str:
        """How much work it is, in words."""
        ...

    def status(self) -> Status:
        """How far it has come."""
        ...

    def run(self, session: Session) -> None:
        """Bring it to its end, in a process of its own."""
        ...

    def outcome(self) -> str:
        """Its result in a few words, once it is finished."""
        ...


@dataclass(frozen=True)
class Failure:
    """A job that did not end well.

    Attributes:
        task: the job.
        message: what went wrong.
    """

    task: Job
    message: str


def run_tasks(tasks: Sequence[Job], *, jobs: int, report: Reporter) -> tuple[Failure, ...]:
    """Bring every task to its end, `jobs` at a time.

    Args:
        tasks: the jobs.
        jobs: processes side by side, ≥ 1.
        report: receives one line when a run begins and one when it ends.

    Returns:
        The jobs that failed, in the order of `tasks`.

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

    def say(self, task: Job, what: str) -> None:
        with self._lock:
            self._report(f"{task.name}: {what}")

    def end(self, task: Job, what: str) -> None:
        with self._lock:
            self._ended += 1
            self._report(f"[{self._ended}/{self._total}] {task.name}: {what}")


def _bring_to_end(task: Job, session: Session, lines: _Lines, workers: _Workers) -> Failure | None:
    began = time.perf_counter()
    try:
        status = task.status()
        if status == "finished":
            lines.end(task, "finished already")
            return None
        verb = "starts" if status == "new" else "is resumed"
        lines.say(task, f"{verb}, {task.size}")
        message = _run_in_process(task, session, workers)
    except RoverError as error:
        message = f"{type(error).__name__}: {error}"
    if workers.are_stopped:
        lines.say(task, "stopped")
        return Failure(task, "stopped")
    if message is not None:
        lines.end(task, f"FAILED: {message}")
        return Failure(task, message)
    lines.end(task, f"done in {time.perf_counter() - began:.0f} s; {task.outcome()}")
    return None


def _run_in_process(task: Job, session: Session, workers: _Workers) -> str | None:
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


def _run(task: Job, session: Session, outcome: Connection) -> None:
    """What a worker process does."""
    # An interrupt from the keyboard reaches all processes; it is the parent that ends them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        task.run(session)
        outcome.send(None)
    except RoverError as error:
        outcome.send(f"{type(error).__name__}: {error}")
    except Exception as error:
        # Not one of ours, so where it happened matters.
        traceback.print_exc()
        outcome.send(f"{type(error).__name__}: {error}")


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
