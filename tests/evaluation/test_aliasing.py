"""Aliased observations are told from random outcomes, whatever is tried when."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rover.evaluation import AliasingTest, compare_outcomes


def recorded(
    outcome: Callable[[int, int], int],
    n_episodes: int,
    rng: np.random.Generator,
    *,
    insists: bool = False,
) -> AliasingTest:
    """A test of episodes in which four pairs are tried up to six times each.

    Args:
        outcome: of a pair in an episode.
        n_episodes: how many.
        rng: says which pairs are tried, and how often.
        insists: whether a pair is tried again just as long as its outcome is 0.
    """
    rows = []
    for episode in range(n_episodes):
        for pair in rng.integers(4, size=6).tolist():
            for _ in range(6 if insists else 1):
                rows.append((pair, outcome(pair, episode), episode))
                if rows[-1][1] != 0:
                    break
    pairs, outcomes, episodes = np.array(rows).T
    return compare_outcomes(pairs, outcomes, episodes)


def test_what_follows_the_episode_is_aliased() -> None:
    layouts = np.random.default_rng(0).integers(2, size=(4, 60))
    test = recorded(lambda pair, e: layouts[pair, e], 60, np.random.default_rng(1))
    assert test.is_aliased
    assert test.n_within > 10
    assert test.n_across == 0


@pytest.mark.parametrize("insists", [False, True])
@pytest.mark.parametrize("stays", [0.3, 0.9])
def test_random_outcomes_are_not(stays: float, insists: bool) -> None:
    p_values = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        outcome = rng.random
        test = recorded(lambda pair, e: int(outcome() > stays), 40, rng, insists=insists)  # noqa: B023
        p_values.append(test.p_value)
    for level in (0.05, 0.2):  # three standard errors
        assert np.mean(np.array(p_values) < level) < level + 3.0 * np.sqrt(level / 200)


def test_certain_outcomes_are_not_and_few_say_nothing() -> None:
    rng = np.random.default_rng(0)
    assert recorded(lambda pair, _: pair, 60, rng).is_aliased is False
    assert recorded(lambda _, episode: episode, 2, rng).is_aliased is None
