"""Settings of every peer under which a run of a few hundred steps takes a fraction of a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from small_envs import ENVIRONMENTS

from rover.baselines.bonus import BonusMethod
from rover.baselines.methods import BONUS_METHODS
from rover.baselines.peer import Peer

_SMALL_REWARD: Mapping[str, Mapping[str, Any]] = {
    "rnd": {"hidden_sizes": (16,), "feature_dim": 8},
    "smm": {
        "latent_dim": 4,
        "density_hidden": 16,
        "discriminator_hidden": 16,
        "image_features": 8,
    },
    "apt": {"feature_dim": 8, "hidden": 16, "k": 4},
    "maxent": {"refit_every": 60},
    "cic": {"skill_dim": 6, "hidden": 16, "k": 4},
}

_SMALL_BONUS: Mapping[str, Any] = {
    "seed_steps": 40,
    "policy_every": 25,
    "checkpoint_every": 50,
    "evaluation_episodes": 2,
    "evaluation_skills": 3,
    "learner": {"hidden_sizes": (16, 8), "batch_size": 24, "update_every": 3},
}

SMALL: Mapping[str, Mapping[str, Any]] = {
    "random": {"policy_every": 25, "checkpoint_every": 50, "evaluation_episodes": 2},
    "rmax": {"policy_every": 25, "checkpoint_every": 50, "evaluation_episodes": 2},
    "mepol": {
        "n_trajectories": 2,
        "n_neighbors": 5,
        "hidden_sizes": (16, 16),
        "max_search_steps": 3,
        "evaluation_episodes": 2,
        "checkpoint_every": 50,
    },
    **{name: {**_SMALL_BONUS, "intrinsic": _SMALL_REWARD[name]} for name in BONUS_METHODS},
}


def small_peer(method: str, env: str, seed: int = 3, **changes: Any) -> Peer:
    """A peer on one of the small environments."""
    return Peer(ENVIRONMENTS[env](), method, seed=seed, **{**SMALL[method], **changes})


def bonus_of(agent: Peer) -> BonusMethod:
    """What the loop of a bonus method's run talks to."""
    method = agent._pretraining.method
    assert isinstance(method, BonusMethod)
    return method
