"""From words to an exit code.

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

import gymnasium as gym

import rover.cli.evaluating
import rover.cli.pretraining
import rover.cli.sweeps
import rover.cli.tasks  # noqa: F401  (the four register their commands)
from rover.cli.commands import run
from rover.errors import RoverError, RoverWarning

DONE, UNREAD, WRONG_INPUT = 0, 1, 2
"""Exit codes; unread: what read the output, such as head, left before its end."""

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
  rover compare rover/Maze-v0 --methods rover,rnd --seeds 2    agents side by side
  rover export runs/rover-Maze-v0-default-seed0 rover/maze-v0    transitions for offline learning

`rover COMMAND --help` explains a command; `rover pretrain --help-settings` lists every setting.
"""


def answer(words: Sequence[str]) -> int:
    """Run the command that `words` are, and return the exit code."""
    with _one_line_warnings():
        try:
            code = run(words, _DESCRIPTION, _EXAMPLES)
            sys.stdout.flush()
            return DONE if code is None else code
        except BrokenPipeError:
            # the reader of a pipe, such as head, has seen enough; keep the flush at exit quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return UNREAD
        except (RoverError, gym.error.Error, OSError, MemoryError) as error:
            if "--traceback" in words or os.environ.get("ROVER_TRACEBACK", "") not in ("", "0"):
                raise
            is_small = isinstance(error, MemoryError)
            _say("error", f"there is not enough memory for this: {error}" if is_small else error)
            return WRONG_INPUT


def _say(kind: str, message: object) -> None:
    sys.stderr.write(f"rover: {kind}: {' '.join(str(message).split())}\n")


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
