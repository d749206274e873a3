"""The figures of a learning curve, greedy returns on an environment of their own, and presets."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor
from transfer_cases import BEST, corridor

from rover.errors import ConfigurationError
from rover.finetuning import FinetuneConfig, OfflineConfig
from rover.finetuning.run import curve_summary, greedy_returns
from rover.learners import DDPGConfig


def summary(returns: list[float], *, best: float | None = None) -> Any:
    curve = [{"step": 100 * k, "greedy_return": r} for k, r in enumerate(returns)]
    return curve_summary(curve, best=best)


RETURNS = [-300, -26, -40, -26, -26, -26.0]


@pytest.mark.parametrize(
    ("returns", "best", "first", "stays"),
    [
        (RETURNS, -26.0, 100, 300),
        (RETURNS[::-1], -26.0, 0, None),
        (RETURNS, -25.0, None, None),
        (RETURNS, None, None, None),
        ([-26.0] * 6, -26.0, 0, 0),
    ],
)
def test_events_of_a_curve_by_hand(
    returns: list[float], best: float | None, first: int | None, stays: int | None
) -> None:
    found = summary(returns, best=best)
    assert (found["steps_to_best_return"], found["steps_to_stay_at_best"]) == (first, stays)


def test_summary_of_a_curve() -> None:
    uneven = [{"step": s, "greedy_return": r} for s, r in ((0, -10.0), (100, 0.0), (400, -4))]
    assert curve_summary(uneven)["area_under_curve"] == (-5.0 * 100 + -2.0 * 300) / 400
    assert summary([-7.0])["area_under_curve"] == -7.0
    assert summary([-9.0, -3.0, -3.0, -5.0], best=-3.0) == {
        "steps": 300,
        "best_possible_return": -3.0,
        "greedy_return": -5.0,
        "best_greedy_return": -3.0,
        "steps_to_first_success": None,
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
        returns = greedy_returns(env, always(action), seed=0, n_episodes=3)
        np.testing.assert_array_equal(returns, [expected] * 3)


def test_every_evaluation_plays_the_same_episodes() -> None:
    env = gym.make(corridor().make_env().spec, start="random")  # type: ignore[arg-type]
    first, again = (greedy_returns(env, always(2), seed=7, n_episodes=8) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert len(set(first.tolist())) > 1


class Endless(gym.Wrapper):
    def step(self, action):
        observation, reward, _, _, info = self.env.unwrapped.step(action)
        self.env.unwrapped._episode_over = False
        return observation, reward, False, False, info


def test_an_episode_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rover.finetuning.run.MAX_EPISODE_STEPS", 50)
    env = Endless(corridor().make_env())
    with pytest.raises(ConfigurationError, match="did not end within 50 steps"):
        greedy_returns(env, always(0), seed=0, n_episodes=1)


def test_presets_of_learners_differ_from_the_papers_where_the_deviations_say_so() -> None:
    ours = FinetuneConfig.make("ddpg", "fast").learner
    paper = FinetuneConfig.make("ddpg", "paper").learner
    assert (paper.entropy_coefficient, paper.target_rate) == (0.0, 0.01)
    offline = OfflineConfig.make("ddpg", "fast").learner
    assert (offline.entropy_coefficient, offline.target_rate) == (0.3, 0.01)
    assert (ours.entropy_coefficient, ours.target_rate) == (0.3, 0.05)
    assert DDPGConfig().entropy_coefficient == 0.0
