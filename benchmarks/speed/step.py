"""CPU time of a step while exploring: by environment, by phase, and by how much is known.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.step kinds --steps 1000 10000
    OMP_NUM_THREADS=1 python -m benchmarks.speed.step lattice --sides 32 100 316
    OMP_NUM_THREADS=1 python -m benchmarks.speed.step copies

`kinds`: CPU minutes of whole runs, milliseconds a step between the last two numbers of steps, from
which 100,000 steps are extrapolated, and the shares of the longest run that its phases took.
`lattice`: an open lattice of side² states is seen as Discrete until every state was seen; CPU
milliseconds a step of the whole run, policies and measurements included, and the resident memory.
`copies`: wall seconds of 800 steps, of 20 ms each, alone and in four copies in processes.
"""

from __future__ import annotations

import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import gymnasium as gym

import benchmarks.worlds.arenas  # noqa: F401  (registers environments)
import rover
from benchmarks.common import begin, parser, report, resident
from benchmarks.worlds.small import Lattice

MOST_STEPS = 6  # for each state of a lattice

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "grid, states (109)": ("rover/MultiRooms-v0", {}),
    "grid, one-hot (108)": ("rover/Maze-v0", {"observation": "onehot"}),
    "grid, 84×84 pixels (109)": ("rover/MultiRooms-v0", {"observation": "pixels"}),
    "2 numbers, MountainCar": ("MountainCar-v0", {}),
    "4 numbers, CartPole": ("CartPole-v1", {}),
    "3 numbers and a torque, Pendulum": ("Pendulum-v1", {}),
    "6 numbers, Acrobot": ("Acrobot-v1", {}),
    "toy text, Taxi": ("Taxi-v4", {}),
    "a point in a maze": ("arenas/PointMaze-v0", {"size": "Medium"}),
}


def lattice(side: int, seed: int) -> dict[str, Any]:
    """Cost of a run until every state of a lattice was seen."""
    agent, size = rover.Rover(Lattice(side), seed=seed), side * side
    unfinished = SimpleNamespace(on_step=lambda run: len(run.buffer.observations) < size)
    began = time.process_time()
    agent.learn(MOST_STEPS * size, callback=unfinished)
    ms = 1000 * (time.process_time() - began) / agent.num_timesteps
    return {"states": size, "steps": agent.num_timesteps, "ms a step": ms, "MB": resident()}


def kind(name: str, steps: list[int], seed: int) -> dict[str, Any]:
    """CPU minutes of whole runs, extrapolated to 100,000 steps."""
    (env_id, keywords), seconds = KINDS[name], []
    for n_steps in steps:
        began = time.process_time()
        agent = rover.Rover(gym.make(env_id, **keywords), seed=seed).learn(n_steps)
        seconds.append(time.process_time() - began)
    whole, each = sum(agent.seconds.values()), (seconds[-1] - seconds[-2]) / (steps[-1] - steps[-2])
    return {
        "kind": name,
        **{f"{n:,}": one / 60.0 for n, one in zip(steps, seconds, strict=True)},
        "100,000": (seconds[-1] + each * (100_000 - steps[-1])) / 60.0,
        "ms a step": 1000.0 * each,
        **{phase: seconds / whole for phase, seconds in agent.seconds.items()},
    }


class Slow(gym.Wrapper[Any, Any, Any, Any]):
    """A simulator that takes 20 ms a step."""

    def step(self, action: Any) -> Any:
        time.sleep(0.02)
        return self.env.step(action)


def copies(name: str, seed: int) -> dict[str, Any]:
    """Wall seconds of 800 steps of a simulator that takes 20 ms, alone and in four copies."""
    (env_id, keywords), times = KINDS[name], []
    for n in (1, 4):
        how = {"num_envs": n, "env_processes": n > 1, "measure_share": 0.0}
        agent = rover.Rover(lambda: Slow(gym.make(env_id, **keywords)), seed=seed, **how)
        times.append(agent.learn(800).wall_seconds)
    return {"kind": name, "one": times[0], "four": times[1], "share": times[1] / times[0]}


def main() -> None:
    arguments = parser(__doc__, only=[""], sides=[32, 100], steps=[1000, 10_000])
    arguments.add_argument("what", choices=("kinds", "lattice", "copies"))
    arguments.add_argument("--seed", type=int, default=100)
    asked = arguments.parse_args()
    begin()
    if asked.what == "lattice":
        report(lattice(side, asked.seed) for side in asked.sides)
    else:
        chosen = (name for name in KINDS if name.startswith(tuple(asked.only)))
        measured: Any = copies if asked.what == "copies" else partial(kind, steps=asked.steps)
        report(measured(name, seed=asked.seed) for name in chosen)


if __name__ == "__main__":
    main()
