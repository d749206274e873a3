"""Values on an episode's graph, of untried actions by regression, and what effects depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.contexts.codes import ObservationCodes, relevant_numbers
from rover.contexts.memory import (
    DISCOUNT,
    LAMBDA,
    MOST_TRIES,
    OPTIMISM,
    EpisodeMemory,
    ExplorationValueModel,
    ridge_inverse,
)


def dense(features: np.ndarray, worth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """G⁻¹ and w of features (n, m) in double precision."""
    gram = LAMBDA * np.eye(features.shape[1]) + features.T @ features
    return np.linalg.inv(gram), np.linalg.solve(gram, features.T @ worth)


@given(st.integers(0, 2**31), st.integers(1, 30))
@settings(max_examples=25)
def test_tries_taken_in_one_by_one_are_the_regression_on_all(seed, n):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, 6)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    worth = rng.random(n)
    inverses = np.stack([np.eye(6, dtype=np.float32) / np.float32(LAMBDA)] * 2)
    model = ExplorationValueModel(lambda seen: seen, inverses, np.zeros((6, 2), np.float32))
    memory = EpisodeMemory(2, model)
    for row in features:
        memory.see(row)
    for node, value in enumerate(worth.tolist()):
        memory.learn(node, 1, value)
    inverse, weights = dense(features.astype(np.float64), worth)
    assert model.inverses[1] == pytest.approx(inverse, abs=1e-4)
    assert model.weights[:, 1] == pytest.approx(weights, abs=1e-4)
    # The values of the nodes, updated try by try, are those of the model afterwards.
    afterwards = model.values(features @ model.weights, model.sinks(features))
    values = np.stack([memory.exploration_values(node) for node in range(n)])
    assert values == pytest.approx(afterwards, abs=1e-3)
    assert (model.weights[:, 0] == 0.0).all()
    assert values[:, 0] == pytest.approx(OPTIMISM, abs=1e-4)


def test_the_sink_of_a_state_tried_n_times_is_that_of_exact_states():
    """One-hot features are the Dirac kernel: λ / (n + λ), and the mean is shrunk by as much."""
    tried = np.eye(3, dtype=np.float32)[[0, 0, 0, 1]]
    inverse = ridge_inverse(tried, LAMBDA)
    weights = inverse @ (tried.T @ np.ones(4, np.float32))
    model = ExplorationValueModel(None, inverse[None], weights[:, None])
    expected = np.array([[LAMBDA / (3 + LAMBDA)], [LAMBDA / (1 + LAMBDA)], [1.0]])
    states = np.eye(3, dtype=np.float32)
    assert model.sinks(states) == pytest.approx(expected, abs=1e-6)
    means = states @ model.weights
    assert means == pytest.approx(1.0 - expected, abs=1e-6)
    values = model.values(means, model.sinks(states))
    assert values == pytest.approx(means + OPTIMISM * expected, abs=1e-5)


def doors(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eight numbers; action 0 moves unless 3 is a wall, 1 takes from 3 what 5 does not hold."""
    seen = rng.integers(3, size=(n, 8)).astype(np.uint8)
    actions = rng.integers(3, size=n)
    effects = np.select(
        [actions == 0, actions == 1], [seen[:, 3] != 1, (seen[:, 3] == 2) & (seen[:, 5] == 0)]
    )
    return seen, actions, effects.astype(bool)


def test_what_effects_depend_on_is_found():
    seen, actions, effects = doors(600, np.random.default_rng(3))
    assert set(relevant_numbers(seen, actions, effects, 3).tolist()) == {3, 5}
    # Nothing is found where effects are a coin's.
    coin = np.random.default_rng(4).random(600) < 0.5
    assert len(relevant_numbers(seen, actions, coin, 3)) == 0


def test_what_was_never_tried_together_is_unknown_although_its_parts_are_known():
    rng = np.random.default_rng(5)
    seen = rng.integers(2, size=(400, 6)).astype(np.uint8)
    apart = seen[~((seen[:, 1] == 1) & (seen[:, 4] == 1))]
    together = np.array([[0, 1, 0, 0, 1, 0]], np.uint8)
    sinks = []
    for relevant in ([], [1, 4]):
        codes = ObservationCodes.fit(apart, np.array(relevant, np.int64))
        features = codes(apart)
        assert np.square(features).sum(axis=1) == pytest.approx(1.0, abs=1e-5)
        inverse = ridge_inverse(features, LAMBDA)
        weights = np.zeros((features.shape[1], 1), np.float32)
        model = ExplorationValueModel(None, inverse[None], weights)
        sinks.append(float(model.sinks(codes(together))[0, 0]))
    assert sinks[0] < 0.05
    assert sinks[1] > 0.5


ONCE = np.array([1.0] + [0.0] * MOST_TRIES)
"""κ of a world in which a second try of the same tells nothing."""


@given(st.integers(0, 2**31), st.integers(1, 150))
@settings(max_examples=25)
def test_values_are_the_best_price_of_what_is_untried_discounted_by_the_way(seed, n):
    rng = np.random.default_rng(seed)
    graph = EpisodeMemory(3)
    assert [graph.see(np.array(k)) for k in range(n)] == [(k, True) for k in range(n)]
    table = np.where(rng.random((n, 3)) < 0.6, rng.integers(n, size=(n, 3)), -1)
    for node, action in np.argwhere(table >= 0).tolist():
        graph.add(node, action, int(table[node, action]))
    prices = rng.random((n, 3)) + 0.1
    # Fewest steps by Floyd and Warshall, and then the best end of all paths.
    steps = np.full((n, n), np.inf)
    steps[np.arange(n), np.arange(n)] = 0
    for node, action in np.argwhere(table >= 0).tolist():
        steps[node, table[node, action]] = min(steps[node, table[node, action]], 1)
    for middle in range(n):
        steps = np.minimum(steps, steps[:, [middle]] + steps[[middle]])
    worth = np.where(table < 0, prices, 0.0).max(axis=1)
    best = (DISCOUNT**steps * worth).max(axis=1)
    assert graph.values(prices, ONCE).max(axis=1) == pytest.approx(best, abs=2e-3)


def test_what_led_elsewhere_is_mixed_and_the_latest_counts_most():
    graph = EpisodeMemory(1)
    for number in range(3):
        graph.see(np.array(number))
    assert graph.add(0, 0, 1)
    assert not graph.add(0, 0, 1), "the same again changes no plan"
    assert graph.add(0, 0, 2)
    prices = np.array([[0.0], [8.0], [0.0]])
    # Half of its outcomes lead to node 1, whose untried action is worth 8.
    assert graph.values(prices, ONCE)[0, 0] == pytest.approx(DISCOUNT * 0.5 * 8.0, abs=2e-3)
    assert graph.add(0, 0, None), "an end leads nowhere"
    assert graph.values(prices, ONCE)[0, 0] == 0.0


def test_an_nth_try_is_worth_its_share():
    graph = EpisodeMemory(2)
    graph.see(np.array(0))
    kept = np.linspace(1.0, 0.0, MOST_TRIES + 1)
    for n in range(MOST_TRIES + 3):
        values = graph.values(np.array([[2.0, 0.0]]), kept)
        assert values[0, 0] == pytest.approx(2.0 * kept[min(n, MOST_TRIES)], abs=2e-3)
        graph.add(0, 0, None)
