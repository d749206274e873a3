"""Slow features: against brute force, on noise, and the same bits alone and in a batch."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.fft import dctn
from scipy.linalg import eigh
from scipy.ndimage import center_of_mass

from rover.features import make_encoder, slow_encoder
from rover.features.slow import (
    LAG,
    LaggedSums,
    SlowFeatures,
    bending,
    coefficients,
    seen,
    slow_features,
    speed_weights,
)

SEEDS = st.integers(0, 2**31)
Array = NDArray[np.float64]


def _sums(path: Array | torch.Tensor, actions: NDArray[np.int64] | None = None) -> LaggedSums:
    """Sums of one path (n, p), and of the two actions between its points (n − 1,); None: all 0."""
    rows = torch.as_tensor(path)
    if actions is None:
        actions = np.zeros(len(rows) - 1, np.int64)
    sums, pairs = LaggedSums(rows.shape[1], 2), np.arange(len(rows) - LAG)
    taken = np.zeros((len(pairs), 2, 2))
    for pair in pairs:
        # By the steps that an action had to work in, and those that it lacked before the lag.
        for step in range(LAG):
            taken[pair, 0, actions[pair + step]] += LAG - step
            if pair - LAG + step >= 0:
                taken[pair, 1, actions[pair - LAG + step]] += step
    earlier = rows[np.maximum(pairs - LAG, 0)]
    sums.add(earlier, rows[:-LAG], rows[LAG:], torch.from_numpy(taken.reshape(-1, 4)))
    return sums


def _flat(size: int) -> torch.Tensor:
    """No energy of bending, for vectors that are no pictures."""
    return torch.zeros(size, dtype=torch.float64)


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
@settings(max_examples=10)
def test_coefficients_are_the_low_frequencies_and_centroids(seed, shape):
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (3, *shape), np.uint8)
    usual = rng.integers(0, 256, shape, np.uint8)
    everything = dctn(pictures.astype(float), axes=(1, 2), norm="ortho")[:, :8, :8]
    low = np.moveaxis(everything, 3, 1).reshape(3, shape[2], -1)
    seen = coefficients(torch.from_numpy(pictures), torch.from_numpy(usual))
    found = seen.reshape(3, shape[2], -1)
    np.testing.assert_allclose(found[:, :, :-2], low, atol=0.5)
    weights = np.moveaxis((pictures.astype(float) - usual) ** 2, 3, 1)
    for i in range(3):
        for channel in range(shape[2]):
            centre = np.array(center_of_mass(weights[i, channel])) - np.subtract(shape[:2], 1) / 2
            np.testing.assert_allclose(found[i, channel, -2:], centre, atol=2.0**-8)


def test_differences_from_the_usual_picture_count_by_their_shares():
    rng = np.random.default_rng(0)
    pictures, usual, shares = (
        torch.from_numpy(rng.integers(0, 256, (*shape, 9, 7, 3), np.uint8))
        for shape in ((20,), (), ())
    )
    shares[:4] = 255
    counted = seen(pictures, usual, shares)
    expected = usual + (pictures.double() - usual) * shares / 255.0
    assert float((counted - expected).abs().max()) <= 0.5 + 1e-4
    assert torch.equal(counted[:, :4], pictures[:, :4])
    assert torch.equal(seen(pictures[3:4], usual, shares)[0], counted[3])


@given(SEEDS)
@settings(max_examples=20)
def test_an_encoder_gives_the_same_bits_alone_and_in_a_batch(seed):
    rng = np.random.default_rng(seed)
    pictures = rng.integers(0, 256, (60, 12, 17, 2), np.uint8)
    usual = torch.from_numpy(pictures).median(dim=0).values
    seen = coefficients(torch.from_numpy(pictures), usual)
    found = slow_features(_sums(seen), bending(12, 17, 2))
    encoder = slow_encoder(found, usual, torch.full_like(usual, 255))
    together = encoder.features(pictures)
    for row in range(0, 60, 7):
        np.testing.assert_array_equal(encoder.features(pictures[row : row + 1])[0], together[row])
    again = make_encoder(encoder.config, torch.Generator())
    again.load_state_dict(encoder.state_dict())
    np.testing.assert_array_equal(again.features(pictures), together)


@given(SEEDS, st.integers(1, 5))
@settings(max_examples=20)
def test_running_sums_are_those_from_scratch(seed, parts):
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(2, 90, 4))
    steps[1] += 0.5 * steps[0]
    earlier = 1000.0 + rng.normal(size=(90, 4))
    before, after = earlier + steps[0], earlier + steps.sum(axis=0)
    taken = rng.random((90, 4))
    sums = LaggedSums(4, 2)
    for some in np.array_split(np.arange(90), parts):
        sums.add(*(torch.from_numpy(part[some]) for part in (earlier, before, after, taken)))
    mean = np.concatenate([before, after]).mean(axis=0)
    x, y, change = before - mean, after - mean, after - before
    for found, expected in zip(
        sums.covariances(), (mean, (x.T @ x + y.T @ y) / 180, change.T @ change / 90), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
    # One factor for all numbers tells how much of a change comes again.
    centred = steps - steps.mean(axis=1, keepdims=True)
    lasting = np.clip((centred[0] * centred[1]).sum() / (centred[0] ** 2).sum(), 0.0, 1.0)
    change, actions = change - lasting * steps[0], taken[:, :2] + lasting * taken[:, 2:]
    changes, caused = sums.effects()
    np.testing.assert_allclose(changes, np.cov(change.T, bias=True), rtol=1e-10, atol=1e-10)
    columns = np.column_stack([np.ones(90), actions])
    explained = columns @ np.linalg.lstsq(columns, change)[0]
    # But for the prior, a hundredth of the actions' own variance.
    np.testing.assert_allclose(caused, np.cov(explained.T, bias=True), rtol=0.05, atol=1e-3)


@given(SEEDS)
@settings(max_examples=20)
def test_without_actions_the_slowest_functions_are_taken(seed):
    rng = np.random.default_rng(seed)
    kept = np.array([0.995, 0.98, 0.95, 0.5, 0.0])
    path = np.zeros((2000, 5))
    for t in range(1, len(path)):
        path[t] = kept * path[t - 1] + np.sqrt(1.0 - kept**2) * rng.normal(size=5)
    path = path @ _rotation(5, rng)
    found = slow_features(_sums(path), _flat(5))
    assert len(found.moved) == 0
    change = path[LAG:] - path[:-LAG]
    both = np.concatenate([path[LAG:], path[:-LAG]])
    rates = eigh(change.T @ change / (2 * len(change)), np.cov(both.T, bias=True))[0]
    assert found.projection.shape[1] == np.count_nonzero(1.0 - rates > 0.3)
    features = _applied(found, path)
    moved = (features[LAG:] - features[:-LAG]) ** 2
    np.testing.assert_allclose(moved.mean(axis=0), 1.0, rtol=1e-3)  # of the grid
    variances = features.var(axis=0)
    np.testing.assert_array_equal(np.sort(variances)[::-1], variances)


def _pushed(n: int, rng: np.random.Generator) -> tuple[Array, NDArray[np.int64]]:
    """Places (n,) of what two actions push to and fro between walls, and the actions."""
    actions, places, speed = rng.integers(2, size=n - 1), [16.0], 0.0
    for action in actions:
        speed = 0.6 * speed + 0.8 * (2 * action - 1) + 0.1 * rng.normal()
        places.append(float(np.clip(places[-1] + speed, 6.0, 26.0)))
    return np.array(places), actions


def test_coordinates_that_actions_move_are_found_among_slower_ones_with_their_speeds():
    rng = np.random.default_rng(0)
    n, side = 2000, 32
    known, actions = _pushed(n, rng)
    drifting = 16.0 + 8.0 * np.sin(np.cumsum(0.02 * rng.normal(size=n)))
    at = np.arange(side) + 0.5

    def disc(x: Array, y: float) -> Array:
        away = np.hypot(at[:, None] - y, at - x[:, None, None])
        return np.asarray(120.0 * np.clip(3.5 - away, 0.0, 1.0))

    frames = disc(known, 10.0) + disc(drifting, 24.0)
    pictures = np.stack([frames, np.concatenate([frames[:1], frames[:-1]])], axis=-1)
    taken = torch.from_numpy(pictures.astype(np.uint8))
    seen = coefficients(taken, taken.median(dim=0).values)
    size = seen.shape[1] // 2
    found = slow_features(_sums(seen[:, :size], actions), bending(side, side, 1))
    assert found.projection.shape == (size, 1)
    stacked = found.with_speeds(torch.ones(1), newest_first=True)
    features = _applied(stacked, seen.numpy())
    assert _explained(features[:, :1], known) > 0.85  # two discs share a centroid
    speed = np.diff(known, prepend=known[0])
    assert _explained(features[:, 1:], speed) > 0.9
    # With the frames in the other order it is the same.
    turned = found.with_speeds(torch.ones(1), newest_first=False)
    swapped = np.concatenate([seen[:, size:], seen[:, :size]], axis=1)
    np.testing.assert_allclose(_applied(turned, swapped), features, atol=1e-9)
    # A tenth of the data tells what is a coordinate everywhere.
    early = slow_features(_sums(seen[:200, :size], actions[:199]), bending(side, side, 1))
    assert _explained(_applied(early, seen[:, :size].numpy()), known) > 0.9


@given(SEEDS, st.sampled_from([2, 3]))
@settings(max_examples=10)
def test_changes_between_frames_are_weighted_as_they_foretell_the_next(seed, n_changes):
    rng = np.random.default_rng(seed)

    def weights(lasting: float, noise: float) -> Array:
        speeds = np.zeros((4000, 2))
        for t in range(1, len(speeds)):
            speeds[t] = lasting * speeds[t - 1] + rng.normal(size=2)
        seen = np.cumsum(speeds, axis=0) * [1.0, 50.0]
        seen += noise * rng.normal(size=seen.shape) * [1.0, 50.0]
        steps = np.diff(seen, axis=0)
        n = len(steps) - n_changes - 1
        last = np.stack([steps[n_changes - 1 - age :][:n] for age in range(n_changes)], axis=1)
        following = steps[n_changes + 1 :][:n]
        found = speed_weights(torch.from_numpy(last), torch.from_numpy(following)).numpy()
        # Against least squares among weights of sum 1, features in units of what follows.
        units = following.std(axis=0)
        design = (last / units).transpose(0, 2, 1).reshape(-1, n_changes)
        goal = (following / units).reshape(-1)
        gram = np.block(
            [[design.T @ design, np.ones((n_changes, 1))], [np.ones((1, n_changes)), 0.0]]
        )
        expected = np.linalg.solve(gram, np.append(design.T @ goal, 1.0))[:-1]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)
        return found

    assert weights(0.9, 0.0)[0] > 0.8
    # All of them together are the newest frame less the oldest.
    np.testing.assert_allclose(weights(0.995, 30.0), 1.0 / n_changes, atol=0.1)
    np.testing.assert_array_equal(speed_weights(torch.zeros(9, 1, 2), torch.zeros(9, 2)), [1.0])
    at_rest = speed_weights(torch.zeros(9, n_changes, 2), torch.zeros(9, 2))
    np.testing.assert_array_equal(at_rest, [1.0] + [0.0] * (n_changes - 1))
