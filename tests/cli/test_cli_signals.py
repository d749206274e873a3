"""Ctrl-C and SIGTERM at any moment: one line, 128 + signal, no traceback, a run that goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from command_line import TINY, python, shell, start

from rover.cli import main

pytestmark = pytest.mark.slow

RUN = [*TINY, "60", "--run-dir", "run", "--set", "checkpoint_every=20"]

AT_IMPORT = """
import os, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == os.environ["SIGNAL_AT"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("module", "words", "number"),
    [
        ("numpy", RUN, signal.SIGINT),
        ("torch", RUN, signal.SIGTERM),
        ("matplotlib", ["demo", "--steps", "10"], signal.SIGINT),
    ],
)
def test_while_something_is_imported(module, words, number):
    Path("sitecustomize.py").write_text(AT_IMPORT)
    at = {"SIGNAL_AT": module, "SIGNAL": str(int(number))}
    done = shell(*words, env=at, places=[str(Path.cwd())])
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert done.stderr.splitlines()[-1:] == [f"rover: {word}"]
    assert "Traceback" not in done.stderr
    assert done.returncode == 128 + number


AT_THE_END = """
import os, signal
class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), numbers=(signal.SIGINT, signal.SIGTERM)):
        for number in numbers:
            kill(process, number)
last = Last()
"""


def test_when_python_has_forgotten_who_answers():
    Path("sitecustomize.py").write_text(AT_THE_END)
    done = shell("--version", places=[str(Path.cwd())])
    assert (done.returncode, done.stderr) == (0, "")


PATCHED = """
import os, signal, sys
from rover.cli import main
from rover.coverage.agent import Rover
from rover.training.run_folder import RunFolder

def stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

class Lost:
    def __del__(self):
        stop()

def lose(self, update=Rover._update):
    Lost()
    return update(self)

def change(self, update=Rover._update):
    try:
        stop()
    except BaseException:
        raise ValueError("of a library")

def swallow(self, update=Rover._update):
    try:
        stop()
    except BaseException:
        return update(self)

def at_the_end(self, seal=RunFolder.seal):
    stop()
    seal(self)

{patch}
sys.exit(main({words}))
"""


@pytest.mark.parametrize(
    "patch",
    [
        "RunFolder.seal = at_the_end",
        "RunFolder.write_checkpoint = lambda *arguments: stop(signal.SIGINT)",
        "Rover._update = lose",
        "Rover._update = change",
        "Rover._update = swallow",
    ],
)
def test_while_a_run_is_made_and_its_end_has_the_bits_of_one_that_was_not_stopped(patch):
    done = python("-c", PATCHED.format(patch=patch, words=RUN))
    code, word = (130, "interrupted") if "SIGINT" in patch else (143, "terminated")
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"rover: {word} at step ")
    assert done.stderr.endswith("; continue with: rover resume run\n")
    assert main(["resume", "run"]) == 0
    assert main([*RUN[:-4], "--run-dir", "whole", *RUN[-2:]]) == 0
    for file in ("policy.safetensors", "buffer.safetensors"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes()


@pytest.mark.parametrize("moment", ["as a process starts", "as it works"])
def test_while_runs_are_compared_every_process_ends(moment):
    words = ["compare", "rover/Corridor-v0", "--methods", "random", "--seeds", "2", "--out", "out"]
    words += ["--jobs", "1", "--steps", "100000000"]
    # a session of its own, so that a signal can reach all its processes, as from a keyboard
    process = start("-m", "rover", *words, start_new_session=True)
    assert process.stdout is not None
    deadline, lines = time.monotonic() + 120, list[str]()
    if moment == "as a process starts":
        while len(running_in(process.pid)) < 3:  # Python's resource tracker is one of them
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        end = (130, "rover: interrupted; the same command goes on where it stopped\n")
    else:
        assert process.stdout.readline() == "random-fast, seed 0: starts, 100,000,000 steps\n"
        lines = ["random-fast, seed 0: stopped\n"]
        while not Path("out/random-fast/seed-0/metrics.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.terminate()
        end = (143, "rover: terminated; the same command goes on where it stopped\n")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == end
    assert out.splitlines(keepends=True) == lines
    while running_in(process.pid):  # helpers of Python's own end a moment after their parent
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not Path("out/random-fast/seed-1").exists()


def running_in(group: int) -> list[str]:
    """Processes of a process group that do more than wait to be buried."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = stat.read_text().rsplit(")", 1)
        except OSError:  # it has just ended
            continue
        state, _, its_group = fields.split()[:3]
        if int(its_group) == group and state != "Z":
            found.append(name)
    return found
