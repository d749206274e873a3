"""``rover offline RUN``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rover.cli.arguments import Commands, add_command, existing_path, whole_number
from rover.cli.pretrain import free_folder
from rover.cli.tables import command
from rover.cli.transfer_options import (
    add_learning_options,
    learn_and_show,
    read_settings,
    read_task,
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
    from rover.finetuning import train_offline
    from rover.training.run_folder import load_run_buffer, read_run_config

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
    return learn_and_show(
        partial(
            train_offline,
            buffer,
            env,
            updates=options.updates,
            algorithm=options.algorithm,
            preset=options.preset,
            seed=options.seed,
            run_dir=folder,
            source=str(path),
            **settings,
        ),
        options,
        title=f"{config.env_id}, {task.name}, {options.algorithm} on {path.name}, "
        f"seed {options.seed}",
        folder=folder,
        unit="updates",
        then=f"to begin again: {command('rm', '-r', folder)}",
    )
