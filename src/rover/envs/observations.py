"""What an agent sees of a grid world: the state's number, a one-hot vector, or an image.

Every kind maps states to observations one to one, and none shows the goal. Observations are drawn
straight into a fresh array: a batch of images takes about as long as copying them from a table of
all states would, and maps with many states need no such table (21 kB an image).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs.layouts import Layout
from rover.errors import ConfigurationError

PIXELS_SIDE = 84
MAX_ONE_HOT = 10_000
WALL_COLOUR = (64, 64, 70)
FLOOR_COLOUR = (238, 236, 230)
AGENT_COLOUR = (224, 26, 34)


class _StateObservation:
    """The state's number in [0, S): a ``Discrete`` space."""

    def __init__(self, layout: Layout) -> None:
        self.space: gym.Space[Any] = gym.spaces.Discrete(layout.n_states)

    def encode(self, state: int) -> int:
        """The state itself."""
        return state

    def encode_batch(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) int64 copy of the states."""
        return states.copy()


class _OneHotObservation:
    """A float32 vector of length S with a one at the state.

    Raises:
        ConfigurationError: The map has more than 10,000 states.
    """

    def __init__(self, layout: Layout) -> None:
        if layout.n_states > MAX_ONE_HOT:
            raise ConfigurationError(
                f"the map has {layout.n_states} states, too many for one-hot observations "
                f"({MAX_ONE_HOT} at most); use observation='state', or a smaller map"
            )
        self._n_states = layout.n_states
        shape = (layout.n_states,)
        self.space: gym.Space[Any] = gym.spaces.Box(0.0, 1.0, shape=shape, dtype=np.float32)

    def encode(self, state: int) -> NDArray[np.float32]:
        """(S,) float32."""
        vector = np.zeros(self._n_states, dtype=np.float32)
        vector[state] = 1.0
        return vector

    def encode_batch(self, states: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, S) float32."""
        vectors = np.zeros((len(states), self._n_states), dtype=np.float32)
        vectors[np.arange(len(states)), states] = 1.0
        return vectors


class _PixelObservation:
    """An 84×84 RGB image, uint8: the map centred on wall colour, the agent as a red square.

    A cell has 84 // max(height, width) pixels a side.

    Raises:
        ConfigurationError: The map has more than 84 rows or columns, so a cell would have no pixel.
    """

    def __init__(self, layout: Layout) -> None:
        cell = PIXELS_SIDE // max(layout.height, layout.width)
        if cell == 0:
            raise ConfigurationError(
                f"the map has {layout.height} rows and {layout.width} columns, too many for pixel "
                f"observations of {PIXELS_SIDE}×{PIXELS_SIDE}; use observation='state' or "
                f"'onehot', or a map of at most {PIXELS_SIDE} cells a side"
            )
        shape = (PIXELS_SIDE, PIXELS_SIDE, 3)
        self.space: gym.Space[Any] = gym.spaces.Box(0, 255, shape=shape, dtype=np.uint8)
        top = (PIXELS_SIDE - cell * layout.height) // 2
        left = (PIXELS_SIDE - cell * layout.width) // 2
        self._background = np.full(shape, WALL_COLOUR, dtype=np.uint8)
        floor = self._background[top:, left:][: cell * layout.height, : cell * layout.width]
        floor[np.kron(layout.free, np.ones((cell, cell), dtype=np.bool_))] = FLOOR_COLOUR
        # (S, cell²) flat positions of the pixels that the agent covers in each state
        corners = layout.cells[:, ::-1] * cell + (top, left)
        square = np.indices((cell, cell)).reshape(2, -1)
        self._covered = (corners[:, :1] + square[0]) * PIXELS_SIDE + corners[:, 1:] + square[1]

    def encode(self, state: int) -> NDArray[np.uint8]:
        """(84, 84, 3) uint8."""
        image = self._background.copy()
        image.reshape(-1, 3)[self._covered[state]] = AGENT_COLOUR
        return image

    def encode_batch(self, states: NDArray[np.int64]) -> NDArray[np.uint8]:
        """(n, 84, 84, 3) uint8."""
        images = np.empty((len(states), *self._background.shape), dtype=np.uint8)
        images[:] = self._background
        flat = images.reshape(len(states), -1, 3)
        flat[np.arange(len(states))[:, None], self._covered[states]] = AGENT_COLOUR
        return images


ObservationMap = _StateObservation | _OneHotObservation | _PixelObservation

OBSERVATIONS: Mapping[str, Callable[[Layout], ObservationMap]] = MappingProxyType(
    {"state": _StateObservation, "onehot": _OneHotObservation, "pixels": _PixelObservation}
)
"""Makes the observation map of a layout, by kind."""
