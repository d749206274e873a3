"""Stable-Baselines3: pretrained policies as the start of PPO and A2C, and novelty as a reward.

    from stable_baselines3 import PPO
    from rover.integrations.sb3 import fine_tuned, rover_policy

    model = PPO(rover_policy("policy.safetensors"), env).learn(50_000)
    fine_tuned(model).save("tuned.safetensors")

``evaluate_policy`` takes every policy as it is, by its ``predict``, memories included.

``CoverageBonus`` makes ROVER's novelty, RND or another bonus the reward of any algorithm.

``rover_policy`` returns a policy class, which these algorithms ask for. The class carries the
pretrained policy, so that ``model.save`` and ``PPO.load`` need nothing but their own file. Random
numbers are Stable-Baselines3's: pass ``seed`` to the algorithm.
"""

from rover.errors import ConfigurationError

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    raise ConfigurationError('Stable-Baselines3 is not installed: pip install ".[sb3]"') from error

from rover.integrations.sb3.bonus import (
    AgentNovelty,
    CountNovelty,
    CoverageBonus,
    DensityNovelty,
    Novelty,
)
from rover.integrations.sb3.policies import RoverFeatures, fine_tuned, rover_policy

__all__ = [
    "AgentNovelty",
    "CountNovelty",
    "CoverageBonus",
    "DensityNovelty",
    "Novelty",
    "RoverFeatures",
    "fine_tuned",
    "rover_policy",
]
