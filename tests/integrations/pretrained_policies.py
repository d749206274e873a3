"""Small pretrained policies, made by hand, one for each kind of observation."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch

from rover.envs.gridworld import GridWorld
from rover.features import EncoderSpec, make_encoder
from rover.learners import PolicyNetwork, PolicySpec, learner_encoder_spec, make_policy_network
from rover.operators import Dirac, Gaussian
from rover.policies.coverage import CoveragePolicy
from rover.policies.network import NetworkPolicy

MAP = "S...\n.#..\n...."
N_STATES, N_ACTIONS = 11, 4
KINDS = ("state", "onehot", "pixels")

SPECS = {
    "state": EncoderSpec(
        kind="identity", observation_shape=(), observation_dtype="int64", n_states=N_STATES
    ),
    "onehot": EncoderSpec(
        kind="mlp",
        observation_shape=(N_STATES,),
        observation_dtype="float32",
        feature_dim=16,
        hidden_sizes=(32,),
    ),
    "pixels": EncoderSpec(
        kind="conv",
        observation_shape=(84, 84, 3),
        observation_dtype="uint8",
        feature_dim=16,
        channels=(4, 4),
        strides=(4, 4),
        pool_to=5,
    ),
}


def make_env(kind: str, **settings: Any) -> GridWorld:
    return GridWorld(MAP, observation=kind, goal=(3, 2), horizon=20, **settings)


def make_policy(kind: str, seed: int = 0) -> CoveragePolicy:
    """Logits of standard deviation 2 about a large constant, as pretraining leaves them."""
    generator = torch.Generator().manual_seed(seed)
    observations = make_env(kind).observations()
    encoder = make_encoder(SPECS[kind], generator)
    if kind == "pixels":
        encoder.set_centering(np.median(observations, axis=0), 255.0)
    encoder = encoder.frozen()
    basis = torch.from_numpy(encoder.features(observations)).double()
    weights = 2.0 * torch.randn(N_STATES, N_ACTIONS, generator=generator, dtype=torch.float64)
    kernel = Dirac() if kind == "state" else Gaussian(0.1)
    return CoveragePolicy(encoder, kernel, basis, weights - 2300.0, {"seed": seed})


def make_network(kind: str, seed: int, skill_dim: int = 0) -> PolicyNetwork:
    space = make_env(kind).observation_space
    is_state = isinstance(space, gym.spaces.Discrete)
    encoder = learner_encoder_spec(
        () if is_state else space.shape,
        observation_dtype="int64" if is_state else str(space.dtype),
        n_states=N_STATES if is_state else None,
        width=8,
    )
    spec = PolicySpec(encoder=encoder, n_actions=N_ACTIONS, hidden_sizes=(6,), skill_dim=skill_dim)
    network = make_policy_network(spec, torch.Generator().manual_seed(seed))
    with torch.no_grad():  # away from uniform
        network.head.weights[-1].mul_(200.0)
    return network.eval().requires_grad_(False)


def make_mixture(kind: str = "onehot") -> NetworkPolicy:
    return NetworkPolicy([make_network(kind, seed) for seed in range(3)], details={"seed": 1})


def make_skilled(kind: str = "onehot") -> NetworkPolicy:
    skills = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    return NetworkPolicy([make_network(kind, 0, skill_dim=5)], skills)
