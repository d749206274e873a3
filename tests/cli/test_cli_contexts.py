"""Worlds that change with every episode, through the commands."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from same_files import assert_same

import rover
from rover.cli import main
from rover.envs import registration
from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation import greedy_episodes
from rover.finetuning.adaptation import ContextAdaptation
from rover.policies import ContextPolicy, ValuePolicy, load_policy
from rover.training.run_folder import load_run_buffer

WORLDS = """
import gymnasium
import numpy as np

OPEN, WALL, GOAL, FLOWER = range(4)
MOVES = (-1, 0), (1, 0), (0, -1), (0, 1)

def stands_on(kind, observations):
    return observations[:, 12] == kind

def at_the_goal(observations):
    return stands_on(GOAL, observations)

def at_a_flower(observations, actions, reached):
    ends = stands_on(FLOWER, reached)
    return 1.0 * ends, ends

class Field(gymnasium.Env):
    # A walled field of nine by nine cells, of which five by five are seen; the rest is drawn.
    observation_space = gymnasium.spaces.Box(0, 3, (25,), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def __init__(self, cost=0.0):
        self.cost = cost

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.map = np.full((13, 13), WALL, np.uint8)
        self.map[2:-2, 2:-2] = OPEN
        y, x = np.unravel_index(self.np_random.permutation(81)[:20], (9, 9))
        self.map[y + 2, x + 2] = [GOAL, FLOWER, OPEN] + 17 * [WALL]
        self.place = np.array([y[2] + 2, x[2] + 2])
        return self.seen(), {}

    def seen(self):
        y, x = self.place
        return self.map[y - 2 : y + 3, x - 2 : x + 3].ravel().copy()

    def step(self, action):
        ahead = self.place + MOVES[action]
        if self.map[tuple(ahead)] != WALL:
            self.place = ahead
        found = self.map[tuple(self.place)] == GOAL
        return self.seen(), float(found) - self.cost, bool(found), False, {}

for name, cost in (("Field", 0.0), ("Costly", 1.0)):
    gymnasium.register(f"worlds/{name}-v0", Field, max_episode_steps=40, kwargs={"cost": cost})
"""
IMPORT = ("--import", "own_worlds")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Reward-free, and with the ends of the task among what it has seen; no test may change it."""
    folder = tmp_path_factory.mktemp("worlds")
    (folder / "own_worlds.py").write_text(WORLDS)
    words = ["pretrain", "worlds/Field-v0", *IMPORT, "--steps", "1500"]
    settings = ["--set", "contexts=true", "--set", "evaluation_episodes=2"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(folder)])
        assert main([*words, *settings, "--seed", "1", "--run-dir", str(folder / "run")]) == 0
        yield folder / "run"
    sys.modules.pop("own_worlds")
    registration.IMPORTED.pop("own_worlds")
    for env_id in [known for known in gym.registry if known.startswith("worlds/")]:
        del gym.registry[env_id]


def returns(said: str) -> tuple[float, float]:
    """Of the policy that was planned, and of the one before."""
    found = re.search(r"Mean return (\d\.\d+) .* without a reward (\d\.\d+)", said)
    assert found is not None, said
    return float(found[1]), float(found[2])


def test_goals_and_rewards_are_planned_for_in_layouts_never_seen(
    run: Path, capsys: pytest.CaptureFixture[str], refused: Any
) -> None:
    solve = ["solve", str(run), *IMPORT, "--episodes", "40"]
    wanted = {
        "own": [],
        "at_the_goal": ["--goal", "own_worlds:at_the_goal"],
        "at_a_flower": ["--reward", "own_worlds:at_a_flower"],
    }
    earned = {}
    for name, words in wanted.items():
        assert main([*solve, *words, "--run-dir", name]) == 0
        said = capsys.readouterr().out
        planned, before = returns(said)
        assert planned > before + 0.1, name
        earned[name] = planned
        assert name in said
        policy = load_policy(f"{name}/policy.safetensors")
        assert isinstance(policy, ContextPolicy)
    # The environment pays what the function says.
    assert earned["own"] == earned["at_the_goal"]
    assert main(["evaluate", "own/policy.safetensors", *IMPORT, "--episodes", "2"]) == 0
    assert "changes with every episode" in refused(*solve, "--goals", "all")
    assert not Path("runs").exists()
    with pytest.warns(RoverWarning, match="changes with every episode"):
        of_states = rover.solve(run, sys.modules["own_worlds"].at_a_flower)
    assert isinstance(of_states, ValuePolicy)
    assert len(of_states.landmarks) == len(load_run_buffer(run).observations)


def test_a_task_is_adapted_to_and_a_stopped_run_ends_in_the_same_bits(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Evaluations, and the checkpoints after them, lie in the middle of episodes.
    settings = ["checkpoint_every=210", "evaluate_every=210", "evaluation_episodes=20"]
    words = ["adapt", str(run), *IMPORT, "--steps", "1260", "--seed", "3"]
    words += [word for setting in settings for word in ("--set", setting)]
    assert main([*words, "--run-dir", "whole"]) == 0
    policies = [load_policy(folder / "policy.safetensors") for folder in (run, Path("whole"))]
    assert isinstance(policies[1], ContextPolicy)
    assert policies[1].details["tasks"] == ["task"]
    before, after = (
        greedy_episodes(
            gym.make("worlds/Field-v0"),
            policy.sample_component,
            seed=99,
            n_episodes=100,
            has_memory=True,
        ).mean()
        for policy in policies
    )
    assert after > before + 0.1
    with pytest.raises(ConfigurationError, match="rewards below 0"):
        rover.adapt(run, gym.make("worlds/Costly-v0"), total_timesteps=50)

    evaluate = ContextAdaptation._evaluate

    def stop(self: ContextAdaptation, figures: Any) -> Any:
        if self.num_timesteps == 840:
            raise KeyboardInterrupt
        return evaluate(self, figures)

    monkeypatch.setattr(ContextAdaptation, "_evaluate", stop)
    assert main([*words, "--run-dir", "stopped"]) == 130
    monkeypatch.setattr(ContextAdaptation, "_evaluate", evaluate)
    capsys.readouterr()
    assert main(["resume", "stopped", *IMPORT]) == 0
    whole, stopped = Path("whole"), Path("stopped")
    assert_same(whole, stopped, "config.json", "metrics.jsonl", "policy.safetensors")
