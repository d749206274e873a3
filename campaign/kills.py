"""Runs that are killed, again and again, end in the bits of a run that never was.

A process gets its signal before, after or in the middle of a system call that writes, on a step of
the environment, on an optimizer's step, while it imports, or at any time at all.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.wrappers import OrderEnforcing
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from campaign.runner import Attempt, Ended, fork, rover
from campaign.runs import RUNS, STEPS, Run, made
from rover.cli import main
from rover.storage import read_sealed

_CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "ftruncate")
_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}
_MAX_KILLS = 6
_START = "import os, sys; os.write(1, b'>'); from rover.cli import main; sys.exit(main())"
"""What the program ``rover`` does, with a sign that Python itself has started."""


class Moment(NamedTuple):
    """A process gets a signal before, in or after the event of this number."""

    event: str
    number: int
    place: str
    signal: signal.Signals


def run_until(words: Sequence[str], moment: Moment | None, counted: Path | None = None) -> int:
    """Run a command in this process, which has been forked for it; count its events."""
    counts: Counter[str] = Counter()

    def happens(event: str, place: str) -> None:
        if moment is not None and (event, counts[event], place) == moment[:3]:
            os.kill(os.getpid(), moment.signal)

    def watched(event: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[event] += 1
            happens(event, "before")
            if event == "write" and (event, counts[event], "in") == (moment or ())[:3]:
                real(args[0], memoryview(args[1])[: len(args[1]) // 2])
                happens(event, "in")
            result = real(*args, **kwargs)
            happens(event, "after")
            return result

        return call

    for name in _CALLS:
        setattr(os, name, watched(name, getattr(os, name)))
    OrderEnforcing.step = watched("step", OrderEnforcing.step)  # type: ignore[method-assign]
    register_optimizer_step_pre_hook(watched("update", lambda *_: None))
    code = main(words)
    if counted is not None:
        counted.write_text(json.dumps(counts))
    return code


def _canonical(value: Any) -> Any:
    """`value` without clocks, with arrays as their bytes."""
    if isinstance(value, Mapping):
        shown = {k: _canonical(v) for k, v in value.items() if "second" not in k and k != "time"}
        return {k: v for k, v in shown.items() if k not in ("metrics.jsonl", "summary.json")}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, Tensor):
        value = value.numpy()
    return (
        (value.shape, str(value.dtype), value.tobytes()) if isinstance(value, np.ndarray) else value
    )


def contents(folder: Path) -> dict[str, Any]:
    """What the files of a run say, by their paths, without clocks."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir():
            found[name] = "a folder"
        elif path.suffix == ".json":
            found[name] = _canonical(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            found[name] = [_canonical(json.loads(line)) for line in path.read_text().splitlines()]
        elif path.parent.name == "checkpoints":
            found[name] = _canonical(read_sealed(path, kind="checkpoint"))
        elif path.name != ".lock":
            found[name] = path.read_bytes()
    return found


def _reference(run: Run, shared: Path) -> tuple[dict[str, Any], Counter[str]]:
    """The contents of a whole run, and how often each event happens in it."""
    folder = shared / f"whole-{RUNS.index(run)}"
    counted = folder.with_suffix(".events")
    if not counted.exists():
        words = run.command(folder, shared)
        ended = fork(lambda: run_until(words, None, counted), shared)
        if ended.code != 0:
            raise RuntimeError(f"{run.name} cannot be made: {ended.err[-800:]}")
    return contents(folder), Counter(json.loads(counted.read_text()))


def _draw(rng: random.Random, events: Counter[str]) -> Moment:
    chosen = rng.choice((signal.SIGKILL,) * 4 + (signal.SIGTERM, signal.SIGINT))
    event = rng.choice([name for name, count in sorted(events.items()) if count])
    places = ["before", "after"] + ["in"] * (event == "write" and chosen == signal.SIGKILL)
    place = "before" if event == "update" else rng.choice(places)
    number = rng.randint(1, 1 + int(rng.random() * events[event]))  # fewer happen after resuming
    return Moment(event, number, place, chosen)


def _latest(folder: Path) -> str:
    return max((path.name for path in folder.glob("checkpoints/step-*")), default="")


def attack(attempt: Attempt) -> None:
    """Kill a run several times, let it end, and compare it with one that was never killed."""
    run, rng = RUNS[attempt.number % len(RUNS)], attempt.rng
    if run.source is not None:
        made(run.source, attempt.shared)
    expected, events = _reference(run, attempt.shared)
    folder = attempt.folder / "run"
    shorter = run.words[0] == "pretrain" and rng.random() < 0.2
    begin = run.command(folder, attempt.shared, rng.randrange(5, STEPS) if shorter else None)
    go_on = ["resume", str(folder)] + ["--steps", str(STEPS)] * shorter
    history: list[str] = []
    for _ in range(rng.randint(2, _MAX_KILLS)):
        words = go_on if (folder / "config.json").exists() else begin
        latest = _latest(folder)
        ended, moment = _kill_once(attempt, words, events)
        when = f"{moment.place} {moment.event} {moment.number or ''}".strip()
        history.append(f"{words[0]} got {moment.signal.name} {when}")
        what = f"{run.name}: {'; '.join(history)}"
        if ended.code in (-moment.signal, _CODES[moment.signal]):
            attempt.count(run.name)
            lines = [x for x in ended.err.splitlines() if not x.startswith("rover: warning: ")]
            if ended.code != _CODES[moment.signal]:
                attempt.find(what, f"exit code {ended.code}, not {_CODES[moment.signal]}")
            elif moment.signal != signal.SIGKILL and len(lines) != 1:
                attempt.find(what, f"interrupted, and not one line but {' | '.join(lines[-3:])!r}")
        elif not attempt.check(what, ended, codes=(0,)):
            return
        if rng.random() < 0.1 and folder.exists():
            for command in ("evaluate", "plot"):
                attempt.check(f"{what}; {command}", rover([command, str(folder)], attempt.folder))
            shutil.rmtree(folder / "pictures", ignore_errors=True)
        if _latest(folder) < latest:
            attempt.find(what, f"the checkpoint {latest} is lost")
    words = go_on if (folder / "config.json").exists() else begin
    if not attempt.check(f"{what}; {words[0]}", rover(words, attempt.folder), codes=(0,)):
        return
    if words is begin and shorter:
        rover(go_on, attempt.folder)
    found = contents(folder)
    missing, extra = sorted(expected.keys() - found), sorted(found.keys() - expected)
    differing = [name for name in expected if name in found and found[name] != expected[name]]
    if missing or extra or differing:
        how = f"missing {missing}, differing {differing}, left over {extra}"
        attempt.find(what, f"not like a run that was never killed: {how}")


def _kill_once(
    attempt: Attempt, words: Sequence[str], events: Counter[str]
) -> tuple[Ended, Moment]:
    """Run a command and send it a signal; how it ended, and when it got the signal."""
    rng, way = attempt.rng, attempt.rng.random()
    if way < 0.03:
        chosen = rng.choice((signal.SIGTERM, signal.SIGINT))
        return _kill_start(attempt, words, chosen, seconds := rng.uniform(0.0, 4.0)), Moment(
            f"{seconds:.3f} s after its start", 0, "at", chosen
        )
    if way < 0.2:
        seconds = rng.uniform(0.0, 1.5)
        moment = Moment(f"{seconds:.3f} s", 0, "at", signal.SIGKILL)
        return fork(lambda: main(words), attempt.folder, kill_after=seconds), moment
    moment = _draw(rng, events)
    return fork(lambda: run_until(words, moment), attempt.folder), moment


def _kill_start(
    attempt: Attempt, words: Sequence[str], chosen: signal.Signals, seconds: float
) -> Ended:
    """Send a signal to a process that imports everything by itself."""
    process = subprocess.Popen(
        [sys.executable, "-c", _START, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=attempt.folder,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.read(1)
    time.sleep(seconds)
    process.send_signal(chosen)
    try:
        out, err = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return Ended(None, out, err)
    return Ended(process.returncode, out, err)
