"""Cells of a net and k-NN entropies, on data whose spread is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rover.evaluation import CellNet, Projection, evenly_spaced, unseen_mass

Array = NDArray[np.float64]


def count(net: CellNet, visits: NDArray[np.generic]) -> int:
    return len(np.unique(net.cells_of(visits, np.random.default_rng(0))))


def normal(seed: int, n: int = 1500, width: int = 2) -> Array:
    return np.random.default_rng(seed).normal(size=(n, width))


@given(st.integers(0, 1000), st.floats(1e-4, 1e4), st.floats(-10.0, 10.0))
@settings(max_examples=15, deadline=None)
def test_units_do_not_matter(seed: int, scale: float, offset: float) -> None:
    uniform, visits = normal(seed, 200), 2.0 * normal(seed + 1, 300)
    units = np.array([scale, 3.0])
    first = CellNet(uniform, np.random.default_rng(0))
    second = CellNet((uniform + offset) * units, np.random.default_rng(0))
    assert second.radius == pytest.approx(first.radius)
    assert abs(count(second, (visits + offset) * units) - count(first, visits)) <= 2
    entropies = [
        net.entropy(data, np.random.default_rng(0))
        for net, data in ((first, visits), (second, (visits + offset) * units))
    ]
    assert entropies[0] == pytest.approx(entropies[1])


def test_no_visit_is_farther_than_epsilon_from_its_centre() -> None:
    uniform, visits = normal(0), 3.0 * normal(1)
    net = CellNet(uniform, np.random.default_rng(0))
    cells = net.cells_of(visits, np.random.default_rng(0))
    assert net.radius is not None
    for cell in np.unique(cells):
        members = visits[cells == cell] / uniform.std(axis=0)
        diameter = np.linalg.norm(members[:, None] - members[None], axis=2).max()
        assert diameter <= 2.0 * net.radius


@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_entropy_of_a_gaussian(width: int) -> None:
    net = CellNet(normal(0, 4000, width), np.random.default_rng(0))
    exact = 0.5 * width * math.log(2.0 * math.pi * math.e)
    rng = np.random.default_rng(0)
    narrow, wide = (net.entropy(s * normal(1, 4000, width), rng) for s in (1.0, 5.0))
    assert narrow == pytest.approx(exact, abs=0.12 * width)
    assert wide - narrow == pytest.approx(width * math.log(5.0), abs=0.12 * width)


def test_a_number_that_random_actions_never_change_opens_new_cells() -> None:
    uniform = np.column_stack([normal(0), np.zeros(1500)])
    visits = np.column_stack([normal(1), np.repeat([0.0, 5.0], 750)])
    net = CellNet(uniform, np.random.default_rng(0))
    assert count(net, visits) > 1.5 * count(net, uniform)
    assert net.entropy(visits, np.random.default_rng(0)) is not None
    still = CellNet(np.ones((10, 2)), np.random.default_rng(0))
    assert count(still, np.ones((10, 2))) == 1
    assert still.entropy(np.ones((10, 2)), np.random.default_rng(0)) is None


def test_images_are_told_apart_by_what_is_drawn_in_them() -> None:
    def drawn(places: Array) -> NDArray[np.uint8]:
        images = np.zeros((len(places), 30, 30, 1), np.uint8)
        for image, (x, y) in zip(images, places.astype(int), strict=True):
            image[y : y + 4, x : x + 4] = 255
        return images

    project = Projection((30, 30, 1), np.random.default_rng(0))
    few, again, many = (
        project(drawn(np.random.default_rng(seed).uniform(0, high, (600, 2))))
        for seed, high in ((0, 7), (1, 7), (2, 26))
    )
    assert few.shape == (600, 16)
    net = CellNet(few, np.random.default_rng(0))
    assert count(net, many) > 3 * count(net, again)
    repeated = net.entropy(again, np.random.default_rng(0))
    assert repeated is None  # 49 places in 600 visits have no density


@given(st.integers(0, 1000), st.integers(1, 30))
@settings(max_examples=20, deadline=None)
def test_the_unseen_mass_is_unbiased(seed: int, n: int) -> None:
    """Its mean over sets of n draws is the mass unseen after n − 1 (Good 1953)."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(12))
    estimates = [unseen_mass(rng.choice(12, n, p=p)) for _ in range(400)]
    expected = float(p @ (1.0 - p) ** (n - 1))
    assert np.mean(estimates) == pytest.approx(expected, abs=6.0 * np.std(estimates) / 20 + 1e-9)


@given(st.integers(1, 400), st.integers(1, 100))
def test_rows_are_thinned_evenly(n: int, most: int) -> None:
    rows = evenly_spaced(n, most)
    assert len(rows) == min(n, most)
    assert rows[0] == 0
    assert rows[-1] == (n - 1 if len(rows) > 1 else 0)
    gaps = np.diff(rows)
    assert len(gaps) == 0 or gaps.max() - gaps.min() <= 1
