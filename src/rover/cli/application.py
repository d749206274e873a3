"""From words to an exit code.

What a user can put right is one line on standard error. Any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym

import rover.cli.evaluating
import rover.cli.pretraining
import rover.cli.solving
import rover.cli.sweeps
import rover.cli.tasks  # noqa: F401  (the five register their commands)
from rover.cli.commands import run
from rover.errors import RoverError, RoverWarning, shorten

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
  rover compare rover/Maze-v0 --agents rover,rnd --seeds 2    agents side by side
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
        except Exception as error:
            text, flag = _told(error), os.environ.get("ROVER_TRACEBACK", "")
            if text is None or "--traceback" in words or flag not in ("", "0"):
                raise
            _say("error", text)
            return WRONG_INPUT


def _told(error: Exception) -> str | None:
    """What a user is told of an error; None of a bug."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's
        return (
            "there is not enough memory for this: take fewer steps, a smaller environment, or "
            "smaller settings, such as those of batches and layers"
        )
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{shorten(str(error.filename))}: {error.strerror}"
    return str(error) if isinstance(error, RoverError | gym.error.Error) else None


def _say(kind: str, message: object) -> None:
    sys.stderr.write(f"rover: {kind}: {' '.join(str(message).split())}\n")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show this package's warnings as one line each, and all others as Python does."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(message: Any, category: Any, *where: Any, **others: Any) -> None:
            text = re.sub(r"\x1b\[\d+m", "", str(message))
            if issubclass(category, RoverWarning) or text.startswith("WARN: "):  # Gymnasium's
                _say("warning", text.removeprefix("WARN: "))
            else:
                show(message, category, *where, **others)

        warnings.showwarning = show_line
        yield
