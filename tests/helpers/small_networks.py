"""Small networks that act, away from the uniform policy that new ones begin with."""

import torch

from rover.features import Observations, encoder_config
from rover.policies import PolicyNetwork


def small_network(
    observations: Observations, n_actions: int, seed: int, *, skill_dim: int = 0
) -> PolicyNetwork:
    width = None if observations.is_image else 8
    config = PolicyNetwork.config_class(
        encoder=encoder_config(observations, architecture="learner", feature_dim=width),
        n_actions=n_actions,
        hidden_sizes=(6,),
        skill_dim=skill_dim,
    )
    network = PolicyNetwork(config, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        network.head.weights[-1].mul_(200.0)
    return network.eval().requires_grad_(False)
