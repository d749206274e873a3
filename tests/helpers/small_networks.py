"""Small networks that act, away from the uniform policy that new ones begin with."""

import torch

from rover.features import Observations, encoder_config
from rover.policies import NetworkPolicy, PolicyNetwork


def small_policy(
    observations: Observations, n_actions: int, *, n_networks: int = 1, skill_dim: int = 0
) -> NetworkPolicy:
    """One network, a mixture, or four skills of some width."""
    config = PolicyNetwork.config_class(
        encoder=encoder_config(observations, architecture="learner", feature_dim=8),
        n_actions=n_actions,
        hidden_sizes=(6,),
        skill_dim=skill_dim,
    )
    networks = []
    for seed in range(n_networks):
        network = PolicyNetwork(config, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            network.head.weights[-1].mul_(200.0)
        networks.append(network.eval().requires_grad_(False))
    skills = torch.rand(4, skill_dim, generator=torch.Generator().manual_seed(0))
    return NetworkPolicy(networks, skills if skill_dim else None)
