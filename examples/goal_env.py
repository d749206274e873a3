"""A goal-conditioned environment in the manner of GoalEnv, with a policy that takes the goal.

    python examples/goal_env.py --steps 700

Observations are dictionaries with `observation`, `achieved_goal` and `desired_goal`, and
`compute_reward` says what an arrival is worth, as in Gymnasium-Robotics and HER. ROVER pretrains on
the observations alone; the policy for all goals is then planned at once.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np

import rover


class WithGoals(gym.Wrapper[dict[str, int], int, int, int]):
    """Draws a goal for each episode among `goals`; −1 a step, 0 and the end on arrival."""

    def __init__(self, env: gym.Env[int, int], goals: list[int]) -> None:
        super().__init__(env)
        self.goals, self.goal = goals, goals[0]
        names = ("observation", "achieved_goal", "desired_goal")
        self.observation_space = gym.spaces.Dict(dict.fromkeys(names, env.observation_space))

    def compute_reward(self, achieved: int, desired: int, info: dict[str, Any]) -> float:
        """0 where the goal is achieved, else −1."""
        return 0.0 if achieved == desired else -1.0

    def reset(self, **given: Any) -> tuple[dict[str, int], dict[str, Any]]:
        """Begin an episode; ``options={"goal": state}`` chooses its goal."""
        observation, info = self.env.reset(**given)
        drawn = self.goals[int(self.np_random.integers(len(self.goals)))]
        self.goal = (given.get("options") or {}).get("goal", drawn)
        return self._seen(observation), info

    def step(self, action: int) -> tuple[dict[str, int], float, bool, bool, dict[str, Any]]:
        """Act, and end where the goal is reached."""
        observation, _, _, truncated, info = self.env.step(action)
        reward = self.compute_reward(observation, self.goal, info)
        return self._seen(observation), reward, reward == 0.0, truncated, info

    def _seen(self, state: int) -> dict[str, int]:
        return {"observation": state, "achieved_goal": state, "desired_goal": self.goal}


def success_rate(steps: int, episodes: int, seed: int) -> float:
    """Pretrain without a reward, plan for all goals, and play for goals that are drawn."""
    agent = rover.Rover("rover/MultiRooms-v0", seed=seed).learn(steps)
    policy = rover.solve(agent, goals="all")
    env = WithGoals(gym.make("rover/MultiRooms-v0"), list(range(1, 109)))
    rng, reached = np.random.default_rng(seed), 0
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed + episode)
        task = policy.tasks.index(str(seen["desired_goal"]))
        terminated = truncated = False
        while not (terminated or truncated):
            seen, _, terminated, truncated, _ = env.step(
                policy.act(seen["observation"], rng, component=task)
            )
        reached += terminated
    return reached / episodes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(f"goals reached: {success_rate(given.steps, given.episodes, given.seed):.0%}")
