"""The figures of a learning curve, greedy returns on an environment of their own."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor
from transfer_cases import BEST, corridor

from rover.errors import ConfigurationError
from rover.evaluation import greedy_episodes
from rover.finetuning.run import _curve_summary


def summary(returns: list[float], *, best: float | None = None) -> Any:
    curve = [{"step": 100 * k, "greedy_return": r} for k, r in enumerate(returns)]
    return _curve_summary(curve, best=best)


RETURNS = [-300, -26, -40, -26, -26, -26.0]


@pytest.mark.parametrize(
    ("returns", "best", "first", "stays"),
    [
        (RETURNS, -26.0, 100, 300),
        (RETURNS[::-1], -26.0, 0, None),
        (RETURNS, -25.0, None, None),
        (RETURNS, None, 100, 300),
        (RETURNS[:3], None, 100, None),
        ([-26.0] * 6, -26.0, 0, 0),
    ],
)
def test_events_of_a_curve_by_hand(
    returns: list[float], best: float | None, first: int | None, stays: int | None
) -> None:
    figures = summary(returns, best=best)
    assert (figures["steps_to_best_return"], figures["steps_to_stay_at_best"]) == (first, stays)
    assert figures["best_return_kind"] == ("reached" if best is None else "possible")


def test_summary_of_a_curve() -> None:
    uneven = [{"step": s, "greedy_return": r} for s, r in ((0, -10.0), (100, 0.0), (400, -4))]
    assert _curve_summary(uneven)["area_under_curve"] == (-5.0 * 100 + -2.0 * 300) / 400
    assert summary([-7.0])["area_under_curve"] == -7.0
    assert summary([-9.0, -3.0, -3.0, -5.0], best=-3.0) == {
        "steps": 300,
        "best_possible_return": -3.0,
        "greedy_return": -5.0,
        "best_greedy_return": -3.0,
        "steps_to_first_success": None,
        "best_return_kind": "possible",
        "steps_to_best_return": 100,
        "steps_to_stay_at_best": None,
        "area_under_curve": (-6.0 - 3.0 - 4.0) / 3,
    }


def always(action: int) -> Callable[[Tensor], Tensor]:
    def logits(observations: Tensor) -> Tensor:
        return torch.eye(4)[action].expand(len(observations), -1)

    return logits


def test_returns_of_policies_that_are_known() -> None:
    env = corridor().make_env()
    for action, expected in ((2, BEST), (0, -30.0)):
        returns = greedy_episodes(env, always(action), seed=0, n_episodes=3)[0]
        np.testing.assert_array_equal(returns, [expected] * 3)


def test_every_evaluation_plays_the_same_episodes() -> None:
    env = gym.make(corridor().make_env().spec, start="random")  # type: ignore[arg-type]
    first, again = (greedy_episodes(env, always(2), seed=7, n_episodes=8)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(set(first.tolist())) > 1


class Endless(gym.Wrapper):
    def step(self, action):
        observation, reward, _, _, info = self.env.unwrapped.step(action)
        self.env.unwrapped._episode_over = False
        return observation, reward, False, False, info


def test_an_episode_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rover.evaluation.returns.MAX_EPISODE_STEPS", 50)
    env = Endless(corridor().make_env())
    with pytest.raises(ConfigurationError, match="did not end within 50 steps"):
        greedy_episodes(env, always(0), seed=0, n_episodes=1)
