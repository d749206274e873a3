import numpy as np
import pytest
from grid_maps import connected_maps, search
from hypothesis import given, settings

from rover.envs import OBSERVATIONS
from rover.envs.layouts import AGENT_COLOUR, FLOOR_COLOUR, WALL_COLOUR, make_layout
from rover.errors import ConfigurationError

PAPER_MAPS = {
    "two_rooms": "S......#.......\n.......#.......\n" + "." * 15 + 4 * "\n.......#.......",
    "multi_rooms": "S" + "." * 23 + "\n##.####.####.####.####.#" + 4 * "\n....#....#....#....#....",
}


@pytest.mark.parametrize(
    ("name", "n_states", "start", "distance"),
    [
        ("two_rooms", 99, (0, 0), 20),
        ("multi_rooms", 109, (0, 0), 29),
        ("maze", 108, (13, 12), 37),
        ("middle_room", 129, (8, 8), 10),
        ("four_rooms", 104, (0, 0), 20),
        ("corridor", 21, (10, 0), 10),
    ],
)
def test_sizes_starts_and_farthest_states_of_the_paper(name, n_states, start, distance):
    layout = make_layout(name)
    assert layout.n_states == n_states
    assert layout.start == start
    assert layout.distances(layout.index(start)).max() == distance
    assert PAPER_MAPS.get(name, layout.text) == layout.text
    assert layout.marked_goal == ((7, 13) if name == "maze" else None)


@settings(max_examples=25)
@given(connected_maps())
def test_distances_agree_with_an_independent_search(case):
    rows, start = case
    layout = make_layout("\n".join(rows))
    expected = search(rows, start)
    assert layout.start == start
    assert {(x, y) for x, y in layout.cells.tolist()} == set(expected)
    distances = layout.distances(layout.index(start))
    assert distances.dtype == np.int64
    assert distances.tolist() == [expected[x, y] for x, y in layout.cells.tolist()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n \n", r"the map of 1 rows and 0 columns has no start; mark one free cell with 'S'$"),
        ("S.\n.x", r"unknown character 'x' at cell \(1, 1\); a map is made of '#' \(wall\)"),
        ("S..\n..", "row 1 has 2 cells and row 0 has 3: fill the shorter one up with '#'"),
        ("##\n#.", "the map of 2 rows and 2 columns has no start; mark one free cell with 'S'"),
        ("S.\n.S", r"'S' marks both cell \(0, 0\) and cell \(1, 1\); keep one of them"),
        ("S#.\n##.", r"cell \(2, 0\) is free .* the first of 2; open a way to it or make it a"),
        (("multi_rooms", {"rooms": 0}), "rooms is 0, but must be a whole number from 1 to"),
        (("maze", {"rooms": 2}), "unknown keyword 'rooms': .*, and maze nothing"),
    ],
)
def test_bad_maps_and_options_name_the_remedy(text, message):
    with pytest.raises(ConfigurationError, match=message):
        make_layout(text[0], **text[1]) if isinstance(text, tuple) else make_layout(text)


def test_files_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    for source in (*(tmp_path / name for name in ("binary.txt", "none.txt", "")), 7, "castle"):
        words = r"is neither a map \(rows of '#', .*, nor a name \(two_rooms, .*, nor a text file"
        with pytest.raises(ConfigurationError, match=words):
            make_layout(source)
    (tmp_path / "my map.txt").write_text("S?\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"unknown character '\?' at cell \(1, 0\)"):
        make_layout(tmp_path / "my map.txt")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("begin", ["", "\ufeff", " \r\n  "])
def test_maps_of_other_editors_are_read(begin, end, tmp_path):
    text = begin + "".join("  " + line + end for line in ("S..", "#.G"))
    path = tmp_path / "my map.txt"
    path.write_bytes(text.encode())
    assert make_layout(path).text == make_layout(str(path)).text == "S..\n#.G"
    assert make_layout(text.lstrip("\ufeff")).text == "S..\n#.G"


@pytest.mark.parametrize("kind", OBSERVATIONS)
@pytest.mark.parametrize("name", ["multi_rooms", "maze"])
def test_every_state_is_seen_differently_and_always_the_same(name, kind):
    layout = make_layout(name)
    observation_map = OBSERVATIONS[kind](layout)
    seen = [observation_map.encode(state) for state in range(layout.n_states)]
    assert all(observation in observation_map.space for observation in seen)
    assert len(np.unique(np.reshape(seen, (layout.n_states, -1)), axis=0)) == layout.n_states


@settings(max_examples=20)
@given(connected_maps())
def test_images_of_random_maps_differ_only_in_the_agent(case):
    rows, _ = case
    layout = make_layout("\n".join(rows))
    images = np.array(list(map(OBSERVATIONS["pixels"](layout).encode, range(layout.n_states))))
    cell = 84 // max(layout.free.shape)
    red = (images == AGENT_COLOUR).all(axis=-1)
    np.testing.assert_array_equal(red.sum(axis=(1, 2)), cell**2)
    assert red.sum(axis=0).max() == 1  # no two states share a pixel of the agent
    floor = (images == FLOOR_COLOUR).all(axis=-1)
    wall = (images == WALL_COLOUR).all(axis=-1)
    assert np.all(red | floor | wall)
    np.testing.assert_array_equal((red | floor)[0], red.any(axis=0))


def test_maps_too_large_for_a_kind_of_observation_are_refused():
    OBSERVATIONS["pixels"](make_layout("corridor", length=84))
    with pytest.raises(ConfigurationError, match="1 rows and 85 columns, too many for pixel obs"):
        OBSERVATIONS["pixels"](make_layout("corridor", length=85))
    with pytest.raises(ConfigurationError, match="10001 states, too many for one-hot observations"):
        OBSERVATIONS["onehot"](make_layout("corridor", length=10_001))
