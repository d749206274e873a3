"""Ctrl-C and SIGTERM at any moment: one line, 128 + signal, no traceback, a run that goes on."""

import os
import signal
from pathlib import Path

import pytest
from command_line import TINY, python, shell, start, until

from rover.cli import main
from rover.coverage.agent import Rover

pytestmark = pytest.mark.slow

RUN = [*TINY, "60", "--run-dir", "run", "--set", "checkpoint_every=20"]


@pytest.fixture(autouse=True)
def heard():
    """SIGINT as in a terminal: a shell has its background processes ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


AT_IMPORT = """
import os, sys
class Finder:
    def find_spec(name, path, target=None):
        if name == os.environ["SIGNAL_AT"]:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
sys.meta_path.insert(0, Finder)
"""


def test_while_something_is_imported():
    Path("sitecustomize.py").write_text(AT_IMPORT)
    at = {"SIGNAL_AT": "torch", "SIGNAL": str(int(signal.SIGTERM))}
    done = shell(*RUN, env=at, places=[str(Path.cwd())])
    assert done.stderr.splitlines()[-1:] == ["rover: terminated"]
    assert "Traceback" not in done.stderr
    assert done.returncode == 128 + signal.SIGTERM


LOST = """
import os, signal, sys
from rover.cli import main
from rover.coverage.agent import Rover

class Lost:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

def finalise(self, update=Rover._update):
    Lost()
    return update(self)

Rover._update = finalise
sys.exit(main({words}))
"""


def assert_said_and_goes_on(code: int, out: str, err: str, *, word: str = "terminated") -> None:
    """Whether one line says how to go on, and going on has the bits of a run without a break."""
    assert (code, out) == (130 if word == "interrupted" else 143, "")
    assert err.count("\n") == 1
    assert err.startswith(f"rover: {word} at step ")
    assert err.endswith("; continue with: rover resume run\n")
    assert main(["resume", "run"]) == 0
    assert main([*RUN[:-4], "--run-dir", "whole", *RUN[-2:]]) == 0
    for file in ("policy.safetensors", "buffer.safetensors"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes()


def test_where_an_exception_is_lost_in_a_finaliser():
    done = python("-c", LOST.format(words=RUN))
    assert_said_and_goes_on(done.returncode, done.stdout, done.stderr)


def test_where_a_library_makes_another_exception_of_it(monkeypatch, capsys):
    def change(agent: Rover) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except BaseException:
            raise ValueError("of a library") from None

    with monkeypatch.context() as patching:
        patching.setattr(Rover, "_update", change)
        code = main(RUN)
    assert_said_and_goes_on(code, *capsys.readouterr(), word="interrupted")


def test_while_runs_are_compared_every_process_ends():
    words = ["compare", "rover/Corridor-v0", "--methods", "random", "--seeds", "2", "--out", "out"]
    words += ["--jobs", "1", "--steps", "100000000"]
    # a session of its own, whose processes can be listed
    process = start("-m", "rover", *words, start_new_session=True)
    assert process.stdout.readline() == "2 of 2 runs to be made, 1 side by side\n"
    until(Path("out/random-fast/seed-0/config.json").exists)
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert out == ""
    assert err == "rover: terminated; the same command goes on where it stopped\n"
    assert process.returncode == 143
    # helpers of Python's own end a moment after their parent
    until(lambda: not running_in(process.pid))
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
