"""Random jumps: where they begin, where they may end, and plans that weigh their ends."""

from typing import cast

import numpy as np
import pytest
from scipy.spatial import KDTree

import rover
from rover.data import Buffer
from rover.operators.support import BoolArray, FloatArray, IntArray
from rover.world.dynamics_model import DynamicsModel
from rover.world.jumps import JumpOutcomes, random_jumps
from rover.world.model import LandmarkModel
from rover.world.net import Net
from rover.world.outcomes import _within_moves
from rover.world.points import Transitions, net_points

STEP, PORTAL, GOAL, ENDS = 0.1, 1.0, 9.5, (9.0, -5.0)
"""A line [0, 10] that one walks by steps; below the portal one is cast to either end, where −5 is
in a trap [−5.5, −4.5] that no step leads out of."""


def line_of_portals(n: int, rng: np.random.Generator, ends: tuple[float, ...] = ENDS) -> Buffer:
    """Walks of 200 steps, long stretches in either direction."""
    buffer, row = Buffer((1,), np.float64, 2), -1
    for step in range(n):
        if step % 200 == 0:
            row = buffer.observations.intern(np.array([rng.uniform(PORTAL, 10.0)]))
            buffer.add_start(row)
            direction = int(rng.integers(2))
        direction = direction if rng.random() < 0.98 else 1 - direction
        x = float(buffer.observations.rows[row, 0])
        low, high = (0.0, 10.0) if x > -1.0 else (-5.5, -4.5)
        moved = float(np.clip(x + STEP * (2 * direction - 1) * rng.uniform(0.9, 1.1), low, high))
        if 0.0 <= moved < PORTAL:
            moved = float(rng.choice(ends)) + rng.uniform(-0.05, 0.05)
        reached = buffer.observations.intern(np.array([moved]))
        buffer.add(row, direction, reached, False, step % 200 == 199)
        row = reached
    return buffer


class _Drift:
    """Motion by one change of each action (A, z) everywhere."""

    def __init__(self, changes: FloatArray) -> None:
        self.changes = changes

    def smooth(self, points: FloatArray, actions: IntArray) -> FloatArray:
        return self.changes[actions] + 0.0 * points


def jumping(
    rng: np.random.Generator, ends: FloatArray, n: int = 400
) -> tuple[FloatArray, IntArray, FloatArray, BoolArray]:
    """Points, actions, changes and which jumped: every place beyond 1 leads to one of the ends."""
    begins, actions = rng.uniform(-2.0, 2.0, (n, 2)), rng.integers(2, size=n)
    reached = begins + LAW[actions]
    jumped = reached[:, 0] > 1.0
    landed = ends[rng.integers(len(ends), size=n)]
    return begins, actions, np.where(jumped[:, None], landed, reached) - begins, jumped


LAW = np.array([[0.3, 0.0], [0.0, -0.3]])
FAR = np.array([[9.0, 9.0], [-9.0, 9.0]])


def test_random_jumps_are_split_into_moves_and_jumps():
    rng, unit = np.random.default_rng(0), np.ones(2)
    drift = cast(DynamicsModel, _Drift(LAW))
    begins, actions, changes, jumped = jumping(rng, FAR)
    jumps = random_jumps(drift, begins, actions, changes, unit)
    assert jumps is not None
    moves, found = jumps.split(begins, actions, changes, unit)
    np.testing.assert_array_equal(found, jumped)
    np.testing.assert_allclose(moves, LAW[actions], atol=1e-12)
    # In other units the jumps are the same.
    halved, again = jumps.split(begins / 2.0, actions, changes / 2.0, 2.0 * unit)
    np.testing.assert_array_equal(again, jumped)
    np.testing.assert_allclose(halved, LAW[actions] / 2.0, atol=1e-12)


@pytest.mark.parametrize(("ends", "n"), [(FAR[:1], 400), (FAR, 8)])
def test_jumps_that_end_in_one_place_and_very_few_are_none(ends, n):
    drift = cast(DynamicsModel, _Drift(LAW))
    begins, actions, changes, _ = jumping(np.random.default_rng(1), ends, n)
    assert random_jumps(drift, begins, actions, changes, np.ones(2)) is None


def test_contacts_are_no_jumps():
    """A wall stops the motion or throws it back, which misses it by twice its length at most."""
    rng = np.random.default_rng(2)
    begins, actions = rng.uniform(-2.0, 2.0, (400, 2)), rng.integers(2, size=400)
    changes = LAW[actions] * rng.choice([1.0, 0.0, -0.9], size=(400, 1))
    drift = cast(DynamicsModel, _Drift(LAW))
    assert random_jumps(drift, begins, actions, changes, np.ones(2)) is None


