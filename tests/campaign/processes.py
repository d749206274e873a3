"""Commands in processes of their own, whose time is bounded, and how they may end.

A process is forked, so that it costs what it does and not the imports of torch. Linux only.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch._dynamo  # noqa: F401  (so that forked processes need not import it)

from rover.baselines import agent_class, agent_names
from rover.cli import main

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as it does")

for _name in agent_names():  # so that forked processes need not import them
    agent_class(_name)
_FORK = multiprocessing.get_context("fork")
_CPU_SECONDS = 60  # after which a process hangs, however busy the machine is
WALL_SECONDS = 900.0  # after which one hangs that does not even compute
_INTERNAL = re.compile(r"Traceback|Exception ignored|pydantic")
_LONGEST_MESSAGE = 4000


class Ended(NamedTuple):
    """How a process ended; the code of one that was killed is −signal; None: it hung."""

    code: int | None
    out: str
    err: str


def _bounded(action: Callable[[], int], folder: Path, outputs: Sequence[int]) -> None:
    """Act in a process that has just been forked, whose time is bounded."""
    os.setsid()
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.chdir(folder)
    warnings.resetwarnings()  # which are errors in these tests
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 1))
    sys.exit(action())


def fork(action: Callable[[], int], folder: Path, *, kill_after: float | None = None) -> Ended:
    """Run `action` in a process of its own.

    Args:
        action: returns the exit code.
        folder: the working directory.
        kill_after: seconds after which the process is killed on purpose.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        outputs = out.fileno(), err.fileno()
        process = _FORK.Process(target=_bounded, args=(action, folder, outputs))
        process.start()
        process.join(WALL_SECONDS if kill_after is None else kill_after)
        is_late = process.is_alive()
        process.kill()
        process.join()
        with contextlib.suppress(OSError):  # what it started
            os.killpg(process.pid or 0, signal.SIGKILL)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    hangs = (is_late and kill_after is None) or process.exitcode == -signal.SIGXCPU
    return Ended(None if hangs else process.exitcode, *texts)


def rover(words: Sequence[str], folder: Path) -> Ended:
    """Run a command line of rover in a process of its own."""
    return fork(lambda: main(words), folder)


def lines_of(ended: Ended) -> list[str]:
    """The lines on standard error, but for warnings."""
    return [x for x in ended.err.splitlines() if x and not x.startswith("rover: warning: ")]


def check(did: str, ended: Ended, *, codes: Sequence[int] = (0, 2)) -> None:
    """Assert that a command ended with an allowed code, and in one line where it was refused."""
    said = f"{did}: {ended.err[-_LONGEST_MESSAGE:]}"
    assert ended.code is not None, f"hangs: {said}"
    assert ended.code in codes, f"exit code {ended.code}: {said}"
    assert not _INTERNAL.search(ended.err), f"an error of our own depth: {said}"
    assert len(ended.err) <= _LONGEST_MESSAGE, said
    if ended.code == 2:
        lines = lines_of(ended)
        assert len(lines) == 1, said
        assert lines[0].startswith("rover: error: "), said


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The keys whose values differ, or that only one of the two has."""
    return sorted(k for k in before | after if before.get(k, ...) != after.get(k, ...))
