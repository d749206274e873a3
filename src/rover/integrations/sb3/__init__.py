"""Stable-Baselines3: pretrained policies as the start of PPO and A2C.

    from stable_baselines3 import PPO
    from rover.integrations.sb3 import fine_tuned, rover_policy

    model = PPO(rover_policy("policy.safetensors"), env).learn(50_000)
    fine_tuned(model).save("tuned.safetensors")

``evaluate_policy`` takes every policy as it is, by its ``predict``, memories included.

``rover_policy`` returns a policy class, which these algorithms ask for. The class carries the
pretrained policy, so that ``model.save`` and ``PPO.load`` need nothing but their own file. Random
numbers are Stable-Baselines3's: pass ``seed`` to the algorithm.
"""

from rover.errors import ConfigurationError

try:
    import stable_baselines3  # noqa: F401
except ImportError as error:
    raise ConfigurationError('Stable-Baselines3 is not installed: pip install ".[sb3]"') from error

from rover.integrations.sb3.policies import RoverFeatures, fine_tuned, rover_policy

__all__ = ["RoverFeatures", "fine_tuned", "rover_policy"]
