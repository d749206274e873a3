"""Random maps for the property tests, and a search that shares no code with the package's."""

from collections import deque

from hypothesis import strategies as st


def search(rows: list[str], start: tuple[int, int]) -> dict[tuple[int, int], int]:
    """Moves from the start to every cell that can be reached."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        x, y = queue.popleft()
        for cell in ((x, y - 1), (x, y + 1), (x - 1, y), (x + 1, y)):
            inside = 0 <= cell[1] < len(rows) and 0 <= cell[0] < len(rows[0])
            if inside and rows[cell[1]][cell[0]] != "#" and cell not in found:
                found[cell] = found[x, y] + 1
                queue.append(cell)
    return found


@st.composite
def connected_maps(draw: st.DrawFn) -> tuple[list[str], tuple[int, int]]:
    """Rows of a map in which every free cell can be reached, and the start."""
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    rows = [draw(st.text("#.", min_size=width, max_size=width)) for _ in range(height)]
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    rows[y] = rows[y][:x] + "S" + rows[y][x + 1 :]
    reached = search(rows, (x, y))
    kept = [
        "".join(letter if (i, j) in reached else "#" for i, letter in enumerate(row))
        for j, row in enumerate(rows)
    ]
    return kept, (x, y)
