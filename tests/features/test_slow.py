"""Slow features: against brute force, on noise, and the same bits alone and in a batch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.linalg import eigh

from rover.features import make_encoder, slow_encoder
from rover.features.slow import LAG, LaggedSums, SlowFeatures, coefficients, slow_features

SEEDS = st.integers(0, 2**31)
Array = NDArray[np.float64]


def _sums(path: Array) -> LaggedSums:
    """Sums of one path (n, p)."""
    sums, rows = LaggedSums(path.shape[1]), torch.from_numpy(path)
    sums.add(rows[:-LAG], rows[LAG:])
    return sums


def _applied(found: SlowFeatures, path: Array) -> Array:
    return ((torch.from_numpy(path) - found.mean) @ found.projection).numpy()


def _explained(features: Array, wanted: Array) -> float:
    """Share R² of the variance of (n,) that an affine map of features (n, d) explains."""
    columns = np.column_stack([features, np.ones(len(features))])
    rest = wanted - columns @ np.linalg.lstsq(columns, wanted)[0]
    return float(1.0 - rest.var() / wanted.var())


def _rotation(size: int, rng: np.random.Generator) -> Array:
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


@given(SEEDS, st.sampled_from([(20, 31, 2), (5, 9, 1), (48, 48, 3)]))
@settings(max_examples=10, deadline=None)
def test_coefficients_are_the_low_frequencies(seed, shape):
    pictures = np.random.default_rng(seed).integers(0, 256, (3, *shape), np.uint8)
    everything = dctn(pictures.astype(float), axes=(1, 2), norm="ortho")[:, :8, :8]
    expected = np.moveaxis(everything, 3, 1).reshape(3, -1)
    np.testing.assert_allclose(coefficients(torch.from_numpy(pictures)), expected, atol=0.5)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_an_encoder_gives_the_same_bits_alone_and_in_a_batch(seed):
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (60, 12, 17, 2), np.uint8)
    seen = coefficients(torch.from_numpy(pictures))
    sums = LaggedSums(seen.shape[1])
    sums.add(seen[:-LAG], seen[LAG:])
    encoder = slow_encoder(pictures.shape[1:], slow_features(sums))
    together = encoder.features(pictures)
    for row in range(0, 60, 7):
        np.testing.assert_array_equal(encoder.features(pictures[row : row + 1])[0], together[row])
    again = make_encoder(encoder.config, torch.Generator())
    again.load_state_dict(encoder.state_dict())
    np.testing.assert_array_equal(again.features(pictures), together)


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_running_sums_are_those_from_scratch(seed, parts):
    rng = np.random.default_rng(seed)
    before, after = 1000.0 + rng.normal(size=(2, 90, 4))
    sums = LaggedSums(4)
    for some in np.array_split(np.arange(90), parts):
        sums.add(torch.from_numpy(before[some]), torch.from_numpy(after[some]))
    mean = np.concatenate([before, after]).mean(axis=0)
    x, y = before - mean, after - mean
    for found, expected in zip(
        sums.covariances(), (mean, (x.T @ x + y.T @ y) / 180, y.T @ x / 90), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


@given(SEEDS)
@settings(max_examples=20, deadline=None)
def test_rates_solve_the_generalised_eigenproblem(seed):
    rng = np.random.default_rng(seed)
    kept = np.array([0.99, 0.95, 0.9, 0.5, 0.0])
    path = np.zeros((2000, 5))
    for t in range(1, len(path)):
        path[t] = kept * path[t - 1] + np.sqrt(1.0 - kept**2) * rng.normal(size=5)
    path = path @ _rotation(5, rng)
    found = slow_features(_sums(path))
    change = path[LAG:] - path[:-LAG]
    both = np.concatenate([path[LAG:], path[:-LAG]])
    rates = eigh(change.T @ change / (2 * len(change)), np.cov(both.T, bias=True))[0]
    slow = rates[1.0 - rates > 0.3]
    np.testing.assert_allclose(found.rates, slow, rtol=1e-8)
    features = _applied(found, path)[:, : len(slow)]
    moved = (features[LAG:] - features[:-LAG]) ** 2
    np.testing.assert_allclose(moved.mean(axis=0), 1.0, rtol=1e-3)  # of the grid


def test_what_tells_which_way_a_slow_feature_goes_is_a_speed():
    rng = np.random.default_rng(0)
    state, path = np.zeros(2), []
    for _ in range(8000):
        speed = 0.9 * state[1] + 0.3 * rng.normal() - 0.02 * state[0]
        state = np.array([state[0] + speed, speed])
        path.append(state)
    known = np.array(path)
    seen = np.column_stack([known, rng.normal(size=(8000, 4))]) @ _rotation(6, rng)
    found = slow_features(_sums(seen))
    n_slow = len(found.rates)
    assert found.projection.shape[1] > n_slow
    features = _applied(found, seen)
    assert _explained(features[:, :n_slow], known[:, 0]) > 0.95
    assert _explained(features, known[:, 1]) > 0.9
    assert _explained(features[:, :n_slow], known[:, 1]) < 0.5


def test_colour_noise_and_a_moving_background_do_not_fool_it():
    rng = np.random.default_rng(0)
    n, side = 3000, 32
    place, places = np.array([16.0, 16.0]), []
    for _ in range(n):
        place = np.clip(place + 1.5 * rng.normal(size=2), 5, 27)
        places.append(place)
    known = np.array(places)
    at = np.arange(side) + 0.5
    away = np.hypot(at[:, None] - known[:, 0, None, None], at - known[:, 1, None, None])
    disc = 200.0 * np.clip(4.5 - away, 0.0, 1.0)

    def seen(seed: int) -> NDArray[np.uint8]:
        other = np.random.default_rng(seed)
        # Gratings that scroll by less or more than half their length at every step.
        turns = np.cumsum(other.uniform(0.2, 0.8, size=n)) * 2.0 * np.pi
        grating = 40.0 * np.sin(2.0 * np.pi * at / side * 2.0 + turns[:, None])[:, None, :]
        noise = 25.0 * other.normal(size=(n, side, side, 3))
        colour = 20.0 * other.normal(size=(n, 1, 1, 3))
        picture = (60.0 + disc + grating)[..., None] + noise + colour
        return np.asarray(np.clip(picture, 0, 255), np.uint8)

    pictures, others = seen(1), seen(2)
    rows = coefficients(torch.from_numpy(pictures))
    sums = LaggedSums(rows.shape[1])
    sums.add(rows[:-LAG], rows[LAG:])
    found = slow_features(sums)
    encoder = slow_encoder(pictures.shape[1:], found)
    features, same_places = encoder.features(pictures), encoder.features(others)
    # On discs alike before another background: features follow the disc.
    for axis in range(2):
        assert _explained(same_places, known[:, axis]) > 0.9
    slow = slice(0, 2)
    disturbed = ((features - same_places)[:, slow] ** 2).mean() / 2.0
    assert disturbed < 0.1 * features[:, slow].var(axis=0).mean()
