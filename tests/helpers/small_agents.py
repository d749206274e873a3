"""Settings under which a run of a few hundred steps takes a fraction of a second; and such runs."""

from collections.abc import Mapping
from typing import Any

from small_envs import ENVIRONMENTS

from rover.baselines import make_agent
from rover.training.agent import Agent

SMALL_REWARDS: Mapping[str, Mapping[str, Any]] = {
    "rnd": {"hidden_sizes": (16,), "feature_dim": 8},
    "smm": {"latent_dim": 4, "density_hidden": 16, "discriminator_hidden": 16, "image_features": 8},
    "apt": {"feature_dim": 8, "hidden": 16, "k": 4},
    "icm": {"feature_dim": 8, "hidden": 16},
    "maxent": {"refit_every": 60},
    "cic": {"skill_dim": 6, "hidden": 16, "k": 4},
    "e3b": {"feature_dim": 8, "hidden": 16},
}
BONUS_AGENTS = tuple(SMALL_REWARDS)

_SMALL_BONUS: Mapping[str, Any] = {
    "seed_steps": 40,
    "policy_every": 25,
    "checkpoint_every": 50,
    "evaluation_episodes": 2,
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
    **{name: {**_SMALL_BONUS, "intrinsic": SMALL_REWARDS[name]} for name in BONUS_AGENTS},
}


def small_agent(name: str, env: str, seed: int = 3, **changes: Any) -> Any:
    """A baseline on one of the small environments."""
    return make_agent(name, ENVIRONMENTS[env](), seed=seed, **{**SMALL[name], **changes})


def lines_of(agent: Agent[Any], steps: int) -> list[dict[str, Any]]:
    """The metrics lines of so many further steps."""
    lines: list[dict[str, Any]] = []
    agent.learn(steps, callback=lambda line: lines.append(dict(line)))
    return lines
