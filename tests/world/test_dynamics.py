"""Dynamics models of a ball between walls and of a pendulum, and sequences searched in them."""

import itertools

import numpy as np
import pytest
from walks import Walk

from rover.arrays import FloatArray
from rover.data import Buffer
from rover.world import model as landmarks
from rover.world.dynamics import (
    _CELL_WIDTH,
    _PRIOR,
    ACTION_REPEAT,
    DynamicsModel,
    RefinedDynamics,
    _Invariants,
)
from rover.world.model import LandmarkModel
from rover.world.net import between
from rover.world.regression import Displacements, Fit
from rover.world.world import World

FORCES, TORQUES = np.array([-1.0, 0.0, 1.0]), np.array([-2.0, 0.0, 2.0])


def rolled(seed: int, n_steps: int) -> World:
    """A ball in a bowl that three forces push, between walls at ±1.5, in episodes of 50 steps."""
    rng, buffer = np.random.default_rng(seed), Buffer((2,), np.float64, 3)
    world, ball, walk = World(buffer), np.zeros(2), Walk(buffer)
    walk.begin(ball)
    for row in range(n_steps):
        action, is_last = int(rng.integers(3)), row % 50 == 49
        ball = moved(ball, FORCES[action])
        walk.step(action, ball, truncated=is_last)
        if is_last:
            ball = rng.normal(size=2) * 0.1
            walk.begin(ball)
    return world


def moved(ball: FloatArray, force: float) -> FloatArray:
    place, speed = ball
    speed += 0.2 * force - 0.05 * np.sin(place)
    place += 0.2 * speed
    return np.array([np.sign(place) * 1.5, 0.0]) if abs(place) > 1.5 else np.array([place, speed])


@pytest.mark.parametrize("seed", range(3))
def test_a_law_is_told_from_few_transitions_and_walls_are_corrected(seed):
    world = rolled(seed, 400)
    buffer, grown = world.buffer, world.landmarks()
    motion, scale = grown.dynamics, grown.units.scale
    rng = np.random.default_rng(seed)
    balls = rng.uniform(-0.4, 0.4, (50, 2))
    ends, terminates = motion.step(balls[None] / scale)
    held, _ = motion.ends(balls / scale)
    for row, ball in enumerate(balls):
        for action, force in enumerate(FORCES):
            there = moved(ball, force)
            np.testing.assert_allclose(ends[action, row] * scale, there, atol=0.02)
            for _ in range(ACTION_REPEAT - 1):
                there = moved(there, force)
            np.testing.assert_allclose(held[row, action] * scale, there, atol=0.06)
    assert not terminates.any()
    # At the wall the law alone is wrong; where it was hit before, it is corrected.
    hits = np.flatnonzero(np.abs(buffer.observations.rows[buffer.successors, 0]) == 1.5)
    points, actions, changes = grown.units.moves(buffer, slice(0, len(buffer)))
    each = np.arange(len(hits))
    corrected = motion.step(points[None, hits])[0][actions[hits], each] - points[hits]
    law = motion.displacements.predict(points[hits])[actions[hits], each]
    assert np.abs(corrected - changes[hits]).mean() < 0.75 * np.abs(law - changes[hits]).mean()


