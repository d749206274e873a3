"""Figures of a learning curve, evaluations, and the policy that is handed over."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium as gym
import pytest
import torch
from torch import nn
from transfer_cases import BEST, QUICK, always, corridor

from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation import greedy_episodes
from rover.finetuning import TaskResult, finetune
from rover.finetuning.run import _curve_summary

RETURNS = [-300, -26, -40, -26, -26, -26.0]


@pytest.mark.parametrize(
    ("returns", "best", "first", "stays"),
    [
        (RETURNS, -26.0, 100, 300),
        (RETURNS[::-1], -26.0, 0, None),
        (RETURNS, -25.0, None, None),
        (RETURNS, None, 100, 300),
        (RETURNS[:3], None, 100, None),
        ([-26.0], -26.0, 0, 0),
    ],
)
def test_events_of_a_curve_by_hand(
    returns: list[float], best: float | None, first: int | None, stays: int | None
) -> None:
    curve = [{"step": 100 * k, "greedy_return": r} for k, r in enumerate(returns)]
    figures = _curve_summary(curve, best)
    assert (figures["steps_to_best_return"], figures["steps_to_stay_at_best"]) == (first, stays)
    assert figures["best_return_kind"] == ("reached" if best is None else "possible")
    assert figures["greedy_return"] == returns[-1]


def test_the_area_under_a_curve_weighs_by_steps() -> None:
    uneven = [{"step": s, "greedy_return": r} for s, r in ((0, -10.0), (100, 0.0), (400, -4))]
    assert _curve_summary(uneven)["area_under_curve"] == (-5.0 * 100 + -2.0 * 300) / 400


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


class Door(gym.Env[Any, Any]):
    """Three cells in a row; action 1 goes on, action 0 stays; the last cell ends it with 1."""

    observation_space = gym.spaces.Discrete(3)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.cell, self.steps = 0, 0
        return 0, {}

    def step(self, action: Any) -> Any:
        self.cell, self.steps = self.cell + int(action), self.steps + 1
        is_there = self.cell == 2
        return self.cell, float(is_there), is_there, self.steps == 8, {}


class Preference(nn.Module):
    """Prefers one action, whatever it sees."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(observations), -1)


def through_the_door(start: nn.Module) -> TaskResult:
    settings = {**QUICK, "warmup_steps": 40, "evaluate_every": 50}
    return finetune(start, Door(), total_timesteps=400, **settings)


def test_of_several_best_policies_the_earliest_learned_one_is_handed_over() -> None:
    result = through_the_door(Preference(0.0, 1.0))
    assert [record["greedy_return"] for record in result.curve] == [1.0] * 9
    assert result.summary["policy_step"] == 100  # the first evaluation after the warm-up
    assert result.summary["policy_return"] == 1.0


def test_the_best_policy_is_handed_over_and_a_worse_last_one_is_reported() -> None:
    start = always(2, logit=0.3)
    with pytest.warns(RoverWarning, match="the policy of step 0 is handed over"):
        # learning leads to the right, and evaluations ask for the left
        result = finetune(
            start,
            corridor(goal=(8, 0), reward="dense").make_env(),
            evaluation_env=corridor().make_env(),
            total_timesteps=400,
            **{**QUICK, "warmup_steps": 0, "evaluate_every": 400},
        )
    assert [record["greedy_return"] for record in result.curve] == [BEST, -30.0]
    assert (result.summary["policy_step"], result.summary["greedy_return"]) == (0, -30.0)
    assert torch.equal(result.actor.bias, start.bias)  # type: ignore[arg-type]


def test_no_reward_is_said_once_while_it_runs_and_at_the_end() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        away = corridor(goal=(8, 0)).make_env()
        result = finetune(always(2), away, total_timesteps=1000, **QUICK)
    early, late = (str(warning.message) for warning in caught)
    assert early.startswith("no reward was seen in 200 steps (6 episodes): every step earned -1;")
    assert late.startswith("no reward was seen in 1,000 transitions, so nothing was learned")
    assert "choose a task whose reward is met sooner" in late
    assert result.summary["reward_seen"] is False
