"""Transitions near a point and cautious rows, and the interpolation below them."""

import tracemalloc
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from walks import Walk, line

import rover
from rover.arrays import FloatArray, IntArray
from rover.data import Buffer
from rover.errors import RoverWarning
from rover.operators.values import gaussian_weights, interpolation_weights
from rover.solving.plans import _net_points
from rover.world.model import LandmarkModel, _Units
from rover.world.neighbours import SPACING, Neighbours
from rover.world.net import Net
from rover.world.world import World


@given(st.integers(0, 2**16), st.integers(1, 4))
def test_weights_are_a_mean_at_the_point(seed, width):
    """Inside of a cloud of neighbours the weights reproduce every linear function."""
    rng = np.random.default_rng(seed)
    corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * width), axis=-1).reshape(-1, width)
    corners = corners * rng.uniform(0.5, 1.0, size=corners.shape) / np.sqrt(width)
    offsets = torch.from_numpy(corners[None] - rng.uniform(-0.05, 0.05, size=(1, 1, width)))
    distances = offsets.norm(dim=2)
    weights = interpolation_weights(distances, offsets)
    of_arrays = interpolation_weights(distances.numpy(), offsets.numpy())
    np.testing.assert_allclose(of_arrays, weights.numpy(), atol=1e-12)
    assert float(weights.min()) >= 0.0
    assert float(weights.sum()) == pytest.approx(1.0)
    mean = (weights[0, :, None] * offsets[0]).sum(dim=0)
    plain = (gaussian_weights(distances)[0, :, None] * offsets[0]).sum(dim=0)
    assert float(mean.norm()) < 1e-3 + 0.1 * float(plain.norm())


