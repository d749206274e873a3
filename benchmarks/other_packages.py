"""Environments of seven other packages through six commands, with everything that is said.

    pip install gymnasium-2048 popgym mo-gymnasium safety-gridworlds-gymnasium \
        flappy-bird-gymnasium gym-simplegrid highway-env
    python benchmarks/other_packages.py [--steps 400] [--only ID]

Each environment is pretrained on, then the run is resumed to a few more steps, evaluated, solved
for the environment's reward, adapted to it and certified. Printed: for each command its seconds and
exit status, and each warning and error. Packages that are not installed are named and left out.
"""

from __future__ import annotations

import argparse
import io
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import numpy as np

from rover.cli import main as rover

ENVIRONMENTS = {
    "gymnasium_2048": ["gymnasium_2048/TwentyFortyEight-v0"],
    "popgym": ["popgym-RepeatPreviousEasy-v0", "popgym-PositionOnlyCartPoleEasy-v0"],
    "mo_gymnasium": [
        f"weighted/{name}"
        for name in ("deep-sea-treasure-v0", "resource-gathering-v0", "mo-mountaincar-v0")
    ],
    "safety_gridworlds_gymnasium": [
        "safety_gridworlds/IslandNavigation-v0",
        "safety_gridworlds/Sokoban-v0",
    ],
    "flappy_bird_gymnasium": ["FlappyBird-v0"],
    "gym_simplegrid": ["SimpleGrid-8x8-v0"],
    "highway_env": ["highway-fast-v0"],
}


def _weighted(env_id: str) -> Callable[[], gym.Env]:
    """An environment of several objectives, wrapped as the message on its rewards says."""
    return lambda: gym.wrappers.TransformReward(gym.make(env_id), lambda r: float(np.sum(r)))


for _id in ENVIRONMENTS["mo_gymnasium"]:
    if find_spec("mo_gymnasium") is not None and _id not in gym.registry:
        import_module("mo_gymnasium")
        gym.register(_id, _weighted(_id.partition("/")[2]))


def run(words: list[str]) -> tuple[int, float, list[str]]:
    """Exit status, seconds, and the lines that warn, of a command."""
    out, err, began = io.StringIO(), io.StringIO(), time.perf_counter()
    with redirect_stdout(out), redirect_stderr(err):
        code = rover(words)
    said = [line for line in err.getvalue().splitlines() if line.strip()]
    return code, time.perf_counter() - began, said


def main() -> None:
    """Print what each command says of each environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--only", help="the id of one environment")
    options = parser.parse_args()
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    n_clean = n_run = 0
    for module, ids in ENVIRONMENTS.items():
        if find_spec(module) is None:
            print(f"{module} is not installed")
            continue
        for env_id in ids if options.only is None else {*ids} & {options.only}:
            with tempfile.TemporaryDirectory() as folder:
                pretrained, steps = str(Path(folder, "run")), options.steps
                solved, adapted = (str(Path(folder, name)) for name in ("solved", "adapted"))
                is_ours = env_id.startswith("weighted/")
                own = ["--import", "other_packages" if is_ours else module]
                quiet = [*own, "--no-progress"]
                commands = [
                    ["pretrain", env_id, f"--steps={steps}", "--run-dir", pretrained, *quiet],
                    ["resume", pretrained, f"--steps={steps + 100}", *quiet],
                    ["evaluate", pretrained, "--episodes=5", *quiet],
                    ["solve", pretrained, "--reward-from-env", "--run-dir", solved, *own],
                    ["adapt", pretrained, f"--steps={steps // 2}", "--run-dir", adapted, *quiet],
                    ["certify", pretrained, *own],
                ]
                for words in commands:
                    code, seconds, said = run(words)
                    n_run, n_clean = n_run + 1, n_clean + (code == 0)
                    print(f"{env_id:40} {words[0]:9} {code} {seconds:6.1f} s", flush=True)
                    for line in said:
                        print(f"    {line.replace(folder, 'FOLDER')}", flush=True)
    print(f"{n_clean} of {n_run} commands ended well")


if __name__ == "__main__":
    main()
