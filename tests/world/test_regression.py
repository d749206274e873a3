"""Regressions: closed forms against brute force and general minimisers, sums from scratch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.errors import ConfigurationError
from rover.world.regression import (
    Displacements,
    Fit,
    Terminations,
    _leave_one_out,
    _logistic_regression,
    contact_weights,
)

SEEDS = st.integers(0, 2**32 - 1)
ACTIONS, CONTROLS, ONE = np.array([-1.0, 0.0, 1.0]), np.eye(3), np.ones((1, 1))


def pushed(seed: int, n: int) -> tuple[FloatArray, IntArray, FloatArray, BoolArray]:
    """A ball with a speed that three forces change, and a wall at 1 that stops it dead."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(-1.0, 1.0, (n, 2))
    actions = rng.integers(3, size=n)
    changes = free_motion(points, ACTIONS[actions])
    hits = points[:, 0] + changes[:, 0] > 1.0
    changes[hits, 0] = 1.0 - points[hits, 0]
    changes[hits, 1] = -points[hits, 1]
    return points, actions, changes, hits


def fitted(points: FloatArray, actions: IntArray, changes: FloatArray) -> Displacements:
    rng = np.random.default_rng(0)
    return Displacements(points, actions, changes, CONTROLS, rng=rng, fit=Fit())


def ends_of(
    points: FloatArray,
    controls: FloatArray,
    ended: BoolArray,
    weights: FloatArray,
    rng: np.random.Generator,
) -> Callable[[FloatArray, FloatArray], FloatArray]:
    """Probabilities of ends at points (A, n, d), by features of a law that knows points (n, d)."""
    still = np.zeros(len(points), int), np.zeros(points.shape)
    law = Displacements(points, *still, CONTROLS, rng=rng, fit=Fit())
    told = Terminations(law.features(points.T), controls, ended, weights)
    return lambda at, by: told(law.features(np.moveaxis(at, 2, 0)), by)


def free_motion(points: FloatArray, forces: FloatArray) -> FloatArray:
    position, speed = points.T
    return np.stack([0.8 * speed, 0.1 * forces - 0.1 * np.sin(3.0 * position)], axis=1)


@given(SEEDS, st.integers(2, 9), st.integers(1, 5))
def test_errors_in_closed_form_are_those_of_rows_left_out(seed, n, size):
    rng = np.random.default_rng(seed)
    design, targets = rng.normal(size=(n, size)), rng.normal(size=(n, 2))
    penalty, weights = rng.uniform(0.1, 2.0, size), rng.uniform(0.1, 2.0, n)
    errors = _leave_one_out(*map(torch.from_numpy, (design, targets, penalty, weights))).numpy()
    for row in range(n):
        kept = np.arange(n) != row
        weighted = design[kept].T * weights[kept]
        solution = np.linalg.solve(
            weighted @ design[kept] + np.diag(penalty), weighted @ targets[kept]
        )
        np.testing.assert_allclose(errors[row], targets[row] - design[row] @ solution, atol=1e-6)