def test_a_plan_is_in_doubt_at_a_wall_alone():
    """Of two actions one is taken alike with the other as often as transitions contradict it."""
    rng, buffer = np.random.default_rng(0), Buffer((1,), np.float64, 2)
    x, walk = 0.5, Walk(buffer)
    walk.begin([x])
    for step in range(4000):
        action = int(rng.random() < (step // 120) % 2)
        moved = x + (0.01 if action else -0.01) * rng.uniform(0.9, 1.1)
        blocked = rng.random() < 0.5 and (x < 0.7) != (moved < 0.7)  # half of the ways through
        x = min(max(x if blocked else moved, 0.0), 1.0)
        walk.step(action, [x])
    policy = rover.solve(buffer, goal=lambda seen: seen[:, 0] > 0.95)
    free, wall = policy.probs(np.array([[0.4], [0.6972]]))
    assert free[1] > 0.98  # some ways through are not foreseen
    assert free[0] < 0.5 * wall[0]
    assert 0.02 < wall[0] < 0.5
    assert wall.sum() == pytest.approx(1.0)
    assert 0.0 <= policy.contact_probability.min() <= policy.contact_probability.max() <= 1.0


@pytest.mark.parametrize("noise", [0, 2])
def test_values_of_a_drift(noise):
    """The way up is the better the nearer it is to its end, and noise is left out."""
    buffer = line(2000, np.random.default_rng(0), noise=noise)
    assert _net_points(World(buffer)).projection.shape == (1 + noise, 1)
    reward = (buffer.observations.rows[buffer.successors, 0] >= 0.9).astype(float)
    policy = rover.solve(buffer, reward, discount=0.9, sink_value=0.0)
    begin = np.concatenate([np.linspace(0.1, 0.8, 9)[:, None], np.full((9, noise), 0.5)], axis=1)
    assert (policy.probs(begin.astype(np.float32))[:, 1] > 0.99).all()
    assert (np.diff(policy.value(begin.astype(np.float32))) > 0.0).all()


class _Drift:
    """Motion that predicts one change of each action (A, z) everywhere."""

    def __init__(self, changes: FloatArray) -> None:
        self._each = changes

    @property
    def displacements(self) -> Any:
        return self

    def changes(self, _: FloatArray, actions: IntArray) -> FloatArray:
        return self._each[actions]

    def step(self, points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return points + self._each[:, None], np.zeros(points.shape[:2])


def taken_by(
    changes: FloatArray, begins: FloatArray, ends: FloatArray, actions: IntArray
) -> Neighbours:
    rows, each = np.concatenate([begins, ends]), np.arange(len(begins))
    buffer = SimpleNamespace(inputs=each, successors=each + len(each), actions=actions)
    buffer.n_actions = len(changes)
    units = _Units(lambda some: (rows[some], None), np.arange(rows.shape[1]), 1.0, 1.0, 1.0)
    model = SimpleNamespace(buffer=buffer, units=units, dynamics=_Drift(changes))
    return Neighbours(cast(LandmarkModel, model))


@given(st.integers(0, 2**16), st.integers(1, 3), st.integers(2, 60))
@settings(max_examples=25)
def test_transitions_near_by_and_what_they_contradict_by_brute_force(seed, width, n):
    rng = np.random.default_rng(seed)
    (begins, ends), law = rng.normal(size=(2, n, width)), rng.normal(size=(2, width))
    actions, points = rng.integers(2, size=n), rng.normal(size=(5, width))
    taken = taken_by(law, begins, ends, actions)
    predicted, moves = rng.normal(size=(5, width)), ends - begins
    errors, twins = moves - law[actions], np.arange(n)
    for row in range(n):
        others = [i for i in range(n) if actions[i] == actions[row] and i != row]
        if others:
            twins[row] = min(others, key=lambda i: float(np.linalg.norm(begins[i] - begins[row])))
    apart = np.abs(errors - errors[twins]) / np.sqrt(2.0)
    noise = 3.0 * np.quantile(apart, 0.25, axis=0) + 2e-3
    is_far = (np.abs(errors) > 3.0 * noise).any(axis=1)
    assert taken.usual == np.median(np.linalg.norm(moves, axis=1))

    def differ(one: FloatArray, other: FloatArray) -> bool:
        lengths = np.linalg.norm(one), np.linalg.norm(other), 0.2 * taken.usual
        return bool(np.linalg.norm(one - other) > 0.5 * max(lengths))

    for action in np.unique(actions):
        rows = np.flatnonzero(actions == action)
        transitions, _ = taken.near(action, points)
        masks = taken.contradict(predicted, transitions)
        for point, change, found, mask in zip(points, predicted, transitions, masks, strict=True):
            near = np.linalg.norm(begins[rows] - point, axis=1).argsort()[:8]
            np.testing.assert_array_equal(found, rows[near])
            for row, contradicts in zip(found, mask, strict=True):
                is_contact = is_far[row] and differ(law[action], moves[row])
                assert contradicts == (is_contact and differ(change, moves[row]))


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.25])
def test_noise_is_no_contact(noise):
    """Of moves, a tenth of which are blocked, the blocked ones alone are contacts: noise of
    a quarter of a move hides half of them, and takes one in fifty others for one at most."""
    rng = np.random.default_rng(3)
    n = 2000
    begins, actions = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    moves, is_blocked = np.array([[4.0, 0.0], [-4.0, 0.0]]), rng.random(n) < 0.1
    ends = begins + np.where(is_blocked[:, None], 0.0, moves[actions])
    taken = taken_by(moves, begins, ends + noise * 4.0 * rng.normal(size=(n, 2)), actions)
    assert taken.contacts[~is_blocked].mean() <= 0.02
    assert taken.contacts[is_blocked].mean() >= (1.0 if noise < 0.25 else 0.5)


def standing(begins: FloatArray) -> Neighbours:
    """Transitions that stay where they begin."""
    return taken_by(np.zeros((1, 1)), begins, begins, np.zeros(len(begins), np.int64))


def test_observations_come_back_where_half_have_another_near_by():
    rng = np.random.default_rng(0)
    path = np.cumsum(rng.uniform(1.01, 3.0, (400, 1)) * SPACING, axis=0)
    assert not standing(path).come_back()
    beside = path[:200] + 0.5 * SPACING
    assert standing(np.concatenate([path, beside])).come_back()
    assert not standing(np.concatenate([path, beside[:90]])).come_back()


def test_outcomes_stay_in_the_part_of_space_that_moves_lead_to():
    """Moves go to and fro in [0, 2] and in [3, 5], and no move leads from one to the other."""
    begins = np.array([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0]])
    ends = begins[[1, 2, 1, 4, 5, 4]]
    taken = taken_by(np.ones((1, 1)), begins, ends, np.zeros(6, np.int64))
    net = Net.over(begins, 0.5)
    near = np.array([[1, 2], [2, 3], [3, 4]])
    weights = np.array([[0.4, 0.6], [0.7, 0.3], [0.5, 0.5]])
    index, kept = taken.within_moves(net, np.array([[2.1], [1.9], [2.2]]), near, weights)
    spread = np.zeros((3, 6))
    np.add.at(spread, (np.arange(3)[:, None], index), kept)
    expected = np.zeros((3, 6))
    expected[0, [1, 2]] = 0.4, 0.6
    expected[1, 2] = 1.0
    expected[2, 2] = 1.0  # nothing is left, so that it stays
    np.testing.assert_allclose(spread, expected)


