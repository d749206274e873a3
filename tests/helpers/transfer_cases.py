"""A corridor, policies that were pretrained on it, and settings of runs that take a second."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch import nn
from walks import collected

from rover import Rover, make_agent, solve
from rover.data import Buffer
from rover.envs import make_env
from rover.features import Observations, encoder_config
from rover.finetuning import Task
from rover.policies import CoveragePolicy, NetworkPolicy, PolicyNetwork, ValuePolicy

LENGTH, GOAL = 9, (0, 0)
BEST = -3.0
"""Four steps from the middle of the corridor to its end."""

QUICK: Mapping[str, Any] = {
    "learner": {
        "hidden_sizes": (16, 8),
        "batch_size": 32,
        "actor_learning_rate": 5e-3,
        "critic_learning_rate": 5e-3,
        "target_rate": 0.05,
    },
    "seed_steps": 40,
    "warmup_steps": 100,
    "evaluate_every": 100,
    "exploration_steps": 500,
    "coverage_learning_rate": 0.05,
    "learner_discount": 0.9,
}


def corridor(observation: str = "onehot", **changes: Any) -> Task:
    kwargs = {"length": LENGTH, "observation": observation}
    return Task.make("rover/Corridor-v0", kwargs, **{"goal": GOAL, "horizon": 30, **changes})


@cache
def coverage_policy(observation: str = "onehot") -> CoveragePolicy:
    """ROVER's policy of the corridor; it is not to be changed."""
    kwargs = {"length": LENGTH, "observation": observation, "horizon": 30}
    encoder: dict[str, Any] = {"representation": "info_nce", "feature_dim": 12, "batch_size": 32}
    encoder |= {"hidden_sizes": (16,)} if observation == "onehot" else {}
    agent = Rover("rover/Corridor-v0", env_kwargs=kwargs, seed=0, policy_every=100, **encoder)
    policy = agent.learn(200).policy
    assert isinstance(policy, CoveragePolicy)
    return policy


def network_policy(*, n_networks: int = 1, skills: int = 0) -> NetworkPolicy:
    """A new policy of the corridor, with several networks or with skills."""
    env = corridor().make_env()
    states = env.unwrapped.finite_mdp.observations
    observations = Observations.from_space(env.observation_space, states)
    encoder = encoder_config(observations, architecture="learner", feature_dim=16)
    config = PolicyNetwork.config_class(
        encoder=encoder, n_actions=4, hidden_sizes=(8,), skill_dim=skills
    )
    generator = torch.Generator().manual_seed(3)
    networks = [PolicyNetwork(config, generator=generator) for _ in range(n_networks)]
    return NetworkPolicy(networks, torch.eye(skills) if skills else None)


OFFLINE: Mapping[str, Any] = {
    "learner": {"hidden_sizes": (16, 8), "batch_size": 64, "target_rate": 0.05},
    "learner_discount": 0.9,
    "evaluate_every": 200,
}


class Stopped(Exception):
    """What stops a run in these tests."""


def stop_at(step: int) -> Any:
    def callback(record: Mapping[str, Any]) -> None:
        if record["step"] >= step:
            raise Stopped

    return callback


def solved_policy() -> ValuePolicy:
    """What random actions are enough to plan for in the corridor."""
    env = corridor().make_env()
    return solve(make_agent("random", env, seed=0, evaluation_episodes=1).learn(200), env)


@cache
def walked(steps: int = 600) -> Buffer:
    """Transitions of random actions in the corridor; they are not to be changed."""
    env = make_env("rover/Corridor-v0", {"length": LENGTH, "observation": "onehot", "horizon": 30})
    return collected(env, steps).buffer


def always(action: int, logit: float = 30.0) -> nn.Linear:
    """A module that nearly always, or with a small logit slightly, prefers one action."""
    module = nn.Linear(LENGTH, 4)
    with torch.no_grad():
        module.weight.zero_()
        module.bias.zero_()[action] = logit
    return module
