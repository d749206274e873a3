"""Which policy is handed over, what is said of it, and environments that were wrapped."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn
from transfer_cases import BEST, QUICK, Stopped, corridor, coverage_policy, stop_at

from rover.baselines import make_agent
from rover.envs import make_env
from rover.errors import ConfigurationError
from rover.finetuning import TaskResult, finetune, resume_task, train_offline
from rover.finetuning.tasks import best_return, is_deterministic

pytestmark = pytest.mark.slow


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


class TableDoor(Door):
    """The same with its table of outcomes, as Gymnasium's toy_text environments keep it."""

    horizon = 8
    initial_state_distrib = np.array([1.0, 0.0, 0.0])
    P: ClassVar[dict[int, Any]] = {
        cell: {go: [(1.0, cell + go, float(cell + go == 2), cell + go == 2)] for go in (0, 1)}
        for cell in (0, 1)
    }


class Preference(nn.Module):
    """Prefers one action, whatever it sees."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(len(observations), -1)


def through_the_door(env: gym.Env[Any, Any], start: nn.Module, **changes: Any) -> TaskResult:
    settings = {**QUICK, "warmup_steps": 40, "evaluate_every": 50, **changes}
    return finetune(start, env, total_timesteps=400, **settings)


def test_of_several_best_policies_the_earliest_learned_one_is_handed_over() -> None:
    result = through_the_door(Door(), Preference(0.0, 1.0))
    assert [record["greedy_return"] for record in result.curve] == [1.0] * 9
    assert result.summary["policy_step"] == 100  # the first evaluation after the warm-up
    assert result.summary["policy_return"] == 1.0


@pytest.mark.parametrize(("env", "best"), [(Door(), None), (TableDoor(), 1.0)])
def test_figures_of_own_environments(env: gym.Env[Any, Any], best: float | None) -> None:
    result = through_the_door(env, Preference(0.3, 0.0))
    summary, curve = result.summary, result.curve
    assert curve[0]["greedy_return"] == 0.0
    assert summary["best_possible_return"] == best
    assert summary["best_return_kind"] == ("reached" if best is None else "possible")
    reached = next(record["step"] for record in curve if record["greedy_return"] == 1.0)
    assert summary["steps_to_best_return"] == summary["policy_step"] == reached
    assert 0 < summary["steps_to_first_success"] <= reached


def test_where_one_episode_is_exact() -> None:
    exact = corridor().make_env()
    assert is_deterministic(exact)
    assert best_return(exact) == BEST
    for env in (
        make_env("rover/Corridor-v0", {"goal": (0, 0), "slip": 0.1}),
        make_env("rover/Corridor-v0", {"goal": (0, 0), "start": "random"}),
        make_env("CartPole-v1"),
        make_env("FrozenLake-v1"),
        gym.wrappers.StickyAction(exact, 0.5),
    ):
        assert not is_deterministic(env)
    scaled = gym.wrappers.TransformReward(exact, lambda reward: 2.0 * float(reward))
    assert best_return(scaled) is None


def test_no_reward_is_said_once_while_it_runs_and_at_the_end() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        away = corridor(goal=(8, 0)).make_env()
        result = finetune(_left(), away, total_timesteps=1000, **QUICK)
    said = [str(warning.message) for warning in caught]
    assert len(said) == 2
    assert said[0].startswith("no reward was seen in 200 steps (6 episodes): every step earned -1;")
    assert "if it stays so, choose a task whose reward is met sooner (a nearer goal" in said[0]
    assert said[1].startswith("no reward was seen in 1,000 transitions, so nothing")
    assert "so nothing was learned from them (what is handed over has a greedy return of" in said[1]
    assert result.summary["reward_seen"] is False


def _left() -> nn.Module:
    module = nn.Linear(9, 4)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.copy_(torch.tensor([0.0, 0.0, 30.0, 0.0]))
    return module


def test_a_task_that_was_forgotten_is_an_error_before_the_first_step(tmp_path: Path) -> None:
    bare = make_env("rover/MultiRooms-v0", {"observation": "onehot"})
    buffer = make_agent("random", bare, seed=0, policy_every=10).learn(20).buffer
    named = r"no reward until it has a goal.*--task goal=room1 \(or room2, .*any cell as X,Y\)"
    with pytest.raises(ConfigurationError, match=named):
        finetune(None, bare, run_dir=tmp_path / "run")
    with pytest.raises(ConfigurationError, match=named):
        train_offline(buffer, bare, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    shaped = gym.wrappers.TransformReward(bare, lambda reward: float(reward))
    with pytest.raises(ConfigurationError, match="a wrapper may change the rewards"):
        train_offline(buffer, shaped)


class Identity(gym.Wrapper[Any, Any, Any, Any]):
    """Changes nothing, and does not say how it was made."""


class Doubled(gym.RewardWrapper[Any, Any]):
    """Doubles the rewards, and does not say how it was made."""

    def reward(self, reward: Any) -> float:
        return 2.0 * float(reward)


@pytest.mark.filterwarnings("ignore:the policy of step")
@pytest.mark.filterwarnings("ignore:no reward was seen")
@pytest.mark.parametrize(("wrapper", "best"), [(Identity, BEST), (Doubled, 2 * BEST)])
def test_wrapped_environments_are_learned_and_resumed(
    wrapper: Any, best: float, tmp_path: Path
) -> None:
    settings = {**QUICK, "total_timesteps": 800, "checkpoint_every": 100, "seed": 0}
    make = corridor().make_env
    whole = finetune(coverage_policy(), wrapper(make()), run_dir=tmp_path / "whole", **settings)
    assert whole.summary["best_greedy_return"] == best
    stopped = {**settings, "run_dir": tmp_path / "run", "callback": stop_at(400)}
    with pytest.raises(Stopped):
        finetune(coverage_policy(), wrapper(make()), **stopped)
    resumed = resume_task(tmp_path / "run", env=wrapper(make()))
    assert resumed.curve == whole.curve


def test_tables_of_gymnasium_label_what_was_stored() -> None:
    env = make_env("FrozenLake-v1", {"is_slippery": False})
    buffer = make_agent("random", env, seed=0, policy_every=500).learn(3000).buffer
    learner = {
        "hidden_sizes": (32, 16),
        "batch_size": 64,
        "critic_learning_rate": 5e-3,
        "target_rate": 0.05,
    }
    settings = {"evaluate_every": 300, "learner_discount": 0.9, "learner": learner}
    result = train_offline(buffer, env, updates=900, **settings)
    assert result.summary["best_greedy_return"] == 1.0
    slippery = make_env("FrozenLake-v1")
    other = make_agent("random", slippery, seed=0, policy_every=50).learn(100).buffer
    with pytest.raises(ConfigurationError, match="transitions of the data are none of this env"):
        train_offline(other, env, updates=10)
