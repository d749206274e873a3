"""Random maps for the property tests, and a search that shares no code with the package's."""

from __future__ import annotations

from collections import deque

from hypothesis import strategies as st

MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))


def search(rows: list[str], start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Moves from the start to every cell that can be reached."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        x, y = queue.popleft()
        for dx, dy in MOVES:
            cell = (x + dx, y + dy)
            inside = 0 <= cell[1] < len(rows) and 0 <= cell[0] < len(rows[0])
            if inside and rows[cell[1]][cell[0]] != "#" and cell not in found:
                found[cell] = found[x, y] + 1
                queue.append(cell)
    return found


@st.composite
def any_maps(draw: st.DrawFn) -> tuple[list[str], tuple[int, int]]:
    """Rows of a map, cut-off cells allowed, and the start."""
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    walls = draw(st.lists(st.booleans(), min_size=width * height, max_size=width * height))
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    rows = [
        "".join(
            "S" if (i, j) == (x, y) else "#" if walls[j * width + i] else "." for i in range(width)
        )
        for j in range(height)
    ]
    return rows, (x, y)


@st.composite
def connected_maps(draw: st.DrawFn) -> tuple[list[str], tuple[int, int]]:
    """Rows of a map in which every free cell can be reached, and the start."""
    rows, start = draw(any_maps())
    reached = search(rows, start)
    kept = [
        "".join(letter if (x, y) in reached else "#" for x, letter in enumerate(row))
        for y, row in enumerate(rows)
    ]
    return kept, start
