"""``rover offline RUN``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, existing_path, whole_number
from rover.cli.pretrain import free_folder
from rover.cli.tables import command
from rover.cli.transfer_options import (
    add_learning_options,
    interrupted,
    read_settings,
    read_task,
    show_summary,
)
from rover.errors import ConfigurationError

DEFAULT_UPDATES = 15_000

_DESCRIPTION = """\
Learn a task from the transitions that a pretraining run stored, without a further step.

Here, and only here, stored transitions are labelled with the task's reward. What the data does not
show cannot be learned, so this measures the data, where `rover finetune` measures the policy.
"""

_EXAMPLES = """\
  rover offline runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
  rover offline runs/rover-MultiRooms-v0-cic-fast-seed0 --task goal=room2 --algorithm ddpg
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "offline",
        summary="learn a task from the data that pretraining stored",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("path", metavar="RUN", help="run folder of `rover pretrain`")
    parser.add_argument(
        "--algorithm", choices=("cql", "ddpg"), default="cql", help="learner [default: cql]"
    )
    parser.add_argument(
        "--updates",
        type=whole_number(1),
        default=DEFAULT_UPDATES,
        metavar="N",
        help=f"gradient steps [default: {DEFAULT_UPDATES}]",
    )
    add_learning_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Learn the task, and show the result."""
    path = existing_path(options.path)
    settings = read_settings(options)
    from rover.agents import load_run_buffer
    from rover.agents.run_folder import read_run_config
    from rover.transfer import train_offline

    config = read_run_config(path)
    if config.env_id is None:
        raise ConfigurationError(
            f"the environment of {path} cannot be made from an id; learn in Python with "
            "rover.train_offline"
        )
    task = read_task(options, config.env_id, config.env_kwargs)
    env = task.make_env()
    buffer = load_run_buffer(path)
    folder = options.run_dir or free_folder(
        Path("runs") / f"{path.name}-{task.name}-offline-{options.algorithm}-seed{options.seed}"
    )
    updates = [0]

    def note(record: Mapping[str, Any]) -> None:
        updates[0] = record["step"]

    try:
        result = train_offline(
            buffer,
            env,
            updates=options.updates,
            algorithm=options.algorithm,
            preset=options.preset,
            seed=options.seed,
            run_dir=folder,
            source=str(path),
            progress_bar=not options.no_progress and sys.stderr.isatty(),
            tensorboard=options.tensorboard,
            callback=note,
            **settings,
        )
    except KeyboardInterrupt:
        then = f"to begin again: {command('rm', '-r', folder)}"
        sys.stderr.write(interrupted(updates[0], folder, unit="update", then=then))
        return exit_codes.INTERRUPTED
    title = f"{config.env_id}, {task.name}, {options.algorithm} on {path.name}, seed {options.seed}"
    show_summary(title, result.summary, folder, "updates")
    return exit_codes.DONE
