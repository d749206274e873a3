from __future__ import annotations

import numpy as np
import pytest
from grid_maps import connected_maps
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from rover.envs import FiniteDynamics, GridWorld, dynamics_from_successor, dynamics_from_toy_text
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


def test_successors_of_deterministic_dynamics():
    table = np.array([[1, 0], [2, 0], [0, 0]])
    dynamics = dynamics_from_successor(
        table, start=np.array([1.0, 0, 0]), terminal=np.array([False, False, True])
    )
    np.testing.assert_array_equal(dynamics.successor(), [[1, 0], [2, 0], [2, 2]])
    with pytest.raises(
        ConfigurationError, match=r"action 0 has a random outcome in state 0 .* 0.75"
    ):
        dynamics_from_successor(
            table, start=np.array([1.0, 0, 0]), terminal=np.zeros(3, dtype=bool), slip=0.5
        ).successor()


@pytest.mark.parametrize(
    ("matrix", "start", "terminal", "message"),
    [
        ([[0.5, 0.4], [0, 1]], [1, 0], [0, 0], r"row 0 of transition\[0\] sums to 0.9; probab"),
        ([[1.5, -0.5], [0, 1]], [1, 0], [0, 0], r"transition\[0\] holds a probability that is neg"),
        (
            [[np.nan, 1], [0, 1]],
            [1, 0],
            [0, 0],
            r"transition\[0\] holds a probability .* not finite",
        ),
        (np.eye(2), [0.7, 0.7], [0, 0], "row 0 of start sums to 1.4"),
        (np.eye(3), [1, 0], [0, 0], r"transition\[0\] has shape \(3, 3\), but start has 2 states"),
        (np.eye(2), [1, 0], [0, 0, 0], r"start has shape \(2,\) and terminal has shape \(3,\)"),
    ],
)
def test_inconsistent_dynamics_are_refused(matrix, start, terminal, message):
    with pytest.raises(ConfigurationError, match=message):
        FiniteDynamics(
            (csr_array(np.array(matrix, dtype=np.float64)),),
            np.array(start, dtype=np.float64),
            np.array(terminal, dtype=np.bool_),
        )


def test_dynamics_need_an_action():
    with pytest.raises(ConfigurationError, match="no action; give one matrix per action"):
        FiniteDynamics((), np.ones(1), np.zeros(1, dtype=np.bool_))


def test_toy_text_tables_are_restricted_and_ended_as_their_flags_say():
    table = {
        0: {0: [(1.0, 2, 0.0, False)], 1: [(0.25, 3, 1.0, True), (0.75, 0, 0.0, False)]},
        1: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},  # nothing leads here
        2: {0: [(0.5, 2, 0.0, False), (0.5, 2, 0.0, False)], 1: [(1.0, 0, 0.0, False)]},
        3: {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 1, 0.0, True)]},  # never left, so never used
    }
    restricted = dynamics_from_toy_text(table, np.array([1.0, 0, 0, 0]))
    np.testing.assert_array_equal(restricted.kept_states, [0, 2, 3])
    np.testing.assert_array_equal(restricted.dynamics.terminal, [False, False, True])
    np.testing.assert_array_equal(restricted.dynamics.start, [1, 0, 0])
    np.testing.assert_array_equal(
        restricted.dynamics.dense(),
        [
            [[0, 1, 0], [0, 1, 0], [0, 0, 1]],
            [[0.75, 0, 0.25], [1, 0, 0], [0, 0, 1]],
        ],
    )


@pytest.mark.parametrize(
    ("table", "start", "message"),
    [
        (
            {0: {0: [(1.0, 1, 0, True)], 1: [(1.0, 1, 0, False)]}, 1: {0: [], 1: []}},
            [1.0, 0.0],
            "state 1 ends the episode on some arrivals and not on others",
        ),
        ({0: {0: [(1.0, 0, 0, True)]}}, [1.0], "state 0 ends the episode .* or is a first state"),
        (
            {0: {0: [(1.0, 1, 0, False)]}, 1: {}},
            [1.0, 0.0],
            r"P\[1\] holds the actions \[\], .* \(state 0 has 1\)",
        ),
        ({0: {0: [(1.0, 5, 0, False)]}}, [1.0], r"P\[5\] holds the actions \[\]"),
        ({0: {}}, [1.0], r"P\[0\] holds the actions \[\]"),
        ({0: {0: [(0.5, 0, 0, False)]}}, [1.0], r"row 0 of transition\[0\] sums to 0.5"),
        ({0: {0: [(1.0, 0, 0, False)]}}, [0.0], "with a positive entry"),
    ],
)
def test_bad_toy_text_tables_are_explained(table, start, message):
    with pytest.raises(ConfigurationError, match=message):
        dynamics_from_toy_text(table, np.array(start))