def test_what_was_predicted_and_did_not_come_is_less_novel():
    world = rolled(0, 300)
    model, sums = world.landmarks(), world._sums
    points, actions, changes = model.units.moves(world.buffer, slice(0, 300))
    missed = sums._displacements.left_out(points, actions, changes)
    far = np.abs(missed).max(axis=1) > 0.5
    assert far.any()
    predicted = (points + changes - missed)[far]
    novelty = sums._novelty(predicted)
    sums._refute(points[far], actions[far], changes[far], missed[far])
    assert (sums._novelty(predicted) < novelty).all()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_noise_is_not_corrected(noise):
    """The correction stays where it predicts cells that are left out, by brute force, and goes
    where it repeats noise of half of a usual change in five steps."""
    world = rolled(1, 400)
    buffer, rng, n = world.buffer, np.random.default_rng(1), 400
    points, actions, changes = world.landmarks().units.moves(buffer, slice(0, n))
    shown = {row: rng.normal(size=2) * noise for row in {*buffer.inputs, *buffer.successors}}
    begins = points + [shown[row] for row in buffer.inputs]
    ends = points + changes + [shown[row] for row in buffer.successors]
    moves = begins, actions, ends - begins
    displacements = Displacements(*moves, np.eye(3), rng=rng, fit=Fit())
    each, counts = np.zeros((n, 3, 2)), np.zeros((n, 3))
    moved = each.copy()
    rows = np.arange(n)
    each[rows, actions], moved[rows, actions], counts[rows, actions] = begins, ends - begins, 1.0
    model = DynamicsModel(displacements, 0.0, each, counts, moved)
    errors = ends - begins - displacements.changes(begins, actions)
    missed = 0.0
    for row in rows:
        near = np.exp(-0.5 * ((begins - begins[row]) ** 2).sum(axis=1) / _CELL_WIDTH**2)
        near *= (actions == actions[row]) & (rows != row)
        corrected = near @ errors / (near.sum() + _PRIOR)
        missed += ((errors[row] - corrected) ** 2).sum()
    helps = missed < (errors**2).sum()
    assert model._residuals[:, :2].any()
    model = DynamicsModel(displacements, 1.0, each, counts, moved)
    assert helps == (noise == 0.0)
    assert bool(model._residuals[:, :2].any()) == helps


def turned(angle: np.ndarray, speed: np.ndarray, torque: np.ndarray) -> tuple[np.ndarray, ...]:
    speed = speed + 0.1 * (10.0 * np.sin(angle) + 3.0 * torque) / 2.0
    return angle + 0.1 * speed, speed


def seen(angle: np.ndarray, speed: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=-1).astype(np.float32)


def refined(rng: np.random.Generator) -> tuple[RefinedDynamics, LandmarkModel]:
    buffer = Buffer((3,), np.dtype(np.float32), 3)
    walk = Walk(buffer)
    for _ in range(10):
        angle, speed = rng.uniform(-3.0, 3.0, 2)
        walk.begin(seen(angle, speed))
        for step in range(80):
            action = int(rng.integers(3))
            angle, speed = turned(angle, speed, TORQUES[action])
            walk.step(action, seen(angle, speed), truncated=step == 79)
    model = World(buffer).landmarks()
    return RefinedDynamics(model.buffer, model.units.points, model.dynamics), model


def test_ten_steps_ahead_are_on_the_circle_and_near_the_truth() -> None:
    rng = np.random.default_rng(3)
    law, model = refined(rng)
    assert law.unexplained < 1e-3
    angle, speed = rng.uniform(-2.0, 2.0, (2, 50))
    points, actions = seen(angle, speed) / model.units.scale, rng.integers(3, size=(10, 50))
    for chosen in actions:
        ends, ended = law.step(points[None])
        assert ended.shape == (3, 50)
        points = ends[chosen, np.arange(50)]
        angle, speed = turned(angle, speed, TORQUES[chosen])
    x = points * model.units.scale
    assert np.abs(x[:, 0] ** 2 + x[:, 1] ** 2 - 1.0).max() < 1e-2
    inside = np.abs(speed) < 6.0  # what was seen
    assert np.median(np.abs(x - seen(angle, speed))[inside]) < 0.05


def circles(rng: np.random.Generator, n: int = 500) -> np.ndarray:
    """Two angles as cosines and sines of different units, and a speed."""
    first, second = rng.uniform(-np.pi, np.pi, (2, n))
    waves = np.stack([np.cos(first), np.sin(first), np.cos(second), np.sin(second)], axis=1)
    points = np.column_stack([waves * [2.0, 0.5, 1.0, 3.0], rng.standard_normal(n)])
    return points.astype(np.float32).astype(np.float64)


def test_circles_are_found_and_left_points_are_led_back() -> None:
    rng = np.random.default_rng(3)
    points = circles(rng)
    invariants = _Invariants(points)
    assert len(invariants._constant) == 2
    off = points + 0.05 * rng.standard_normal(points.shape)
    restored = invariants.restore(off)
    x = restored / [2.0, 0.5, 1.0, 3.0, 1.0]
    assert np.abs(x[:, 0] ** 2 + x[:, 1] ** 2 - 1.0).max() < 2e-3
    assert np.abs(x[:, 2] ** 2 + x[:, 3] ** 2 - 1.0).max() < 2e-3
    assert np.allclose(restored[:, 4], off[:, 4], atol=1e-6), "what is free stays as it is"


