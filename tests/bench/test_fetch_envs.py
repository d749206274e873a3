"""Fetch under the installed mujoco: seeds repeat episodes, and goals are parts of observations."""

import gymnasium as gym
import numpy as np
import pytest

import rover_bench.fetch_envs  # noqa: F401  # registers them
from rover.envs import goal_view

pytest.importorskip("gymnasium_robotics")


@pytest.mark.parametrize(("task", "achieved"), [("Reach", (0, 1, 2)), ("Push", (3, 4, 5))])
def test_an_arm_seen_as_a_vector(task, achieved):
    env = gym.make(f"arenas/Fetch{task}-v0")
    view = goal_view(env)
    assert view is not None
    assert view.achieved == achieved
    assert view.goal_radius == pytest.approx(0.05)

    def played() -> np.ndarray:
        seen = [env.reset(seed=3)[0]]
        seen += [env.step(np.full(4, 0.5, np.float32))[0] for _ in range(3)]
        return np.array(seen)

    np.testing.assert_array_equal(played(), played())
