"""Fetch of gymnasium-robotics (Plappert et al. 2018) as benchmark environments.

Importing this module registers ``arenas/FetchReach-v0``, ``arenas/FetchPush-v0``,
``arenas/FetchSlide-v0`` and ``arenas/FetchPickAndPlace-v0``: a robot's arm with four continuous
actions, seen as its vector without the goal, in episodes of 50 steps. They need the extra
``arenas``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np

from rover.wrappers import GoalObservation

_JOINTS = ("mjJNT_FREE", "mjJNT_BALL", "mjJNT_SLIDE", "mjJNT_HINGE")


def _mended() -> None:
    """Let gymnasium-robotics 1.4 compare types of joints under mujoco ≥ 3.17.

    It tests whether a numpy number is in a tuple of members of an enumeration, which no longer
    equal numbers; whole numbers in their place do.
    """
    import gymnasium_robotics.utils.mujoco_utils as utils
    import mujoco

    if utils.mujoco is mujoco and np.int32(0) not in (mujoco.mjtJoint.mjJNT_FREE,):
        names = [name for name in dir(mujoco) if not name.startswith("__")]
        copied = SimpleNamespace(**{name: getattr(mujoco, name) for name in names})
        joints = {name: int(getattr(mujoco.mjtJoint, name)) for name in _JOINTS}
        copied.mjtJoint = SimpleNamespace(**joints)
        utils.mujoco = copied


def fetch(task: str, **keywords: Any) -> gym.Env[Any, Any]:
    """A task of Fetch: Reach, Push, Slide or PickAndPlace."""
    import gymnasium_robotics

    _mended()
    gym.register_envs(gymnasium_robotics)
    return GoalObservation(gym.make(f"Fetch{task}-v4", **keywords))


for _task in ("Reach", "Push", "Slide", "PickAndPlace"):
    if f"arenas/Fetch{_task}-v0" not in gym.registry:
        gym.register(
            f"arenas/Fetch{_task}-v0", entry_point=f"{__name__}:fetch", kwargs={"task": _task}
        )
