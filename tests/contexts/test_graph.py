"""Plans on an episode's graph against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.contexts.memory import DISCOUNT, MOST_TRIES, EpisodeMemory

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
