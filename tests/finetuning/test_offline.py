"""Offline learning: from labelled transitions, without a further step."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transfer_cases import BEST, LENGTH, corridor

import rover
from rover.baselines.peer import make_agent
from rover.data import ReplayBuffer
from rover.errors import ConfigurationError, MissingGoalWarning
from rover.finetuning import OfflineTrained, read_transfer_config, train_offline
from rover.policies.greedy import GreedyPolicy
from rover.policies.loading import load_policy
from rover.policies.network import NetworkPolicy

QUICK = {
    "learner": {"hidden_sizes": (16, 8), "batch_size": 64, "target_rate": 0.05},
    "learner_discount": 0.9,
    "evaluate_every": 200,
}


@cache
def walked() -> ReplayBuffer:
    """Transitions of random actions in the corridor."""
    kwargs = {"length": LENGTH, "observation": "onehot", "horizon": 30}
    agent = make_agent("random", "rover/Corridor-v0", env_kwargs=kwargs, seed=0)
    return agent.learn(600).buffer


def quick(buffer: ReplayBuffer, updates: int = 600, **changes: Any) -> OfflineTrained:
    learning_rate = {"learning_rate": 5e-3}
    if changes.get("algorithm") == "ddpg":
        learning_rate = {"actor_learning_rate": 5e-3, "critic_learning_rate": 5e-3}
    settings = {**QUICK, "learner": {**QUICK["learner"], **learning_rate}}  # type: ignore[dict-item]
    env = changes.pop("env", None) or corridor().make_env()
    return train_offline(buffer, env, updates=updates, **{**settings, **changes})


@pytest.mark.parametrize(("algorithm", "kind"), [("cql", GreedyPolicy), ("ddpg", NetworkPolicy)])
def test_the_corridor_is_learned_from_random_walks(
    algorithm: str, kind: type, tmp_path: Path
) -> None:
    result = quick(walked(), 1500, algorithm=algorithm, run_dir=tmp_path, source="runs/random")
    assert result.summary["best_possible_return"] == BEST
    assert result.summary["greedy_return"] == BEST
    assert result.summary["labelled_goals"] > 0
    assert isinstance(result.policy, kind)
    observations = np.eye(LENGTH, dtype=np.float32)
    stored = load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(stored.probs(observations), result.policy.probs(observations))
    assert result.policy.probs(observations)[1:5].argmax(axis=1).tolist() == [2, 2, 2, 2]
    assert read_transfer_config(tmp_path).kind == "offline"


def test_one_seed_one_result_and_the_buffer_is_left_alone() -> None:
    before = {name: array.copy() for name, array in walked().arrays().items()}
    first, again = quick(walked(), seed=3), quick(walked(), seed=3)
    assert first.curve == again.curve
    assert first.curve != quick(walked(), seed=4).curve
    for name, array in walked().arrays().items():
        np.testing.assert_array_equal(array, before[name])


def test_a_reward_of_ones_own() -> None:
    def rightmost(observations: Any, actions: Any, following: Any) -> Any:
        at_goal = following.argmax(axis=1) == LENGTH - 1
        return np.where(at_goal, 0.0, -1.0), at_goal

    env = corridor(goal=(8, 0)).make_env()
    assert quick(walked(), 1500, env=env, reward=rightmost).summary["greedy_return"] == BEST


@pytest.mark.parametrize("algorithm", ["cql", "ddpg"])
def test_the_size_of_rewards_does_not_matter_to_the_learner(algorithm: str) -> None:
    def learned(scale: float, **changes: Any) -> np.ndarray[Any, Any]:
        def reward(observations: Any, actions: Any, following: Any) -> Any:
            arrived = following[:, 0] == 1.0
            return scale * (arrived - 1.0), arrived

        result = quick(walked(), 50, algorithm=algorithm, reward=reward, **changes)
        values = result.policy.probs(np.eye(LENGTH, dtype=np.float32))
        return np.array([*values.ravel(), result.curve[-1]["q_mean"] / scale])

    # A power of two, so that scaling loses no bit.
    np.testing.assert_array_equal(learned(1.0), learned(1 / 32))
    assert learned(1.0)[-1] != learned(1 / 32, scale_rewards=False)[-1]
    np.testing.assert_array_equal(learned(1.0), learned(1.0, scale_rewards=False))


def test_data_without_the_goal_is_warned_of() -> None:
    buffer = ReplayBuffer((LENGTH,), np.dtype(np.float32), 4)
    here = buffer.observations.intern(np.eye(LENGTH, dtype=np.float32)[4])
    buffer.add_start(here)
    for action in range(3):
        buffer.add(here, action, here, False, False)
    with pytest.warns(MissingGoalWarning, match="none of the 3 transitions reaches"):
        quick(buffer, 10)


def test_refused_buffers_and_settings() -> None:
    blank = ReplayBuffer((LENGTH,), np.dtype(np.float32), 4)
    with pytest.raises(ConfigurationError, match="the buffer is empty"):
        quick(blank)
    with pytest.raises(ConfigurationError, match="it was collected on another environment"):
        quick(walked(), env=corridor("state").make_env())
    with pytest.raises(ConfigurationError, match="updates must be positive, not 0"):
        quick(walked(), 0)
    with pytest.raises(
        ConfigurationError, match="unknown offline algorithm 'sac'; choose 'cql' or 'ddpg'"
    ):
        train_offline(walked(), corridor().make_env(), algorithm="sac")


def test_train_offline_is_a_name_of_the_package() -> None:
    assert rover.train_offline is train_offline
