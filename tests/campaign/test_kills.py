"""Runs that are killed, again and again, end in the bits of a run that never was.

A process gets its signal before, after or in the middle of a system call that writes, on a step of
the environment, on an optimizer's step, or at any time at all. An attempt follows from the seed and
its number alone: every finding can be repeated. A few are made in every run of the tests;
``pytest tests/campaign --attempts 500 --seed 3`` makes more. Processes are forked, so that they
cost what they do and not the imports of torch. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch._dynamo  # noqa: F401  (so that forked processes need not import it)
from gymnasium.envs.classic_control import MountainCarEnv
from same_files import content
from small_agents import SMALL
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rover.baselines import agent_class, agent_names
from rover.cli import main
from rover.envs import GridWorld
from rover.storage import is_complete, read_run_config, read_tensors
from rover.training.run_folder import CHECKPOINT_FILE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as it does"),
]

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
    """Run `action`, which returns an exit code, in a process of its own that works in `folder`.

    It is killed on purpose after so many seconds.
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


STEPS = 100
GRID = "S..\n.#.\n..G"
_GOAL = ("--task", "goal=2,2")

_QUICK = {"checkpoint_every": 20, "evaluation_episodes": 2}
_ROVER = {"policy_every": 20, "mirror_steps": 5}
_ENCODER = {"encoder_every": 15, "encoder_updates": 2, "batch_size": 16, "feature_dim": 8}
_PAPER = {"plan_transitions": 50, "seed_steps": 25, "first_policy": 5, "sink_warmup": 60}
_SETTINGS: Mapping[str, Mapping[str, object]] = {  # of agents, with a preset that is not the first
    "rover": _ROVER,
    "rover:paper": {**_ROVER, **_PAPER},
    **SMALL,
}
_LEARNER = {"learner.hidden_sizes": (16, 8), "learner.batch_size": 16}
_TASK = {"evaluate_every": 20, "checkpoint_every": 20}


class Run(NamedTuple):
    """A run as a command line.

    Attributes:
        name: for the counts.
        words: the command line, without a run folder.
        source: the run that it begins with, whose folder follows the first word.
    """

    name: str
    words: Sequence[str]
    source: Run | None = None

    def command(self, folder: Path, shared: Path, steps: int | None = None) -> list[str]:
        """The command line that makes this run in `folder`."""
        words = list(self.words)
        if self.source is not None:
            words.insert(1, str(whole(self.source, shared)))
        return [*words, "--steps", str(steps or STEPS), "--run-dir", str(folder)]


def _set(settings: Mapping[str, object]) -> list[str]:
    words = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            words += _set({f"{name}.{key}": one for key, one in value.items()})
            continue
        text = list(value) if isinstance(value, tuple) else value
        words += ["--set", f"{name}={text}"]
    return words


def _pretrain(agent: str, observation: str) -> Run:
    name, _, preset = agent.partition(":")
    settings = dict(_SETTINGS[agent])
    if observation == "vector":
        env = ["MountainCar-v0", "--env", "max_episode_steps=12"]
    else:
        env = ["rover/Grid-v0", "--env", f"layout={GRID}", "--env", "horizon=12"]
        env += ["--env", f"observation={observation}"]
    if name == "rover" and observation in ("onehot", "pixels"):
        settings |= {**_ENCODER, "representation": "info_nce"}
    words = ["pretrain", *env, "--agent", name, *_set(settings | _QUICK)]
    words += ["--preset", preset] if preset else []
    return Run(f"pretrain {agent}, {observation}", words)


_STATE, _RND = _pretrain("rover", "state"), _pretrain("rnd", "onehot")
_ONLINE = {"seed_steps": 10, "warmup_steps": 15, "learner.update_every": 5}
# Every way to observe and every way to learn, agents with networks of their own, and the paper's
# preset.
RUNS = [
    _STATE,
    _pretrain("rover:paper", "onehot"),
    _pretrain("rover", "pixels"),
    _RND,
    _pretrain("mepol", "vector"),
    Run("finetune", ["finetune", *_GOAL, *_set(_TASK | _LEARNER | _ONLINE)], _RND),
    Run("offline", ["finetune", "--offline", *_GOAL, *_set(_TASK | _LEARNER)], _STATE),
    Run("adapt", ["adapt", *_GOAL, *_set(_TASK | {"learner.plan_every": 10})], _STATE),
]


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
        found[name] = "a folder" if path.is_dir() else content(path)
    found.pop(".lock", None)
    found.pop(CHECKPOINT_FILE, None)  # a kill right after the end of a task's run may leave it
    if read_run_config(folder).kind == "pretrain":
        state = read_tensors(folder / CHECKPOINT_FILE, kind="checkpoint")
        found[CHECKPOINT_FILE] = _canonical(state)
    return found


def whole(run: Run, shared: Path) -> Path:
    """The folder of a whole run, made once; how often each event happens in it stands beside it."""
    folder = shared / f"whole-{RUNS.index(run)}"
    if not folder.exists():
        words = run.command(folder, shared)
        ended = fork(lambda: run_until(words, None, folder.with_suffix(".events")), shared)
        if ended.code != 0:
            raise RuntimeError(f"{run.name} cannot be made: {ended.err[-800:]}")
    return folder


def _draw(rng: random.Random, events: Mapping[str, int]) -> Moment:
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


def _latest(folder: Path) -> int:
    """Steps of the checkpoint that a run goes on from."""
    file = folder / CHECKPOINT_FILE
    return int(read_tensors(file, kind="checkpoint")["state"]["step"]) if file.exists() else 0


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
    reference = whole(run, shared)
    events = json.loads(reference.with_suffix(".events").read_text())
    is_extended = run.words[0] == "pretrain" and rng.random() < 0.2
    # A run that ends at step 80 measures once more there, which its checkpoint says for ever.
    begin = run.command(folder, shared, rng.randrange(5, 80) if is_extended else STEPS)
    go_on = ["resume", str(folder), *["--steps", str(STEPS)] * is_extended]
    did = f"{run.name}:"
    for _ in range(rng.randint(_MIN_KILLS, _MAX_KILLS)):
        words = go_on if (folder / "config.json").exists() else begin
        latest, moment = _latest(folder), _draw(rng, events)
        at = None if isinstance(moment.event, str) else moment.event
        ended = fork(partial(run_until, words, moment), tmp_path, kill_after=at)
        did += f" {words[0]} got {moment.signal.name} {moment.place} {moment.event};"
        is_over = is_complete(folder)
        if ended.code not in (-moment.signal, _CODES[moment.signal]):
            check(did, ended, codes=(0,))
        elif moment.signal != signal.SIGKILL and not is_over:
            # A process whose run is complete no longer answers while Python shuts down.
            assert ended.code == _CODES[moment.signal], f"{did} exit code {ended.code}: {ended.err}"
            assert len(lines_of(ended)) == 1, f"{did} {ended.err}"
        if rng.random() < 0.1 and folder.exists():
            for command in ("evaluate", "plot"):
                check(f"{did} {command}", rover([command, str(folder)], tmp_path))
            shutil.rmtree(folder / "pictures", ignore_errors=True)
        if is_over:
            break
        assert _latest(folder) >= latest, f"{did} the checkpoint of step {latest} is lost"
    for words in (go_on,) if (folder / "config.json").exists() else (begin, go_on):
        check(f"{did} {words[0]}", rover(words, tmp_path), codes=(0,))
    expected, found = contents(reference), contents(folder)
    different = [k for k in expected | found if expected.get(k, ...) != found.get(k, ...)]
    assert not different, f"{did} not like a run that was never killed"
