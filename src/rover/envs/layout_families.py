"""The layouts that ship with the package, with the horizon and discount the paper gives them."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType

from rover.envs.layouts import FREE, START, WALL, Layout, parse_layout
from rover.errors import ConfigurationError


def _check_size(name: str, value: int, minimum: int) -> int:
    """``value`` as an int of at least ``minimum``."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ConfigurationError(f"{name} must be a whole number, not {value!r}") from None
    if number < minimum:
        raise ConfigurationError(f"{name} is {number}, but must be at least {minimum}")
    return number


def make_two_rooms_layout(room_size: int = 7, door: int = 2) -> Layout:
    """Two square rooms side by side, joined by a one-cell door; the start is the upper left corner.

    Args:
        room_size: Side of each room, ≥ 1.
        door: Row of the door, in [0, room_size).

    Returns:
        A layout of 2 room_size² + 1 states; 99 by default, as in the paper (section 4).

    Raises:
        ConfigurationError: A size is out of range.
    """
    size = _check_size("room_size", room_size, 1)
    if _check_size("door", door, 0) >= size:
        raise ConfigurationError(
            f"door is {door}, but the rows of a room of size {size} are 0 to {size - 1}"
        )
    rows = [FREE * size + (FREE if y == door else WALL) + FREE * size for y in range(size)]
    return parse_layout("\n".join([START + rows[0][1:], *rows[1:]]))


def make_multi_rooms_layout(rooms: int = 5, room_size: int = 4) -> Layout:
    """A row of square rooms that hang from a corridor; the start is the corridor's left end.

    Room r occupies the columns from (room_size + 1) r, and is joined to the corridor (y = 0) by a
    one-cell connector at x = (room_size + 1) r + room_size // 2, y = 1.

    Args:
        rooms: Number of rooms, ≥ 1.
        room_size: Side of each room, ≥ 1.

    Returns:
        A layout of 22 rooms − 1 states at the default room size; 109 by default, as in the paper.

    Raises:
        ConfigurationError: A size is out of range.
    """
    count, size = _check_size("rooms", rooms, 1), _check_size("room_size", room_size, 1)
    width = (size + 1) * count - 1
    connectors = WALL * (size // 2) + FREE + WALL * (size - size // 2 - 1)
    lines = [START + FREE * (width - 1), WALL.join([connectors] * count)]
    lines += [WALL.join([FREE * size] * count)] * size
    return parse_layout("\n".join(lines))


def make_four_rooms_layout(room_size: int = 5) -> Layout:
    """Four square rooms in a ring, each joined to the next by a one-cell door in mid-wall.

    Args:
        room_size: Side of each room, ≥ 1.

    Returns:
        A layout of 4 room_size² + 4 states; 104 by default.

    Raises:
        ConfigurationError: The size is out of range.
    """
    size = _check_size("room_size", room_size, 1)
    through = FREE * (2 * size + 1)
    across = FREE * size + WALL + FREE * size
    half = [through if y == size // 2 else across for y in range(size)]
    wall = WALL * (size // 2) + FREE + WALL * (size - size // 2 - 1)
    lines = [*half, wall + WALL + wall, *half]
    return parse_layout("\n".join([START + lines[0][1:], *lines[1:]]))


def make_corridor_layout(length: int = 21) -> Layout:
    """A straight corridor that starts in its middle (right of it where the length is even).

    Args:
        length: Number of cells, ≥ 1.

    Raises:
        ConfigurationError: The length is out of range.
    """
    cells = _check_size("length", length, 1)
    return parse_layout(FREE * (cells // 2) + START + FREE * (cells - cells // 2 - 1))


def make_middle_room_layout() -> Layout:
    """A 5×5 room in the middle with one such room at each side: 129 states (paper, section 4)."""
    return _packaged_layout("middle_room")


def make_maze_layout() -> Layout:
    """A maze of 108 states with a marked goal at distance 37 from the start (paper, section 4)."""
    return _packaged_layout("maze")


def _packaged_layout(name: str) -> Layout:
    """A map from the package's own folder."""
    file = resources.files("rover.envs").joinpath("layouts", f"{name}.txt")
    return parse_layout(file.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class LayoutFamily:
    """A named kind of layout, with the horizon and the discount that the paper pairs it with."""

    make: Callable[..., Layout]
    horizon: int
    suggested_discount: float = 0.99

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword arguments that ``make`` takes."""
        return tuple(inspect.signature(self.make).parameters)


LAYOUT_FAMILIES: Mapping[str, LayoutFamily] = MappingProxyType(
    {
        "two_rooms": LayoutFamily(make_two_rooms_layout, horizon=80),
        "multi_rooms": LayoutFamily(make_multi_rooms_layout, horizon=300),
        "middle_room": LayoutFamily(make_middle_room_layout, horizon=15, suggested_discount=0.9),
        "maze": LayoutFamily(make_maze_layout, horizon=128),
        "four_rooms": LayoutFamily(make_four_rooms_layout, horizon=100),
        "corridor": LayoutFamily(make_corridor_layout, horizon=11),
    }
)


def make_layout(name: str, **options: int) -> Layout:
    """Make a layout by the name of its family.

    Args:
        name: One of :data:`LAYOUT_FAMILIES`.
        options: The family's own keyword arguments, such as ``rooms`` of ``multi_rooms``.

    Raises:
        ConfigurationError: The name or an option is unknown, or an option is out of range.
    """
    if name not in LAYOUT_FAMILIES:
        raise ConfigurationError(
            f"unknown layout {name!r}; the layouts are {', '.join(LAYOUT_FAMILIES)}"
        )
    family = LAYOUT_FAMILIES[name]
    for option in options:
        if option not in family.options:
            raise ConfigurationError(
                f"unknown keyword {option!r}; the layout {name!r} takes "
                f"{', '.join(family.options) or 'no options of its own'}"
            )
    return family.make(**options)
