import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rover.errors import ConfigurationError, NonFiniteError
from rover.operators import (
    Dirac,
    Gaussian,
    Kernel,
    Linear,
    exact_support,
    fit_transition_model,
    make_kernel,
    nystrom_support,
)
from rover.transitions import TransitionCounts, merge_transitions

ONE = np.ones(1)
ZERO = np.zeros(1, np.int64)


def test_features_that_are_not_finite_are_named():
    support, features = exact_support(merge_transitions(ZERO, ZERO, ZERO), ZERO, ONE), points(0, 1)
    with pytest.raises(NonFiniteError, match="the features of the observations: 4 of 4"):
        fit_transition_model(features / 0.0, support, Gaussian(0.5), n_actions=1, ridge=0.1)


@st.composite
def transitions(draw: st.DrawFn) -> list[tuple[int, int, int, bool]]:
    row = st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6), st.booleans())
    return draw(st.lists(row, min_size=1, max_size=40))


def merged(rows: list[tuple[int, int, int, bool]]) -> TransitionCounts:
    x, a, y, t = (np.array(column) for column in zip(*rows, strict=True))
    return merge_transitions(x, a, y, t)


@settings(max_examples=30)
@given(transitions())
def test_outcome_variance_is_the_share_of_pairs_of_tries_that_differ(rows):
    """1 − Σ p² without bias is how often two tries of a pair differ; pairs weigh n − 1."""
    outcomes: dict[tuple[int, int], list[tuple[int, bool]]] = {}
    for x, a, y, terminated in rows:
        outcomes.setdefault((x, a), []).append((y, terminated))
    differing = freedom = 0.0
    for tries in outcomes.values():
        n = len(tries)
        if n > 1:
            differ = sum(one != other for one in tries for other in tries) / (n * (n - 1))
            differing, freedom = differing + (n - 1) * differ, freedom + n - 1
    expected = differing / freedom if freedom else 0.0
    assert merged(rows).outcome_variance == pytest.approx(expected)


@settings(max_examples=30)
@given(transitions())
def test_exact_support_holds_the_empirical_frequencies(rows):
    support = exact_support(merged(rows), np.array([3, 5]), np.array([1.0, 3.0]))
    keys = list(zip(support.anchors, support.terminal, strict=True))
    assert set(keys) == {(y, t) for _, _, y, t in rows} | {(3, False), (5, False)}
    assert len(keys) == len(set(keys))
    pairs = Counter((x, a) for x, a, _, _ in rows)
    for row, (x, a) in enumerate(zip(support.pair_inputs, support.pair_actions, strict=True)):
        assert support.pair_counts[row] == pairs[x, a]
        following = Counter((y, t) for x2, a2, y, t in rows if (x2, a2) == (x, a))
        expected = [following[key] / pairs[x, a] for key in keys]
        assert np.allclose(support.successor[row], expected)
    assert list(support.pair_actions) == sorted(support.pair_actions)
    assert float(support.start[keys.index((3, False))]) == 0.25
    assert float(support.start.sum()) == 1.0


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(2, 12), st.floats(0.0, 0.5))
def test_anchors_cover_what_was_reached_and_keep_apart(seed, n_anchors, apart):
    rng = np.random.default_rng(seed)
    features, kernel = torch.from_numpy(rng.random((40, 2))), Gaussian(0.5)
    reached = rng.integers(40, size=30)
    counts = merge_transitions(np.zeros(30, np.int64), rng.integers(4, size=30), reached)
    chosen = nystrom_support(
        features,
        counts,
        ZERO,
        ONE,
        kernel,
        n_anchors=n_anchors,
        min_distance=apart,
        projection_ridge=1e-6,
    ).anchors
    assert chosen[0] == 0  # the start
    assert len(set(chosen)) == len(chosen) <= n_anchors
    distance = 2.0 - 2.0 * kernel(features, features)
    between = float((distance[chosen][:, chosen] + 10.0 * torch.eye(len(chosen))).min())
    covering = float(distance[reached][:, chosen].min(1).values.max())
    assert between > apart
    assert covering <= (between if len(chosen) == n_anchors else apart) + 1e-12  # greedy


