"""Arguments of commands: reading of their words by type, and what means the same in all commands.

All of it in the terms of ``argparse.ArgumentParser.add_argument``.
"""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rover.envs import OBSERVATIONS, RewardFunction, import_modules
from rover.errors import ConfigurationError, shorten

LARGEST = 2**63
"""Greater numbers overflow in numpy and torch, far from the word that gave them."""


def parse_number(text: str) -> int | float | str:
    """`text` as a number, whole where it is; what is no number of a usual size stays text."""
    value: int | float
    try:
        value = int(text)
    except ValueError:
        try:
            value = float(text)  # also 1e3, which int() does not read
        except ValueError:
            return text
    if not abs(value) < LARGEST:  # nor is it nan
        return text
    return int(value) if value == int(value) else value


def _whole_number(minimum: int, maximum: int = LARGEST) -> Callable[[str], int]:
    """Whole numbers from `minimum` to `maximum`; 1e3 is one."""

    def convert(text: str) -> int:
        value = parse_number(text)
        if not isinstance(value, int) or value < minimum:
            raise ArgumentTypeError(
                f"must be a whole number of at least {minimum}, not {shorten(text)}"
            )
        if value > maximum:
            raise ArgumentTypeError(f"must be at most {maximum:,}, not {shorten(text)}")
        return value

    return convert


def _number(text: str) -> float:
    value = parse_number(text)
    if isinstance(value, str):
        raise ArgumentTypeError(f"must be a number, not {shorten(text)}")
    return float(value)


def _path(text: str) -> Path:
    # An empty word, as of a shell variable that is not set, would be the current folder.
    if not text:
        raise ArgumentTypeError("is empty; give the path of a file or folder")
    return Path(text)


def _existing_path(text: str) -> Path:
    path = _path(text)
    if not path.exists():
        raise ArgumentTypeError(
            f"{shorten(text)} does not exist; run folders usually lie under runs/"
        )
    return path


def _own_function(text: str) -> RewardFunction:
    """A function of the user's own, as MODULE:FUNCTION."""
    module, _, name = text.partition(":")
    if not module or not name:
        raise ArgumentTypeError(
            f"must be MODULE:FUNCTION, as in my_rewards:reward, not {shorten(text)}"
        )
    try:
        import_modules([module])
    except ConfigurationError as error:  # argparse would not show its text
        raise ArgumentTypeError(str(error)) from None
    function = getattr(sys.modules[module], name, None)
    if not callable(function):
        raise ArgumentTypeError(f"module {module} has no function {shorten(name)}")
    return cast(RewardFunction, function)


BY_TYPE: dict[Any, dict[str, Any]] = {
    bool: {"action": "store_true"},
    int: {"type": _whole_number(1), "metavar": "N"},
    float: {"type": _number, "metavar": "X"},
    Path: {"type": _path, "metavar": "DIR"},
    str: {"metavar": "NAME"},
    list[str]: {"action": "append", "metavar": "NAME=VALUE"},
    dict[str, Any]: {"action": "append", "metavar": "NAME=VALUE"},
}
"""Keyword arguments of ``add_argument`` for parameters of a type."""

# Names in capitals in the docstring of a command stand in the place of this metavar.
_RUN = {"type": _existing_path, "metavar": "PATH"}

BY_NAME: dict[str, dict[str, Any]] = {
    "path": _RUN,
    "paths": _RUN,
    "data": _RUN,
    "study": _RUN,
    "agent": {"flags": ("--agent", "--method")},
    "agents": {"flags": ("--agents", "--methods")},
    "as_json": {"flags": ("--json",), "help": "print one JSON object, and nothing else"},
    "dpi": {"type": _whole_number(30, 1200)},
    "env": {"help": "keyword of the environment, as in --env rooms=7; may be repeated"},
    "episodes": {"type": _whole_number(1, 10**5), "help": "episodes of a figure that is sampled"},
    "executor": {
        "help": "where runs are made: here, on a Ray cluster or by Slurm. Its settings are given "
        "with --set, and --help-settings lists them"
    },
    "formats": {
        "flags": ("--format",),
        # argparse's own list of the choices, in the place of NAME
        "choices": ("png", "svg", "pdf"),
        "metavar": None,
        "help": "file formats of the pictures, one or more [default: png]",
    },
    "goal": {
        "type": _own_function,
        "metavar": "MODULE:FUNCTION",
        "help": "function of yours, goal(observations) -> bool, that says which observations are "
        "goals: arriving at one is worth 1 and ends the task",
    },
    "jobs": {
        "type": _whole_number(1, 1024),
        "help": "runs side by side, each in a process and thread of its own [default: 2; Slurm: "
        "1000]",
    },
    "learner": {"flags": ("--agent",)},
    "log": {
        "help": "write scalars to the run folder too, for TensorBoard (pip install '.[tb]') or "
        "Weights & Biases (pip install '.[wandb]'; WANDB_MODE=offline for no account)"
    },
    "max_steps": {"type": _whole_number(1, 10**9)},
    "n_seeds": {"type": _whole_number(1, 10_000), "flags": ("--seeds",)},
    "no_progress": {"help": "draw no progress bar"},
    "observation": {
        "choices": OBSERVATIONS,
        "metavar": None,
        "help": "what the agent sees of a rover/... environment: its state's number, a one-hot "
        "vector or 84×84 pixels [default: state]",
    },
    "origin": {"flags": ("--from",)},
    "repeats": {
        "type": _whole_number(2, 10**4),
        "help": "sets of such episodes, of which intervals are made; of roll-outs 2 to 5",
    },
    "reward": {
        "type": _own_function,
        "metavar": "MODULE:FUNCTION",
        "help": "function of yours, reward(observations, actions, next_observations) -> (rewards, "
        "terminated), that labels the transitions where no task of rover's does",
    },
    "run_dir": {"help": "folder of the run, which must not hold one [default: a new one in runs/]"},
    "seed": {
        "type": _whole_number(0),
        "help": "everything random follows from it; the same seed gives the same bits",
    },
    "seeds": {"type": _whole_number(0)},
    "settings": {
        "flags": ("--set",),
        "help": "single setting, as in --set learner.batch_size=64; may be repeated; "
        "--help-settings lists them",
    },
    "task": {
        "help": "goal=NAME or goal=X,Y of a rover/... environment, reward=sparse|dense (sparse: −1 "
        "per step and 0 at the goal), horizon=N; may be repeated. Without a goal the environment's "
        "own reward is learned. `rover envs ENV` lists the names of goals"
    },
    "world": {"flags": ("--env",)},
}
"""Further ones, and flags that are not --NAME, for parameters of a name."""
