"""Views of a grid world: an agent's observations, and pictures for people.

An observation is the state's number, a one-hot vector, or an image; every kind maps states to
observations one to one, and none shows the goal. Observations are drawn straight into a fresh
array, since a table of all images would fill the memory (21 kB each). Pictures show the goal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs.layouts import Layout
from rover.errors import ConfigurationError

_PIXELS_SIDE = 84
_MAX_ONE_HOT = 10_000
WALL_COLOUR = (64, 64, 70)
FLOOR_COLOUR = (238, 236, 230)
AGENT_COLOUR = (224, 26, 34)
# Bluish green of the Okabe–Ito palette: distinct from the red agent with any colour vision.
_GOAL_COLOUR = (0, 158, 115)
_GRID_LINE_COLOUR = (214, 211, 203)
_IMAGE_SIDE = 640  # pixels that the longer side of a picture is fitted into
_SMALLEST_CELL, _LARGEST_CELL = 5, 48


class _ObservationMap(NamedTuple):
    """From the states of a layout to observations: their space, and a fresh array for a state."""

    space: gym.Space[Any]
    encode: Callable[[int], Any]


def _numbers(layout: Layout) -> _ObservationMap:
    """The state's number in [0, S): a ``Discrete`` space."""
    return _ObservationMap(gym.spaces.Discrete(layout.n_states), int)


def _one_hot(layout: Layout) -> _ObservationMap:
    """A float32 vector of length S with a one at the state."""
    n_states = layout.n_states
    if n_states > _MAX_ONE_HOT:
        raise ConfigurationError(
            f"the map has {n_states} states, too many for one-hot observations ({_MAX_ONE_HOT} at "
            "most); use observation='state', or a smaller map"
        )
    space = gym.spaces.Box(0.0, 1.0, (n_states,), np.float32)
    return _ObservationMap(space, lambda state: np.eye(1, n_states, state, dtype=np.float32)[0])


def _pixels(layout: Layout) -> _ObservationMap:
    """An 84×84 RGB image, uint8: the map centred on wall colour, 84 // max(height, width) pixels to
    a cell's side, the agent as a red square."""
    height, width = layout.free.shape
    cell = _PIXELS_SIDE // max(height, width)
    if cell == 0:
        raise ConfigurationError(
            f"the map has {height} rows and {width} columns, too many for pixel "
            f"observations of {_PIXELS_SIDE}×{_PIXELS_SIDE}; use observation='state' or "
            f"'onehot', or a map of at most {_PIXELS_SIDE} cells a side"
        )
    shape = (_PIXELS_SIDE, _PIXELS_SIDE, 3)
    # Centred, so that maps of any shape fill the same 84 × 84 pixels.
    top = (_PIXELS_SIDE - cell * height) // 2
    left = (_PIXELS_SIDE - cell * width) // 2
    background = np.full(shape, WALL_COLOUR, np.uint8)
    floor = background[top:, left:][: cell * height, : cell * width]
    floor[np.kron(layout.free, np.ones((cell, cell), np.bool_))] = FLOOR_COLOUR
    corners = (layout.cells * cell + (left, top)).tolist()

    def image(state: int) -> NDArray[np.uint8]:
        # The background is copied, not drawn: a step costs what copying an image does.
        drawn, (x, y) = background.copy(), corners[state]
        drawn[y : y + cell, x : x + cell] = AGENT_COLOUR
        return drawn

    return _ObservationMap(gym.spaces.Box(0, 255, shape, np.uint8), image)


OBSERVATIONS: Mapping[str, Callable[[Layout], _ObservationMap]] = MappingProxyType(
    {"state": _numbers, "onehot": _one_hot, "pixels": _pixels}
)
"""Makes the observation map of a layout, by kind."""


def render_rgb(layout: Layout, state: int, *, goal_state: int | None = None) -> NDArray[np.uint8]:
    """Draw the map inside a border of wall, (rows, columns, 3) uint8 with 5 to 48 pixels a cell:
    red agent, green goal."""
    # The border adds a cell on each side; a cell is a whole number of pixels, so edges are sharp.
    fitted = _IMAGE_SIDE // (max(layout.free.shape) + 2)
    cell = min(max(fitted, _SMALLEST_CELL), _LARGEST_CELL)
    free = np.kron(np.pad(layout.free, 1), np.ones((cell, cell), dtype=np.bool_))
    image = np.full((*free.shape, 3), WALL_COLOUR, dtype=np.uint8)
    image[free] = FLOOR_COLOUR
    # one line between neighbouring free cells, none along the walls
    for axis in (0, 1):
        between = free & np.roll(free, 1, axis=axis)
        positions = np.arange(free.shape[axis]) % cell == 0
        image[between & (positions[:, None] if axis == 0 else positions)] = _GRID_LINE_COLOUR
    squares = [(state, max(1, cell // 4), AGENT_COLOUR)]
    if goal_state is not None:
        squares.insert(0, (goal_state, max(1, cell // 12), _GOAL_COLOUR))
    for drawn, margin, colour in squares:
        x, y = (layout.cells[drawn] + 1) * cell
        image[y + margin : y + cell - margin + 1, x + margin : x + cell - margin + 1] = colour
    return image