def test_a_change_is_the_least_that_leads_back() -> None:
    """From outside a circle along its radius, and nowhere from the circle."""
    angle = np.linspace(0.0, 2.0 * np.pi, 200, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    invariants = _Invariants(circle)
    assert np.abs(invariants.restore(1.1 * circle) - circle).max() < 1e-4
    several = circle.reshape(10, 20, 2)
    assert np.abs(invariants.restore(several) - several).max() < 1e-5


def test_relations_are_none_of_free_points_and_none_of_too_few() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((300, 3))
    invariants = _Invariants(points)
    assert len(invariants._constant) == 0
    assert invariants.restore(points) is points
    assert len(_Invariants(rng.standard_normal((20, 5)))._constant) == 0  # of 21 terms
    assert len(_Invariants(circles(rng, 42))._constant) == 2


DISCOUNT = 0.9


@pytest.fixture
def _no_action_is_idle(monkeypatch):
    monkeypatch.setattr(LandmarkModel, "_idle", lambda *_: [])


class Search:
    """A model of n steps, where it stands, and a plan's values."""

    def __init__(self, seed, n):
        world = rolled(seed, n)
        self.model = world.landmarks()
        self.here = int(world.buffer.successors[-1])
        self.rows = self.model.rows(100)
        self.values = 0.3 - 0.01 * self.rows.landmarks[:, 0]

    def found(self):
        where, nobody = (self.here, self.rows, self.values), np.empty((0, 2))
        return self.model.most_novel_sequence(*where, DISCOUNT, nobody)


def worth_of(search, actions):
    """What the docstring says, one way at a time."""
    model, rows, values = search.model, search.rows, search.values
    point, worth, alive, passed = model.point(search.here)[None], 0.0, 1.0, []
    for length, action in enumerate(actions):
        ends, ended = model.dynamics.ends(point)
        point, ended = ends[:, action], float(ended[0, action])
        visited = np.array(passed).reshape(1, len(passed), point.shape[1])
        novelty = float(model.novelty(point, visited)[0])
        worth += DISCOUNT**length * alive * (1.0 - DISCOUNT) * novelty
        passed, alive = [*passed, point[0]], alive * (1.0 - ended)
    index, weights = between(rows.tree, point, 4, exact=True)
    onward = alive * float(weights[0] @ values[index[0]]) + (1.0 - alive) * rows.start @ values
    return worth + DISCOUNT ** len(actions) * onward, passed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.usefixtures("_no_action_is_idle")
def test_without_bounds_it_is_the_best_of_all_ways(seed, monkeypatch):
    unbounded = {"_LENGTH": 4, "_WIDTH": 100_000, "_MOST_BRANCHES": 100_000, "_CELL": 1e-6}
    for name, value in unbounded.items():
        monkeypatch.setattr(landmarks, name, value)
    search = Search(seed, 200)
    sequence = search.found()
    every = {
        actions: worth_of(search, actions)[0] for actions in itertools.product(range(3), repeat=4)
    }
    assert every[tuple(sequence.actions.tolist())] == pytest.approx(max(every.values()), rel=1e-12)


@pytest.mark.usefixtures("_no_action_is_idle")
def test_a_beam_is_nearly_as_good_and_its_points_follow_from_the_law():
    search = Search(5, 300)
    sequence = search.found()
    worth, points = worth_of(search, sequence.actions)
    np.testing.assert_allclose(sequence.points, points, atol=1e-4)
    rng, n = np.random.default_rng(0), len(sequence.actions)
    others = [[action] * n for action in range(3)] + [rng.integers(3, size=n) for _ in range(100)]
    assert worth >= 0.98 * max(worth_of(search, other)[0] for other in others)


def test_no_way_begins_with_an_action_that_has_just_changed_nothing(monkeypatch):
    search = Search(2, 200)
    free = search.found().actions[0]
    others = [action for action in range(3) if action != free]
    for idle in ([free], others):
        monkeypatch.setattr(LandmarkModel, "_idle", lambda *_, idle=idle: idle)
        assert (search.found().actions[0] == free) == (idle == others)
