"""PointMaze's U as the authors measure it: coverage of free space, and success at a goal.

    OMP_NUM_THREADS=1 python benchmarks/u_maze.py [--seeds 100 101 102] [--steps 10000]

The world is gymnasium-robotics' PointMaze_UMaze-v3, from states: four forces, episodes of 500
steps that begin at (−1, 1). After the reward-free steps 50 episodes of the policy are rolled out.
A point of a 90 by 90 grid over the inside of the maze is covered if an episode came within 0.08 of
it; counted are the points at which the ball, of radius 0.1, can be. Then `rover.solve` plans for
the goal (1, 1), and a success is an arrival within 0.45 in one of 50 episodes. The authors report a
coverage of 79.7% and a success of 84% after 100,000 steps, of one seed. Random actions are beside.
It needs the extra "arenas".
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import gymnasium_robotics
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation, FlattenObservation, TransformAction
from numpy.typing import NDArray
from scipy.spatial import KDTree

import rover
from rover.evaluation import record_rollouts

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show

EPISODES, HORIZON = 50, 500
GRID, WITHIN, BALL, ARRIVED = 90, 0.08, 0.1, 0.45
GOAL = np.array([1.0, 1.0])
FORCES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)


class FromCorner(gym.Wrapper[Any, Any, Any, Any]):
    """Episodes begin around the cell at (−1, 1), and the goal lies at (1, 1)."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        cells = {"reset_cell": np.array([1, 1]), "goal_cell": np.array([1, 3])}
        return self.env.reset(seed=seed, options=cells)


def make() -> gym.Env[Any, Any]:
    """The maze, with four forces, in which reaching the goal ends nothing."""
    gym.register_envs(gymnasium_robotics)
    env = gym.make("PointMaze_UMaze-v3", max_episode_steps=HORIZON, continuing_task=True)
    seen = FlattenObservation(FilterObservation(FromCorner(env), ["observation"]))
    return TransformAction(seen, lambda number: FORCES[int(number)], spaces.Discrete(4))


def free_points(env: gym.Env[Any, Any]) -> NDArray[np.float64]:
    """Points (n, 2) of the grid at which the ball can be."""
    maze: Any = env.unwrapped.maze  # type: ignore[attr-defined]
    walls = np.array([[cell == 1 for cell in row] for row in maze.maze_map])
    side = np.linspace(-1.5, 1.5, GRID)
    points = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    edges = BALL * np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)])
    is_free = np.ones(len(points), bool)
    for edge in edges:
        cells = np.array([maze.cell_xy_to_rowcol(point) for point in points + edge])
        is_free &= ~walls[cells[:, 0], cells[:, 1]]
    return points[is_free]


def episodes(env: gym.Env[Any, Any], policy: Any, seed: int) -> list[NDArray[np.float64]]:
    """Positions (T + 1, 2) of episodes of a policy."""
    paths = record_rollouts(
        env, policy.sample_component, horizon=HORIZON, n_episodes=EPISODES, seed=seed
    )
    return [path[np.isfinite(path[:, 0]), :2] for path in paths]


def coverage(paths: list[NDArray[np.float64]], free: NDArray[np.float64]) -> float:
    """Share of free points that episodes came near to."""
    return float((KDTree(np.concatenate(paths)).query(free)[0] <= WITHIN).mean())


def success(paths: list[NDArray[np.float64]]) -> float:
    """Share of episodes that arrived at the goal."""
    return float(np.mean([(np.linalg.norm(p - GOAL, axis=1) <= ARRIVED).any() for p in paths]))


def main() -> None:
    """Read the command line."""
    arguments = parser(__doc__, seeds=[100, 101, 102])
    arguments.add_argument("--steps", type=int, default=10_000)
    asked = arguments.parse_args()
    begin()
    for number, seed in enumerate(asked.seeds):
        env, began = make(), time.process_time()
        agent = rover.Rover(env, seed=seed, measure_share=0.0).learn(asked.steps)
        each = 1e3 * (time.process_time() - began) / asked.steps
        free = free_points(env)
        by_policy = episodes(env, agent.policy, seed)
        by_chance = episodes(env, rover.make_agent("random", env, seed=seed).policy, seed)
        table = agent.buffer.observations.rows[:, :2].astype(np.float64)
        plan = rover.solve(
            agent, goal=lambda seen: np.linalg.norm(seen[:, :2] - GOAL, axis=1) <= ARRIVED
        )
        row = {
            "seed": seed,
            "steps": asked.steps,
            "coverage": coverage(by_policy, free),
            "of data": coverage([table], free),
            "random": coverage(by_chance, free),
            "success": success(episodes(env, plan, seed)),
            "by chance": success(by_chance),
            "ms a step": each,
        }
        show(row, is_first=number == 0)


if __name__ == "__main__":
    main()
