"""The environments of experiments/arenas.toml that no package registers, with their cells.

    rover sweep experiments/arenas.toml --import benchmarks.worlds.arenas --out pages

Importing this module registers:

- ``arenas/NoisyMountainCar-v0``: MountainCar with `noise` further dimensions, uniform and
  independent.
- ``arenas/PointMaze-v0``: gymnasium-robotics' PointMaze `size` (Medium or Large) from a fixed
  corner, seen as position and velocity, with nine forces held for four frames each, episodes of
  300 decisions.
- ``arenas/MiniGrid-v0``: MiniGrid `base`, always with one layout, seen as the whole grid.

The last two need the extra ``arenas``.
"""

from __future__ import annotations

import copy
from collections import deque
from functools import cached_property
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import FilterObservation, FlattenObservation, RepeatAction
from numpy.typing import NDArray

from rover.envs import FiniteDynamics, FiniteMDP
from rover.wrappers import DiscreteActions

_MAZE_SHAPES = {"Medium": (8, 8), "Large": (9, 12)}


class _Noise(gym.ObservationWrapper[Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Observations with further dimensions of noise, uniform on [0, 1]."""

    def __init__(self, env: gym.Env[Any, Any], noise: int) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, noise=noise)
        gym.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        assert isinstance(space, gym.spaces.Box)
        self._noise = noise
        low = np.concatenate([space.low, np.zeros(noise)]).astype(np.float32)
        high = np.concatenate([space.high, np.ones(noise)]).astype(np.float32)
        self.observation_space = gym.spaces.Box(low, high)

    def observation(self, observation: Any) -> NDArray[np.float32]:
        """The observation, with fresh noise behind it."""
        noise = self.unwrapped.np_random.random(self._noise)
        return np.concatenate([observation, noise]).astype(np.float32)


class _SameReset(gym.Wrapper[Any, Any, Any, Any], gym.utils.RecordConstructorArgs):
    """Every episode begins as the one with seed 0."""

    def __init__(self, env: gym.Env[Any, Any], options: dict[str, list[int]] | None = None) -> None:
        gym.utils.RecordConstructorArgs.__init__(self, options=options)
        gym.Wrapper.__init__(self, env)
        self._options = options

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; its own seed is not used."""
        # Lists, as a spec of JSON has them; the maze wants arrays.
        options = {name: np.array(cell) for name, cell in (self._options or {}).items()}
        return self.env.reset(seed=0, options=options)


def _noisy_mountain_car(noise: int = 0, **keywords: Any) -> gym.Env[Any, Any]:
    """MountainCar with further dimensions of noise."""
    return _Noise(gym.make("MountainCar-v0", **keywords), noise)


def point_maze(size: str = "Medium", **keywords: Any) -> gym.Env[Any, Any]:
    """PointMaze from a fixed corner, with nine forces."""
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    rows, columns = _MAZE_SHAPES[size]
    # The goal lies in the opposite corner, and reaching it ends nothing.
    options = {"reset_cell": [1, 1], "goal_cell": [rows - 2, columns - 2]}
    env = gym.make(f"PointMaze_{size}-v3", max_episode_steps=1200, continuing_task=True, **keywords)
    seen = FlattenObservation(FilterObservation(_SameReset(env, options), ["observation"]))
    return RepeatAction(DiscreteActions(seen), 4)


def ant_u_maze() -> gym.Env[Any, Any]:
    """An ant in a U, with its eight torques as they are, from one end, seen with its place."""
    import gymnasium_robotics

    gym.register_envs(gymnasium_robotics)
    # Its contact forces are left out, and reaching the goal ends nothing.
    env = gym.make("AntMaze_UMaze-v5", continuing_task=True, include_cfrc_ext_in_observation=False)
    env = _SameReset(env, {"reset_cell": [1, 1], "goal_cell": [3, 1]})
    return FlattenObservation(FilterObservation(env, ["achieved_goal", "observation"]))


class _Enumerated(gym.Wrapper[Any, Any, Any, Any]):
    """A deterministic environment that begins alike, with its at most `limit` states enumerated."""

    def __init__(self, env: gym.Env[Any, Any], limit: int) -> None:
        super().__init__(env)
        self._limit = limit

    @cached_property
    def finite_mdp(self) -> FiniteMDP:
        """The exact dynamics: copies try each action in each state, breadth first."""
        start = copy.deepcopy(self.env)
        rows, ends = [np.array(start.reset(seed=0)[0])], [False]
        index, table, frontier = {rows[0].tobytes(): 0}, [], deque([start])
        while len(table) < len(rows):
            here, n_actions = frontier.popleft(), self.env.action_space.n
            table.append([len(table)] * n_actions)
            for action in range(0 if here is None else n_actions):
                there = copy.deepcopy(here)
                seen, _, ended, _, _ = there.step(action)
                reached = index.setdefault(np.asarray(seen).tobytes(), len(rows))
                if reached == len(rows):
                    assert reached < self._limit, "more states than the limit"
                    rows.append(np.array(seen))
                    ends.append(bool(ended))
                    frontier.append(None if ended else there)
                table[-1][action] = reached
        begin = np.eye(len(rows))[0]
        dynamics = FiniteDynamics.from_table(np.array(table), begin, np.array(ends))
        return FiniteMDP(dynamics, np.stack(rows))


def mini_grid(
    base: str = "MiniGrid-Empty-8x8-v0", limit: int | None = None, **keywords: Any
) -> gym.Env[Any, Any]:
    """A MiniGrid layout that does not change, seen as the whole grid; `limit`: enumerated."""
    import minigrid
    from minigrid.wrappers import FullyObsWrapper, ImgObsWrapper

    gym.register_envs(minigrid)
    env = gym.make(base, **keywords)
    seen: gym.Env[Any, Any] = ImgObsWrapper(FullyObsWrapper(_SameReset(env)))
    return seen if limit is None else _Enumerated(seen, limit)


for name, maker in {
    "NoisyMountainCar": "_noisy_mountain_car",
    "PointMaze": "point_maze",
    "MiniGrid": "mini_grid",
}.items():
    if f"arenas/{name}-v0" not in gym.registry:
        gym.register(f"arenas/{name}-v0", entry_point=f"{__name__}:{maker}")
