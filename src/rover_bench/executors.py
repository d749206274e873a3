"""Executors of runs: processes of this machine, tasks of Ray, or job arrays of Slurm."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

from rover.errors import ConfigurationError

# "local" in tests, where submitit's jobs are processes of this machine.
_CLUSTER: Final = "slurm"

# Of a run whose machine or process Ray has lost.
_RETRIES: Final = 3

# The arguments of a function, which a pool makes many calls of.
_Call = tuple[Any, ...]


class _Processes:
    """A process for each call, forked from one that only imported packages.

    None finds what another left, each begins within milliseconds, and one that is killed takes no
    other with it, as it would from a :class:`~concurrent.futures.ProcessPoolExecutor`.
    """

    def __init__(self, _: LocalConfig, jobs: int) -> None:
        self._threads = ThreadPoolExecutor(jobs)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["rover_bench.execute"])
        self._running: set[BaseProcess] = set()
        self._is_stopped = False

    def start(self, function: Callable[..., Any], calls: Sequence[_Call]) -> Sequence[Any]:
        return [self._threads.submit(self._in_process, function, call) for call in calls]

    def _in_process(self, *called: Any) -> Any:
        receiver, sender = self._context.Pipe(duplex=False)
        with receiver:
            with sender:  # closed here, so that the end of the process is the end of the pipe
                arguments = sender, dict(os.environ), *called
                process = self._context.Process(target=_answer, args=arguments)
                process.start()
            self._running.add(process)
            if self._is_stopped:
                process.terminate()
            try:
                return receiver.recv()
            except EOFError:
                text = "its process ended without a word (killed for lack of memory?)"
                raise BrokenExecutor(text) from None
            finally:
                process.join()
                self._running.discard(process)

    def stop(self) -> None:
        self._is_stopped = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in list(self._running):
            process.terminate()
        self._threads.shutdown()


def _answer(
    sender: Any, environment: dict[str, str], function: Callable[..., Any], call: _Call
) -> None:
    """Make a call in a process that ends with its parent, with the parent's present environment."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal; the parent ends its processes
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    sender.send(function(*call))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # at once: there is nothing to tidy up that resuming does not


class _RayTasks:
    """Calls as tasks of Ray, each on one core and in a process of its own."""

    def __init__(self, config: _RayConfig, jobs: int) -> None:
        self._ray = _imported("ray", "ray")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # which otherwise sends some home
        options = {} if config.address else {"num_cpus": jobs, "include_dashboard": False}
        self._ray.init(config.address or "local", logging_level="ERROR", **options)

    def start(self, function: Callable[..., Any], calls: Sequence[_Call]) -> Sequence[Any]:
        task = self._ray.remote(num_cpus=1, max_calls=1, max_retries=_RETRIES)(function)
        return [task.remote(*call).future() for call in calls]

    def stop(self) -> None:
        self._ray.shutdown()


class _SlurmArrays:
    """Calls in arrays of Slurm jobs, sent by submitit.

    submitit hands calls and results over as pickles. They lie in a folder of the user's home that
    nobody else can write to, and never beside runs, which may come from others.
    """

    def __init__(self, config: _SlurmConfig, jobs: int) -> None:
        submitit = _imported("submitit", "slurm")
        if _CLUSTER == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
            raise ConfigurationError("Slurm is not on this machine: there is no sbatch and srun")
        # A job that is out of time is queued again, as often as its run takes.
        options = {"cluster": _CLUSTER, "slurm_max_num_timeout": 100}
        self._array = submitit.AutoExecutor(_private_folder(), **options)
        self._array.update_parameters(
            name="rover",
            timeout_min=config.minutes,
            mem_gb=config.gigabytes,
            slurm_partition=config.partition,
            slurm_account=config.account,
            slurm_array_parallelism=jobs,
        )
        self._sent: list[Any] = []

    def start(self, function: Callable[..., Any], calls: Sequence[_Call]) -> Sequence[Any]:
        columns = zip(*calls, strict=True)
        try:
            jobs = self._array.map_array(_Repeatable(function), *columns) if calls else []
        except Exception as error:  # whatever sbatch may say of partitions, accounts and limits
            reason = " ".join(str(error).split())
            raise ConfigurationError(f"Slurm does not take it: {reason}") from error
        self._sent += jobs
        return list(jobs)

    def stop(self) -> None:
        for job in self._sent:
            if not job.done():
                job.cancel()


@dataclass
class _Repeatable:
    """A call that submitit queues again after a time-out, since a run goes on where it stopped."""

    function: Callable[..., Any]

    def __call__(self, *call: Any) -> Any:
        return self.function(*call)

    def checkpoint(self, *call: Any) -> Any:
        return _imported("submitit", "slurm").helpers.DelayedSubmission(self, *call)


def _imported(name: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        text = f"the executor {extra} needs {name}: pip install '.[{extra}]'"
        raise ConfigurationError(text) from None


def _private_folder() -> Path:
    """The folder of jobs, whose files are run: nobody else can read or write it."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(state, "rover", "slurm")
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


Pool = _Processes | _RayTasks | _SlurmArrays
"""``start(function, calls)`` returns jobs, ``done()`` or not, and ``stop()`` ends them."""


class LocalConfig(BaseModel):
    """Runs in processes of this machine."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    usual_jobs: ClassVar[int] = 2
    pool: ClassVar[type[Any]] = _Processes

    def open(self, jobs: int) -> Pool:
        """The pool of `jobs` ≥ 1 runs side by side. ConfigurationError: its package is not
        installed, or its cluster does not answer.
        """
        opened: Pool = self.pool(self, jobs)
        return opened


class _RayConfig(LocalConfig):
    """Runs as tasks of Ray, one core each; runs of a lost machine are repeated elsewhere."""

    pool = _RayTasks
    address: str | None = Field(default=None, description="of a cluster; none: start Ray here")


class _SlurmConfig(LocalConfig):
    """Runs as jobs of Slurm, one core each."""

    usual_jobs = 1000
    pool = _SlurmArrays
    partition: str | None = Field(default=None, description="of the jobs; none: the default one")
    account: str | None = Field(default=None, description="that is charged; none: the default one")
    minutes: int = Field(default=60, ge=1, description="of a job, which is then queued again")
    gigabytes: float | None = Field(default=None, gt=0.0, description="memory of a job")


EXECUTORS = {"local": LocalConfig(), "ray": _RayConfig(), "slurm": _SlurmConfig()}
"""The settings of each executor, by its name."""
