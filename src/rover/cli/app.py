"""The program `rover`: its commands, and errors as one line.

What a user can put right is one line on standard error and the exit code 2. Any other exception is
a bug and keeps its traceback.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Sequence

import gymnasium as gym
from cyclopts import App, CycloptsError, Parameter

from rover.cli import COMMANDS
from rover.envs import import_modules
from rover.errors import RoverError, shorten


def run(words: Sequence[str]) -> int:
    """Run the command that `words` are, and return the exit code."""
    imports = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    imports.add_argument("--import", dest="modules", action="append", default=[])
    with warnings.catch_warnings():
        # Gymnasium writes its warnings in colours, also where nothing shows them.
        warnings.showwarning = lambda message, *_: _say(
            "warning", re.sub(r"\x1b\[\d+m", "", str(message)).removeprefix("WARN: ")
        )
        try:
            asked, others = imports.parse_known_args(words)
            # First: they register the agents and environments that the other words name.
            import_modules(asked.modules)
            app = App(
                name="rover",
                help_format="markdown",
                version_flags=(),
                suppress_keyboard_interrupt=False,  # which says how to go on
                default_parameter=Parameter(negative_iterable="", short_alias=False),
                exit_on_error=False,
                print_error=False,
                result_action="return_value",
            )
            for name, (module, _) in COMMANDS.items():  # imported when it is run or explained
                app.command(f"{module}:{name}", name=name)
            code: int | None = app(others)
            sys.stdout.flush()
            return code or 0
        except BrokenPipeError:
            # the reader of a pipe, such as head, has seen enough; keep the flush at exit quiet
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except Exception as error:
            text = _explain(error)
            if text is None:
                raise
            _say("error", text)
            return 2


def _explain(error: Exception) -> str | None:
    """The message of an error that a user can put right; None for a bug."""
    if isinstance(error, CycloptsError):
        name = " ".join(["rover", *(error.command_chain or ())])
        return f"{error} (see `{name} --help`)"
    if isinstance(error, argparse.ArgumentError):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name == "pandas":
        return "this command comes with the extra bench: pip install '.[bench]'"
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{shorten(str(error.filename))}: {error.strerror}"
    return str(error) if isinstance(error, RoverError | gym.error.Error) else None


def _say(kind: str, message: object) -> None:
    sys.stderr.write(f"rover: {kind}: {' '.join(str(message).split())}\n")