def test_no_plan_creeps_through_a_wall():
    """Where all transitions near by stand still a plan does, though its mean passes in steps."""
    begins = np.stack([np.zeros(20), np.linspace(0.0, 1.0, 20)], axis=1)
    law = np.array([[1.0, 0.0], [0.0, 1.0]])
    actions = np.repeat([0, 1], 10)
    ends = begins + np.where(actions == 0, 0.0, 1.0)[:, None] * law[actions]  # a wall at x = 0
    blurred = law * np.array([[0.3], [1.0]])
    _, reached, _, contact = taken_by(blurred, begins, ends, actions).repeat(begins[::7])
    reached = reached.reshape(3, 2, 2)
    np.testing.assert_array_equal(reached[:, 0], begins[::7])
    np.testing.assert_allclose(reached[:, 1], begins[::7] + 3.0 * law[1])
    assert contact.reshape(3, 2).tolist() == [[pytest.approx(1.0), 0.0]] * 3


def test_where_an_action_was_not_tried_near_by_it_leads_to_the_sink():
    """On a line with one action everywhere and another in the left half alone."""
    rng, buffer = np.random.default_rng(0), Buffer((1,), np.float32, 2)
    walk = Walk(buffer)
    for x in rng.random(1000):
        walk.begin(np.float32([x]))
        walk.step(int(x < 0.5 and rng.random() < 0.5), np.float32([x + 0.01]), truncated=True)
    points = _net_points(World(buffer))
    rows = points.rows_of(0.02)
    np.testing.assert_allclose(rows.onward.sum(axis=1) + rows.sink, 1.0)
    where = rows.landmarks[:, 0] / points.projection[0, 0]
    everywhere, left = rows.sink.reshape(-1, 2).T
    assert everywhere.max() < 0.1
    assert left[where < 0.4].max() < 0.1
    assert left[where > 0.6].min() > 0.15, "the farther away the more"
    assert left[where > 0.9].min() > 0.6
    assert not points.rows_of(0.0).sink.any()


def test_repeated_actions_add_up_rewards_and_ends():
    buffer = line(1000, np.random.default_rng(1))
    rows, arrivals = _net_points(World(buffer)).rows_of(0.0), np.ones((2, 1), np.bool_)
    ones, none = np.ones((len(buffer), 1)), np.zeros((len(buffer), 1))
    earned, remaining = rows.priced(ones, none, 0.9, by_arrival=arrivals)
    np.testing.assert_allclose(earned, 1.0 + 0.9 + 0.81)
    np.testing.assert_allclose(remaining, 0.9**3)
    earned, remaining = rows.priced(ones, ones, 0.9, by_arrival=arrivals)
    np.testing.assert_allclose(earned, 1.0)  # all ends with the first step
    np.testing.assert_allclose(remaining, 0.0, atol=1e-12)


@pytest.mark.parametrize("side", [4, 84])
def test_images_too_few_to_compare_are_states_of_their_own(side):
    """A walk through 45 pictures: the plan for its end repeats it, in little memory."""
    images = np.random.default_rng(0).integers(0, 256, (46, side, side, 3), np.uint8)
    actions = np.random.default_rng(1).integers(0, 3, 45)
    buffer = Buffer(images.shape[1:], np.uint8, 3)
    walk = Walk(buffer)
    walk.begin(images[0])
    for action, image in zip(actions.tolist(), images[1:], strict=True):
        walk.step(action, image)
    tracemalloc.start()
    with pytest.warns(RoverWarning, match="images seldom repeat in this data"):
        policy = rover.solve(buffer, goal=images[45])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 2**28  # a matrix as wide as an image has numbers would take gigabytes
    np.testing.assert_array_equal(policy.probs(images[:45]).argmax(axis=1), actions)
