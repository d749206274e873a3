"""Grid worlds: their maps, steps and dynamics."""

from collections import deque

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.envs import ENVIRONMENTS, FiniteDynamics, GridWorld
from rover.envs.gridworld import _AGENT_COLOUR, _FLOOR_COLOUR, _WALL_COLOUR, OBSERVATIONS
from rover.envs.layouts import make_layout
from rover.errors import ConfigurationError


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


SMALL_MAP = "S..\n.#.\n..G"


CASES = [(env_id, kind) for env_id in ENVIRONMENTS for kind in OBSERVATIONS]


@pytest.mark.parametrize(("env_id", "observation"), CASES)
def test_gymnasium_checks_every_id_and_the_same_seed_gives_the_same_episodes(env_id, observation):
    settings = {"observation": observation, "start": "random", "slip": 0.3}
    settings |= {"layout": SMALL_MAP} if env_id == "rover/Grid-v0" else {}

    def episodes(seed):
        env = gym.make(env_id, render_mode="rgb_array", **settings)
        actions = np.random.default_rng(7).integers(4, size=40)
        stream = [env.reset(seed=seed)]
        for action in actions:
            stream.append(env.step(action))
            if stream[-1][2] or stream[-1][3]:
                stream.append(env.reset())
        check_env(env.unwrapped)
        again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
        assert again.unwrapped.layout == env.unwrapped.layout
        return stream

    first, again, other = episodes(3), episodes(3), episodes(4)
    assert data_equivalence(first, again, exact=True)
    assert not data_equivalence(first, other, exact=True)


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_no_observation_shows_the_goal(observation):
    env = GridWorld(SMALL_MAP, observation=observation)
    (first, _), (second, *_, info) = env.reset(), env.step(1)
    assert info == {"state": 3}
    np.testing.assert_array_equal(first, env.finite_mdp.observations[0])
    np.testing.assert_array_equal(second, env.finite_mdp.observations[3])
    with_goal = GridWorld(SMALL_MAP, observation=observation, goal="marked")
    np.testing.assert_array_equal(with_goal.finite_mdp.observations, env.finite_mdp.observations)


def test_starts_are_as_asked_and_random_ones_uniform_over_the_free_cells_but_the_goal():
    assert GridWorld(SMALL_MAP, start=(2, 0)).reset()[1] == {"state": 2}
    env = GridWorld(SMALL_MAP, goal="marked", start="random")
    probabilities = env.finite_mdp.dynamics.start
    np.testing.assert_allclose(probabilities, [1 / 7] * 7 + [0])
    states = [env.reset(seed=0)[1]["state"]] + [env.reset()[1]["state"] for _ in range(6_999)]
    counts = np.bincount(states, minlength=8)
    assert counts[7] == 0
    assert np.abs(counts[:7] - 1000).max() < 4.5 * np.sqrt(1000)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"observation": "rgb"}, "unknown observation 'rgb'; choose one of state, onehot, "),
        ({"slip": float("nan")}, "slip is nan, but must be a probability"),
        ({"goal": (1, 1)}, r"goal \(1, 1\) is no free .*; the nearest free cell is \(1, "),
        ({"start": (1, 1)}, r"start \(1, 1\) is no free cell"),
        ({"start": "anywhere"}, "start is 'anywhere'; give a cell .*'random'"),
        ({"goal": (0, 0)}, r"start and goal are both cell \(0, 0\)"),
        ({"layout": "S..", "goal": "marked"}, "no cell of the map is marked 'G'"),
    ],
)
def test_bad_settings_are_explained(settings, message):
    with pytest.raises(ConfigurationError, match=message):
        GridWorld(**{"layout": SMALL_MAP, **settings})


@pytest.mark.parametrize(
    ("matrices", "start", "terminal", "message"),
    [
        ([[[0.5, 0.4], [0, 1]]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to 0.9"),
        ([[[1.5, -0.5], [0, 1]]], [1, 0], [0, 0], "sums to 1, with -0.5 as its least entry"),
        ([np.eye(2)], [0.7, 0.7], [0, 0], "row 0 of start sums to 1.4"),
        ([np.eye(3)], [1, 0], [0, 0], r"1 matrices of \[\(3, 3\)\], start of \(2,\)"),
    ],
)
def test_inconsistent_dynamics_are_refused(matrices, start, terminal, message):
    with pytest.raises(ConfigurationError, match=message):
        FiniteDynamics(
            tuple(csr_array(np.array(matrix, dtype=np.float64)) for matrix in matrices),
            np.array(start, dtype=np.float64),
            np.array(terminal, dtype=np.bool_),
        )


MOVES = ((0, -1), (0, 1), (-1, 0), (1, 0))  # up, down, left, right as (x, y)


@given(connected_maps(), st.sampled_from([0.0, 0.25, 1.0]), st.data())
def test_dynamics_and_episodes_follow_the_rules(case, slip, data):
    """The rules are written here once more, from their description."""
    rows, start = case
    cells = [(x, y) for y, row in enumerate(rows) for x, sign in enumerate(row) if sign != "#"]
    number = {cell: i for i, cell in enumerate(cells)}
    goal = data.draw(st.sampled_from([None, *(cell for cell in cells if cell != start)]))
    moved = np.zeros((4, len(cells), len(cells)))
    for (x, y), i in number.items():
        for action, (dx, dy) in enumerate(MOVES):
            moved[action, i, i if goal == (x, y) else number.get((x + dx, y + dy), i)] = 1.0
    expected = (1 - slip) * moved + slip * moved.mean(axis=0)
    env = GridWorld("\n".join(rows), goal=goal, slip=slip, horizon=12)
    np.testing.assert_allclose(env.finite_mdp.dynamics.dense(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(env.finite_mdp.dynamics.start, np.eye(len(cells))[number[start]])
    _, info = env.reset(seed=len(cells))
    for step in range(1, 13):
        state, action = info["state"], 7 * step % 4
        _, reward, terminated, truncated, info = env.step(action)
        assert expected[action, state, info["state"]] > 0.0
        is_over = goal is not None and info["state"] == number[goal]
        assert reward == (0.0 if goal is None else -float(not is_over))
        assert (terminated, truncated) == (is_over, not is_over and step == 12)
        if is_over:
            break


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


@settings(max_examples=20)
@given(connected_maps())
def test_images_of_random_maps_differ_only_in_the_agent(case):
    rows, _ = case
    layout = make_layout("\n".join(rows))
    images = np.array(list(map(OBSERVATIONS["pixels"](layout).encode, range(layout.n_states))))
    cell = 84 // max(layout.free.shape)
    red = (images == _AGENT_COLOUR).all(axis=-1)
    np.testing.assert_array_equal(red.sum(axis=(1, 2)), cell**2)
    assert red.sum(axis=0).max() == 1  # no two states share a pixel of the agent
    floor = (images == _FLOOR_COLOUR).all(axis=-1)
    wall = (images == _WALL_COLOUR).all(axis=-1)
    assert np.all(red | floor | wall)
    np.testing.assert_array_equal((red | floor)[0], red.any(axis=0))


def test_maps_too_large_for_a_kind_of_observation_are_refused():
    OBSERVATIONS["pixels"](make_layout("corridor", length=84))
    with pytest.raises(ConfigurationError, match="1 rows and 85 columns, too many for pixel obs"):
        OBSERVATIONS["pixels"](make_layout("corridor", length=85))
