"""Arguments, tables, cells and the lines about the machine that the benchmarks share."""

from __future__ import annotations

import argparse
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import torch

from rover_bench.measure import describe_provenance, provenance

Cell = Callable[[Any], tuple[int, ...] | None]
"""From an observation to the cell that it lies in, if any."""

Row = dict[str, Any]
"""Cells of a table by their columns."""


class _Flat(argparse.Action):
    """Joins the lists that the words of an argument stand for."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, list(itertools.chain(*values)))


def parser(text: str | None, **lists: Iterable[Any]) -> argparse.ArgumentParser:
    """A parser of a benchmark's arguments, whose help is the benchmark's docstring.

    Each of `lists` is an argument of several values, given with its default, by words or with
    commas: ``--seeds 100 101`` or ``--seeds 100,101``.
    """
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawTextHelpFormatter, allow_abbrev=False
    )
    made.add_argument("--csv", type=Path, help="file that rows are added to, where there are some")
    for name, values in lists.items():
        usual = list(values)
        kind = type(usual[0])
        made.add_argument(
            f"--{name}",
            nargs="+",
            action=_Flat,
            type=lambda words, kind=kind: [kind(word) for word in words.split(",")],
            default=usual,
            help=" ".join(map(str, usual)),
        )
    return made


def begin(*, threads: int = 1) -> None:
    """Silence warnings, set the threads of torch, and print hardware, versions and commit."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    print(*describe_provenance([provenance(jobs=1)]), f"{threads} thread(s) of torch.", sep="\n")


def report(rows: Iterable[Row], path: Path | None = None) -> list[Row]:
    """Print rows as they are made, below the names of their columns, and add them to a file."""
    made: list[Row] = []
    for row in rows:
        names = [f"{name:>12}" for name in row]
        if not made:
            print(*names, sep="  ")
        cells = (f"{x:.4g}" if isinstance(x, float) else str(x) for x in row.values())
        shown = (f"{cell:>{len(name)}}" for cell, name in zip(cells, names, strict=True))
        print(*shown, sep="  ", flush=True)
        if path is not None:
            is_new = not path.exists()
            table = pd.DataFrame([row])
            table.to_csv(path, mode="a", header=is_new, index=False, lineterminator="\n")
        made.append(row)
    return made


def summarise(rows: Iterable[Row], *by: str, middle: str = "median") -> None:
    """Print the median of each number of rows over seeds, with the extremes, by these columns."""
    frame = pd.DataFrame(rows)
    numbers = frame.drop(columns=[*by, "seed"]).select_dtypes("number")
    groups = numbers.groupby([frame[name] for name in by], sort=False)
    print(groups.agg([middle, "min", "max"]).round(3).to_string(), flush=True)


def resident() -> float:
    """Resident memory of this process in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6


def played(env: Any, act: Callable[[Any], Any], **how: Any) -> Iterator[tuple[Any, float, Any]]:
    """Observation, reward and info of each step of an episode; `how` it is reset."""
    seen, done = env.reset(**how)[0], False
    while not done:
        seen, reward, terminated, truncated, info = env.step(act(seen))
        done = terminated or truncated
        yield seen, float(reward), info


class Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """Keeps the first observation of each episode and its rewards."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.starts: list[Any] = []
        self.rewards: list[list[float]] = []

    def reset(self, **how: Any) -> Any:
        first, info = self.env.reset(**how)
        self.starts.append(first)
        self.rewards.append([])
        return first, info

    def step(self, action: Any) -> Any:
        returned = self.env.step(action)
        self.rewards[-1].append(float(returned[1]))
        return returned


def squares(low: Any, high: Any, n: int, of: Callable[[Any], Any]) -> Cell:
    """Cells of `n` parts of each of the numbers that `of` makes of an observation."""
    low, high = np.array(low), np.array(high)

    def cell(seen: Any) -> tuple[int, ...]:
        values = (np.array(of(seen)) - low) / (high - low) * n
        return tuple(np.clip(values, 0, n - 1).astype(int).tolist())

    return cell


def swing(cos: int, sin: int, speed: int, fastest: float) -> Cell:
    """Cells of an angle and its speed, at these places of an observation."""

    def of(seen: Any) -> Any:
        return math.atan2(seen[sin], seen[cos]), seen[speed]

    return squares([-math.pi, -fastest], [math.pi, fastest], 20, of)


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Notes the steps at which cells were first seen, and an episode first ended by itself.

    Without a `cell` they are the free cells of a maze, of which a `share` is to be seen.
    """

    def __init__(self, env: Any, cell: Cell | None, *, share: float = 0.95) -> None:
        super().__init__(env)
        self.first_seen: dict[tuple[int, ...], int] = {}
        self.first_end: int | None = None
        self.n_steps = 0
        self.needed = math.inf
        # Of a maze the free cells count: an ant may climb its walls.
        self._counted: set[tuple[int, ...]] | None = None
        if cell is None:
            maze = env.unwrapped.maze
            free = np.argwhere(np.array(maze.maze_map) != 1)
            self._counted = {(int(row), int(column)) for row, column in free}
            self.needed = math.ceil(share * len(free))

            def cell(seen: Any) -> tuple[int, ...]:
                row, column = maze.cell_xy_to_rowcol(seen[:2])
                return int(row), int(column)

        self._cell = cell

    def _note(self, seen: Any) -> None:
        cell = self._cell(seen)
        if cell is not None and (self._counted is None or cell in self._counted):
            self.first_seen.setdefault(cell, self.n_steps)

    def reset(self, **options: Any) -> Any:
        seen, info = self.env.reset(**options)
        self._note(seen)
        return seen, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.n_steps += 1
        self._note(result[0])
        if result[2] and self.first_end is None:
            self.first_end = self.n_steps
        return result

    @property
    def reached(self) -> int | None:
        """The step at which enough of a maze was seen, or an episode first ended."""
        if math.isinf(self.needed):
            return self.first_end
        times = sorted(self.first_seen.values())
        return times[int(self.needed) - 1] if len(times) >= self.needed else None