def test_jumps_from_near_by_are_pooled_as_far_as_their_ends_are_alike():
    rng = np.random.default_rng(3)
    places, every = rng.uniform(size=(60, 2)), np.ones(60, np.bool_)
    by_chance = JumpOutcomes.among(places, FAR[rng.integers(2, size=60)], every)
    by_place = JumpOutcomes.among(places, 20.0 * places, every)
    assert by_chance.k > 30
    assert by_place.k <= 5


def test_the_probability_of_a_jump_by_brute_force():
    rng = np.random.default_rng(4)
    places, jumped = rng.normal(size=(50, 2)), rng.random(50) < 0.3
    jumps = JumpOutcomes(KDTree(places), jumped, KDTree(places[jumped]), *[np.zeros(0)] * 2, 1)
    np.testing.assert_allclose(jumps.probability(places), jumped, atol=1e-6)
    for point in rng.normal(size=(10, 2)):
        apart = np.linalg.norm(places - point, axis=1)
        near = apart.argsort()[:8]
        share = jumped[near] @ apart[near] ** -2 / (apart[near] ** -2).sum()
        assert jumps.probability(point[None])[0] == pytest.approx(share, abs=1e-5)


def test_rows_lead_to_where_jumps_end_and_keep_their_mass():
    buffer = line_of_portals(6000, np.random.default_rng(5))
    model = LandmarkModel(buffer, lambda rows, _: (buffer.observations.rows[rows], None))
    model.fit()
    rows = model.rows()
    mass = rows.onward.sum(axis=1) + rows.end + rows.sink
    np.testing.assert_allclose(mass, 1.0, atol=1e-12)
    assert rows.onward.data.min() >= 0.0
    landmarks = model.net.landmarks[:, 0] * model.scale[0]
    down = rows.onward[[2 * int(np.abs(landmarks - 1.15).argmin())]].toarray()[0]
    assert down[landmarks < -4.0].sum() == pytest.approx(0.5, abs=0.2)
    assert down[landmarks > 8.0].sum() == pytest.approx(0.5, abs=0.2)


def test_without_random_jumps_nothing_is_split():
    buffer = line_of_portals(6000, np.random.default_rng(6), ends=(9.0,))
    transitions = net_points(buffer).transitions
    assert transitions is not None
    assert transitions.jumps is None


def test_outcomes_stay_in_the_part_of_space_that_moves_lead_to():
    """Moves go to and fro in [0, 2] and in [3, 5], and no move leads from one to the other."""
    begins = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    ends = begins[[1, 2, 1, 4, 5, 4]]
    taken = Transitions(begins, ends, np.zeros(6, np.int64), 1)
    net = Net.over(begins, 0.5)
    near, weights = (
        np.array([[1, 2], [2, 3], [3, 4]]),
        np.array([[0.4, 0.6], [0.7, 0.3], [0.5, 0.5]]),
    )
    index, kept = _within_moves(net, taken, np.array([[2.1], [1.9], [2.2]]), near, weights)
    spread = np.zeros((3, 6))
    np.add.at(spread, (np.arange(3)[:, None], index), kept)
    expected = np.zeros((3, 6))
    expected[0, [1, 2]] = 0.4, 0.6
    expected[1, 2] = 1.0
    expected[2, 2] = 1.0  # nothing is left, so that it stays
    np.testing.assert_allclose(spread, expected)


@pytest.mark.parametrize(("discount", "is_worth_it"), [(0.97, True), (0.998, False)])
def test_a_portal_is_worth_the_mean_over_its_ends(discount, is_worth_it):
    """From 2 the goal is 75 steps away; or 10 to the portal, and 5 from the better end of two."""
    buffer = line_of_portals(12_000, np.random.default_rng(7))
    policy = rover.solve(buffer, goal=lambda seen: seen[:, 0] > GOAL, discount=discount)
    by_portal, by_foot = 0.5 * discount**15, discount**75
    assert (by_portal > by_foot) == is_worth_it
    at = np.array([[2.0]])
    assert (policy.probs(at)[0, 0] > 0.5) == is_worth_it
    # The sink has a small share of each step.
    assert float(policy.value(at)[0]) == pytest.approx(max(by_portal, by_foot), rel=0.25)
    assert float(policy.value(np.array([[-5.0]]))[0]) == pytest.approx(0.0, abs=1e-6)


def test_outcomes_lead_to_what_a_few_moves_lead_to():
    """A corridor of twelve places that comes back beside its begin."""
    begins = np.arange(12.0)[:, None]
    taken = Transitions(begins[:-1], begins[1:], np.zeros(11, np.int64), 1)
    near, weights = np.array([[0, 8, 9, 11]]), np.full((1, 4), 0.25)
    index, kept = _within_moves(Net.over(begins, 0.5), taken, begins[:1], near, weights)
    spread = np.zeros(12)
    np.add.at(spread, index[0], kept[0])
    np.testing.assert_allclose(spread, np.where(np.isin(np.arange(12), [0, 8]), 0.5, 0.0))
