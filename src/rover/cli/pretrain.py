"""``rover pretrain ENV``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rover.baselines.methods import check_preset
from rover.cli import exit_codes
from rover.cli.arguments import (
    Commands,
    add_command,
    add_env_options,
    add_method_options,
    add_progress_options,
    add_settings,
    add_tensorboard_option,
    read_env_kwargs,
    read_settings,
    whole_number,
)
from rover.cli.tables import command, make_console, summary_table

if TYPE_CHECKING:
    from rover.baselines.peer import Peer
    from rover.coverage.agent import Rover

DEFAULT_STEPS = {"default": 3000, "fast": 10_000, "paper": 10_000}

_DESCRIPTION = """\
Pretrain ROVER, or another reward-free method, on an environment. The reward is never looked at: the
result is a policy whose episodes cover the states of the environment as evenly as possible.

ENV is any Gymnasium id with discrete actions and Discrete, vector or image observations;
"module:Name-v0" imports the module that registers it. `rover envs` lists rover's own.

All files go to one run folder: settings, metrics, the policy, the replay buffer, checkpoints. A run
that was stopped is continued with `rover resume RUN`, and ends in the same bits.

The settings below are ROVER's and have the value of the preset unless given. Where None is one of
the values, the word is none, as in --plan-transitions none.
"""

_EXAMPLES = """\
  rover pretrain rover/MultiRooms-v0
  rover pretrain rover/MultiRooms-v0 --env rooms=7 --observation onehot --seed 3
  rover pretrain FrozenLake-v1 --env is_slippery=false --steps 2000
  rover pretrain rover/TwoRooms-v0 --observation pixels --preset paper
  rover pretrain rover/TwoRooms-v0 --observation onehot --method rnd --set learner.batch_size=64
  rover pretrain MountainCar-v0 --steps 5000 --discount 0.995 --bandwidth 0.05
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "pretrain",
        summary="pretrain on an environment without its reward",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.usage = (
        "rover pretrain ENV [--method NAME] [--preset NAME] [--steps N] [--seed N]\n"
        "                      [--run-dir DIR] [--observation KIND] [--env KEY=VALUE] ...\n"
        "                      [--SETTING VALUE] ... [--set KEY=VALUE] ..."
    )
    parser.add_argument("env_id", metavar="ENV", help="Gymnasium id, such as rover/Maze-v0")
    add_env_options(parser)
    parser.add_argument(
        "--preset",
        choices=list(DEFAULT_STEPS),
        help="ROVER: 'default', the best settings known, or 'paper', the paper's to the letter; "
        "other methods: 'fast', small networks for a laptop, or 'paper' [default: default or fast]",
    )
    steps = ", ".join(f"{number} with preset {name}" for name, number in DEFAULT_STEPS.items())
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        metavar="N",
        help=f"environment steps [default: {steps}]",
    )
    parser.add_argument(
        "--seed",
        type=whole_number(0),
        default=0,
        metavar="N",
        help="everything random follows from it; the same seed gives the same bits [default: 0]",
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder of the run [default: runs/ENV-PRESET-seedN, or runs/ENV-METHOD-PRESET-seedN "
        "for another method than ROVER; numbered if that exists]",
    )
    add_tensorboard_option(parser)
    add_progress_options(parser)
    add_method_options(parser)
    add_settings(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Pretrain, and show the result."""
    env_kwargs = read_env_kwargs(options, options.env_id)
    settings = read_settings(options)
    preset = check_preset(options.method, options.preset)
    kind = preset if options.method == "rover" else f"{options.method}-{preset}"
    folder = options.run_dir or free_folder(
        Path("runs") / f"{slug(options.env_id)}-{kind}-seed{options.seed}"
    )
    from rover.baselines.peer import make_agent

    agent = make_agent(
        options.method,
        options.env_id,
        preset,
        env_kwargs=env_kwargs,
        seed=options.seed,
        run_dir=folder,
        **settings,
    )
    steps = options.steps or DEFAULT_STEPS[preset]
    if not learn(agent, steps, options):
        return exit_codes.INTERRUPTED
    show_result(agent, run_title(agent, options.env_id))
    return exit_codes.DONE


def run_title(agent: Rover | Peer, env_id: str | None) -> str:
    """What was run, in a line."""
    method = "" if agent.method == "rover" else f"{agent.method}, "
    return f"{env_id}, {method}preset {agent.preset}, seed {agent.seed}"


def learn(agent: Rover | Peer, steps: int, options: argparse.Namespace) -> bool:
    """Make `steps` more environment steps.

    Returns:
        False if the run was interrupted; then one line says how to go on.
    """
    assert agent.run_dir is not None
    try:
        agent.learn(
            steps,
            progress_bar=not options.no_progress and sys.stderr.isatty(),
            tensorboard=getattr(options, "tensorboard", False),
        )
    except KeyboardInterrupt:
        if (agent.run_dir / "config.json").exists():
            advice = f"; continue with: {command('rover', 'resume', agent.run_dir)}"
        else:
            advice = " before anything was written"
        sys.stderr.write(f"rover: interrupted at step {agent.num_timesteps}{advice}\n")
        return False
    return True


def show_result(agent: Rover | Peer, title: str) -> None:
    """The table of a run, and what can be done with it next."""
    assert agent.run_dir is not None
    console = make_console()
    console.print(summary_table(title, agent.summary(), episodes=agent.evaluation_episodes))
    for purpose, words in (
        ("run folder", str(agent.run_dir)),
        ("pictures", command("rover", "plot", agent.run_dir)),
        ("in depth", command("rover", "evaluate", agent.run_dir)),
    ):
        console.print(f"{purpose + ':':12}{words}", soft_wrap=True)


def free_folder(path: Path) -> Path:
    """`path`, or `path` with the first number behind it that is not taken."""
    candidate, number = path, 2
    while candidate.exists():
        candidate = path.with_name(f"{path.name}-{number}")
        number += 1
    return candidate


def slug(env_id: str) -> str:
    """An environment's id as part of a folder's name."""
    return re.sub(r"[^\w.-]+", "-", env_id.rpartition(":")[2])
