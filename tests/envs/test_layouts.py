from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from grid_maps import any_maps, connected_maps, search
from hypothesis import given, settings

from rover.envs import (
    LAYOUT_FAMILIES,
    load_layout,
    make_corridor_layout,
    make_four_rooms_layout,
    make_layout,
    make_maze_layout,
    make_middle_room_layout,
    make_multi_rooms_layout,
    make_two_rooms_layout,
    parse_layout,
)
from rover.errors import ConfigurationError, LayoutError

TWO_ROOMS = """
S......#.......
.......#.......
...............
.......#.......
.......#.......
.......#.......
.......#.......
"""
MULTI_ROOMS = """
S.......................
##.####.####.####.####.#
....#....#....#....#....
....#....#....#....#....
....#....#....#....#....
....#....#....#....#....
"""


def farthest(layout):
    return int(layout.distances(layout.index(layout.start)).max())


@pytest.mark.parametrize(
    ("layout", "n_states", "start", "distance"),
    [
        (make_two_rooms_layout(), 99, (0, 0), 20),
        (make_multi_rooms_layout(), 109, (0, 0), 29),
        (make_maze_layout(), 108, (13, 12), 37),
        (make_middle_room_layout(), 129, (8, 8), 10),
        (make_four_rooms_layout(), 104, (0, 0), 20),
        (make_corridor_layout(), 21, (10, 0), 10),
    ],
    ids=["two_rooms", "multi_rooms", "maze", "middle_room", "four_rooms", "corridor"],
)
def test_sizes_starts_and_farthest_states_of_the_paper(layout, n_states, start, distance):
    assert layout.n_states == n_states
    assert layout.start == start
    assert farthest(layout) == distance


@pytest.mark.parametrize("rooms", range(1, 9))
def test_multi_rooms_has_22n_minus_1_states(rooms):
    assert make_multi_rooms_layout(rooms).n_states == 22 * rooms - 1


def test_two_rooms_and_multi_rooms_are_the_paper_maps():
    assert make_two_rooms_layout().text == TWO_ROOMS.strip()
    assert make_multi_rooms_layout().text == MULTI_ROOMS.strip()


@pytest.mark.parametrize("size", range(1, 7))
def test_every_size_makes_a_connected_map_of_the_expected_count(size):
    assert make_two_rooms_layout(size, door=size - 1).n_states == 2 * size**2 + 1
    assert make_four_rooms_layout(size).n_states == 4 * size**2 + 4
    assert make_corridor_layout(size).n_states == size
    for rooms in (1, 2, 3):
        expected = (size + 1) * rooms - 1 + rooms + rooms * size**2
        assert make_multi_rooms_layout(rooms, size).n_states == expected


def test_maze_marks_its_goal():
    layout = make_maze_layout()
    assert layout.marked_goal == (7, 13)
    assert layout.distances(layout.index((7, 13)))[layout.index(layout.start)] == 37


def test_cells_are_in_row_major_order():
    layout = parse_layout("#.S\n..#")
    np.testing.assert_array_equal(layout.cells, [[1, 0], [2, 0], [0, 1], [1, 1]])
    assert [layout.index((x, y)) for x, y in layout.cells.tolist()] == [0, 1, 2, 3]
    np.testing.assert_array_equal(layout.state_grid, [[-1, 0, 1], [2, 3, -1]])


def test_moves_go_up_down_left_right_and_walls_stop_them():
    layout = parse_layout("#.#\n.S.\n#.#")  # states: 0 top, 1 left, 2 middle, 3 right, 4 bottom
    np.testing.assert_array_equal(
        layout.successor,
        [[0, 2, 0, 0], [1, 1, 1, 2], [0, 4, 1, 3], [3, 3, 2, 3], [2, 4, 4, 4]],
    )


def test_layouts_with_the_same_text_are_equal():
    assert make_maze_layout() == make_maze_layout()
    assert hash(make_maze_layout()) == hash(make_maze_layout())
    assert make_maze_layout() != make_two_rooms_layout()


def test_arrays_of_a_layout_cannot_be_changed():
    layout = make_maze_layout()
    for array in (layout.free, layout.cells, layout.successor, layout.state_grid):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_indentation_blank_lines_and_line_endings_do_not_matter():
    assert parse_layout("\ufeff\n\n   S.#  \r\n   ..#\r\n\n") == parse_layout("S.#\n..#")


@settings(deadline=None)
@given(connected_maps())
def test_distances_agree_with_an_independent_search(case):
    rows, start = case
    layout = parse_layout("\n".join(rows))
    expected = search(rows, start)
    assert layout.start == start
    assert {(x, y) for x, y in layout.cells.tolist()} == set(expected)
    distances = layout.distances(layout.index(start))
    assert distances.dtype == np.int64
    assert distances.tolist() == [expected[x, y] for x, y in layout.cells.tolist()]


