"""Vectors of numbers: milliseconds a step, and how even the coverage of a puzzle is.

    OMP_NUM_THREADS=1 python benchmarks/vectors.py [--seeds 100 101 102]

Three environments with the spaces that an author would give them: twelve bounded numbers that never
repeat (six coupled carts, three forces), asked are at most 10 ms a step at 300, 1,500 and 10,000
steps; a board of sixteen whole numbers as floats, 5,000 steps, asked are at most 2 ms; and
lights out on 3 by 3 fields as MultiBinary, which always begins with all lights on, 6,000 steps,
asked is J/J* of at most 1.01. Milliseconds are CPU time of the whole run in one thread, without
the environment's own steps and the measurement of random actions.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rover
from rover.envs import FiniteDynamics, FiniteMDP
from rover.evaluation import FiniteEvaluator

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show
from first_hour import Lights, Timed

LENGTHS = 300, 1500, 10_000
BOARD_STEPS, LIGHTS_STEPS = 5000, 6000


class Carts(Timed):
    """Six carts on a line that springs couple, three of them driven: places and speeds."""

    observation_space = spaces.Box(-3.0, 3.0, (12,), np.float32)
    action_space = spaces.Discrete(6)
    limit = 200

    def begin(self) -> None:
        self.places, self.speeds = self.np_random.uniform(-0.05, 0.05, 6), np.zeros(6)

    def move(self, action: Any) -> None:
        force = np.zeros(6)
        force[2 * (action // 2)] = 0.1 if action % 2 else -0.1
        apart = np.diff(self.places, prepend=0.0)
        force += 0.05 * (np.append(apart[1:], 0.0) - apart)
        self.speeds = np.clip(0.95 * self.speeds + force, -3.0, 3.0)
        self.places = np.clip(self.places + 0.3 * self.speeds, -3.0, 3.0)

    def look(self) -> Any:
        return np.concatenate([self.places, self.speeds]).astype(np.float32)


class Board(Timed):
    """A token that pushes a box on 4 by 4 fields with a wall: sixteen whole numbers as floats."""

    observation_space = spaces.Box(0.0, 3.0, (16,), np.float32)
    action_space = spaces.Discrete(4)

    def begin(self) -> None:
        self.board = np.zeros((4, 4), np.float32)
        self.board[0, 0], self.board[2, 2], self.board[1, 1] = 3.0, 2.0, 1.0

    def move(self, action: Any) -> None:
        here = np.argwhere(self.board == 3.0)[0]
        way = np.array(((1, 0), (-1, 0), (0, 1), (0, -1))[int(action)])
        there, beyond = here + way, here + 2 * way
        board = self.board.copy()
        if _is_field(there) and board[*there] == 2.0 and _is_free(board, beyond):
            board[*there], board[*beyond] = 0.0, 2.0
        if _is_free(board, there):
            board[*here], board[*there] = 0.0, 3.0
        self.board = board

    def look(self) -> Any:
        return self.board.ravel().copy()


def _is_field(place: Any) -> bool:
    return bool((place >= 0).all() and (place < 4).all())


def _is_free(board: Any, place: Any) -> bool:
    return _is_field(place) and board[*place] == 0.0


class LightsOn(Lights):
    """Lights out that always begins with all lights on."""

    def begin(self) -> None:
        self.on = np.ones(9, np.int8)


def lights_problem() -> FiniteMDP:
    """Lights out as a table of its 512 states, which the agent does not see."""
    game, n_states = LightsOn(), 512
    boards = (np.arange(n_states)[:, None] >> np.arange(9) & 1).astype(np.int8)
    successors = np.zeros((n_states, 9), np.int64)
    for state, board in enumerate(boards):
        for action in range(9):
            game.on = board
            game.move(action)
            successors[state, action] = int((game.on.astype(np.int64) << np.arange(9)).sum())
    start = np.zeros(n_states)
    start[-1] = 1.0
    return FiniteMDP(
        FiniteDynamics.from_table(successors, start, np.zeros(n_states, np.bool_)), boards
    )


def cpu_ms(env: gym.Env[Any, Any], n_steps: int, seed: int) -> tuple[float, rover.Rover]:
    """CPU milliseconds a step of a run, without the environment's steps, and its agent."""
    agent = rover.Rover(env, seed=seed, measure_share=0.0)
    began = time.process_time()
    agent.learn(n_steps)
    spent = time.process_time() - began
    twin, rng, began = type(env)(), np.random.default_rng(0), time.process_time()
    twin.reset(seed=seed)
    for step in range(n_steps):
        if step % twin.limit == twin.limit - 1:  # type: ignore[attr-defined]
            twin.reset()
        twin.step(int(rng.integers(4)))
    return 1e3 * (spent - (time.process_time() - began)) / n_steps, agent


def main() -> None:
    """Read the command line."""
    options = parser(__doc__, seeds=[100, 101, 102]).parse_args()
    begin()
    rover.Rover(Carts(), seed=0, measure_share=0.0).learn(60)  # imports and first calls
    problem, is_first = lights_problem(), True
    for seed in options.seeds:
        row: dict[str, Any] = {"seed": seed}
        for n_steps in LENGTHS:
            row[f"12 at {n_steps:,}"] = cpu_ms(Carts(), n_steps, seed)[0]
        row["board"] = cpu_ms(Board(), BOARD_STEPS, seed)[0]
        row["lights, ms"], agent = cpu_ms(LightsOn(), LIGHTS_STEPS, seed)
        discount = agent.config.discount
        assert discount is not None
        evaluator = FiniteEvaluator(problem, discount=discount, horizon=60, n_episodes=1)
        tables = agent.policy.tables(problem.observations)
        figures = evaluator.exact_figures(tables)
        row["lights, J/J*"] = evaluator.ratio(figures["objective"])
        show(row, is_first=is_first)
        is_first = False


if __name__ == "__main__":
    main()
