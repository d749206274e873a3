"""Offline learning: from labelled transitions, without a further step."""

from typing import Any

import numpy as np
import pytest
from transfer_cases import BEST, LENGTH, OFFLINE, corridor, walked

from rover.baselines import make_agent
from rover.data import Buffer
from rover.envs import make_env
from rover.errors import ConfigurationError
from rover.finetuning import TaskResult, train_offline
from rover.policies import GreedyPolicy, NetworkPolicy, load_policy
from rover.storage import read_run_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no reward was seen"),
]


def quick(buffer: Buffer, updates: int = 600, **changes: Any) -> TaskResult:
    learning_rate = {"critic_learning_rate": 5e-3}
    if changes.get("algorithm") == "ddpg":
        learning_rate = {"actor_learning_rate": 5e-3, "critic_learning_rate": 5e-3}
    settings = {**OFFLINE, "learner": {**OFFLINE["learner"], **learning_rate}}
    env = changes.pop("env", None) or corridor().make_env()
    return train_offline(buffer, env, updates=updates, **{**settings, **changes})


@pytest.mark.parametrize(("algorithm", "kind"), [("cql", GreedyPolicy), ("ddpg", NetworkPolicy)])
def test_the_corridor_is_learned_from_random_walks(algorithm, kind, tmp_path):
    result = quick(walked(), 500, algorithm=algorithm, run_dir=tmp_path, source="runs/random")
    assert result.summary["best_possible_return"] == BEST
    assert result.summary["greedy_return"] == BEST
    assert result.summary["labelled_goals"] > 0
    assert isinstance(result.policy, kind)
    observations = np.eye(LENGTH, dtype=np.float32)
    stored = load_policy(tmp_path / "policy.safetensors")
    np.testing.assert_array_equal(stored.probs(observations), result.policy.probs(observations))
    assert result.policy.probs(observations)[1:5].argmax(axis=1).tolist() == [2, 2, 2, 2]
    assert read_run_config(tmp_path).kind == "offline"


def test_one_seed_one_result_and_the_buffer_is_left_alone():
    before = {name: array.copy() for name, array in walked().state().items()}
    first, again = (quick(walked(), 60, seed=3, evaluate_every=30) for _ in range(2))
    assert first.curve == again.curve
    assert first.curve != quick(walked(), 60, seed=4, evaluate_every=30).curve
    for name, array in walked().state().items():
        np.testing.assert_array_equal(array, before[name])


def test_tables_of_gymnasium_label_what_was_stored():
    env = make_env("FrozenLake-v1", {"is_slippery": False})
    buffer = make_agent("random", env, seed=0, policy_every=500).learn(3000).buffer
    result = quick(buffer, 600, env=env)
    assert result.summary["best_greedy_return"] == 1.0
    slippery = make_env("FrozenLake-v1")
    other = make_agent("random", slippery, seed=0, policy_every=50).learn(100).buffer
    with pytest.raises(ConfigurationError, match="transitions of the data are none of this env"):
        quick(other, 10, env=env)


def test_refused_buffers_and_settings():
    blank = Buffer((LENGTH,), np.dtype(np.float32), 4)
    with pytest.raises(ConfigurationError, match="the buffer is empty"):
        quick(blank)
    with pytest.raises(ConfigurationError, match="the buffer was collected on another environment"):
        quick(walked(), env=corridor("state").make_env())
    with pytest.raises(ConfigurationError, match="choose one of cql, ddpg"):
        train_offline(walked(), corridor().make_env(), algorithm="sac")
