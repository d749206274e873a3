"""Pictures of a grid world for people: an RGB image and plain text. Unlike observations, both show
the goal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rover.envs.layouts import FREE, GOAL, START, Layout
from rover.envs.observations import AGENT_COLOUR, FLOOR_COLOUR, WALL_COLOUR

AGENT_LETTER = "A"
# Bluish green and blue of the Okabe–Ito palette: told apart from the red agent, and from each
# other, with any colour vision; so are the shapes.
GOAL_COLOUR = (0, 158, 115)
START_COLOUR = (0, 114, 178)
GRID_LINE_COLOUR = (214, 211, 203)
IMAGE_SIDE = 640  # pixels that the longer side of a picture is fitted into
SMALLEST_CELL, LARGEST_CELL = 5, 48


def render_rgb(
    layout: Layout, state: int, *, goal_state: int | None = None, start_state: int | None = None
) -> NDArray[np.uint8]:
    """Draw the map inside a border of wall: red agent, green goal, blue frame at the start.

    Args:
        layout: The map.
        state: Where the agent is.
        goal_state: The goal, or None for no goal.
        start_state: The start, or None where it is drawn at random.

    Returns:
        (rows, columns, 3) uint8, between 5 and 48 pixels a cell.
    """
    fitted = IMAGE_SIDE // (max(layout.height, layout.width) + 2)
    cell = min(max(fitted, SMALLEST_CELL), LARGEST_CELL)
    free = np.kron(np.pad(layout.free, 1), np.ones((cell, cell), dtype=np.bool_))
    image = np.full((*free.shape, 3), WALL_COLOUR, dtype=np.uint8)
    image[free] = FLOOR_COLOUR
    # one line between neighbouring free cells, none along the walls
    for axis in (0, 1):
        between = free & np.roll(free, 1, axis=axis)
        positions = np.arange(free.shape[axis]) % cell == 0
        image[between & (positions[:, None] if axis == 0 else positions)] = GRID_LINE_COLOUR

    def square(of_state: int, margin: int) -> NDArray[np.uint8]:
        x, y = (layout.cells[of_state] + 1) * cell
        return image[y + margin : y + cell - margin + 1, x + margin : x + cell - margin + 1]

    line = max(1, cell // 12)
    if start_state is not None:
        square(start_state, 2 * line)[:] = START_COLOUR
        square(start_state, 3 * line)[:] = FLOOR_COLOUR
    if goal_state is not None:
        square(goal_state, line)[:] = GOAL_COLOUR
    square(state, max(1, cell // 4))[:] = AGENT_COLOUR
    return image


def render_ansi(
    layout: Layout, state: int, *, goal_state: int | None = None, start_state: int | None = None
) -> str:
    """The map as text: ``A`` the agent, ``G`` the goal, ``S`` the start, ``#`` wall, ``.`` free.

    Where several share a cell, the agent is shown before the goal, and the goal before the start.
    """
    plain = layout.text.replace(START, FREE).replace(GOAL, FREE)
    rows = [list(line) for line in plain.splitlines()]
    for marked, letter in ((start_state, START), (goal_state, GOAL), (state, AGENT_LETTER)):
        if marked is not None:
            x, y = layout.cells[marked]
            rows[y][x] = letter
    return "\n".join(map("".join, rows)) + "\n"