@settings(deadline=None)
@given(any_maps())
def test_cut_off_cells_are_found_and_named(case):
    rows, start = case
    free = {(x, y) for y, row in enumerate(rows) for x, c in enumerate(row) if c != "#"}
    cut_off = sorted(free - set(search(rows, start)), key=lambda cell: cell[::-1])
    if cut_off:
        with pytest.raises(LayoutError, match=re.escape(f"cell {cut_off[0]} is free but cannot")):
            parse_layout("\n".join(rows))
    else:
        assert parse_layout("\n".join(rows)).n_states == len(free)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"the map is empty; write rows of '#' \(wall\) and '\.' \(free\) with one 'S'"),
        ("\n  \n", "the map is empty"),
        ("S.\n.x", r"unknown character 'x' at cell \(1, 1\); a map is made of '#' \(wall\)"),
        ("S. .", r"unknown character ' ' at cell \(2, 0\)"),
        ("S..\n..", r"cell \(2, 1\) is missing: row 1 has 2 cells and row 0 has 3; fill the row"),
        ("S.\n..\n...", r"cell \(2, 2\) is one too many: row 2 has 3 cells and row 0 has 2"),
        ("S.\n\n..", r"cell \(0, 1\) is missing"),
        ("##\n#.", r"has no start; mark one free cell with 'S', for example \(1, 1\)"),
        ("##\n##", r"the map of 2 rows and 2 columns has no start; mark one free cell with 'S'$"),
        ("S.\n.S", r"'S' marks both cell \(0, 0\) and cell \(1, 1\); keep one of them"),
        ("SG\n.G", r"'G' marks both cell \(1, 0\) and cell \(1, 1\); keep one of them"),
        ("S#.", r"cell \(2, 0\) is free but cannot be reached from the start \(0, 0\) \(it is th"),
        ("S#.\n##.", r"cell \(2, 0\) is free .* \(it is one of 2\); open a way to it or make it a"),
        ("S#G", r"cell \(2, 0\) is free but cannot be reached"),
    ],
)
def test_bad_maps_name_the_cell_and_the_remedy(text, message):
    with pytest.raises(LayoutError, match=message):
        parse_layout(text)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ((1, 0), r"goal \(1, 0\) is a wall; the nearest free cell is \(0, 0\)"),
        ((2, 0), r"goal \(2, 0\) is outside the map: x runs from 0 to 1 and y from 0 to 1"),
        ((0, -1), r"goal \(0, -1\) is outside the map"),
    ],
)
def test_walls_and_cells_outside_have_no_state(cell, message):
    with pytest.raises(LayoutError, match=message):
        parse_layout("S#\n..").index(cell, role="goal")


def test_distances_need_a_state():
    with pytest.raises(ConfigurationError, match=r"from_state is 2, .* states .* are 0 to 1"):
        parse_layout("S.").distances(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_multi_rooms_layout(0), "rooms is 0, but must be at least 1"),
        (lambda: make_multi_rooms_layout(2, -1), "room_size is -1, but must be at least 1"),
        (lambda: make_multi_rooms_layout(2.5), "rooms must be a whole number, not 2.5"),
        (lambda: make_multi_rooms_layout(True), "rooms must be a whole number, not True"),
        (
            lambda: make_two_rooms_layout(2),
            "door is 2, but the rows of a room of size 2 are 0 to 1",
        ),
        (
            lambda: make_layout("castle"),
            "unknown layout 'castle'; the layouts are two_rooms, multi",
        ),
        (lambda: make_layout("maze", rooms=2), "'rooms'; the layout 'maze' takes no options"),
        (
            lambda: make_layout("multi_rooms", room=2),
            "'room'; .* 'multi_rooms' takes rooms, room_s",
        ),
    ],
)
def test_bad_options_of_layouts_are_explained(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize("name", LAYOUT_FAMILIES)
def test_every_named_layout_can_be_made(name):
    assert make_layout(name).n_states > 1


def test_map_files_are_read_and_their_errors_name_the_file(tmp_path: Path):
    good, bad, binary = tmp_path / "good.txt", tmp_path / "bad.txt", tmp_path / "binary.txt"
    good.write_text("S.\n.#\n", encoding="utf-8")
    bad.write_text("S?\n", encoding="utf-8")
    binary.write_bytes(b"\xff\xfe\x00")
    assert load_layout(good) == parse_layout("S.\n.#")
    with pytest.raises(LayoutError, match=r"in the map file '.*bad.txt': unknown character '\?'"):
        load_layout(bad)
    with pytest.raises(LayoutError, match=r"'.*binary.txt' cannot be read as text"):
        load_layout(binary)
    with pytest.raises(LayoutError, match=r"'.*none.txt' cannot be read as text"):
        load_layout(tmp_path / "none.txt")
    with pytest.raises(LayoutError, match="cannot be read as text"):
        load_layout(tmp_path)
