"""Displacements: closed forms against brute force, sums from scratch, contacts bend nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rover.arrays import BoolArray, FloatArray
from rover.world.regression import (
    Displacements,
    Fit,
    contact_weights,
    leave_one_out,
)

SEEDS = st.integers(0, 2**32 - 1)
ACTIONS = np.array([-1.0, 0.0, 1.0])


def pushed(seed: int, n: int) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """A ball with a speed that three forces change, and a wall at 1 that stops it dead."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1.0, 1.0, (n, 2))
    actions = rng.integers(3, size=n)
    changes = free_motion(points, ACTIONS[actions])
    hits = points[:, 0] + changes[:, 0] > 1.0
    changes[hits, 0] = 1.0 - points[hits, 0]
    changes[hits, 1] = -points[hits, 1]
    return points, np.eye(3)[actions], changes, hits


def free_motion(points: FloatArray, forces: FloatArray) -> FloatArray:
    position, speed = points.T
    return np.stack([0.8 * speed, 0.1 * forces - 0.1 * np.sin(3.0 * position)], axis=1)


@given(SEEDS, st.integers(2, 9), st.integers(1, 5))
def test_errors_in_closed_form_are_those_of_rows_left_out(seed, n, size):
    rng = np.random.default_rng(seed)
    design, targets = rng.normal(size=(n, size)), rng.normal(size=(n, 2))
    penalty, weights = rng.uniform(0.1, 2.0, size), rng.uniform(0.1, 2.0, n)
    errors = leave_one_out(*map(torch.from_numpy, (design, targets, penalty, weights))).numpy()
    for row in range(n):
        kept = np.arange(n) != row
        weighted = design[kept].T * weights[kept]
        solution = np.linalg.solve(
            weighted @ design[kept] + np.diag(penalty), weighted @ targets[kept]
        )
        np.testing.assert_allclose(errors[row], targets[row] - design[row] @ solution, atol=1e-6)


def test_sums_that_grow_are_those_from_scratch():
    points, controls, changes, _ = pushed(0, 400)
    model = Displacements(points[:100], controls[:100], changes[:100], rng=np.random.default_rng(0))
    basis, length = model._basis, model.smoothness.length
    gram, moment = model._gram.clone(), model._moment.clone()
    for first in range(100, 400, 30):
        rows = slice(first, first + 30)
        design = basis.design(points[rows], controls[rows], length)
        missed = torch.from_numpy(changes[rows]) - design @ model._solution
        weighted = design.T * contact_weights(missed, model._usual, Fit().far)
        gram = gram + weighted @ design
        moment = moment + weighted @ torch.from_numpy(changes[rows])
        model.add(points[rows], controls[rows], changes[rows])
    torch.testing.assert_close(model._gram, gram, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model._moment, moment, rtol=1e-10, atol=1e-10)
    solution = torch.linalg.solve(gram, moment)
    torch.testing.assert_close(model._solution, solution, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_contacts_do_not_bend_free_motion(seed):
    points, controls, changes, hits = pushed(seed, 300)
    assert 0.05 < hits.mean() < 0.25
    model = Displacements(points, controls, changes, rng=np.random.default_rng(0))
    free = np.random.default_rng(seed + 1).uniform(-0.9, 0.9, (200, 2))
    missed = model.predict(free, model.coefficients(np.eye(3))) - np.stack(
        [free_motion(free, np.full(200, force)) for force in ACTIONS]
    )
    assert np.median(np.abs(missed)) < 2e-3
    # Ordinary least squares on the same features is bent by what the wall did.
    basis, length = model._basis, model.smoothness.length
    design = basis.design(points, controls, length)
    penalty = basis.penalty(model.smoothness)
    errors = leave_one_out(
        design, torch.from_numpy(changes), penalty, torch.ones(300, dtype=torch.float64)
    )
    assert np.median(errors.abs().numpy()[~hits]) > 4 * np.median(np.abs(missed))


def test_torques_between_those_tried_are_predicted():
    rng = np.random.default_rng(3)
    points, torques = rng.uniform(-1.0, 1.0, (300, 2)), rng.uniform(-1.0, 1.0, (300, 1))
    changes, rng = free_motion(points, torques[:, 0]), np.random.default_rng(0)
    model = Displacements(points, torques, changes, rng=rng, fit=Fit(searches=2))
    asked = np.array([[-0.7], [0.3]])
    change = model.predict(points, model.coefficients(asked))
    for index in range(2):
        truth = free_motion(points, np.full(300, asked[index, 0]))
        assert np.abs(change[index] - truth).max() < 0.01


def test_errors_left_out_are_larger_than_those_of_what_was_fitted():
    points, controls, changes, hits = pushed(4, 60)
    changes = changes + np.random.default_rng(0).normal(size=changes.shape) * 0.05
    model = Displacements(points, controls, changes, rng=np.random.default_rng(0))
    chosen = np.argmax(controls, axis=1)
    fitted = changes - model.predict(points, model.coefficients(np.eye(3)))[chosen, np.arange(60)]
    left_out = model.left_out(points, controls, changes)
    assert (np.abs(left_out)[~hits] >= np.abs(fitted)[~hits] - 1e-12).all()
