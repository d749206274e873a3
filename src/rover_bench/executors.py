"""Executors of runs: processes of this machine, a Ray cluster, or the jobs of Slurm.

Each place is an executor as :mod:`concurrent.futures` has them. ``shutdown(cancel_futures=True)``
also ends what is being made: every run can be resumed.
"""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
import queue
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from rover.errors import ConfigurationError, StorageError
from rover.storage import read_json, write_json

# Seconds between two readings of Slurm's queue, and how many jobs of an array Slurm takes.
_POLL_SECONDS, _ARRAY = 2.0, 1000


class LocalConfig(BaseModel):
    """Runs in processes of this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    usual_jobs: ClassVar[int] = 2

    def open(self, jobs: int) -> Executor:
        """The executor of `jobs` ≥ 1 runs side by side; a Ray cluster at an address takes what it
        has cores for. ConfigurationError: its package is not installed, or its cluster does not
        answer. StorageError: the folder for Slurm's jobs is not the user's alone.
        """
        return _Processes(jobs)


class _RayConfig(LocalConfig):
    """Runs as tasks of Ray, one core each; runs of a lost machine are repeated elsewhere."""

    address: str | None = Field(default=None, description="of a cluster; none: start Ray here")
    retries: int = Field(default=3, ge=0, description="of a run whose machine or process is lost")

    def open(self, jobs: int) -> Executor:
        """The executor; see :meth:`LocalConfig.open`."""
        return _Ray(self, jobs)


class _SlurmConfig(LocalConfig):
    """Runs in arrays of Slurm jobs, several in each where they are short."""

    usual_jobs: ClassVar[int] = 1000
    partition: str | None = Field(default=None, description="of the jobs; none: the default one")
    account: str | None = Field(default=None, description="that is charged; none: the default one")
    minutes: int = Field(default=60, ge=1, description="of a job, which is then queued again")
    cores: int = Field(default=1, ge=1, description="of a job, with a run on each")
    megabytes: int | None = Field(default=None, ge=1, description="memory of a job")
    runs_per_job: int = Field(default=1, ge=1, description="made by one job")

    def open(self, jobs: int) -> Executor:
        """The executor; see :meth:`LocalConfig.open`."""
        return _Slurm(self, jobs)


EXECUTORS = {"local": LocalConfig(), "ray": _RayConfig(), "slurm": _SlurmConfig()}
"""The settings of each executor, by its name."""


def _imported(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ConfigurationError(
            f"the executor {extra} needs {name}: pip install '.[{extra}]'"
        ) from None


class _Ray(Executor):
    """Calls as tasks of Ray, each on one core."""

    def __init__(self, config: _RayConfig, jobs: int) -> None:
        self._ray = _imported("ray", "ray")
        # A cluster that somebody joined before, as a test or a notebook, is not ours to leave.
        self._is_ours = not self._ray.is_initialized()
        options: dict[str, Any] = {"logging_level": "ERROR", "ignore_reinit_error": True}
        if config.address is None:
            options |= {"num_cpus": jobs, "include_dashboard": False}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # which otherwise sends some home
        handler = signal.getsignal(signal.SIGTERM)
        try:
            if ":" in (config.address or ""):  # Ray itself would try for minutes
                host, _, port = str(config.address).rpartition("/")[2].rpartition(":")
                socket.create_connection((host, int(port)), timeout=10.0).close()
            self._ray.init(config.address or "local", **options)
        except (OSError, RuntimeError, ValueError, OverflowError) as error:
            place, reason = config.address or "this machine", " ".join(str(error).split())
            raise ConfigurationError(f"no Ray cluster answers at {place}: {reason}") from None
        with suppress(ValueError):  # in a thread
            signal.signal(signal.SIGTERM, handler)  # which Ray puts its own in the place of
        # A run that is lost with its machine goes on elsewhere, from its last checkpoint.
        self._task = self._ray.remote(_call).options(num_cpus=1, max_retries=config.retries)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make a call as soon as the cluster has a core for it."""
        future: Future[Any] = self._task.remote(fn, *args, **kwargs).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which ends the calls that are not done."""
        if self._is_ours:
            self._ray.shutdown()


def _call(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return fn(*args, **kwargs)


class _Slurm(Executor):
    """Calls in arrays of Slurm jobs.

    Jobs outlive this process: where one of an earlier process still has a call, that is waited for.
    submitit hands calls and results over as pickles. They lie in a folder of the user's home that
    nobody else can write to, and never beside runs, which may come from others.
    """

    def __init__(self, config: _SlurmConfig, jobs: int) -> None:
        self._submitit = _imported("submitit", "slurm")
        if not (shutil.which("sbatch") and shutil.which("srun")):
            raise ConfigurationError("Slurm is not on this machine: there is no sbatch and srun")
        self._config, self._folder = config, _private_folder()
        # A job that is out of time is queued again, as often as its runs take.
        options = {"partition": config.partition, "account": config.account}
        options["mem"] = f"{config.megabytes}M" if config.megabytes else None
        self._array = self._submitit.SlurmExecutor(self._folder, max_num_timeout=100)
        self._array.update_parameters(
            job_name="rover",
            time=config.minutes,
            cpus_per_task=config.cores,
            srun_args=[f"--cpus-per-task={config.cores}"],  # srun does not inherit it
            array_parallelism=max(1, jobs // config.cores),
            **{name: value for name, value in options.items() if value is not None},
        )
        self._futures: list[Future[Any]] = []
        self._new: queue.SimpleQueue[tuple[str, Future[Any], _Call]] = queue.SimpleQueue()
        # The calls of each job, in their order.
        self._jobs: dict[str, dict[str, Future[Any]]] = {}
        # Call → the job of an earlier process that makes it, and all calls of that.
        self._earlier: dict[str, tuple[str, list[str]]] = {}
        for job, state in (self._queue() or {}).items():
            file = self._folder / f"{job}_calls.json"
            if file.exists() and state != "COMPLETING":  # as a cancelled one does
                calls = read_json(file)
                self._earlier |= dict.fromkeys(calls, (job, calls))
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make a call as soon as Slurm runs its job; its first argument says which it is."""
        # The same run from the same folder is the same call, also in the next process.
        key = hashlib.sha256(repr((os.getcwd(), args[0])).encode()).hexdigest()
        if key in self._earlier:
            job, keys = self._earlier[key]
            self._futures.append(self._jobs.setdefault(job, {k: Future() for k in keys})[key])
        else:
            self._futures.append(Future())
            self._new.put((key, self._futures[-1], (fn, args)))
        return self._futures[-1]

    def _serve(self) -> None:
        """Send what was submitted since the last reading, and take what ended jobs leave."""
        # One thread talks to Slurm: submissions come one by one, and sbatch takes a second each.
        gone: set[str] = set()
        size = _ARRAY * self._config.runs_per_job
        while not self._is_stopped.wait(_POLL_SECONDS):
            while new := [self._new.get() for _ in range(min(size, self._new.qsize()))]:
                self._send(new)
            jobs, queued = list(self._jobs), self._queue()
            for job in jobs:
                result = self._submitit.SlurmJob(self._folder, job).paths.result_pickle
                # Gone from the queue at two readings, since a file of another machine may be seen
                # late. No conclusion is drawn from a queue that does not answer.
                if result.exists() or (job in gone and queued is not None and job not in queued):
                    self._take(job)
            gone = set() if queued is None else set(jobs) - set(queued)

    def _send(self, new: Sequence[tuple[str, Future[Any], _Call]]) -> None:
        n = self._config.runs_per_job
        # Short runs share a job: queueing one costs seconds.
        parts = [new[first : first + n] for first in range(0, len(new), n)]
        try:
            calls = [[call for _, _, call in part] for part in parts]
            jobs = self._array.map_array(_Part(self._config.cores), calls)
            for part, job in zip(parts, jobs, strict=True):
                self._jobs[job.job_id] = {key: future for key, future, _ in part}
                # Says to a later process which calls this job makes.
                write_json(self._folder / f"{job.job_id}_calls.json", [key for key, _, _ in part])
        except Exception as error:  # whatever sbatch may say of partitions, accounts and limits
            reason = " ".join(str(error).split())
            for _, future, _ in new:
                future.set_exception(ConfigurationError(f"Slurm does not take it: {reason}"))

    def _queue(self) -> dict[str, str] | None:
        """The state of each job of the user's that Slurm knows; None if it does not answer."""
        words = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%i %T"]
        try:
            lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        return dict(line.split(maxsplit=1) for line in lines.splitlines())

    def _take(self, job: str) -> None:
        """Hand over what a job that has ended leaves, and remove its files."""
        futures, ended = self._jobs.pop(job), self._submitit.SlurmJob(self._folder, job)
        lost = BrokenExecutor(f"Slurm job {job} ended before it; {ended.paths.stderr} may say why")
        outcomes: list[Any] = [lost] * len(futures)
        if ended.paths.result_pickle.exists():
            with suppress(Exception):  # whatever submitit may raise of a job that failed
                outcomes = ended.result()
                for file in self._folder.glob(f"{job}_*"):
                    file.unlink(missing_ok=True)
        for future, outcome in zip(futures.values(), outcomes, strict=True):
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls, or cancel their jobs."""
        # If this process is killed instead, nobody cancels: its jobs go on, and the next one waits.
        if wait and not cancel_futures:
            wait_for(self._futures)
        self._is_stopped.set()
        self._thread.join()
        if cancel_futures and self._jobs:
            subprocess.run(["scancel", *self._jobs], check=False)


def _private_folder() -> Path:
    """The folder of jobs, whose files are run: nobody else can read or write it."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(state, "rover", "slurm")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077:
        raise StorageError(f"{folder} must be yours alone, because its files are run: chmod 700 it")
    return folder


