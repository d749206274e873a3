"""Ctrl-C and SIGTERM: one line that says how to go on, no traceback, a run that goes on."""

import os
import signal
from pathlib import Path

import pytest
from command_line import TINY, start, until

from rover.cli import main
from rover.coverage.agent import Rover

pytestmark = pytest.mark.slow

RUN = [*TINY, "60", "--run-dir", "run", "--set", "checkpoint_every=20"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_interrupted_is_resumed_to_the_same_bits(number, monkeypatch, capsys):
    update, calls = Rover._update, []

    def interrupt(agent: Rover) -> None:
        calls.append(agent)
        if len(calls) == 4:
            os.kill(os.getpid(), number)
        return update(agent)

    # A shell has its background processes ignore SIGINT.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with monkeypatch.context() as patching:
            patching.setattr(Rover, "_update", interrupt)
            assert main(RUN) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "rover: interrupted; continue with: rover resume run\n"
    assert main(["resume", "run"]) == 0
    assert main([*RUN[:-4], "--run-dir", "whole", *RUN[-2:]]) == 0
    for file in ("policy.safetensors", "buffer.safetensors"):
        assert Path("run", file).read_bytes() == Path("whole", file).read_bytes()


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
    assert err == "rover: interrupted; the same command goes on where it stopped\n"
    assert process.returncode == 130
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