def test_nystrom_projects_next_states_on_few_anchors():
    rng = np.random.default_rng(0)
    n = 400
    features = torch.from_numpy(rng.random((n + 1, 1)))
    inputs, successors = np.arange(n), np.arange(1, n + 1)
    terminated = features[1:, 0].numpy() > 0.9
    counts = merge_transitions(inputs, rng.integers(2, size=n), successors, terminated)
    kernel = Gaussian(0.3)
    options = {"n_anchors": 20, "min_distance": 1e-6, "projection_ridge": 1e-8}
    support = nystrom_support(features, counts, ZERO, ONE, kernel, **options)
    ordinary, ended = support.anchors[~support.terminal], support.anchors[support.terminal]
    assert len(ordinary) <= 20
    assert 0 < len(ended) <= 20
    assert (features[ended, 0] > 0.9).all()
    assert not support.exact
    # φ(x') ≈ Σ_k S_k φ(y_k): every next state's similarities are those of its projection.
    order = np.lexsort((counts.inputs, counts.actions))
    targets = features[counts.successors[order]]
    anchors = features[support.anchors]
    projected = support.successor @ kernel(anchors, features)
    assert float((projected - kernel(targets, features)).abs().max()) < 1e-3
    ends = counts.terminated[order]
    assert not support.successor[ends][:, ~support.terminal].any()
    assert not support.successor[~ends][:, support.terminal].any()
    assert float(support.start.sum()) == pytest.approx(1.0)


ALL: list[Kernel] = [Linear(), Gaussian(0.7), Dirac()]


def points(seed: int, n: int, width: int = 4) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(n, width)))


def scalar(kernel: Kernel, x: Tensor, y: Tensor) -> float:
    """The kernel of two points as its definition has it."""
    distance = math.dist(x.tolist(), y.tolist())
    match kernel:
        case Linear():
            return float(x @ y)
        case Gaussian():
            return math.exp(-(distance**2) / (2 * kernel.bandwidth**2))
        case _:
            return float(distance == 0.0)


@pytest.mark.parametrize("kernel", ALL, ids=lambda kernel: kernel.name)
def test_gram_matrix_is_the_definition_pair_by_pair(kernel):
    x, y = points(0, 6), points(1, 5)
    y[2] = x[4]
    gram = kernel(x, y)
    expected = [[scalar(kernel, a, b) for b in y] for a in x]
    assert gram.shape == (6, 5)
    assert torch.allclose(gram, torch.tensor(expected, dtype=torch.float64), rtol=1e-12)
    assert torch.allclose(kernel(x, x).diagonal(), kernel.diagonal(x), rtol=1e-13)
    rows = torch.tensor([[0.0, 1.0], [1e-300, 1.0], [-0.0, 1.0]], dtype=torch.float64)
    assert Dirac()(rows, rows).tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), offset=st.floats(-1e6, 1e6))
def test_distances_keep_their_digits_far_from_the_origin(seed, offset):
    x, y = points(seed, 7), points(seed + 1, 5)
    near = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist") ** 2
    far = Gaussian(3.0)(x + offset, y + offset)  # exp(−‖x − y‖² / 18)
    # The offset itself rounds the coordinates to about 1e-10, and that is all that is lost.
    assert torch.allclose(-18.0 * far.log(), near, rtol=1e-7, atol=1e-8)


def test_impossible_kernels_are_refused():
    with pytest.raises(ConfigurationError, match="'cosine'; choose one of linear, gaussian, dirac"):
        make_kernel("cosine")
    with pytest.raises(ConfigurationError, match="bandwidth must be a positive finite number"):
        make_kernel("gaussian", bandwidth=math.nan)
