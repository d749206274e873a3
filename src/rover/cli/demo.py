"""``rover demo``: from nothing to pictures in under a minute."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from rover.cli import exit_codes
from rover.cli.arguments import Commands, add_command, add_progress_options, whole_number
from rover.cli.pretrain import free_folder, learn, show_result
from rover.cli.tables import command, make_console

ENV_ID = "rover/MultiRooms-v0"
OBSERVATION = "onehot"
STEPS = 1500

_DESCRIPTION = f"""\
Pretrain on {ENV_ID} (five rooms on a corridor, no reward), print what was learned, and draw it.
Takes less than a minute.
"""

_EXAMPLES = """\
  rover demo
  rover demo --seed 1 --no-open
"""

_MEANING = """\
Coverage is the share of all states that 20 episodes of the learned policy visit together.
J/J* says how evenly it visits them: 1 is the best that any policy can do.
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "demo",
        summary="pretrain on five rooms and look at the result, in a minute",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument(
        "--steps",
        type=whole_number(1),
        default=STEPS,
        metavar="N",
        help=f"environment steps [default: {STEPS}]",
    )
    parser.add_argument(
        "--seed", type=whole_number(0), default=0, metavar="N", help="seed [default: 0]"
    )
    parser.add_argument(
        "--run-dir",
        type=Path,
        metavar="DIR",
        help="folder of the run [default: runs/demo, numbered if that exists]",
    )
    parser.add_argument(
        "--no-open", action="store_true", help="do not open the pictures in a viewer"
    )
    add_progress_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Pretrain, print, draw, and open the pictures where there is a display."""
    console = make_console()
    folder = options.run_dir or free_folder(Path("runs") / "demo")
    console.print(
        f"Pretraining on {ENV_ID} with {OBSERVATION} observations for {options.steps} steps, "
        "without any reward ..."
    )
    from rover.coverage.agent import Rover

    agent = Rover(
        ENV_ID, env_kwargs={"observation": OBSERVATION}, seed=options.seed, run_dir=folder
    )
    if not learn(agent, options.steps, options):
        return exit_codes.INTERRUPTED
    show_result(agent, f"{ENV_ID}, {OBSERVATION} observations, seed {options.seed}")
    console.print(f"\n{_MEANING}", soft_wrap=True)
    draw_and_show(folder, open_viewer=not options.no_open)
    console.print(
        "\ntry next:\n"
        f"  {command('rover', 'finetune', folder)} --task goal=room5 --steps 20000\n"
        "  rover pretrain rover/Maze-v0\n"
        "  rover pretrain rover/MultiRooms-v0 --env rooms=7 --steps 4000\n"
        "  rover pretrain FrozenLake-v1\n"
        "  rover envs"
    )
    return exit_codes.DONE


def draw_and_show(folder: Path, *, open_viewer: bool) -> None:
    """Draw the pictures of a run, print their paths, and open them where there is a display."""
    from rover.plots import plot_run

    console = make_console()
    console.print("pictures:")
    for picture in plot_run(folder):
        console.print(f"  {picture}", soft_wrap=True)
    opener = viewer(sys.platform, os.environ)
    directory = folder / "pictures"
    if opener is None:
        console.print("There is no display here; copy them to a machine that has one.")
    elif open_viewer and show(opener, directory):
        console.print(f"opened with: {command(opener, directory)}", soft_wrap=True)
    else:
        console.print(f"open them with: {command(opener, directory)}", soft_wrap=True)


def viewer(platform: str, environment: Mapping[str, str]) -> str | None:
    """The program that opens a folder on the user's display; None where there is none.

    Args:
        platform: as ``sys.platform``.
        environment: the process's environment variables.
    """
    if platform == "darwin":
        return shutil.which("open")
    if environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"):
        return shutil.which("xdg-open")
    return None


def show(opener: str, folder: Path) -> bool:
    """Open a folder without waiting for the viewer; whether it could be started."""
    try:
        subprocess.Popen(
            [opener, str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
