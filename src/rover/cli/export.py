"""``rover export RUN DATASET_ID``."""

from __future__ import annotations

import argparse

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, existing_path
from rover.cli.tables import count, make_console
from rover.cli.transfer_options import add_task_option, read_task
from rover.errors import ConfigurationError

_DESCRIPTION = """\
Write the transitions of a finished run as a Minari data set, for offline learning in any library:
observations without loss, an episode for each episode. Every reward is 0, unless --task labels the
transitions with that of a task; an episode then ends where the task ends.

DATASET_ID is "name-v0" or "namespace/name-v0". Data sets lie in ~/.minari/datasets, or where the
environment variable MINARI_DATASETS_PATH says; one that exists is never overwritten.

needs: pip install 'rover-rl[minari]'
"""

_EXAMPLES = """\
  rover export runs/rover-Maze-v0-default-seed0 rover/maze-v0
  rover export runs/rover-Maze-v0-default-seed0 maze-v1 --author "Ada Lovelace"
  rover export runs/rover-Maze-v0-default-seed0 rover/maze-marked-v0 --task goal=marked
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "export",
        summary="write a run's transitions as a Minari data set",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("run_dir", metavar="RUN", help="run folder")
    parser.add_argument("dataset_id", metavar="DATASET_ID", help="such as rover/maze-v0")
    for flag, metavar, text in (
        ("--author", "NAME", "author of the data set"),
        ("--author-email", "ADDRESS", "how to reach the author"),
        ("--code-permalink", "URL", "where the code is that made the transitions"),
        ("--description", "TEXT", "what the transitions are [default: what the run says]"),
    ):
        parser.add_argument(flag, metavar=metavar, help=text)
    add_task_option(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the data set, and say where it is."""
    path = existing_path(options.run_dir)
    from rover.integrations.minari import export_minari
    from rover.training.run_folder import read_run_config

    env = None
    if options.task:
        config = read_run_config(path)
        if config.env_id is None:
            raise ConfigurationError(
                f"the environment of {path} cannot be made from an id, so it takes no --task; "
                "export it in Python with rover.integrations.minari.export_minari"
            )
        env = read_task(options, config.env_id, config.env_kwargs).make_env()
    dataset = export_minari(
        path,
        options.dataset_id,
        task=env,
        author=options.author,
        author_email=options.author_email,
        code_permalink=options.code_permalink,
        description=options.description,
    )
    console = make_console()
    console.print(
        f"{dataset.id}: {count(dataset.total_steps)} transitions in "
        f"{count(dataset.total_episodes)} episodes",
        soft_wrap=True,
    )
    console.print(f"files:     {dataset.storage.data_path}", soft_wrap=True)
    console.print(f"in Python: minari.load_dataset({dataset.id!r})", soft_wrap=True)
    return exit_codes.DONE
