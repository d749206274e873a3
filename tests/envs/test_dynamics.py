from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.envs import FiniteDynamics, GridWorld
from rover.errors import ConfigurationError


def coverage_of_uniform_policy(dynamics, discount):
    """Σ d², the squared norm of the uniform policy's discounted state occupancy d."""
    moved = dynamics.dense().mean(axis=0)
    resolvent = np.eye(dynamics.n_states) - discount * moved.T
    occupancy = (1 - discount) * np.linalg.solve(resolvent, dynamics.start)
    assert occupancy.sum() == pytest.approx(1.0)
    return float(occupancy @ occupancy)


@pytest.mark.parametrize(
    ("name", "discount", "objective"),
    [
        ("two_rooms", 0.99, 0.020521),
        ("multi_rooms", 0.99, 0.044877),
        ("maze", 0.99, 0.074399),
        ("middle_room", 0.9, 0.048840),
    ],
)
def test_coverage_objective_of_the_uniform_policy(name, discount, objective):
    env = GridWorld(name)
    assert env.suggested_discount == discount
    assert round(coverage_of_uniform_policy(env.dynamics(), discount), 6) == objective


@pytest.mark.parametrize(
    ("layout", "settings", "expected"),
    [
        ("..S.", {}, [2, 1, 0, 1]),
        ("..S.", {"start": "random"}, [0, 0, 0, 0]),
        ("S.G.", {"goal": "marked"}, [0, 1, 2, -1]),  # the goal ends the episode
        ("S.G\n...", {"goal": "marked", "slip": 0.3}, [0, 1, 2, 1, 2, 3]),
    ],
)
def test_fewest_steps_to_every_state(layout, settings, expected):
    assert GridWorld(layout, **settings).dynamics().steps_to_states().tolist() == expected


@pytest.mark.parametrize(
    ("matrices", "start", "terminal", "message"),
    [
        ([[[0.5, 0.4], [0, 1]]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to 0.9"),
        (
            [[[1.5, -0.5], [0, 1]]],
            [1, 0],
            [0, 0],
            r"row 0 of transition\[0\] sums to 1, with -0.5 as its least entry",
        ),
        ([[[np.nan, 1], [0, 1]]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to nan"),
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
    np.testing.assert_allclose(env.dynamics().dense(), expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(env.dynamics().start, np.eye(len(cells))[number[start]])
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
