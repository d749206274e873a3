"""Runs that are killed, again and again, end in the bits of a run that never was.

A process gets its signal before, after or in the middle of a system call that writes, on a step of
the environment, on an optimizer's step, or at any time at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium.envs.classic_control import MountainCarEnv
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rover.cli import main
from rover.envs import GridWorld
from rover.storage import is_complete, read_run_config, read_tensors
from rover.training.run_folder import CHECKPOINT_FILE

from .processes import ON_LINUX, Ended, changes, check, fork, lines_of, rover
from .runs import RUNS, STEPS, Run

pytestmark = [pytest.mark.slow, ON_LINUX]

_CALLS = ("open", "write", "fsync", "replace", "unlink", "mkdir", "rmdir", "ftruncate")
_CODES = {signal.SIGKILL: -9, signal.SIGTERM: 130, signal.SIGINT: 130}
_CLOCKS = "wall_time", "metrics_bytes"
"""Keys of times, and of the length of a file that holds times."""
_MIN_KILLS, _MAX_KILLS = 2, 6


class Moment(NamedTuple):
    """When a process gets a signal: before, in or after the event of this number, or at a time."""

    event: str | float
    number: int
    place: str
    signal: signal.Signals


def run_until(words: Sequence[str], moment: Moment | None, counted: Path | None = None) -> int:
    """Run a command in this process, which has been forked for it; count its events."""
    counts: Counter[str] = Counter()

    def watched(event: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            counts[event] += 1
            now = moment is not None and (event, counts[event]) == moment[:2]
            place = moment.place if now and moment is not None else ""
            if place == "in":
                real(args[0], memoryview(args[1])[: len(args[1]) // 2])
            if moment is not None and place in ("before", "in"):
                os.kill(os.getpid(), moment.signal)
            result = real(*args, **kwargs)
            if moment is not None and place == "after":
                os.kill(os.getpid(), moment.signal)
            return result

        return call

    steps = [(kind, "step") for kind in (GridWorld, MountainCarEnv)]
    for owner, name in [*((os, name) for name in _CALLS), *steps]:
        setattr(owner, name, watched(name, getattr(owner, name)))
    register_optimizer_step_pre_hook(watched("update", lambda *_: None))
    code = main(words)
    if counted is not None and code == 0:
        counted.write_text(json.dumps(counts))
    return code


def _canonical(value: Any) -> Any:
    """`value` without clocks, with arrays as their bytes."""
    if isinstance(value, Mapping):
        kept = (k for k in value if "second" not in k and k not in _CLOCKS)
        return {k: _canonical(value[k]) for k in kept}
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    array = value.numpy() if isinstance(value, Tensor) else value
    if isinstance(array, np.ndarray):
        return array.shape, str(array.dtype), array.tobytes()
    return value


def contents(folder: Path) -> dict[str, Any]:
    """What the files of a run say, by their paths, without clocks."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith("pictures"):  # drawn by commands on a finished run, and no part of it
            continue
        if path.is_dir():
            found[name] = "a folder"
            continue
        found[name] = data = path.read_bytes()
        with contextlib.suppress(ValueError):  # what is not of its kind is compared as it is
            if path.suffix in (".json", ".jsonl"):
                lines = data.splitlines() if path.suffix == ".jsonl" else [data]
                found[name] = [_canonical(json.loads(line)) for line in lines]
            else:
                found[name] = _canonical(read_tensors(path, kind="checkpoint"))
    found.pop(".lock", None)
    if read_run_config(folder).kind != "pretrain":  # a kill right after its end may leave it
        found.pop(CHECKPOINT_FILE, None)
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
    way = rng.random()
    if way < 0.12:
        return Moment(rng.uniform(0.0, 1.5), 0, "at", signal.SIGKILL)
    names = sorted(events)
    event = rng.choices(names, [min(events[name], 20) for name in names])[0]
    chosen = rng.choice((*[signal.SIGKILL] * 4, signal.SIGTERM, signal.SIGINT))
    is_halved = event == "write" and chosen == signal.SIGKILL
    place = rng.choice(("before", "after", *["in"] * is_halved))
    most = int(rng.random() ** 3 * events[event])  # fewer happen after resuming
    number = rng.randint(1, 1 + most)
    return Moment(event, number, place, chosen)


def _kill(folder: Path, words: Sequence[str], moment: Moment) -> Ended:
    """Run a command until its moment."""
    if isinstance(moment.event, str):
        return fork(lambda: run_until(words, moment), folder)
    return fork(lambda: main(words), folder, kill_after=moment.event)


def _latest(folder: Path) -> int:
    """Steps of the checkpoint that a run goes on from."""
    file = folder / CHECKPOINT_FILE
    return int(read_tensors(file, kind="checkpoint")["state"]["step"]) if file.exists() else 0


def _check_killed(did: str, ended: Ended, moment: Moment, *, is_over: bool) -> None:
    """A signal that can be answered is answered in one line."""
    if is_over or moment.signal == signal.SIGKILL:
        return  # a process whose run is complete no longer answers while Python shuts down
    assert ended.code == _CODES[moment.signal], f"{did} exit code {ended.code}: {ended.err}"
    assert len(lines_of(ended)) == 1, f"{did} {ended.err}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attempt" in metafunc.fixturenames:
        asked: int = metafunc.config.getoption("attempts")
        metafunc.parametrize("attempt", range(asked or len(RUNS)))


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for whole runs, which are made once and not changed."""
    return tmp_path_factory.mktemp("campaign")


def test_a_run_that_is_killed_ends_in_the_same_bits(
    attempt: int, tmp_path: Path, shared: Path, request: pytest.FixtureRequest
) -> None:
    # An attempt follows from the seed and its number alone.
    rng = random.Random(f"{request.config.getoption('seed')} {attempt}")
    run, folder = RUNS[attempt % len(RUNS)], tmp_path / "run"
    expected, events = _reference(run, shared)
    is_extended = run.words[0] == "pretrain" and rng.random() < 0.2
    # A run that ends at step 80 measures once more there, which its checkpoint says for ever.
    begin = run.command(folder, shared, rng.randrange(5, 80) if is_extended else STEPS)
    go_on = ["resume", str(folder), *["--steps", str(STEPS)] * is_extended]
    did = f"{run.name}:"
    for _ in range(rng.randint(_MIN_KILLS, _MAX_KILLS)):
        words = go_on if (folder / "config.json").exists() else begin
        latest, moment = _latest(folder), _draw(rng, events)
        ended = _kill(tmp_path, words, moment)
        did += f" {words[0]} got {moment.signal.name} {moment.place} {moment.event};"
        is_over = is_complete(folder)
        if ended.code in (-moment.signal, _CODES[moment.signal]):
            _check_killed(did, ended, moment, is_over=is_over)
        else:
            check(did, ended, codes=(0,))
        if rng.random() < 0.1 and folder.exists():
            for command in ("evaluate", "plot"):
                check(f"{did} {command}", rover([command, str(folder)], tmp_path))
            shutil.rmtree(folder / "pictures", ignore_errors=True)
        if is_over:
            break
        assert _latest(folder) >= latest, f"{did} the checkpoint of step {latest} is lost"
    for words in (go_on,) if (folder / "config.json").exists() else (begin, go_on):
        check(f"{did} {words[0]}", rover(words, tmp_path), codes=(0,))
    assert not changes(expected, contents(folder)), f"{did} not like a run that was never killed"
