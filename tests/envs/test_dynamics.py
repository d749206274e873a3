from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given, settings
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


@pytest.mark.slow
@settings(deadline=None)
@given(connected_maps(), st.floats(0.0, 1.0))
def test_rows_are_distributions_and_slips_mix_the_actions(case, slip):
    rows, _ = case
    straight = GridWorld("\n".join(rows)).dynamics().dense()
    slippery = GridWorld("\n".join(rows), slip=slip).dynamics()
    expected = (1 - slip) * straight + slip * straight.mean(axis=0)
    np.testing.assert_allclose(slippery.dense(), expected, atol=1e-15)
    np.testing.assert_allclose(slippery.dense().sum(axis=2), 1.0, rtol=1e-12)
    assert slippery.n_actions == 4
    assert not slippery.terminal.any()


def test_the_goal_is_terminal_and_keeps_its_mass():
    env = GridWorld("S..\n.#.\n..G", goal="marked", slip=0.5)
    dynamics = env.dynamics()
    np.testing.assert_array_equal(np.flatnonzero(dynamics.terminal), [7])
    np.testing.assert_array_equal(dynamics.dense()[:, 7], np.eye(8)[[7] * 4])


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
        ([[[0.5, 0.4], [0, 1]]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to 0.9; probab"),
        (
            [[[1.5, -0.5], [0, 1]]],
            [1, 0],
            [0, 0],
            r"transition\[0\] holds a prob.* negative",
        ),
        ([[[np.nan, 1], [0, 1]]], [1, 0], [0, 0], r"transition\[0\] holds a prob.* not finite"),
        ([np.eye(2)], [0.7, 0.7], [0, 0], "row 0 of start sums to 1.4"),
        ([np.eye(3)], [1, 0], [0, 0], r"transition\[0\] has shape \(3, 3\), but start has 2 st"),
        ([np.eye(2)], [1, 0], [0] * 3, r"start has shape \(2,\) and terminal has shape \(3,\)"),
        ([], [1], [0], "no action; give one matrix per action"),
    ],
)
def test_inconsistent_dynamics_are_refused(matrices, start, terminal, message):
    with pytest.raises(ConfigurationError, match=message):
        FiniteDynamics(
            tuple(csr_array(np.array(matrix, dtype=np.float64)) for matrix in matrices),
            np.array(start, dtype=np.float64),
            np.array(terminal, dtype=np.bool_),
        )
