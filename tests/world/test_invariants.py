"""Quadratic relations that data keeps, and the way back to them."""

from __future__ import annotations

import numpy as np

from rover.world.dynamics import Invariants


def circles(rng: np.random.Generator, n: int = 500) -> np.ndarray:
    """Two angles as cosines and sines of different units, and a speed."""
    first, second = rng.uniform(-np.pi, np.pi, (2, n))
    waves = np.stack([np.cos(first), np.sin(first), np.cos(second), np.sin(second)], axis=1)
    points = np.column_stack([waves * [2.0, 0.5, 1.0, 3.0], rng.standard_normal(n)])
    return points.astype(np.float32).astype(np.float64)


def test_circles_are_found_and_left_points_are_led_back() -> None:
    rng = np.random.default_rng(3)
    points = circles(rng)
    invariants = Invariants(points)
    assert len(invariants) == 2
    off = points + 0.05 * rng.standard_normal(points.shape)
    restored = invariants.restore(off)
    x = restored / [2.0, 0.5, 1.0, 3.0, 1.0]
    assert np.abs(x[:, 0] ** 2 + x[:, 1] ** 2 - 1.0).max() < 2e-3
    assert np.abs(x[:, 2] ** 2 + x[:, 3] ** 2 - 1.0).max() < 2e-3
    assert np.allclose(restored[:, 4], off[:, 4], atol=1e-6), "what is free stays as it is"


def test_points_that_keep_the_relations_stay() -> None:
    rng = np.random.default_rng(3)
    points = circles(rng).reshape(10, 50, 5)
    invariants = Invariants(points.reshape(-1, 5))
    assert np.abs(invariants.restore(points) - points).max() < 1e-5


def test_a_change_is_the_least_that_leads_back() -> None:
    """From outside a circle the way back is along its radius."""
    angle = np.linspace(0.0, 2.0 * np.pi, 200, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    restored = Invariants(circle).restore(1.1 * circle)
    assert np.abs(restored - circle).max() < 1e-4


def test_free_points_keep_no_relation() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((300, 3))
    invariants = Invariants(points)
    assert len(invariants) == 0
    assert invariants.restore(points) is points


def test_a_feature_that_follows_from_another_is_a_relation() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal(300)
    points = np.stack([x, 2.0 * x + 1.0], axis=1)
    restored = Invariants(points).restore(points + np.array([0.3, 0.0]))
    assert np.allclose(restored[:, 1], 2.0 * restored[:, 0] + 1.0, atol=1e-3)


def test_few_points_keep_relations_by_chance_that_do_not_count() -> None:
    points = np.random.default_rng(3).standard_normal((20, 5))  # of 21 terms
    assert len(Invariants(points)) == 0
    assert len(Invariants(circles(np.random.default_rng(3), 42))) == 2
