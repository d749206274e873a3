"""Six environments of others: minutes to a picture and a figure beside random actions.

    python benchmarks/first_hour.py [--steps 1500] [--only NAME] [--keep FOLDER]

Two puzzles, two robots and two changing mazes, with the spaces that an author would give them, go
through `rover pretrain` and `rover plot` as they are. Printed for each: minutes of both commands,
the pictures, and the figures of the policy and of random actions.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rover.cli import main as rover


class Timed(gym.Env):
    """An environment whose episodes take a number of steps, drawn by the generator of its seed."""

    limit = 60

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.age = 0
        self.begin()
        return self.look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.age += 1
        self.move(action)
        return self.look(), float(self.reward()), False, self.age >= self.limit, {}

    def reward(self) -> float:
        return 0.0


class Lights(Timed):
    """Lights out on 3 by 3 fields."""

    observation_space, action_space = spaces.MultiBinary(9), spaces.Discrete(9)

    def begin(self) -> None:
        self.on = self.np_random.integers(0, 2, 9, dtype=np.int8)

    def move(self, action: Any) -> None:
        row, column = np.divmod(np.arange(9), 3)
        near = np.abs(row - action // 3) + np.abs(column - action % 3) < 2
        self.on = self.on ^ near.astype(np.int8)

    def look(self) -> Any:
        return self.on


class Sliding(Timed):
    """Five tiles on 2 by 3 fields; an action names the direction in which a tile moves."""

    observation_space = spaces.MultiDiscrete(np.full((2, 3), 6))
    action_space = spaces.Discrete(4, start=1)

    def begin(self) -> None:
        self.board = np.arange(6).reshape(2, 3)

    def move(self, action: Any) -> None:
        row, column = np.argwhere(self.board == 0)[0]
        down, right = ((1, 0), (-1, 0), (0, 1), (0, -1))[int(action) - 1]
        other = row + down, column + right
        if 0 <= other[0] < 2 and 0 <= other[1] < 3:
            board = self.board.copy()
            board[row, column], board[other] = board[other], 0
            self.board = board

    def look(self) -> Any:
        return self.board.copy()


class Cart(Timed):
    """A cart in a walled square, with friction: place and speed, two forces."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    limit = 100

    def begin(self) -> None:
        self.place, self.speed = self.np_random.uniform(-0.05, 0.05, 2), np.zeros(2)

    def move(self, action: Any) -> None:
        self.speed = 0.9 * self.speed + 0.03 * np.clip(action, -1.0, 1.0)
        wanted = self.place + self.speed
        self.place = np.clip(wanted, -1.0, 1.0)
        self.speed = np.where(wanted == self.place, self.speed, 0.0)

    def look(self) -> Any:
        return np.concatenate([self.place, self.speed]).astype(np.float32)

    def reward(self) -> float:
        return float(np.linalg.norm(self.place - 0.8) < 0.15)