# --- processes of this machine --------------------------------------------------------------------

# A function and its arguments.
_Call = tuple[Callable[..., Any], tuple[Any, ...]]

# Imports of every run, the last with its first optimiser: seconds, spent once.
_PRELOADED = ["rover_bench.execute", "rover.coverage.agent", "torch._dynamo"]


class _Processes(ThreadPoolExecutor):
    """An executor whose calls each have a process, forked from one that only imported packages.

    So none finds what another left, and each begins within milliseconds.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, initializer=_block_interrupts)
        has_fork = "forkserver" in multiprocessing.get_all_start_methods()  # Windows has not
        self._context = multiprocessing.get_context("forkserver" if has_fork else "spawn")
        if has_fork:
            self._context.set_forkserver_preload(_PRELOADED)
        # Processes of whoever uses this package are not ours to end.
        self._others = set(multiprocessing.active_children())
        self._futures: list[Future[Any]] = []
        self._is_stopped = threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make a call as soon as a place is free."""
        self._futures.append(super().submit(self._in_process, fn, *args, **kwargs))
        return self._futures[-1]

    def _in_process(self, *call: Any, **kwargs: Any) -> Any:
        try:
            # Not with the call: a parent that is lost before it sends one left it waiting.
            # A pool of one: a process that dies takes no other run with it.
            with ProcessPoolExecutor(1, self._context, initializer=_end_with_parent) as process:
                environment = dict(os.environ)  # the current one, not the one at the server's start
                return process.submit(_in_environment, environment, *call, **kwargs).result()
        except BrokenProcessPool:
            self._is_stopped.wait(1.0)  # a signal reaches parent and processes in any order
            text = "its process ended without a word (killed for lack of memory?)"
            raise BrokenExecutor(text) from None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls, or end them."""
        if cancel_futures:
            self._is_stopped.set()
            super().shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in self._futures):  # one may just be starting
                for process in set(multiprocessing.active_children()) - self._others:
                    process.terminate()
                time.sleep(0.05)
        super().shutdown(wait)


def _block_interrupts() -> None:
    """Keep Ctrl-C, which reaches all processes of a terminal, from those that a thread starts.

    It is the parent that ends them. They inherit the block, and have it from their first moment.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which starts with the first process, and lifts a block
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _end_with_parent() -> None:
    """End this process when its parent does, so that its run can be resumed."""

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)  # at once: there is nothing to tidy up that resuming does not

    threading.Thread(target=follow, daemon=True).start()


def _in_environment(
    environment: dict[str, str], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Make a call with these environment variables."""
    os.environ.clear()
    os.environ.update(environment)
    return fn(*args, **kwargs)


class _Part:
    """Calls of one job of Slurm, `cores` of them side by side."""

    def __init__(self, cores: int) -> None:
        self._cores = cores

    def __call__(self, calls: Sequence[_Call]) -> list[Any]:
        """Result or exception of each call."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cancelled, or queued again
        processes = _Processes(self._cores)
        try:
            futures = [processes.submit(fn, *args) for fn, args in calls]
            return [future.exception() or future.result() for future in futures]
        finally:
            processes.shutdown(cancel_futures=True)

    def checkpoint(self, calls: Sequence[_Call]) -> Any:
        """Queue the same again after a time-out, as runs go on where they stopped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, calls)
