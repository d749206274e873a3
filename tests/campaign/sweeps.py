"""Sweeps that are killed leave no process, and go on to the bits of one that never was killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rover.cli import main

from .kills import contents
from .runner import Attempt, changes, fork

_SECONDS = 10.0
"""Of a sweep in which it is killed: it imports, starts its processes, and they make runs."""

_PATIENCE = 30.0
"""Seconds in which processes notice that theirs is gone; a busy machine imports for that long."""

_STUDY = """\
title = "Killed"
run = { env = "rover/Corridor-v0", steps = 6000, seeds = [0, 1, 2, 3], env_kwargs.length = 9, \
settings.policy_every = 20, settings.checkpoint_every = 40, settings.mirror_steps = 10 }
axes.agent.rover = {}
tables.Runs = { rows = ["agent"], figures = ["states_seen"] }
"""
_WORDS = ["sweep", "killed.toml", "--jobs", "2", "--runs-dir", "runs", "--out", "pages"]
_PROGRAM = "import sys; from rover.cli import main; sys.exit(main())"


def _processes(session: int) -> list[str]:
    """The command lines of the processes of a session that have not ended."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, of = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):  # it ended in between
            continue
        if int(of) == session and state != "Z":
            lines.append(f"{folder.name}: {words[:120]}")
    return lines


def _left(session: int) -> list[str]:
    """The processes of a session that do not end by themselves; they are killed then."""
    until = time.monotonic() + _PATIENCE
    while (left := _processes(session)) and time.monotonic() < until:
        time.sleep(0.1)
    for line in left:
        subprocess.run(["kill", "-KILL", line.partition(":")[0]], check=False)
    return left


def _runs(folder: Path) -> dict[str, dict[str, Any]]:
    """The contents of all runs, but for the times and machines of their sittings."""
    runs = {}
    for path in sorted((folder / "runs").glob("*/*/seed-*")):
        runs[path.name] = contents(path)
        runs[path.name].pop("provenance.jsonl", None)
    return runs


def _whole(shared: Path) -> dict[str, dict[str, Any]]:
    """The runs of a sweep that is not killed."""
    folder = shared / "whole-sweep"
    if not folder.exists():
        folder.mkdir()
        (folder / "killed.toml").write_text(_STUDY)
        ended = fork(lambda: main(_WORDS), folder)
        if ended.code != 0:
            raise RuntimeError(f"the sweep cannot be made: {ended.err[-800:]}")
    return _runs(folder)


def attack(attempt: Attempt) -> None:
    """Kill a sweep at a moment of its first seconds; sometimes let it end, and compare its runs."""
    work = attempt.folder
    (work / "killed.toml").write_text(_STUDY)
    moment = attempt.rng.uniform(0.0, _SECONDS)
    did = f"SIGKILL of a sweep after {moment:.2f} s"
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, *_WORDS],
        cwd=work,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(moment)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    is_killed = process.wait() == -signal.SIGKILL
    left = _left(process.pid)  # before the runs are read: until then workers write
    attempt.count(f"killed with {len(_runs(work))} runs begun" if is_killed else "ended before")
    if left:
        attempt.find(did, f"{len(left)} processes are left: {'; '.join(left)}")
    if attempt.number % 5:
        return
    expected = _whole(attempt.shared)
    if not attempt.check(f"{did}, the same again", fork(lambda: main(_WORDS), work), codes=(0,)):
        return
    for name, files in _runs(work).items():
        if changed := changes(expected[name], files):
            attempt.find(did, f"{name} is not like a run of a whole sweep: {changed}")
    shutil.rmtree(work / "runs")
