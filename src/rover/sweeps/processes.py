"""Calls in processes of their own: one that is killed takes no other with it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import suppress
from typing import Any

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""

_PRELOADED = ["rover.sweeps", "rover.coverage.agent", "torch._dynamo"]
"""What every run imports, the last with its first optimiser: seconds, spent once."""


_SERVER_SECONDS = 1.0
"""How long whoever ends everything waits for the server, which may still import packages."""


class Processes(ThreadPoolExecutor):
    """An executor whose calls each have a process, forked from one that only imported packages.

    So none finds what another left, and each begins within milliseconds.

    Args:
        jobs: calls side by side.
    """

    def __init__(self, jobs: int) -> None:
        super().__init__(jobs, initializer=_block_interrupts)
        has_fork = "forkserver" in multiprocessing.get_all_start_methods()  # Windows has not
        self._context = multiprocessing.get_context("forkserver" if has_fork else "spawn")
        if has_fork:
            self._context.set_forkserver_preload(_PRELOADED)
        self._others = set(multiprocessing.active_children())
        self._futures: list[Future[Any]] = []
        self._is_stopped = threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Make a call as soon as a place is free."""
        self._futures.append(super().submit(self._in_process, fn, *args, **kwargs))
        return self._futures[-1]

    def _in_process(self, *call: Any, **kwargs: Any) -> Any:
        try:
            with ProcessPoolExecutor(1, self._context) as process:
                environment = dict(os.environ)  # that of now, not of when the server began
                return process.submit(_beside_parent, environment, *call, **kwargs).result()
        except BrokenProcessPool:
            self._is_stopped.wait(1.0)  # a signal reaches parent and processes in any order
            text = "its process ended without a word (killed for lack of memory?)"
            raise BrokenExecutor(text) from None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Wait for the calls, or end them."""
        if cancel_futures:
            self._is_stopped.set()
            super().shutdown(wait=False, cancel_futures=True)
            began = time.monotonic()
            while not all(future.done() for future in self._futures):  # one may just be starting
                for process in set(multiprocessing.active_children()) - self._others:
                    process.terminate()
                time.sleep(0.05)
                if time.monotonic() - began > _SERVER_SECONDS:
                    _end_server()
        super().shutdown(wait)


def _end_server() -> None:
    """End the process that others are forked from; the next one starts another."""
    with suppress(ImportError, AttributeError, ProcessLookupError):
        from multiprocessing.forkserver import _forkserver  # it has no public way

        if pid := vars(_forkserver).get("_forkserver_pid"):
            os.kill(pid, signal.SIGKILL)


def _block_interrupts() -> None:
    """Keep Ctrl-C, which reaches all processes of a terminal, from those that a thread starts.

    It is the parent that ends them. They inherit the block, and have it from their first moment.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()  # which starts with the first process, and lifts a block
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _beside_parent(
    environment: dict[str, str], fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """Make a call in a process that ends when its parent does, so that its run can be resumed."""

    def follow() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    return fn(*args, **kwargs)


class Part:
    """What a job of Slurm does: calls, `cores` of them side by side."""

    def __init__(self, cores: int) -> None:
        self._cores = cores

    def __call__(self, calls: Sequence[Call]) -> list[Any]:
        """What each call returns or raises."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # cancelled, or queued again
        processes = Processes(self._cores)
        try:
            futures = [processes.submit(fn, *args) for fn, args in calls]
            return [future.exception() or future.result() for future in futures]
        finally:
            processes.shutdown(cancel_futures=True)

    def checkpoint(self, calls: Sequence[Call]) -> Any:
        """What is queued again after a time-out: the same, as runs go on where they stopped."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, calls)
