"""``rover finetune RUN``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rover.cli.arguments import (
    Commands,
    add_command,
    add_env_options,
    read_env_kwargs,
    whole_number,
)
from rover.cli.evaluate import read_trained
from rover.cli.pretrain import free_folder, slug
from rover.cli.tables import command
from rover.cli.transfer_options import (
    add_learning_options,
    learn_and_show,
    read_settings,
    read_task,
)
from rover.errors import ConfigurationError

if TYPE_CHECKING:
    from rover.policies.coverage import Policy

DEFAULT_STEPS = 50_000

_DESCRIPTION = """\
Learn a task by interacting, from the policy of a pretrained run or from scratch.

RUN is a run folder of `rover pretrain`, of any method, or its policy.safetensors. With
--from scratch it may also be the Gymnasium id of an environment. The reward is seen only by
interacting: nothing that pretraining stored is looked at.

A transferred policy acts unchanged while the critics learn what it earns (the warm-up); then it
learns. Of a method with skills, or of a mixture, each episode of the warm-up follows one of its
policies, and the one with the best returns learns.
"""

_EXAMPLES = """\
  rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5
  rover finetune runs/rover-MultiRooms-v0-default-seed0 --task goal=room5 --from scratch
  rover finetune runs/rover-Maze-v0-rnd-fast-seed0 --task goal=4,4 --algorithm sac
  rover finetune runs/pixels --task goal=room2 --task reward=dense --transfer both
  rover finetune FrozenLake-v1 --env is_slippery=false --from scratch --steps 20000
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "finetune",
        summary="learn a task from a pretrained policy, or from scratch",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "path", metavar="RUN|POLICY|ENV", help="pretrained run, its policy, or an environment's id"
    )
    parser.add_argument(
        "--algorithm", choices=("ddpg", "sac"), default="ddpg", help="learner [default: ddpg]"
    )
    parser.add_argument(
        "--from",
        dest="origin",
        choices=("pretrained", "scratch"),
        default="pretrained",
        help="what learning starts from [default: pretrained]",
    )
    parser.add_argument(
        "--transfer",
        choices=("policy", "encoder", "both"),
        default="policy",
        help="what is taken over: the policy, its encoder below new networks, or the policy and "
        "its encoder below the critics [default: policy]",
    )
    parser.add_argument(
        "--freeze",
        action="append",
        choices=("policy", "encoder", "nothing"),
        help="what never learns; may be repeated [default: the encoder of a ROVER policy, nothing "
        "of any other]",
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        default=DEFAULT_STEPS,
        metavar="N",
        help=f"environment steps [default: {DEFAULT_STEPS}]",
    )
    add_learning_options(parser)
    add_env_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Learn the task, and show the result."""
    settings = read_settings(options)
    policy, env_id, env_kwargs = _read_origin(options)
    task = read_task(options, env_id, env_kwargs)
    env = task.make_env()
    kind = "scratch" if policy is None else options.transfer
    folder = options.run_dir or free_folder(
        Path("runs") / f"{_stem(options)}-{task.name}-{options.algorithm}-{kind}-seed{options.seed}"
    )
    from rover.finetuning import finetune

    return learn_and_show(
        partial(
            finetune,
            policy,
            env,
            total_timesteps=options.steps,
            algorithm=options.algorithm,
            preset=options.preset,
            transfer=options.transfer,
            freeze=_frozen(options),
            seed=options.seed,
            run_dir=folder,
            source=None if policy is None else options.path,
            **settings,
        ),
        options,
        title=f"{env_id}, {task.name}, {options.algorithm} from {kind}, seed {options.seed}",
        folder=folder,
        unit="environment steps",
        then=f"to continue: {command('rover', 'resume', folder)}",
    )


def _read_origin(options: argparse.Namespace) -> tuple[Policy | None, str, dict[str, Any]]:
    """The policy, if one is taken over, and the environment it was trained on."""
    given = read_env_kwargs(options, options.path if not Path(options.path).exists() else "")
    scratch = options.origin == "scratch"
    if scratch and options.freeze:
        raise ConfigurationError("--freeze has no meaning with --from scratch")
    if not Path(options.path).exists():
        if not scratch:
            raise ConfigurationError(
                f"{options.path!r} does not exist; give the run folder of `rover pretrain`, or "
                "learn from scratch with --from scratch"
            )
        return None, options.path, given
    if given:
        raise ConfigurationError(
            "--env, --env-kwargs and --observation are of an environment given by its id; a run "
            "has its own"
        )
    trained = read_trained(Path(options.path))
    return None if scratch else trained.policy, trained.env_id, trained.env_kwargs


def _frozen(options: argparse.Namespace) -> list[str] | None:
    if options.freeze is None:
        return None
    if "nothing" in options.freeze and len(options.freeze) > 1:
        raise ConfigurationError("--freeze nothing contradicts the other --freeze")
    return [part for part in options.freeze if part != "nothing"]


def _stem(options: argparse.Namespace) -> str:
    path = Path(options.path)
    if not path.exists():
        return slug(options.path)
    return path.name if path.is_dir() else path.resolve().parent.name
