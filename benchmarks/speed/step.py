"""CPU time of a step while exploring: by environment, by phase, and by how much is known.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.step phases --only taxi mountain-car
    OMP_NUM_THREADS=1 python -m benchmarks.speed.step growth
    OMP_NUM_THREADS=1 python -m benchmarks.speed.step lattice --sides 32 100 316
    OMP_NUM_THREADS=1 python -m benchmarks.speed.step kinds --steps 1000 10000

`phases`: seconds per 1,000 steps without evaluation, the share of each phase, and the growth of a
step's cost, which is the slope of log(seconds per step) over log(distinct observations) by least
squares over the stretches between two policies after the first four. `growth`: such exponents in
known states, actions and transitions. `lattice`: an open lattice of side² states is seen as
Discrete until every state was seen; CPU milliseconds a step of the whole run, policies and
measurements included, and from three quarters of the states on, and the resident memory. `kinds`:
CPU minutes of whole runs, and milliseconds a step between the last two numbers of steps, from which
100,000 steps are extrapolated. `phases` and `growth` are wall time: nothing else should run.
"""

from __future__ import annotations

import itertools
import math
import time
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

import benchmarks.worlds.arenas  # noqa: F401  (registers environments)
import rover
from benchmarks.common import begin, parser, report, resident
from benchmarks.speed.solve import rooms_and_doors
from benchmarks.worlds.small import Lattice

PHASES = ("collect", "represent", "estimate", "improve")
UPDATES = 4  # the first of the policy, which growth is not taken from
MOST_STEPS = 6  # for each state of a lattice

CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    # every state of these rooms is known after some 540 steps
    "multi-rooms-5, states": ("rover/MultiRooms-v0", {"observation": "state"}, 550),
    "multi-rooms-5, one-hot": ("rover/MultiRooms-v0", {"observation": "onehot"}, 550),
    "multi-rooms-5, pixels": ("rover/MultiRooms-v0", {"observation": "pixels"}, 550),
    "taxi": ("Taxi-v4", {}, 1000),
    "mountain-car": ("MountainCar-v0", {}, 1000),
    "mountain-car, noise": ("arenas/NoisyMountainCar-v0", {"noise": 4}, 1000),
    "point-maze, medium": ("arenas/PointMaze-v0", {"size": "Medium"}, 1000),
    # all 1,600 cells are seen, and the policy is the best one, after some 12,300 steps
    "open room, states": (
        "rover/Grid-v0",
        {"layout": "experiments/open_room.txt", "observation": "state"},
        12_500,
    ),
    # exploring alone: a policy is planned once, at the end
    "maze of 100,000 cells": ("rover/Grid-v0", {"observation": "state"}, 100_000),
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "grid, states (109)": ("rover/MultiRooms-v0", {}),
    "grid, one-hot (108)": ("rover/Maze-v0", {"observation": "onehot"}),
    "grid, 84×84 pixels (109)": ("rover/MultiRooms-v0", {"observation": "pixels"}),
    "2 numbers, MountainCar": ("MountainCar-v0", {}),
    "4 numbers, CartPole": ("CartPole-v1", {}),
    "3 numbers and a torque, Pendulum": ("Pendulum-v1", {}),
    "6 numbers, Acrobot": ("Acrobot-v1", {}),
    "toy text, Taxi": ("Taxi-v4", {}),
}


def spans(agent: rover.Rover, steps: int) -> list[dict[str, float]]:
    """Cost of each stretch between two policies: seconds of each phase and of all.

    With them the steps made and the observations known at its end, and its length in steps.
    """
    marks = [(0, 0, agent.seconds.copy(), time.perf_counter())]

    def note(_: Any) -> bool:  # at every update of the policy
        known = len(agent.buffer.observations)
        marks.append((agent.num_timesteps, known, agent.seconds.copy(), time.perf_counter()))
        return True

    agent.learn(steps, callback=note)
    found = []
    for (first, _, before, began), (last, known, after, ended) in itertools.pairwise(marks):
        spent = {phase: after[phase] - before[phase] for phase in after}
        spent["all"] = ended - began - spent.pop("evaluate") - spent.pop("store")
        found.append({**spent, "steps": last, "known": known, "length": last - first})
    return found


def phases(env_id: str, env_kwargs: dict[str, Any], steps: int, seed: int) -> dict[str, Any]:
    """Seconds per 1,000 steps, the share of each phase, and growth exponents of one run."""
    settings: dict[str, Any] = {"evaluation_episodes": 1}
    if env_id == "rover/Grid-v0" and "layout" not in env_kwargs:
        settings["policy_every"] = steps
        env_kwargs = {**env_kwargs, "layout": large_maze()}
    found = spans(rover.Rover(env_id, env_kwargs=env_kwargs, seed=seed, **settings), steps)
    total = {phase: sum(span[phase] for span in found) for phase in (*PHASES, "all")}
    late = found[UPDATES:]
    known = [span["known"] for span in late]
    return {
        "s per 1,000": total["all"] / steps * 1000,
        **{phase: total[phase] / total["all"] for phase in PHASES},
        "known": found[-1]["known"],
        **{
            f"growth, {name}": exponent(known, [span[name] / span["length"] for span in late])
            for name in ("all", "collect", "improve")
        },
    }


