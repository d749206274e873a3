"""Small pretrained policies, made by hand, one for each kind of observation."""

from typing import Any

import numpy as np
import torch
from small_networks import small_network

from rover.envs.gridworld import GridWorld
from rover.features import encoder_config, make_encoder, state_encoder
from rover.operators import Dirac, Gaussian
from rover.policies import CoveragePolicy, NetworkPolicy, PolicyNetwork
from rover.training.agent import observations_of

MAP = "S...\n.#..\n...."
N_STATES, N_ACTIONS = 11, 4
KINDS = ("state", "onehot", "pixels")
PPO_SETTINGS: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 2}


def make_env(kind: str, **settings: Any) -> GridWorld:
    return GridWorld(MAP, observation=kind, goal=(3, 2), horizon=20, **settings)


ENCODERS: dict[str, dict[str, Any]] = {
    "onehot": {"feature_dim": 16, "hidden_sizes": (32,)},
    "pixels": {"feature_dim": 16, "strides": (4, 4), "pool_to": 5},
}


def make_policy(kind: str, seed: int = 0) -> CoveragePolicy:
    """Logits of standard deviation 2 about a large constant, as pretraining leaves them."""
    generator = torch.Generator().manual_seed(seed)
    env = make_env(kind)
    observations = env.observations()
    if kind == "state":
        encoder = state_encoder(env.observation_space)
    else:
        encoder = make_encoder(encoder_config(env.observation_space, **ENCODERS[kind]), generator)
    if kind == "pixels":
        encoder.set_centering(np.median(observations, axis=0), 255.0)
    encoder = encoder.frozen()
    basis = torch.from_numpy(encoder.features(observations)).double()
    weights = 2.0 * torch.randn(N_STATES, N_ACTIONS, generator=generator, dtype=torch.float64)
    # wide enough for features at distances up to 1.7 to share something: at 0.1 the kernel of two
    # different images is below 1e-18, and no gradient would reach the encoder
    kernel = Dirac() if kind == "state" else Gaussian(0.1 if kind == "onehot" else 0.5)
    return CoveragePolicy(encoder, kernel, basis, weights - 2300.0, {"seed": seed})


def make_network(kind: str, seed: int, skill_dim: int = 0) -> PolicyNetwork:
    return small_network(observations_of(make_env(kind)), N_ACTIONS, seed, skill_dim=skill_dim)


def make_mixture(kind: str = "onehot") -> NetworkPolicy:
    return NetworkPolicy([make_network(kind, seed) for seed in range(3)], details={"seed": 1})


def make_skilled(kind: str = "onehot") -> NetworkPolicy:
    skills = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))
    return NetworkPolicy([make_network(kind, 0, skill_dim=5)], skills)
