"""``rover resume RUN``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rover.cli import exit_codes
from rover.cli.arguments import (
    Commands,
    add_command,
    add_progress_options,
    add_tensorboard_option,
    existing_path,
    whole_number,
)
from rover.cli.pretrain import learn, run_title, show_result
from rover.cli.tables import command, count, make_console
from rover.cli.transfer_options import learn_and_show
from rover.errors import ConfigurationError

_DESCRIPTION = """\
Continue a run of `rover pretrain` or of `rover finetune` that was stopped, from its last checkpoint
to the number of steps that it was started with. It ends in the same bits as a run that was never
interrupted.
"""

_EXAMPLES = """\
  rover resume runs/rover-Maze-v0-default-seed0
  rover resume runs/rover-Maze-v0-default-seed0 --steps 5000
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "resume",
        summary="continue a run that was stopped",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("run_dir", metavar="RUN", help="run folder")
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        metavar="N",
        help="of `rover pretrain`: steps in all; more than the run was started with extend it, and "
        "the result is that of a run started with N [default: what the run was started with]",
    )
    add_tensorboard_option(parser)
    add_progress_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Continue the run, unless it is complete."""
    path = existing_path(options.run_dir)
    if (path / "transfer.json").exists():
        return _resume_finetuned(path, options)
    from rover.baselines.peer import resume_agent
    from rover.storage import read_json
    from rover.training.run_folder import read_run_config

    config = read_run_config(path)
    total = options.steps or config.total_timesteps
    # the last checkpoint may lie before the end; the summary counts every step
    summary = path / "summary.json"
    steps = int(read_json(summary)["steps"]) if summary.exists() else 0
    if steps >= total:
        return _say_complete(path, steps, total)
    agent = resume_agent(path)
    if agent.num_timesteps >= total:
        return _say_complete(path, agent.num_timesteps, total)
    if not learn(agent, total - agent.num_timesteps, options):
        return exit_codes.INTERRUPTED
    show_result(agent, run_title(agent, config.env_id))
    return exit_codes.DONE


def _resume_finetuned(path: Path, options: argparse.Namespace) -> int:
    if options.steps is not None:
        raise ConfigurationError(f"{path} learned a task: --steps extends runs of `rover pretrain`")
    from rover.finetuning import read_transfer_config, resume_finetune

    config = read_transfer_config(path)
    if (path / "summary.json").exists():
        make_console().print(f"{path} is complete: {count(config.amount)} steps", soft_wrap=True)
        return exit_codes.DONE
    return learn_and_show(
        partial(resume_finetune, path),
        options,
        title=f"{config.algorithm} from {config.method or 'own policy'}, seed {config.seed}",
        folder=path,
        unit="environment steps",
        then=f"to continue: {command('rover', 'resume', path)}",
    )


def _say_complete(path: Path, steps: int, total: int) -> int:
    make_console().print(
        f"{path} is complete: {count(steps)} of {count(total)} steps. To extend it: "
        f"{command('rover', 'resume', path, '--steps', str(2 * steps))}",
        soft_wrap=True,
    )
    return exit_codes.DONE