def test_sums_that_grow_are_those_from_scratch():
    points, actions, changes, _ = pushed(0, 400)
    model = fitted(points[:100], actions[:100], changes[:100])
    gram, moment = model._gram.clone(), model._moment.clone()
    for first in range(100, 400, 30):
        rows = slice(first, first + 30)
        design = model._design(points[rows], actions[rows])
        missed = torch.from_numpy(changes[rows]) - design @ model._solution
        weighted = design.T * contact_weights(missed, model._usual, Fit().far)
        gram = gram + weighted @ design
        moment = moment + weighted @ torch.from_numpy(changes[rows])
        model.add(points[rows], actions[rows], changes[rows])
    torch.testing.assert_close(model._gram, gram, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model._moment, moment, rtol=1e-10, atol=1e-10)
    solution = torch.linalg.solve(gram, moment)
    torch.testing.assert_close(model._solution, solution, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_contacts_do_not_bend_free_motion(seed):
    points, actions, changes, hits = pushed(seed, 300)
    assert 0.05 < hits.mean() < 0.25
    model = fitted(points, actions, changes)
    free = np.random.default_rng(seed + 1).uniform(-0.9, 0.9, (200, 2))
    missed = model.predict(free) - np.stack(
        [free_motion(free, np.full(200, force)) for force in ACTIONS]
    )
    assert np.median(np.abs(missed)) < 2e-3
    # Ordinary least squares on the same features is bent by what the wall did.
    design, penalty = model._design(points, actions), model._basis.penalty(model.smoothness)
    errors = _leave_one_out(
        design, torch.from_numpy(changes), penalty, torch.ones(300, dtype=torch.float64)
    )
    assert np.median(errors.abs().numpy()[~hits]) > 4 * np.median(np.abs(missed))


def test_torques_between_those_tried_are_predicted():
    rng = np.random.default_rng(3)
    points, torques = rng.uniform(-1.0, 1.0, (300, 2)), rng.uniform(-1.0, 1.0, (300, 1))
    changes, rng = free_motion(points, torques[:, 0]), np.random.default_rng(0)
    controls, actions = np.append(torques, [[-0.7], [0.3]], axis=0), np.arange(300)
    model = Displacements(points, actions, changes, controls, rng=rng, fit=Fit(searches=2))
    for change, asked in zip(model.predict(points)[300:], (-0.7, 0.3), strict=True):
        assert np.abs(change - free_motion(points, np.full(300, asked))).max() < 0.01


def problem(seed: int, n: int, size: int) -> tuple[torch.Tensor, ...]:
    rng = np.random.default_rng(seed)
    design, penalty = rng.normal(size=(n, size)), rng.uniform(0.5, 2.0, size)
    ended = rng.random(n) < 1.0 / (1.0 + np.exp(-design[:, 0]))
    return tuple(
        map(torch.from_numpy, (design, ended.astype(float), rng.uniform(0.5, 3.0, n), penalty))
    )


@given(SEEDS, st.integers(1, 30), st.integers(1, 4))
def test_coefficients_are_those_of_a_general_minimiser(seed: int, n: int, size: int) -> None:
    design, ended, weights, penalty = (part.numpy() for part in problem(seed, n, size))

    def loss(beta: FloatArray) -> float:
        eta = design @ beta
        own = weights @ (np.logaddexp(0.0, eta) - ended * eta)
        return float(own + 0.5 * penalty @ beta**2)

    found = _logistic_regression(*problem(seed, n, size)).numpy()
    best = minimize(loss, np.zeros(size), method="BFGS", options={"gtol": 1e-8})
    assert loss(found) <= best.fun * (1.0 + 1e-6)


def test_what_is_beyond_an_edge_ends() -> None:
    """Of a cart and a pole that end the episode beyond 2.4 and 0.21, by 3,000 arrivals."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(3000, 4)) * [1.0, 1.0, 0.1, 1.0]
    ended = (np.abs(points[:, 0]) > 2.4) | (np.abs(points[:, 2]) > 0.21)
    terminations = ends_of(points, np.ones((3000, 1)), ended, np.ones(3000), rng)
    for axis, edge in ((0, 2.4), (2, 0.21)):
        inside, outside = np.zeros((1, 2, 4)), np.zeros((1, 2, 4))
        inside[0, :, axis] = [-0.85 * edge, 0.85 * edge]
        outside[0, :, axis] = [-1.15 * edge, 1.15 * edge]
        assert terminations(inside, ONE).max() < 0.1
        assert terminations(outside, ONE).min() > 0.8
    assert (terminations(points[None], ONE)[0].round() == ended).mean() > 0.98
    # A thinned sample stands for the others by its weights.
    some = ended | (np.arange(3000) % 3 == 0)
    weights = np.where(ended[some], 1.0, 3.0)
    thinned = ends_of(points[some], np.ones((some.sum(), 1)), ended[some], weights, rng)
    assert (thinned(points[None], ONE)[0].round() == ended).mean() > 0.98


def test_holes_are_told_by_fourier_features() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(-1.0, 1.0, (2000, 2))
    centres = np.array([[-0.5, 0.0], [0.5, 0.5], [0.4, -0.6]])
    ended = (np.linalg.norm(points[:, None] - centres, axis=2) < 0.25).any(axis=1)
    terminations = ends_of(points, np.ones((2000, 1)), ended, np.ones(2000), rng)
    assert terminations(centres[None], ONE).min() > 0.5
    assert terminations(np.array([[[0.0, 0.0], [-0.8, 0.8]]]), ONE).max() < 0.25
    wrong = (terminations(points[None], ONE)[0].round() != ended).mean()
    assert wrong < 0.7 * ended.mean(), "a quadratic of the point cannot tell three holes"


def test_ends_by_chance_or_by_a_control_are_told_as_such() -> None:
    rng = np.random.default_rng(0)
    points, controls = rng.normal(size=(4000, 2)), np.eye(2)[rng.integers(2, size=4000)]
    by_chance = rng.random(4000) < 0.1
    terminations = ends_of(points, controls, by_chance, np.ones(4000), rng)
    both = np.repeat(rng.normal(size=(50, 2))[None], 2, axis=0)
    np.testing.assert_allclose(terminations(both, np.eye(2)), 0.1, atol=0.08)
    given_up = controls[:, 1] > 0.5
    terminations = ends_of(points, controls, given_up, np.ones(4000), rng)
    first, second = terminations(both, np.eye(2))
    assert first.max() < 0.1
    assert second.min() > 0.9


def test_a_model_that_no_memory_holds_is_refused():
    rng, n_actions, d = np.random.default_rng(0), 1000, 710
    points, changes = rng.normal(size=(2, 30, d))
    with pytest.raises(ConfigurationError, match=r"710 numbers under 1,000 .*kind='states'"):
        Displacements(points, np.arange(30), changes, np.eye(n_actions), rng=rng, fit=Fit())
