"""Where the states of an environment lie: the maps of grid worlds and of Gymnasium's toy_text."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv
from numpy.typing import NDArray

from rover.envs.gridworld import GridWorld

GOAL, HOLE = "★", "●"
_UP, _DOWN, _LEFT, _RIGHT, _STAY = (0, -1), (0, 1), (-1, 0), (1, 0), (0, 0)


def map_arrays(env: gym.Env[Any, Any], observations: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The map that the states of a finite environment lie on, as arrays; empty where there is none.

    Args:
        env: the environment; wrappers are looked through.
        observations: (S, *shape), those of its states.

    Returns:
        cells (S, 2), the (x, y) of each state, y down the map; free (height, width), True where a
        state is; moves (A, 2), where each action leads if nothing is in its way; marks (n, 3), the
        (x, y) and the character of what stands there, ``"★"`` for a goal and ``"●"`` for a hole;
        walls (m, 4), the ends (x, y, x, y) of walls between cells.
    """
    world = env.unwrapped
    walls: list[tuple[float, float, float, float]] = []
    marks: list[tuple[int, int, str]] = []
    moves: tuple[tuple[int, int], ...]
    if isinstance(world, GridWorld):
        cells, moves = world.layout.cells, (_UP, _DOWN, _LEFT, _RIGHT)
        height, width = world.layout.free.shape
        if world.goal_state is not None:
            x, y = cells[world.goal_state]
            marks = [(x, y, GOAL)]
    elif isinstance(world, FrozenLakeEnv):
        desc, moves = np.asarray(world.desc).astype(str), (_LEFT, _DOWN, _RIGHT, _UP)
        height, width = desc.shape
        cells = np.stack([observations % width, observations // width], axis=1)
        signs = {"G": GOAL, "H": HOLE}
        marks = [(x, y, signs[sign]) for (y, x), sign in np.ndenumerate(desc) if sign in signs]
    elif isinstance(world, CliffWalkingEnv):
        (height, width), moves = world.shape, (_UP, _RIGHT, _DOWN, _LEFT)
        cells = np.stack([observations % width, observations // width], axis=1)
        marks = [(width - 1, height - 1, GOAL)]
    elif isinstance(world, TaxiEnv):
        moves = (_DOWN, _UP, _RIGHT, _LEFT, _STAY, _STAY)
        inside = np.asarray(world.desc).astype(str)[1:-1, 1:-1]  # cells and, between them, walls
        height, width = inside[:, ::2].shape
        places = [tuple(world.decode(number))[:2] for number in observations.tolist()]
        cells = np.array(places, np.int64)[:, ::-1]
        marks = [(x, y, inside[y, 2 * x]) for y, x in world.locs]
        between = np.argwhere(inside[:, 1::2] == "|")
        walls = [(x + 0.5, y - 0.5, x + 0.5, y + 0.5) for y, x in between]
    else:
        return {}
    free = np.zeros((height, width), np.bool_)
    free[cells[:, 1], cells[:, 0]] = True
    return {
        "cells": cells,
        "free": free,
        "moves": np.array(moves, np.int64),
        "marks": np.array([(x, y, ord(sign)) for x, y, sign in marks], np.int64).reshape(-1, 3),
        "walls": np.array(walls, np.float64).reshape(-1, 4),
    }
