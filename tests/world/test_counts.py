"""Counts against sums over the buffer, and novelty against densities by pairs."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.data import Buffer
from rover.world.counts import Counts
from rover.world.novelty import PairNovelty


@given(st.integers(0, 2**31), st.integers(1, 80))
@settings(max_examples=30)
def test_counts_are_sums_over_the_buffer(seed, n):
    rng = np.random.default_rng(seed)
    buffer = Buffer((), np.int64, 2)
    for state in range(4):
        buffer.observations.intern(np.int64(state))
    grown, known = Counts(buffer), set()
    for row in range(n):
        x, a, y, ended = (int(rng.integers(high)) for high in (4, 2, 4, 2))
        buffer.add(x, a, y, bool(ended), False)
        outcome = 2 * x + a, y + 4 * ended
        assert grown.add(row) == (outcome not in known)
        known.add(outcome)
    table = np.zeros((8, 8))
    to = buffer.successors + 4 * buffer.terminated
    np.add.at(table, (2 * buffer.inputs + buffer.actions, to), 1.0)
    for counts in (grown, Counts(buffer)):
        found, sums = counts.outcomes(), np.zeros_like(table)
        pairs = 2 * found.inputs + found.actions
        sums[pairs, found.successors + 4 * found.terminated] = found.counts
        np.testing.assert_array_equal(sums, table)
        np.testing.assert_array_equal(counts.tries, table.sum(axis=1))
        assert counts.n_pairs == np.count_nonzero(counts.tries)
        varied = [counts.varies(pair) for pair in range(8)]
        assert varied == ((table > 0).sum(axis=1) > 1).tolist()
        assert counts.is_certain != any(varied)
    merged = buffer.counts(np.arange(n))
    for one, other in zip(vars(buffer.counts()).values(), vars(merged).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert buffer.counts().n_pairs == grown.n_pairs


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 4))
def test_novelty_is_that_of_all_arrivals_by_pairs(seed, d):
    """Up to the bins, which are half a width."""
    rng = np.random.default_rng(seed)
    arrivals, widths, scales = (
        rng.normal(size=(60, d)),
        rng.uniform(0.5, 1.0, d),
        rng.uniform(1, 9, d),
    )
    novelty = PairNovelty(np.zeros(d), widths, scales)
    novelty.add(arrivals)
    centres = (rng.integers(-4, 5, (20, d)) + 0.5) * widths / 2.0  # of bins
    offsets = (centres[:, None] - arrivals) / widths
    near = np.exp(-0.5 * offsets**2) * (np.abs(offsets) < 2.6)
    pairs = [(i, j) for i in range(d) for j in range(i + 1, d)] or [(0, 0)]
    weights = np.array([scales[i] * scales[j] for i, j in pairs])
    densities = [(near[:, :, i] * near[:, :, j]).sum(axis=1) for i, j in pairs]
    expected = sum(
        weight / (1.0 + density)
        for weight, density in zip(weights / weights.sum(), densities, strict=True)
    )
    np.testing.assert_allclose(novelty(centres), expected, atol=0.02)


def test_slow_features_decide_and_those_without_a_time_scale_do_not():
    novelty = PairNovelty(np.zeros(3), np.ones(3), np.array([30.0, 20.0, 0.0]))
    novelty.add(np.zeros((100, 3)))
    assert novelty(np.array([[0.0, 0.0, 50.0]])) < 0.05
