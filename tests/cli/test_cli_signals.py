"""Ctrl-C and SIGTERM: one line that says how to go on, no traceback, a run that goes on."""

import os
import signal
from pathlib import Path

import pytest
from command_line import TINY

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
