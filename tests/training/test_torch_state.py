"""Runs train, and end in the same bits, whatever a caller has set in torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_envs import SMALL_NET

from rover import finetune, make_agent, train_offline

LEARNER = {"hidden_sizes": (16, 8), "batch_size": 24, "update_every": 3}
BONUS = {"seed_steps": 40, "policy_every": 25, "evaluation_skills": 2, "learner": LEARNER}
AGENTS: dict[str, dict[str, Any]] = {
    "rover": {"policy_every": 25, "encoder_every": 25, "encoder_tolerance": None, **SMALL_NET},
    "rnd": {**BONUS, "intrinsic": {"hidden_sizes": (16,), "feature_dim": 8}},
    "smm": {**BONUS, "intrinsic": {"latent_dim": 4, "density_hidden": 8, "image_features": 8}},
    "apt": {**BONUS, "intrinsic": {"feature_dim": 8, "hidden": 16, "k": 4}},
    "cic": {**BONUS, "intrinsic": {"skill_dim": 6, "hidden": 16, "k": 4}},
    "mepol": {"n_trajectories": 2, "n_neighbors": 5, "hidden_sizes": (16, 16)},
}
GRID = {"layout": "S..#..\n......\n...#..", "horizon": 20, "observation": "onehot"}


@contextmanager
def as_a_caller_may_have_it() -> Iterator[None]:
    """No gradients, which inference_mode refuses later too, and another dtype."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def weights(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: np.asarray(x).tobytes() for name, x in module.state_dict().items()}


def pretrained(name: str, steps: int, **options: Any) -> Any:
    settings = {"evaluation_episodes": 2, "seed": 1, "env_kwargs": GRID, **AGENTS[name], **options}
    return make_agent(name, "rover/Grid-v0", **settings).learn(steps)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_trained_in_the_same_bits(name: str) -> None:
    expected = weights(pretrained(name, 100).policy)
    assert expected != weights(pretrained(name, 50).policy)
    with as_a_caller_may_have_it():
        agent = pretrained(name, 100)
    assert weights(agent.policy) == expected


@pytest.mark.parametrize("learner", ["ddpg", "sac", "offline"])
def test_tasks_are_learned(learner: str) -> None:
    buffer = pretrained("rover", 200).buffer

    def learned() -> dict[str, bytes]:
        env = gym.make("rover/Grid-v0", **GRID, goal=(5, 2))
        if learner == "offline":
            return weights(train_offline(buffer, env, updates=50, seed=0).actor)
        options = {"algorithm": learner, "learner": {"hidden_sizes": (16,), "batch_size": 16}}
        return weights(finetune(None, env, total_timesteps=300, seed=0, **options).actor)

    expected = learned()
    with as_a_caller_may_have_it():
        assert learned() == expected
