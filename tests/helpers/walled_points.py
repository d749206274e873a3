"""Points among walls, whose float states happen to repeat: walls clip what a step would change."""

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from small_envs import Small

from rover.envs import DiscreteActions
from rover.policies import Policy

_START = np.array([0.2, 0.2])


class _Point(Small):
    """A point in the unit square; arriving within 0.12 of the goal earns 1 and ends the task.

    Each episode begins the perturbation away from (0.2, 0.2), in a random direction.
    """

    observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
    goal: tuple[float, float]

    def __init__(self, *, perturbation: float = 0.0) -> None:
        self._perturbation = perturbation

    def begin(self) -> None:
        angle = self.np_random.uniform(0.0, 2.0 * np.pi)
        self._at = _START + self._perturbation * np.array([np.cos(angle), np.sin(angle)])

    def look(self) -> Any:
        return self._at.astype(np.float32)

    def moved(self, change: Any) -> tuple[float, bool]:
        self._at = self.blocked(np.clip(self._at + change, 0.0, 1.0))
        arrived = bool(np.linalg.norm(self._at - self.goal) <= 0.12)
        return float(arrived), arrived

    def blocked(self, wanted: np.ndarray) -> np.ndarray:
        """Where a step towards `wanted` ends."""
        return wanted


class Arena(_Point):
    """A box without inner walls; an action is a velocity in [-1, 1]², 0.12 a step."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    goal, limit = (0.85, 0.8), 60

    def move(self, action: Any) -> tuple[float, bool]:
        return self.moved(0.12 * np.asarray(action, np.float64))


class WalledPoint(_Point):
    """A wall at x = 0.55 with a gap above y = 0.7, and steps of 0.11 that are coarse against it."""

    action_space = spaces.Discrete(4)
    goal, limit = (0.85, 0.2), 80

    def move(self, action: Any) -> tuple[float, bool]:
        directions = ((1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
        return self.moved(0.11 * np.array(directions[int(action)]))

    def blocked(self, wanted: np.ndarray) -> np.ndarray:
        crosses = (self._at[0] < 0.55) != (wanted[0] < 0.55)
        return self._at if crosses and wanted[1] < 0.7 else wanted


def arena(*, perturbation: float = 0.0) -> gym.Env[Any, Any]:
    return DiscreteActions(Arena(perturbation=perturbation), levels=4)


ARENAS: Mapping[str, Callable[..., gym.Env[Any, Any]]] = {
    "arena": arena,
    "walled point": WalledPoint,
}


def success(env: gym.Env[Any, Any], policy: Policy, n_episodes: int = 20) -> float:
    """Share of episodes of a policy that arrive at the goal."""
    rng, arrived = np.random.default_rng(0), 0.0
    for number in range(n_episodes):
        observation, _ = env.reset(seed=number)
        done = False
        while not done:
            action = policy.act(observation, rng)
            observation, reward, terminated, truncated, _ = env.step(action)
            arrived += float(reward)
            done = terminated or truncated
    return arrived / n_episodes
