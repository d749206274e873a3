"""Data sets that other programs made, and those of them that are refused."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover.errors import ArtefactError, NonFiniteError, UnsupportedSpaceError
from rover.integrations.minari import load_minari

minari = pytest.importorskip("minari")


def made_by_others(episodes: list[dict[str, Any]], name: str = "other-v0", **spaces: Any) -> Any:
    """A data set as other programs make it."""
    given = {
        "observation_space": gym.spaces.Box(-9, 9, (2,), np.float64),
        "action_space": gym.spaces.Discrete(2),
    } | spaces
    buffers = [minari.data_collector.EpisodeBuffer(infos={}, **episode) for episode in episodes]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an author, an e-mail address, ... that are missing
        return minari.create_dataset_from_buffers(name, buffers, **given)


def an_episode(length: int = 3, **changes: Any) -> dict[str, Any]:
    observations = np.arange(2.0 * length + 2).reshape(length + 1, 2) / 8
    flags = np.zeros(length, bool)
    return {
        "observations": observations,
        "actions": np.arange(length) % 2,
        "rewards": np.arange(length) / 4,
        "terminations": flags,
        "truncations": flags,
    } | changes


def test_data_sets_of_others() -> None:
    ended = np.array([False, True])
    first = an_episode()  # ends without saying how
    second = an_episode(2, terminations=ended)
    both = an_episode(
        4, terminations=np.array([False, True, False, False])
    )  # goes on behind an end
    buffer, rewards = load_minari(made_by_others([first, second, both]))
    assert rewards.tolist() == [0, 0.25, 0.5, 0, 0.25, 0, 0.25, 0.5, 0.75]
    assert buffer.terminated.tolist() == [False] * 4 + [True, False, True, False, False]
    assert buffer.truncated.tolist() == [False, False, True] + [False] * 5 + [True]
    assert buffer.episode_starts.tolist() == [0, 0, 0, 2]
    assert np.array_equal(buffer.observations.rows[buffer.inputs[:3]], first["observations"][:-1])
    some, _ = load_minari(minari.load_dataset("other-v0").filter_episodes(lambda e: len(e) == 2))
    assert some.terminated.tolist() == [False, True]


BOX, DISCRETE = gym.spaces.Box, gym.spaces.Discrete
LONG, NAN, TENTHS = np.zeros((3, 2)), np.full((4, 2), np.nan), np.full((4, 2), 0.1)


@pytest.mark.parametrize(
    ("changes", "spaces", "error", "message"),
    [
        ({}, {"observation_space": BOX(0, 1, (2, 2))}, UnsupportedSpaceError, "observation space"),
        ({"observations": LONG}, {}, ArtefactError, r"episode 0 of .* of shape \(3, 2\)"),
        ({"observations": NAN}, {}, NonFiniteError, "observations that are NaN"),
        (
            {"observations": TENTHS},
            {"observation_space": BOX(0, 1, (2,), np.float32)},
            ArtefactError,
            "observations of dtype float64 that its Box",
        ),
        (
            {"observations": np.array([0, 1, 2, 5])},
            {"observation_space": DISCRETE(5)},
            ArtefactError,
            r"its Discrete\(5\) does not hold",
        ),
        ({"actions": np.array([0, 1, 2])}, {}, ArtefactError, r"not all whole numbers in 0\.\.1"),
        ({"rewards": np.array([0, np.inf, 0])}, {}, NonFiniteError, "rewards that are NaN or inf"),
    ],
)
def test_data_sets_that_are_refused(changes, spaces, error, message) -> None:
    made_by_others([an_episode(**changes)], **spaces)
    with pytest.raises(error, match=message):
        load_minari("other-v0")


def test_exact_values_of_a_wider_dtype_are_taken() -> None:
    space = gym.spaces.Box(-9, 9, (2,), np.float32)
    buffer, _ = load_minari(made_by_others([an_episode()], observation_space=space))
    assert buffer.observations.dtype == np.float32


def test_data_sets_that_are_missing_or_empty() -> None:
    with pytest.raises(
        ArtefactError, match=r"no Minari data set 'maze-v0' on this machine.*download"
    ):
        load_minari("maze-v0")
    made_by_others([])
    with pytest.raises(ArtefactError, match="'other-v0' holds no transitions"):
        load_minari("other-v0")
