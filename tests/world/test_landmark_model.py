"""The model of places: its pieces by brute force, one that grew, plans that create no mass."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import KDTree
from walks import Walk

from rover.coverage.explore import LandmarkExplorer
from rover.data import Buffer
from rover.operators import Objective, mirror_descend
from rover.world import model, net
from rover.world.net import Net, _lag_scale
from rover.world.world import World

SEEDS = st.integers(0, 2**31)
N_ACTIONS = 3
NOBODY = np.empty((0, 2))
"""Points of other walkers."""


@given(SEEDS, st.integers(1, 60), st.floats(0.05, 2.0))
def test_a_net_covers_its_points_and_only_grows_with_them(seed, n, radius):
    rng = np.random.default_rng(seed)
    points, half = rng.normal(size=(n, 2)), int(rng.integers(n + 1))
    whole, grown = Net(points[:0], radius), Net(points[:0], radius)
    owner = whole.add(points)
    parts = grown.add(points[:half]), grown.add(points[half:])
    np.testing.assert_array_equal(np.concatenate(parts), owner)
    np.testing.assert_array_equal(grown.landmarks, whole.landmarks)
    distance = np.linalg.norm(points[:, None] - whole.landmarks[None], axis=2)
    np.testing.assert_array_equal(owner, (distance <= radius).argmax(axis=1))
    assert (distance.min(axis=1) <= radius).all()
    apart = np.linalg.norm(whole.landmarks[:, None] - whole.landmarks, axis=2)
    assert (apart + 10 * radius * np.eye(len(whole)) > radius).all()
    largest = int(rng.integers(1, 9))
    small = Net.over(points, radius, largest=largest)
    assert len(small) <= largest
    if small.radius > radius:
        assert Net(points[:0], small.radius / 1.25, largest).add(points) is None


@given(SEEDS, st.integers(1, 7))
def test_units_are_the_change_within_episodes(seed, lag):
    rng = np.random.default_rng(seed)
    paths = [rng.normal(size=(int(rng.integers(8, 15)), 2)).cumsum(axis=0) for _ in range(4)]
    points = np.concatenate([path[:-1] for path in paths])
    ends = np.concatenate([path[1:] for path in paths])
    begins = np.cumsum([0, *(len(path) - 1 for path in paths[:-1])])
    previous = np.arange(len(points)) - 1
    previous[begins] = -1
    changes = np.concatenate([path[lag:] - path[:-lag] for path in paths])
    np.testing.assert_allclose(
        _lag_scale(points, ends, previous, lag), np.sqrt((changes**2).mean(axis=0))
    )


@given(SEEDS, st.integers(1, 40), st.integers(1, 30))
def test_neighbours_by_a_tree_and_by_products_are_the_nearest(seed, d, m):
    rng = np.random.default_rng(seed)
    points, others, k = rng.normal(size=(7, d)), rng.normal(size=(m, d)), min(m, 3)
    everything = np.linalg.norm(points[:, None] - others[None], axis=2)
    distance, index = net.nearest(KDTree(others), points, k)
    np.testing.assert_array_equal(index, everything.argsort(axis=1)[:, :k])
    np.testing.assert_allclose(distance, np.sort(everything, axis=1)[:, :k], rtol=1e-6)
    with mock.patch.object(net, "_MOST_ENTRIES", 3 * m):  # products of three points at a time
        some, same = net.nearest(KDTree(others), points, k)
    np.testing.assert_array_equal(same, index)
    np.testing.assert_allclose(some, distance, rtol=1e-9)


def wander(seed: int, n_steps: int, *, fit_every: int = 0) -> World:
    """A plane that three actions push about, of which the last is never taken; episodes end.

    Args:
        fit_every: steps after which a model is made; 0: never.
    """
    rng, push = np.random.default_rng(seed), np.array([[0.2, 0.0], [-0.1, 0.2]])
    buffer = Buffer((2,), np.float64, N_ACTIONS)
    world, place, walk = World(buffer), np.zeros(2), Walk(buffer)
    walk.begin(place)
    for row in range(n_steps):
        action = int(rng.integers(2))
        place = place + push[action] * (1.0 + 0.5 * np.sin(place)) + rng.normal(size=2) * 0.02
        ends = row % 40 == 39
        walk.step(action, place, ends)
        if ends:
            place = rng.normal(size=2) * 0.1
            walk.begin(place)
        if fit_every and row % fit_every == fit_every - 1:
            grown = world.landmarks()
            grown.novelty(grown.rows(600).landmarks)
    return world


@given(SEEDS, st.integers(20, 300), st.sampled_from([2000, 12]), st.integers(7, 30))
@settings(max_examples=12)
def test_a_model_that_grew_is_the_one_made_from_the_stored_buffer(
    seed, n_steps, largest, fit_every
):
    """To the bit: a run that was resumed makes it anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_MOST_CELLS", largest)
        grown = wander(seed, n_steps, fit_every=fit_every)
        stored = Buffer((2,), np.float64, N_ACTIONS)
        stored.load_state(grown.buffer.state())
        made = []
        for world in (grown, World(stored)):
            one = world.landmarks()
            rows = one.rows(min(600, max(largest - 4, 1)))
            made.append(
                (
                    one.units.scale,
                    one.cells.landmarks,
                    world._sums._tries,
                    world._sums._means,
                    rows.landmarks,
                    rows.onward.toarray(),
                    rows.end,
                    rows.sink,
                    rows.start,
                    rows.ahead,
                    one.novelty(rows.ahead),
                    *one.ahead(0, rows, one.novelty(rows.landmarks), NOBODY),
                )
            )
    for first, second in zip(*made, strict=True):
        np.testing.assert_array_equal(first, second)
    assert len(one.cells) <= largest
    assert len(rows.landmarks) <= largest - 4 or largest > 12
    assert world._sums._tries.sum() == n_steps


