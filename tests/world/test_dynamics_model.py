"""Motion: what it says of a ball between walls, and plans on it, to the bit from the buffer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.arrays import FloatArray, IntArray
from rover.data import Buffer
from rover.world.dynamics import ACTION_REPEAT, DynamicsModel
from rover.world.model import LandmarkModel

SEEDS = st.integers(0, 2**32 - 1)
FORCES = np.array([-1.0, 0.0, 1.0])


def place_model(buffer: Buffer) -> LandmarkModel:
    return LandmarkModel(buffer, lambda at, _: (buffer.observations.rows[at], None))


def rolled(seed: int, n_steps: int, *, price_every: int = 0) -> tuple[Buffer, LandmarkModel]:
    """A ball in a bowl that three forces push, between walls at ±1.5, in episodes of 50 steps."""
    rng, buffer = np.random.default_rng(seed), Buffer((2,), np.float64, 3)
    grown, ball = place_model(buffer), np.zeros(2)
    here = buffer.observations.intern(ball)
    buffer.add_start(here)
    for row in range(n_steps):
        action, is_last = int(rng.integers(3)), row % 50 == 49
        ball = moved(ball, FORCES[action])
        there = buffer.observations.intern(ball)
        buffer.add(here, action, there, False, is_last)
        if is_last:
            ball = rng.normal(size=2) * 0.1
            there = buffer.observations.intern(ball)
            buffer.add_start(there)
        here = there
        if price_every and row > 50 and row % price_every == 0:
            novelty_rows = grown.novelty_rows()
            grown.ahead(here, novelty_rows.novelty[:, 0])
    return buffer, grown


def moved(ball: FloatArray, force: float) -> FloatArray:
    place, speed = ball
    speed += 0.2 * force - 0.05 * np.sin(place)
    place += 0.2 * speed
    return np.array([np.sign(place) * 1.5, 0.0]) if abs(place) > 1.5 else np.array([place, speed])


@pytest.mark.parametrize("seed", range(3))
def test_a_law_is_told_from_few_transitions_and_walls_are_corrected(seed):
    buffer, grown = rolled(seed, 400)
    grown.fit()
    motion = grown.dynamics
    rng = np.random.default_rng(seed)
    balls = rng.uniform(-0.4, 0.4, (50, 2))
    ends, terminates = motion.step(balls[None] / grown.scale)
    held, _ = motion.ends(balls / grown.scale)
    for row, ball in enumerate(balls):
        for action, force in enumerate(FORCES):
            there = moved(ball, force)
            np.testing.assert_allclose(ends[action, row] * grown.scale, there, atol=0.02)
            for _ in range(ACTION_REPEAT - 1):
                there = moved(there, force)
            np.testing.assert_allclose(held[row, action] * grown.scale, there, atol=0.06)
    assert not terminates.any()
    # At the wall the law alone is wrong; where it was hit before, it is corrected.
    hits = np.flatnonzero(np.abs(buffer.observations.rows[buffer.successors, 0]) == 1.5)
    points, actions, changes = grown._moves(slice(0, len(buffer)))
    each = np.arange(len(hits))
    corrected = motion.step(points[None, hits])[0][actions[hits], each] - points[hits]
    law = motion._displacements.predict(points[hits], motion._coefficients)[actions[hits], each]
    assert np.abs(corrected - changes[hits]).mean() < 0.75 * np.abs(law - changes[hits]).mean()


@given(SEEDS, st.integers(55, 260), st.integers(3, 30))
@settings(max_examples=8)
def test_plans_of_a_model_that_grew_are_those_from_the_stored_buffer(seed, n_steps, price_every):
    """To the bit: a run that was resumed makes it anew."""
    buffer, grown = rolled(seed, n_steps, price_every=price_every)
    stored = Buffer((2,), np.float64, 3)
    stored.load_state(buffer.state())
    made = []
    for model in (grown, place_model(stored)):
        model.forget()
        novelty_rows = model.novelty_rows()
        onward, novelty = model.ahead(0, novelty_rows.novelty[:, 0])
        made.append(
            [
                novelty_rows.novelty,
                novelty_rows.rows.ahead,
                novelty_rows.rows.onward.toarray(),
                onward,
                novelty,
            ]
        )
    for first, second in zip(*made, strict=True):
        np.testing.assert_array_equal(first, second)


def test_what_was_predicted_and_did_not_come_is_less_novel():
    buffer, _ = rolled(0, 300)
    model = place_model(buffer)
    model.fit()
    points, actions, changes = model._moves(slice(0, 300))
    controls = np.eye(3)[actions]
    missed = model.dynamics._displacements.left_out(points, controls, changes)
    far = np.abs(missed).max(axis=1) > 0.5
    assert far.any()
    predicted = (points + changes - missed)[far]
    before = DynamicsModel(
        lambda rows: (points[rows], actions[rows], changes[rows]),
        300,
        np.eye(3),
        coverage=np.ones(2),
        time_scales=np.ones(2),
    )
    novelty = before.novelty(predicted)
    before._refute(points[far], actions[far], changes[far], missed[far])
    assert (before.novelty(predicted) < novelty).all()


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_noise_is_not_corrected(noise):
    """The correction stays where it predicts cells that are left out, by brute force, and goes
    where it repeats noise of half of a usual change in five steps."""
    buffer, grown = rolled(1, 400)
    grown.fit()
    rng, n = np.random.default_rng(1), len(buffer)
    points, actions, changes = grown._moves(slice(0, n))
    shown = {row: rng.normal(size=2) * noise for row in {*buffer.inputs, *buffer.successors}}
    begins = points + [shown[row] for row in buffer.inputs]
    ends = points + changes + [shown[row] for row in buffer.successors]

    def moves(rows: slice) -> tuple[FloatArray, IntArray, FloatArray]:
        return begins[rows], actions[rows], (ends - begins)[rows]

    units = np.ones(2)
    model = DynamicsModel(moves, n, np.eye(3), coverage=units, time_scales=units)
    each, counts = np.zeros((n, 3, 2)), np.zeros((n, 3))
    moved = each.copy()
    rows = np.arange(n)
    each[rows, actions], moved[rows, actions], counts[rows, actions] = begins, ends - begins, 1.0
    model.correct(each, counts, moved)
    errors = ends - begins - model.smooth(begins, actions)
    missed = 0.0
    for row in rows:
        near = np.exp(-0.5 * ((begins - begins[row]) ** 2).sum(axis=1) / model.correction.width**2)
        near *= (actions == actions[row]) & (rows != row)
        corrected = near @ errors / (near.sum() + model.correction.prior)
        missed += ((errors[row] - corrected) ** 2).sum()
    helps = missed < (errors**2).sum()
    model.forget_noise()
    assert helps == (noise == 0.0)
    assert bool(model._residuals[:, :, :2].any()) == helps