class Arm(Timed):
    """An arm of two joints without gravity: angles, speeds and the hand, as a dictionary."""

    observation_space = spaces.Dict(
        {
            "angles": spaces.Box(-np.pi, np.pi, (2,), np.float64),
            "speeds": spaces.Box(-9.0, 9.0, (2,), np.float64),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    limit = 100

    def begin(self) -> None:
        self.angles, self.speeds = self.np_random.uniform(-0.1, 0.1, 2), np.zeros(2)

    def move(self, action: Any) -> None:
        self.speeds = np.clip(0.9 * self.speeds + 0.1 * np.asarray(action), -9.0, 9.0)
        wanted = self.angles + 0.3 * self.speeds
        self.angles = np.clip(wanted, -3.0, 3.0)
        self.speeds = np.where(wanted == self.angles, self.speeds, 0.0)

    def look(self) -> Any:
        return {"angles": self.angles, "speeds": self.speeds}


class _Maze(Timed):
    """A maze of 9 by 9 fields that every episode draws anew."""

    action_space, limit = spaces.Discrete(4), 100

    def begin(self) -> None:
        self.walls = np.ones((9, 9), bool)
        stack = [(1, 1)]
        self.walls[1, 1] = False
        while stack:
            row, column = stack[-1]
            ways = [(a, b) for a, b in ((2, 0), (-2, 0), (0, 2), (0, -2))]
            ways = [
                (a, b)
                for a, b in ways
                if 0 < row + a < 8 and 0 < column + b < 8 and self.walls[row + a, column + b]
            ]
            if not ways:
                stack.pop()
                continue
            down, right = ways[self.np_random.integers(len(ways))]
            self.walls[row + down // 2, column + right // 2] = False
            self.walls[row + down, column + right] = False
            stack.append((row + down, column + right))
        self.at, self.has_key = (1, 1), 0

    def move(self, action: Any) -> None:
        down, right = ((1, 0), (-1, 0), (0, 1), (0, -1))[int(action)]
        place = self.at[0] + down, self.at[1] + right
        if not self.walls[place]:
            self.at = place


class ViewMaze(_Maze):
    """The maze seen as the fields around the agent."""

    observation_space = spaces.Box(0, 1, (3, 3), np.uint8)

    def look(self) -> Any:
        row, column = self.at
        return self.walls[row - 1 : row + 2, column - 1 : column + 2].astype(np.uint8)


class KeyMaze(_Maze):
    """The maze with the place, the walls around it and a key at its far corner."""

    observation_space = spaces.Dict(
        {
            "walls": spaces.MultiBinary((3, 3)),
            "place": spaces.MultiDiscrete([9, 9]),
            "key": spaces.Discrete(2),
        }
    )

    def move(self, action: Any) -> None:
        super().move(action)
        self.has_key = int(self.has_key or self.at == (7, 7))

    def look(self) -> Any:
        row, column = self.at
        around = self.walls[row - 1 : row + 2, column - 1 : column + 2].astype(np.int8)
        return {"walls": around, "place": np.array(self.at), "key": self.has_key}


ENVIRONMENTS = {
    "puzzle/Lights-v0": Lights,
    "puzzle/Sliding-v0": Sliding,
    "robot/Cart-v0": Cart,
    "robot/Arm-v0": Arm,
    "maze/View-v0": ViewMaze,
    "maze/Key-v0": KeyMaze,
}
for _id, _class in ENVIRONMENTS.items():
    if _id not in gym.registry:  # as a program and as a module
        gym.register(_id, _class)


def run(words: list[str]) -> tuple[int, str]:
    """Exit status and the output of a command."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = rover(words)
    return code, out.getvalue()


def main() -> None:
    """Print one block for each environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--only", choices=ENVIRONMENTS)
    parser.add_argument("--keep", type=Path, help="folder for the runs")
    options = parser.parse_args()
    for env_id in ENVIRONMENTS if options.only is None else [options.only]:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.keep or Path(temporary)) / env_id.partition("/")[2]
            began = time.perf_counter()
            code, said = run(
                [
                    *("pretrain", env_id, "--import", "first_hour", f"--steps={options.steps}"),
                    *("--run-dir", str(folder), "--no-progress", "--seed", "100"),
                ]
            )
            if code == 0:
                code, drawn = run(["plot", str(folder), "--no-progress"])
                said += drawn
            minutes = (time.perf_counter() - began) / 60.0
            print(f"{env_id}: exit {code}, {minutes:.1f} minutes", flush=True)
            for line in said.splitlines():
                print(f"    {line}"[:170], flush=True)
            if code == 0:
                pictures = sorted(path.name for path in folder.rglob("*.png"))
                summary = json.loads((folder / "summary.json").read_text())
                shown = {k: v for k, v in summary.items() if k.startswith(("visited", "random_"))}
                print(f"    pictures: {', '.join(pictures)}; {shown}", flush=True)


if __name__ == "__main__":
    main()
