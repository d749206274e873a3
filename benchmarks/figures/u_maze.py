"""PointMaze's U as the authors measure it: coverage of free space, and success at a goal.

    OMP_NUM_THREADS=1 python -m benchmarks.figures.u_maze [--seeds 100 101 102] [--steps 10000]
    python -m benchmarks.figures.u_maze --pixels

The world is gymnasium-robotics' PointMaze_UMaze-v3, from states: four forces, episodes of 500
steps that begin at (−1, 1). From pixels, an observation is the maze as MuJoCo draws it from above,
84×84, in colour, as the paper's other pictures, now and one and two steps ago, with the ball that
marks where the goal of an episode would be; where there is no screen, MUJOCO_GL=osmesa draws.
After the reward-free steps 50 episodes of the policy are rolled out.
A point of a 90 by 90 grid over the inside of the maze is covered if an episode came within 0.08 of
it; counted are the points at which the ball, of radius 0.1, can be. Then `rover.solve` plans for
the goal (1, 1), and a success is an arrival within 0.45 in one of 50 episodes. The authors report a
coverage of 79.7% and a success of 84% after 100,000 steps, of one seed. Random actions are beside.
It needs the extra "arenas".
"""

from __future__ import annotations

import gc
import time
from collections import deque
from typing import Any

import gymnasium as gym
import gymnasium_robotics
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import FilterObservation, FlattenObservation, TransformAction
from numpy.typing import NDArray
from scipy.spatial import KDTree

import rover
from benchmarks.common import begin, parser, report
from rover.evaluation import roll_out

EPISODES, HORIZON = 50, 500
GRID, WITHIN, BALL, ARRIVED = 90, 0.08, 0.1, 0.45
GOAL = np.array([1.0, 1.0])
FORCES = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], np.float32)
SIDE, FRAMES = 84, 3
"""Pixels of a side of a picture, and pictures that are seen, of the latest steps."""
ABOVE = {"distance": 6.5, "elevation": -90.0, "azimuth": 90.0, "lookat": np.zeros(3)}
"""The camera of pictures, over the middle of the maze."""


class FromCorner(gym.Wrapper[Any, Any, Any, Any]):
    """Episodes begin around the cell at (−1, 1), and the goal lies at (1, 1).

    Attributes:
        paths: positions of each episode, with its beginning.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.paths: list[list[NDArray[np.float64]]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        cells = {"reset_cell": np.array([1, 1]), "goal_cell": np.array([1, 3])}
        seen, info = self.env.reset(seed=seed, options=cells)
        self.paths.append([seen["achieved_goal"]])
        return seen, info

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.paths[-1].append(result[0]["achieved_goal"])
        return result


class Pictures(gym.Wrapper[Any, Any, Any, Any]):
    """Pictures in place of states."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        maze: Any = env.unwrapped
        maze.point_env.mujoco_renderer.default_cam_config = ABOVE
        self.observation_space = spaces.Box(0, 255, (SIDE, SIDE, 3 * FRAMES), np.uint8)
        self._frames: deque[Any] = deque(maxlen=FRAMES)

    def _drawn(self) -> NDArray[np.uint8]:
        return np.asarray(self.env.render())

    def _seen(self) -> NDArray[np.uint8]:
        return np.concatenate(self._frames, axis=-1)

    def reset(self, **options: Any) -> Any:
        _, info = self.env.reset(**options)
        self._frames.extend([self._drawn()] * FRAMES)
        return self._seen(), info

    def step(self, action: Any) -> Any:
        _, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(self._drawn())
        return self._seen(), reward, terminated, truncated, info


def make(pixels: bool = False) -> gym.Env[Any, Any]:
    """The maze, with four forces, in which reaching the goal ends nothing."""
    gym.register_envs(gymnasium_robotics)
    picture = {"render_mode": "rgb_array", "width": SIDE, "height": SIDE} if pixels else {}
    env = gym.make("PointMaze_UMaze-v3", max_episode_steps=HORIZON, continuing_task=True, **picture)
    seen: Any = FlattenObservation(FilterObservation(FromCorner(env), ["observation"]))
    seen = Pictures(seen) if pixels else seen
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


def positions(env: gym.Env[Any, Any]) -> list[NDArray[np.float64]]:
    """Positions (T + 1, 2) of the episodes of an environment until now, which it forgets."""
    paths: Any = env.get_wrapper_attr("paths")
    found = [np.array(path) for path in paths]
    paths.clear()
    return found


def episodes(env: gym.Env[Any, Any], policy: Any, seed: int) -> list[NDArray[np.float64]]:
    """Positions (T + 1, 2) of episodes of a policy."""
    # One at a time: pictures of all would take half a gigabyte.
    for number in range(EPISODES):
        rng = np.random.default_rng(EPISODES * seed + number)
        roll_out(env, policy.sample_component, horizon=HORIZON, rng=rng)
    return positions(env)


def coverage(paths: list[NDArray[np.float64]], free: NDArray[np.float64]) -> float:
    """Share of free points that episodes came near to."""
    return float((KDTree(np.concatenate(paths)).query(free)[0] <= WITHIN).mean())


def near_goal(path: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether each position (n, 2) has arrived."""
    is_near: NDArray[np.bool_] = np.linalg.norm(path - GOAL, axis=1) <= ARRIVED
    return is_near


def success(paths: list[NDArray[np.float64]]) -> float:
    """Share of episodes that arrived at the goal."""
    return float(np.mean([near_goal(path).any() for path in paths]))


def plan(agent: rover.Rover, data: list[NDArray[np.float64]]) -> Any:
    """The plan for the goal, by the positions of the episodes that the agent has seen."""
    arrived = np.concatenate([near_goal(path[1:]) for path in data]).astype(np.float64)
    return rover.solve(agent, arrived)


def measure(seed: int, steps: int, *, pixels: bool) -> dict[str, float]:
    """The figures of one run."""
    # An instance that is freed takes the graphics of all others with it, whose pictures are black
    # from then on: the last one is freed before the next one is made.
    gc.collect()
    env, began = make(pixels), time.process_time()
    agent = rover.Rover(env, seed=seed, measure_share=0.0).learn(steps)
    each = 1e3 * (time.process_time() - began) / steps
    data, free = positions(env), free_points(env)
    by_policy = episodes(env, agent.policy, seed)
    # Random actions look at nothing, so that nothing is drawn for them.
    unseen = make()
    by_chance = episodes(unseen, rover.make_agent("random", unseen, seed=seed).policy, seed)
    return {
        "seed": seed,
        "steps": steps,
        "coverage": coverage(by_policy, free),
        "of data": coverage(data, free),
        "random": coverage(by_chance, free),
        "success": success(episodes(env, plan(agent, data), seed)),
        "by chance": success(by_chance),
        "ms a step": each,
    }


def main() -> None:
    arguments = parser(__doc__, seeds=[100, 101, 102])
    arguments.add_argument("--steps", type=int, default=10_000)
    arguments.add_argument("--pixels", action="store_true", help="pictures in place of states")
    asked = arguments.parse_args()
    begin()
    report(measure(seed, asked.steps, pixels=asked.pixels) for seed in asked.seeds)


if __name__ == "__main__":
    main()
