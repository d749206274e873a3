"""From arguments to an exit code.

What a user can put right is one line on standard error. Any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rover.cli import (
    compare,
    demo,
    environments,
    evaluate,
    exit_codes,
    export,
    finetune,
    offline,
    pictures,
    pretrain,
    resume,
)
from rover.cli.arguments import Parser, parse
from rover.errors import RoverError, RoverWarning
from rover.version import __version__

_COMMANDS = (
    pretrain,
    resume,
    evaluate,
    pictures,
    finetune,
    offline,
    compare,
    environments,
    demo,
)

_COMMANDS = (
    pretrain,
    resume,
    evaluate,
    pictures,
    finetune,
    offline,
    compare,
    export,
    environments,
    demo,
)

_DESCRIPTION = """\
ROVER: reward-free pretraining for reinforcement learning by occupancy coverage.

An agent explores an environment without looking at any reward, until it has a policy whose
episodes cover the states as evenly as possible. That policy is a starting point for any task.
"""

_EXAMPLES = """\
a first session:
  rover demo                                    pretrain on five rooms, look at the result
  rover envs                                    which environments there are
  rover pretrain rover/Maze-v0 --steps 3000     pretrain; writes a run folder under runs/
  rover evaluate runs/rover-Maze-v0-default-seed0
  rover plot runs/rover-Maze-v0-default-seed0   pictures of what was learned
  rover finetune runs/rover-Maze-v0-default-seed0 --task goal=marked    learn a task from it
  rover compare rover/Maze-v0 --methods rover,rnd --seeds 2    methods side by side
  rover export runs/rover-Maze-v0-default-seed0 rover/maze-v0    transitions for offline learning

`rover COMMAND --help` explains a command and every one of its settings.
"""


def make_parser() -> Parser:
    """The parser of the whole command line."""
    parser = Parser(prog="rover", description=_DESCRIPTION, epilog=_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"rover {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    for module in _COMMANDS:
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after ``rover``; those of the process by default.

    Returns:
        The exit code.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    with _one_line_warnings():
        try:
            parser = make_parser()
            if not words:
                parser.print_help()
                return exit_codes.DONE
            options = parse(parser, words)
            code: int = options.run(options)
            sys.stdout.flush()
            return code
        except RoverError as error:
            if "--traceback" in words or os.environ.get("ROVER_TRACEBACK", "") not in ("", "0"):
                raise
            _say("error", error)
            return exit_codes.WRONG_INPUT
        except KeyboardInterrupt:
            _say("interrupted", "")
            return exit_codes.INTERRUPTED
        except BrokenPipeError:
            # the reader of a pipe, such as head, has seen enough; keep the flush at exit quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return exit_codes.UNREAD


def _say(kind: str, message: object) -> None:
    line = " ".join(str(message).split())
    sys.stderr.write(f"rover: {kind}: {line}\n" if line else f"rover: {kind}\n")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show this package's warnings as one line each, and all others as Python does."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, RoverWarning):
                _say("warning", message)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = show_line
        yield
