"""A metric space of states, for methods that measure distances between states.

Such a method is told more than it sees: on a grid world the (x, y) of the cell, whatever the
observation. That is privileged, and comparisons must say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from rover.coverage.encoding import is_image
from rover.data import ReplayBuffer
from rover.envs import GridWorld, finite_dynamics
from rover.errors import ConfigurationError
from rover.evaluation import StateLookup

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_UNBOUNDED = 1e6


@dataclass(frozen=True)
class StateCoordinates:
    """Where states lie.

    Attributes:
        of: coordinates (n, p) of observations given by their indices (n,) in the buffer.
        spacing: distance of neighbouring lattice points if states lie on a lattice, else 0.
    """

    of: Callable[[IntArray], FloatArray]
    spacing: float

    def sample_points(self, observations: IntArray, rng: np.random.Generator) -> FloatArray:
        """A point (n, p) for each state, drawn uniformly from its lattice cell.

        Without it a state that was visited often would have neighbours at distance zero. The
        density of the points is that of the states over the cell's volume, so their differential
        entropy is the states' entropy plus its logarithm, which is zero at a spacing of 1.
        """
        points = self.of(observations)
        if self.spacing == 0.0:
            return points
        return points + self.spacing * (rng.random(points.shape) - 0.5)


def make_coordinates(env: gym.Env[Any, Any], buffer: ReplayBuffer) -> StateCoordinates:
    """Coordinates of an environment's states.

    Grid worlds: (x, y) in cells. Vectors: each dimension scaled to [0, 1] by its bounds, or by the
    range that the buffer covers where it has none.

    Raises:
        ConfigurationError: nothing says how far apart two of its states are.
    """
    problem, world = finite_dynamics(env), env.unwrapped
    if problem is not None and isinstance(world, GridWorld):
        lookup = StateLookup(problem, buffer.observations.dtype)
        cells = world.layout.cells.astype(np.float64)
        return StateCoordinates(
            lambda index: cells[lookup(buffer.observations.rows[index])], spacing=1.0
        )
    space = env.observation_space
    if isinstance(space, spaces.Box) and not is_image(space):
        return StateCoordinates(_scaled(space, buffer), spacing=0.0)
    raise ConfigurationError(
        f"MEPOL needs to know how far apart states are, and observations of {space} do not tell: "
        "use a grid world or vector observations, or pass StateCoordinates of your own"
    )


def _scaled(space: spaces.Box, buffer: ReplayBuffer) -> Callable[[IntArray], FloatArray]:
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    unbounded = np.maximum(np.abs(low), np.abs(high)) > _UNBOUNDED

    def scaled(index: IntArray) -> FloatArray:
        table = buffer.observations.rows
        least = np.where(unbounded, table.min(axis=0), low)
        width = np.where(unbounded, table.max(axis=0), high) - least
        points: FloatArray = (table[index] - least) / np.where(width > 0.0, width, 1.0)
        return points

    return scaled