def test_a_net_of_a_policy_is_its_own_and_bounded():
    coarse = wander(0, 300).landmarks()
    before = coarse.rows(10)
    for largest in (25, 10):
        rows = coarse.rows(largest, 1.1)
        assert 10 // 2 < len(rows.landmarks) <= largest
        mass = rows.onward.sum(axis=1) + rows.end + rows.sink
        np.testing.assert_allclose(mass, 1.0, rtol=1e-12)
    assert len(coarse.rows(25).landmarks) > len(before.landmarks)
    # The explorer's landmarks and rows are what they were.
    np.testing.assert_array_equal(coarse.rows(10).ahead, before.ahead)


def test_landmarks_of_later_rows_go_on_from_earlier_ones_until_there_are_too_many():
    world = wander(3, 112)
    earlier, buffer = world.landmarks(), world.buffer
    before = earlier.rows(600)
    rng = np.random.default_rng(1)
    for _ in range(40):
        here = int(buffer.successors[-1])
        reached = buffer.observations.rows[here] + rng.normal(size=2) * 0.3
        reached = buffer.observations.intern(reached)
        buffer.add(here, int(rng.integers(2)), reached, False, False)
    assert net.units_due(152) == 112, "units are those of before"
    after = world.landmarks().rows(600)
    fewer = world.landmarks().rows(len(before.landmarks) // 2)
    np.testing.assert_array_equal(earlier.rows(600).ahead, before.ahead, "a model does not change")
    assert len(after.landmarks) > len(before.landmarks)
    assert after.continues(before)
    assert not fewer.continues(before)


def test_a_plan_of_many_actions_has_fewer_landmarks(monkeypatch):
    grown = wander(0, 300).landmarks()
    assert len(grown.rows(60).landmarks) > 30
    for fewest, most in ((5, 20), (30, 30)):
        monkeypatch.setattr(model, "_MOST_PREDICTED", 20 * N_ACTIONS)
        monkeypatch.setattr(model, "_FEWEST", fewest)
        assert most - 10 < len(grown.rows(60).landmarks) <= most


@pytest.mark.parametrize("seed", range(3))
def test_predictions_by_brute_force(seed):
    """The law, and what it misses in the cells near by, shrunk to nothing far from them."""
    world = wander(seed, 150)
    grown, sums = world.landmarks(), world._sums
    motion = grown.dynamics
    points = np.concatenate(
        [grown.cells.landmarks[:9], np.random.default_rng(seed).normal(size=(9, 2))]
    )
    ends, terminates = motion.step(points[None])
    for row, point in enumerate(points):
        for action in range(N_ACTIONS):
            law = motion.displacements.predict(point[None])[action, 0]
            total, missed = 0.1, np.zeros(2)
            for cell in np.flatnonzero(sums._tries[:, action]):
                n = sums._tries[cell, action]
                begin, change = sums._means[:, cell, action] / n
                told = motion.displacements.predict(begin[None])[action, 0]
                weight = min(n, 4.0) * np.exp(-0.5 * ((begin - point) ** 2).sum() / 0.4**2)
                total += weight
                missed += weight * (change - told)
            reached = np.clip(point + law + missed / total, motion.low, motion.high)
            np.testing.assert_allclose(ends[action, row], reached, atol=1e-4)
            assert motion.terminations is not None
            features = motion.displacements.features(reached[:, None, None])
            ended = motion.terminations(features, np.eye(N_ACTIONS)[[action]])
            np.testing.assert_allclose(terminates[action, row], ended[0, 0], atol=1e-4)


def test_what_has_just_changed_nothing_is_worth_nothing_until_something_changed():
    world = wander(0, 150)
    buffer, grown = world.buffer, world.landmarks()
    rows, here = grown.rows(600), int(buffer.successors[-1])
    values, place = np.ones(len(rows.landmarks)), buffer.observations.rows[here].copy()
    for action, change, idle in [
        (0, 1e-6, [0]),
        (1, 0.0, [0, 1]),
        (2, 1e-6, [1, 2]),
        (0, 0.5, []),
        (1, 1e-6, [1]),
    ]:
        place[0] += change
        there = buffer.observations.intern(place)
        buffer.add(here, action, there, False, False)
        here = there
        for worth in grown.ahead(here, rows, values, NOBODY)[1:]:
            np.testing.assert_array_equal(np.flatnonzero(worth == 0.0), idle)
    there = buffer.observations.intern(place + 1.0)
    buffer.add(here, 2, there, False, True)
    buffer.add_start(there)
    assert (grown.ahead(there, rows, values, NOBODY)[1] > 0.0).all(), "another episode"


def test_at_the_same_observation_what_was_tried_least_is_next():
    world = wander(0, 150)
    buffer, grown = world.buffer, world.landmarks()
    rows = grown.rows(600)
    values, here = np.ones(len(rows.landmarks)), int(buffer.successors[-1])
    far = buffer.observations.intern(buffer.observations.rows[here] + 1.0)
    tries = np.zeros(N_ACTIONS, np.int64)
    rng = np.random.default_rng(0)
    for _ in range(12):
        _, onward, novelty = grown.ahead(here, rows, values, NOBODY)
        for worth in (onward, novelty):
            np.testing.assert_array_equal(worth > 0.0, tries == tries.min())
        action = int(rng.choice(np.flatnonzero(onward > 0.0)))
        buffer.add(here, action, far, False, False)
        buffer.add(far, int(rng.integers(N_ACTIONS)), here, False, False)
        tries[action] += 1
    assert (tries == tries[0]).all(), "a loop is left"


@given(SEEDS, st.integers(50, 200), st.integers(1, 5), st.floats(0.0, 0.3))
@settings(max_examples=25)
def test_no_plan_is_made_with_negative_mass(seed, n, width, ends):
    """Whatever the data, rows are probabilities, and so are the occupancies of a plan."""
    rng, buffer = np.random.default_rng(seed), Buffer((width,), np.float64, N_ACTIONS)
    points = rng.normal(size=(n, width)) * rng.choice([1e-3, 1.0, 1e3], size=width)
    points = points.cumsum(axis=0) if seed % 2 else points
    points = points[rng.integers(n, size=n)] if seed % 3 == 0 else points  # some again and again
    seen = [buffer.observations.intern(point) for point in points]
    buffer.add_start(seen[0])
    for here, there in zip(seen, [*seen[1:], seen[0]], strict=True):
        done = bool(rng.random() < ends)
        buffer.add(here, int(rng.integers(N_ACTIONS)), there, done, False)
        if done:
            buffer.add_start(there)
    rows = World(buffer).landmarks().rows(600)
    assert rows.onward.data.min() >= 0.0
    assert min(rows.end.min(), rows.sink.min(), rows.start.min()) >= 0.0
    np.testing.assert_allclose(rows.onward.sum(axis=1) + rows.end + rows.sink, 1.0, atol=1e-9)
    np.testing.assert_allclose(rows.start.sum(), 1.0)
    operator, n_landmarks = rows.operator(), len(rows.start)
    values = np.zeros(operator.n_states)  # a terminal state goes on where episodes begin
    values[:n_landmarks] = rng.normal(size=n_landmarks)
    values[n_landmarks:] = rows.start @ values[:n_landmarks]
    np.testing.assert_allclose(
        operator.action_values(torch.from_numpy(values))[:n_landmarks],
        rows.expected(values[:n_landmarks], N_ACTIONS),
        atol=1e-12,
    )
    descent = mirror_descend(
        operator,
        operator.start,
        discount=0.95,
        objective=Objective(sink_norm=1.0),
        n_steps=20,
        step_size=10.0,
    )
    assert float(descent.occupancy.weights.min()) >= -1e-12
    assert 0.0 <= descent.occupancy.sink_mass <= 1.0
    assert (np.diff(descent.objectives) <= 0.0).all()


def test_a_plan_is_worth_what_policy_iteration_says():
    explorer = LandmarkExplorer(wander(0, 150))
    action = explorer.act(0, np.random.default_rng(0))
    (grown, rows), gamma = explorer._known, explorer._discount
    gains = (1.0 - gamma) * grown.novelty(rows.ahead).reshape(-1, N_ACTIONS)
    size = len(rows.start)
    moves = (rows.onward.toarray() + np.outer(rows.end, rows.start)).reshape(size, N_ACTIONS, size)
    policy = np.zeros(size, np.int64)
    for _ in range(50):
        at = np.arange(size), policy
        values = np.linalg.solve(np.eye(size) - gamma * moves[at], gains[at])
        policy = (gains + gamma * moves @ values).argmax(axis=1)
    short = (values - explorer._plan.states) / values.max()
    assert short.min() > -1e-9, "values grow from zero"
    assert short.max() <= gamma / (1.0 - gamma) * 1e-3
    assert action in range(N_ACTIONS)
