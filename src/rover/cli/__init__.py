"""The command line: ``rover pretrain``, ``resume``, ``evaluate``, ``solve``, ``plot``, ...

This file answers `rover --help` and ends interrupted commands. :mod:`rover.cli.app` reads the
words, and a command's module is imported when the command is run or explained.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from rover.version import __version__

COMMANDS = {
    "pretrain": ("rover.cli.learning", "Pretrain on an environment without its reward."),
    "resume": ("rover.cli.learning", "Continue a run that was stopped."),
    "evaluate": ("rover.cli.evaluating", "Measure the coverage and occupancy of a policy."),
    "plot": ("rover.cli.evaluating", "Draw figures of runs."),
    "solve": ("rover.cli.evaluating", "Plan for a reward on the transitions of pretraining."),
    "adapt": ("rover.cli.learning", "Learn a task by interacting, with the model of a run."),
    "finetune": ("rover.cli.learning", "Learn a task from a pretrained policy or stored data."),
    "envs": ("rover.cli.settings", "List environments, or show one."),
    "settings": ("rover.cli.settings", "List settings with their ranges and values."),
    "compare": ("rover_bench.commands", "Run several agents on an environment."),
    "sweep": ("rover_bench.commands", "Run a study, and write its page, tables and figures."),
    "reproduce": ("rover_bench.commands", "Reproduce a figure or table of the ROVER paper."),
}
"""Module and first line of help of each command, which is the function of that name."""

_HELP = """\
usage: rover COMMAND ... [--import MODULE]

ROVER: reward-free pretraining for reinforcement learning by occupancy coverage.

commands:
{commands}

`rover COMMAND --help` explains a command, `rover --version` prints the version.
--import MODULE, of yours, registers environments or agents; may be repeated.

a first session:
  rover pretrain rover/Maze-v0 --steps 3000     pretrain; writes a run folder under runs/
  rover evaluate runs/rover-Maze-v0-default-seed0
  rover plot runs/rover-Maze-v0-default-seed0   figures of what was learned
  rover solve runs/rover-Maze-v0-default-seed0 --goals all            plans, without a step
  rover finetune runs/rover-Maze-v0-default-seed0 --task goal=marked  learn a task
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, the process's arguments by default, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        # Written without cyclopts, whose import takes as long as all the rest.
        lines = (f"  {name:10} {summary}" for name, (_, summary) in COMMANDS.items())
        sys.stdout.write(_HELP.format(commands="\n".join(lines)))
        return 0
    if words[0] == "--version":
        sys.stdout.write(f"rover {__version__}\n")
        return 0
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        from rover.cli.app import run

        return run(words)
    except KeyboardInterrupt as interrupt:
        sys.stderr.write(f"rover: interrupted{''.join(map(str, interrupt.args))}\n")
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)
