"""Rewards planned for in layouts that were never seen."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rover import Rover
from rover.envs import RandomRooms
from rover.errors import ConfigurationError
from rover.policies import ContextPolicy, Policy
from rover.solving import solve_in_contexts

ROOMS: dict[str, Any] = {"contexts": 64, "horizon": 60, "observation": "view"}


def at_the_right(observations: np.ndarray) -> np.ndarray:
    """True in the last column of the map: there are walls alone to the right of the agent."""
    return (observations.reshape(-1, 5, 5)[:, :, 3:] >= 2).all(axis=(1, 2))


@pytest.fixture(scope="module")
def agent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Rover(RandomRooms(**ROOMS), seed=1, contexts=True, measure_share=1).learn(1500)


def arrivals(policy: Policy | None, env: gym.Env[Any, Any], n: int = 25) -> float:
    """Mean number of steps to the right of the map, or all 60 of an episode."""
    rng, steps = np.random.default_rng(0), []
    for episode in range(n):
        seen, _ = env.reset(seed=episode)
        if policy is not None:
            policy.reset()
        taken = 0
        while taken < 60 and not at_the_right(seen[None])[0]:
            action = int(rng.integers(4)) if policy is None else policy.act(seen, rng)
            seen, taken = env.step(action)[0], taken + 1
        steps.append(taken)
    return float(np.mean(steps))


def test_a_goal_is_reached_sooner_in_layouts_that_were_never_seen(agent):
    fresh = RandomRooms(**ROOMS, family=7)
    by_goal = solve_in_contexts(agent, goal=at_the_right)
    reached = at_the_right(agent.buffer.observations.rows)[agent.buffer.successors]
    assert isinstance(agent.policy, ContextPolicy)
    solved = by_goal, agent.policy
    by_reward = solve_in_contexts(agent, reward=reached.astype(float))
    steps = {
        name: arrivals(policy, fresh)
        for name, policy in (("goal", by_goal), ("reward", by_reward), ("random", None))
    }
    assert steps["goal"] < 0.75 * steps["random"]
    assert steps["reward"] < 0.75 * steps["random"]
    # One step before the goal, which lies to the right.
    before = agent.buffer.observations.rows[agent.buffer.inputs[reached]]
    before = before[~at_the_right(before)]
    right = [policy.with_memory(False).probs(before)[:, 3].mean() for policy in solved]
    assert right[0] > 0.9
    assert right[0] > right[1] + 0.3
    assert by_goal.has_memory
    assert by_goal.details["tasks"] == ["at_the_right"]


def test_what_cannot_be_planned_for_is_refused(agent):
    n = len(agent.buffer)
    with pytest.raises(ConfigurationError, match="one of reward= and goal="):
        solve_in_contexts(agent)
    with pytest.raises(ConfigurationError, match="rewards below 0"):
        solve_in_contexts(agent, reward=-np.arange(n, dtype=float))
    with pytest.raises(ConfigurationError, match="no transition arrives"):
        solve_in_contexts(agent, goal=lambda seen: np.zeros(len(seen), bool))
    with pytest.raises(ConfigurationError, match=r"in \(0, 1\)"):
        solve_in_contexts(agent, goal=at_the_right, discount=1.0)
    with pytest.raises(ConfigurationError, match="contexts=True"):
        solve_in_contexts(agent.buffer, goal=at_the_right)