def growth(seed: int) -> dict[str, float]:
    """Exponents of a step's cost in known states, actions and transitions, in rooms from states.

    States: rooms 3 to 24 while they are discovered, the second half of each run. Actions: four
    to 32 of which each of the four moves has as many. Transitions: five slippery rooms, whose
    states are all known, from 1,500 steps on.
    """

    def late_cost(env: gym.Env[Any, Any], steps: int) -> tuple[float, float]:
        found = spans(rover.Rover(env, seed=seed, evaluation_episodes=1), steps)
        half = found[len(found) // 2 :]
        length = sum(span["length"] for span in half)
        return half[-1]["known"], sum(span["all"] for span in half) / length

    def rooms(count: int, **where: Any) -> gym.Env[Any, Any]:
        return gym.make("rover/MultiRooms-v0", rooms=count, observation="state", **where)

    by_states = [late_cost(rooms(count), 110 * count) for count in (3, 6, 12, 24)]
    n_actions = [4, 8, 16, 32]
    by_actions = []
    for count in n_actions:
        env = TransformAction(rooms(5), lambda action: int(action) % 4, spaces.Discrete(count))
        by_actions.append(late_cost(env, 140 * count)[1])
    slippery = rover.Rover(rooms(5, slip=0.2), seed=seed, evaluation_episodes=1)
    late = [span for span in spans(slippery, 6000) if span["steps"] > 1500]
    return {
        "states": exponent(*map(list, zip(*by_states, strict=True))),
        "actions": exponent([float(count) for count in n_actions], by_actions),
        "transitions": exponent(
            [span["steps"] for span in late], [span["all"] / span["length"] for span in late]
        ),
    }


def large_maze() -> str:
    """The map of the rooms and doors of :mod:`benchmarks.speed.solve`, from its first cell."""
    free = rooms_and_doors(347, np.random.default_rng(0))
    rows = ["".join(".#"[1 - int(cell)] for cell in row) for row in free]
    return "\n".join(["S" + rows[0][1:], *rows[1:]])


def exponent(known: list[float], costs: list[float]) -> float:
    """Least-squares slope of log cost over log known; nan where nothing was learned."""
    if len(known) < 3 or known[-1] < 1.2 * known[0]:
        return math.nan
    return float(np.polyfit(np.log(known), np.log(np.maximum(costs, 1e-6)), 1)[0])


class Stop:
    """Stops a run when every state was seen, and keeps the clock of the last quarter."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.quarter: tuple[int, float] | None = None

    def on_step(self, run: Any) -> bool:
        """False when every state was seen."""
        seen = len(run.buffer.observations)
        if self.quarter is None and seen >= 0.75 * self._size:
            self.quarter = run.num_timesteps, time.process_time()
        return bool(seen < self._size)


def lattice(side: int, seed: int) -> dict[str, Any]:
    """Cost of a run until every state of a lattice was seen."""
    agent, stop = rover.Rover(Lattice(side), seed=seed), Stop(side * side)
    began = time.process_time()
    agent.learn(MOST_STEPS * side * side, callback=stop)
    ended, steps = time.process_time(), agent.num_timesteps
    assert stop.quarter is not None
    first, at = stop.quarter
    return {
        "states": side * side,
        "steps": steps,
        "ms a step": 1000 * (ended - began) / steps,
        "last quarter": 1000 * (ended - at) / max(steps - first, 1),
        "MB": resident(),
    }


def kind(name: str, steps: list[int], seed: int) -> dict[str, Any]:
    """CPU minutes of whole runs, extrapolated to 100,000 steps."""
    env_id, keywords = KINDS[name]
    seconds = []
    for n_steps in steps:
        began = time.process_time()
        rover.Rover(gym.make(env_id, **keywords), seed=seed).learn(n_steps)
        seconds.append(time.process_time() - began)
    each = (seconds[-1] - seconds[-2]) / (steps[-1] - steps[-2])
    return {
        "kind": name,
        **{f"{n:,}": one / 60.0 for n, one in zip(steps, seconds, strict=True)},
        "100,000": (seconds[-1] + each * (100_000 - steps[-1])) / 60.0,
        "ms a step": 1000.0 * each,
    }


def main() -> None:
    """Print a row for each case."""
    arguments = parser(__doc__, only=[""], sides=[32, 100], steps=[1000, 10_000])
    whats = ("phases", "growth", "lattice", "kinds")
    arguments.add_argument("what", nargs="?", choices=whats, default="phases")
    arguments.add_argument("--seed", type=int, default=100)
    asked = arguments.parse_args()
    begin()
    starts, rows = tuple(asked.only), iter([])
    if asked.what == "phases":
        cases = {name: case for name, case in CASES.items() if name.startswith(starts)}
        rows = ({"case": name} | phases(*case, asked.seed) for name, case in cases.items())
    elif asked.what == "growth":
        rows = iter([growth(asked.seed)])
    elif asked.what == "lattice":
        rows = (lattice(side, asked.seed) for side in asked.sides)
    else:
        chosen = [name for name in KINDS if name.startswith(starts)]
        rows = (kind(name, asked.steps, asked.seed) for name in chosen)
    report(rows)


if __name__ == "__main__":
    main()
