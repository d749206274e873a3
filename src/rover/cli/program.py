"""The program `rover`: its help, its commands by name, and errors as one line.

What a user can put right is one line on standard error. Any other exception is a bug and keeps its
traceback.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym

from rover.errors import (
    BY_ENVIRONMENT,
    ConfigurationError,
    RoverError,
    RoverWarning,
    UnsupportedSpaceError,
    choose,
    shorten,
)
from rover.version import __version__

_MODULES = {
    "pretrain": "rover.cli.pretraining",
    "resume": "rover.cli.tasks",
    "evaluate": "rover.cli.evaluating",
    "plot": "rover.cli.evaluating",
    "solve": "rover.cli.solving",
    "adapt": "rover.cli.tasks",
    "finetune": "rover.cli.tasks",
    "offline": "rover.cli.tasks",
    "export": "rover.cli.tasks",
    "envs": "rover.cli.environments",
    "demo": "rover.cli.pretraining",
}

# Commands of the extra `bench`, which are there where its pandas is.
_LABORATORY = dict.fromkeys(("compare", "sweep", "reproduce"), "rover_bench.commands")

# Exit codes; unread: what read the output, such as head, left before its end.
_DONE, _UNREAD, _WRONG_INPUT = 0, 1, 2

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


def command_modules() -> dict[str, str]:
    """Module of every command, by its name: imported when the command is run."""
    return _MODULES | (_LABORATORY if importlib.util.find_spec("pandas") else {})


def answer(words: Sequence[str]) -> int:
    """Run the command that `words` are, and return the exit code."""
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        redirect_stdout(sys.stdout or nowhere),  # a shell can close them, as in `rover envs >&-`
        redirect_stderr(sys.stderr or nowhere),
        _one_line_warnings(),
    ):
        try:
            code = _run(words)
            sys.stdout.flush()
            return _DONE if code is None else code
        except BrokenPipeError:
            # the reader of a pipe, such as head, has seen enough; keep the flush at exit quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _UNREAD
        except Exception as error:
            # Errors of other classes are bugs: they keep their traceback, which a report needs.
            text, flag = _advice(error), os.environ.get("ROVER_TRACEBACK", "")
            if text is None or "--traceback" in words or flag not in ("", "0"):
                raise
            _say("error", text)
            return _WRONG_INPUT


def _advice(error: Exception) -> str | None:
    """Message for the user of an error; None for a bug."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):  # torch's
        return (
            "there is not enough memory for this: take fewer steps, a smaller environment, or "
            "smaller settings, such as batch sizes and layer widths"
        )
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{shorten(str(error.filename))}: {error.strerror}"
    if isinstance(error, UnsupportedSpaceError):
        # A command has no `env` that the line of the message could be applied to.
        return (
            f"{error}. For commands, write the line into a module my_envs.py: import gymnasium, "
            'numpy; def wrapped(**options): env = gymnasium.make("ID", **options); return LINE; '
            'gymnasium.register("Wrapped-v0", wrapped); and give Wrapped-v0 --import my_envs'
        )
    notes = getattr(error, "__notes__", [])
    if any(note.startswith(BY_ENVIRONMENT) for note in notes):
        return f"{type(error).__name__}: {error}; {'; '.join(notes)} (--traceback shows where)"
    return str(error) if isinstance(error, RoverError | gym.error.Error) else None


def _say(kind: str, message: object) -> None:
    sys.stderr.write(f"rover: {kind}: {' '.join(str(message).split())}\n")


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show this package's warnings as one line each, and all others as Python does."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_line(message: Any, category: Any, *where: Any, **others: Any) -> None:
            # Gymnasium writes its warnings in colours, also where nothing shows them.
            text = re.sub(r"\x1b\[\d+m", "", str(message))
            if issubclass(category, RoverWarning) or text.startswith("WARN: "):  # Gymnasium's
                _say("warning", text.removeprefix("WARN: "))
            else:
                show(message, category, *where, **others)

        warnings.showwarning = show_line
        yield


def _run(words: Sequence[str]) -> int | None:
    """Run the command that `words` are; the exit code, None for 0."""
    if not words or words[0] in ("-h", "--help"):
        sys.stdout.write(_help())
        return None
    if words[0] == "--version":
        sys.stdout.write(f"rover {__version__}\n")
        return None
    if words[0].startswith("-"):
        raise ConfigurationError(f"unknown argument {shorten(words[0])} (see `rover --help`)")
    # Which commands there are is known by name alone: nothing is imported for a slip of the keys.
    modules = command_modules()
    if words[0] not in modules:
        if words[0] in _LABORATORY:
            raise ConfigurationError(
                f"`rover {words[0]}` comes with the extra bench: pip install '.[bench]'"
            )
        choose("command", words[0], modules)
    importlib.import_module(modules[words[0]])  # registers its commands
    # only now: pydantic, which it needs, takes longer to import than the help to print
    from rover.cli.commands import run_command

    return run_command(words[0], words[1:])


def _help() -> str:
    """Description, commands and examples."""
    # written by hand: argparse would need every command's module
    lines = [f"usage: rover COMMAND ...\n\n{_DESCRIPTION}\ncommands:"]
    for name, module in command_modules().items():
        summary = _summaries(module)[name]
        lines.append(f"    {name:10} {summary[:1].lower()}{summary[1:]}")
    lines += ["", "options:", "    --help     show this help", "    --version  show the version"]
    examples = _EXAMPLES
    if "compare" not in command_modules():
        examples = re.sub(r"  rover compare .*\n", "", examples)
    return "\n".join(lines) + f"\n\n{examples}"


@cache
def _summaries(module: str) -> dict[str, str]:
    """First line of each command's docstring, read from the source: an import takes seconds."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return {
        one.name.removeprefix("_"): (ast.get_docstring(one) or "").partition("\n")[0].rstrip(".")
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
    }
