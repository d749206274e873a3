"""Arguments of the commands that learn a task, and what they show at the end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rover.cli import exit_codes
from rover.cli.arguments import (
    Parser,
    add_progress_options,
    add_tensorboard_option,
    key_and_value,
    whole_number,
)
from rover.cli.tables import NOTHING, command, count, make_console, make_table
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.finetuning import Task
    from rover.finetuning.run_folder import Learned

_TASK_KEYS = ("goal", "reward", "horizon")


def add_task_option(parser: Parser) -> None:
    """What is to be learned."""
    parser.add_argument(
        "--task",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="goal=NAME or goal=X,Y of a rover/... environment, reward=sparse|dense (sparse: −1 "
        "per step and 0 at the goal), horizon=N; may be repeated. Without a goal the "
        "environment's own reward is learned. `rover envs ENV` lists the names of goals",
    )


def add_learning_options(parser: Parser) -> None:
    """What is to be learned, and the options that every learner has."""
    add_task_option(parser)
    parser.add_argument(
        "--preset",
        choices=("fast", "paper"),
        default="fast",
        help="'fast', small networks for a laptop, or the paper's settings [default: fast]",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="everything random follows from it [default: 0]",
    )
    parser.add_argument(
        "--run-dir", type=Path, metavar="DIR", help="folder of the run, which must not hold one"
    )
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="single setting, as in --set learner.batch_size=64 or --set warmup_steps=0; may be "
        "repeated; docs/transfer.md lists them",
    )
    add_tensorboard_option(parser)
    add_progress_options(parser)


def read_task(options: argparse.Namespace, env_id: str, env_kwargs: Mapping[str, Any]) -> Task:
    """The task that --task describes.

    Raises:
        ConfigurationError: an unknown key, one that is given twice, or a value out of range.
    """
    given: dict[str, Any] = {}
    for word in options.task:
        key, value = key_and_value("--task", word, "goal=room5")
        if key not in _TASK_KEYS:
            raise ConfigurationError(
                f"--task {word!r}: unknown key {key!r}; choose goal, reward or horizon"
            )
        if key in given:
            raise ConfigurationError(f"--task {key} is given twice")
        given[key] = value
    if not isinstance(given.get("horizon", 1), int):
        raise ConfigurationError(f"--task horizon={given['horizon']!r} is no whole number")
    from rover.finetuning import make_task

    goal = given.get("goal")
    return make_task(
        env_id,
        env_kwargs,
        goal=None if goal is None else str(goal),
        reward=str(given.get("reward", "sparse")),
        horizon=given.get("horizon"),
    )


def read_settings(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that --set names.

    Raises:
        ConfigurationError: not KEY=VALUE, or a key given twice.
    """
    settings: dict[str, Any] = {}
    for word in options.settings:
        key, value = key_and_value("--set", word, "warmup_steps=0")
        if key in settings:
            raise ConfigurationError(f"the setting {key!r} is given twice")
        settings[key] = value
    return settings


def show_summary(title: str, summary: Mapping[str, Any], folder: Path, unit: str) -> None:
    """The table of a run, and where its files are."""
    table = make_table(title, ("", "result"))
    best = summary["best_possible_return"]
    table.add_row(unit, count(summary["steps"]))
    table.add_row("greedy return at the end", _return(summary["greedy_return"]))
    table.add_row("best greedy return", _return(summary["best_greedy_return"]))
    table.add_row("best possible return", _return(best))
    if best is not None:
        if unit == "environment steps":
            table.add_row(f"{unit} to the first success", _event(summary["steps_to_first_success"]))
        table.add_row(f"{unit} to the best return", _event(summary["steps_to_best_return"]))
        table.add_row(f"{unit} until it stays there", _event(summary["steps_to_stay_at_best"]))
    table.add_row("mean return over the curve", _return(summary["area_under_curve"]))
    table.add_row("seconds", f"{summary['wall_seconds']:.1f}")
    console = make_console()
    console.print(table)
    console.print(f"{'run folder:':12}{folder}", soft_wrap=True)
    policy = folder / "policy.safetensors"
    console.print(f"{'policy:':12}{policy}", soft_wrap=True)
    console.print(f"{'curve:':12}{command('rover', 'plot', folder)}", soft_wrap=True)


def _return(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _event(value: int | None) -> str:
    return "not reached" if value is None else count(value)


def learn_and_show(
    learn: Callable[..., Learned],
    options: argparse.Namespace,
    *,
    title: str,
    folder: Path,
    unit: Literal["environment steps", "updates"],
    then: str,
) -> int:
    """Learn a task while somebody watches, and show the result; returns the exit code.

    Args:
        learn: learns, given how it is watched: ``progress_bar``, ``tensorboard``, ``callback``.
        options: of the command line.
        title: of the table.
        folder: of the run.
        unit: what the run counts.
        then: what is advised when it is interrupted.
    """
    reached = [0]

    def note(record: Mapping[str, Any]) -> None:
        reached[0] = record["step"]

    try:
        result = learn(
            progress_bar=not options.no_progress and sys.stderr.isatty(),
            tensorboard=options.tensorboard,
            callback=note,
        )
    except KeyboardInterrupt:
        sys.stderr.write(
            f"rover: interrupted at {unit.split()[-1].removesuffix('s')} {reached[0]}; the curve "
            f"so far is in {folder / 'metrics.jsonl'}; {then}\n"
        )
        return exit_codes.INTERRUPTED
    show_summary(title, result.summary, folder, unit)
    return exit_codes.DONE
