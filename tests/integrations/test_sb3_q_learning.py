"""DQN from pretrained logits: the Q-values at first, what explores, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pretrained_policies import KINDS, make_env, make_mixture, make_policy, make_skilled

from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError
from rover.policies.coverage import CoveragePolicy

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN

from rover.integrations.sb3 import RoverDQN, fine_tuned, rover_q_policy

SETTINGS: dict[str, Any] = {
    "buffer_size": 500,
    "learning_starts": 10,
    "batch_size": 8,
    "train_freq": 4,
    "target_update_interval": 40,
    "device": "cpu",
    "seed": 0,
}


def q_values(model: DQN, env: GridWorld) -> np.ndarray:
    tensor, _ = model.policy.obs_to_tensor(env.observations())
    with torch.no_grad():
        return model.q_net(tensor).numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.as_tensor(logits), dim=1).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_q_values_are_at_first_the_logits(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    model = DQN(rover_q_policy(policy, temperature=0.5, value=-7.0), env, **SETTINGS)
    q, probs = q_values(model, env), policy.probs(env.observations())
    np.testing.assert_allclose(q.mean(axis=1), -7.0, atol=1e-4)
    np.testing.assert_allclose(softmax(q / 0.5), probs, atol=1e-5)
    actions, _ = model.predict(env.observations(), deterministic=True)
    np.testing.assert_array_equal(actions, probs.argmax(axis=1))
    target = model.q_net_target(model.policy.obs_to_tensor(env.observations())[0])
    np.testing.assert_array_equal(target.detach().numpy(), q)


@pytest.mark.parametrize("make", [make_mixture, make_skilled])
def test_one_component_of_a_mixture(make: Any) -> None:
    env, policy = make_env("onehot"), make("onehot")
    model = DQN(rover_q_policy(policy, component=1), env, **SETTINGS)
    expected = policy.component_probs(env.observations(), 1)
    np.testing.assert_allclose(softmax(q_values(model, env)), expected, atol=1e-5)
    with pytest.raises(ConfigurationError, match=r"a mixture of 3, .* name a component, 0 … 2"):
        rover_q_policy(policy)


@pytest.mark.parametrize("kind", KINDS)
def test_exploration_is_the_pretrained_policys_whatever_was_learned(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    model = RoverDQN(rover_q_policy(policy), env, **SETTINGS)
    before = q_values(model, env)
    model.learn(120)
    assert np.abs(q_values(model, env) - before).max() > 0.01
    model.exploration_rate = 1.0
    n = 400 if kind == "pixels" else 3000
    observations = env.observations()[[0, 5]]
    for i, expected in enumerate(policy.probs(observations)):
        batch = np.repeat(observations[i : i + 1], n, axis=0)
        actions, state = model.predict(batch)
        shares = np.bincount(actions, minlength=4) / n
        np.testing.assert_allclose(shares, expected, atol=4 * 0.5 / np.sqrt(n))
        assert state is None
        greedy, _ = model.predict(batch[:3], deterministic=True)
        np.testing.assert_array_equal(greedy, q_values(model, env)[[0, 5]].argmax(axis=1)[i])
    one, _ = model.predict(observations[0])
    assert np.shape(one) == ()
    model.exploration_rate = 0.0
    actions, _ = model.predict(env.observations())
    np.testing.assert_array_equal(actions, q_values(model, env).argmax(axis=1))


def test_the_steps_before_learning_follow_the_pretrained_policy() -> None:
    env, policy = make_env("state"), make_policy("state")
    with torch.no_grad():  # always right, then always down
        policy.weights.zero_()
        policy.weights[:, 3], policy.weights[3, 1] = 50.0, 100.0
        policy.weights[6, 1] = 100.0
    model = RoverDQN(rover_q_policy(policy), env, **{**SETTINGS, "learning_starts": 100})
    model.learn(50)
    buffer = model.replay_buffer
    states, actions = buffer.observations[:50, 0, 0], buffer.actions[:50, 0, 0]
    np.testing.assert_array_equal(actions, policy.probs(states).argmax(axis=1))
    assert (buffer.rewards[:50, 0] == 0.0).sum() == 10  # the goal is 5 steps away


@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_come_back(kind: str, tmp_path: Path) -> None:
    env = make_env(kind)
    model = RoverDQN(rover_q_policy(make_policy(kind)), env, **SETTINGS).learn(60)
    model.save(tmp_path / "model")
    loaded = RoverDQN.load(tmp_path / "model", env=env, device="cpu")
    np.testing.assert_array_equal(q_values(loaded, env), q_values(model, env))
    explorer = loaded.policy.explorer.state_dict()
    for name, tensor in model.policy.explorer.state_dict().items():
        assert torch.equal(explorer[name], tensor)
    loaded.learn(20)
    model.policy.save(str(tmp_path / "policy.pt"))
    policy = type(model.policy).load(str(tmp_path / "policy.pt"), device="cpu")
    tensor, _ = policy.obs_to_tensor(env.observations())
    np.testing.assert_array_equal(policy.q_net(tensor).detach().numpy(), q_values(model, env))


def test_back_to_a_policy_of_this_package() -> None:
    env = make_env("onehot")
    model = DQN(rover_q_policy(make_policy("onehot"), temperature=2.0, value=3.0), env, **SETTINGS)
    model.learn(60)
    tuned = fine_tuned(model)
    assert isinstance(tuned, CoveragePolicy)
    found = tuned.probs(env.observations())
    np.testing.assert_allclose(found, softmax((q_values(model, env) - 3.0) / 2.0), atol=1e-5)


@pytest.mark.parametrize("freeze", [True, False])
def test_what_learning_changes(freeze: bool) -> None:
    env = make_env("onehot")
    model = DQN(rover_q_policy(make_policy("onehot"), freeze_encoder=freeze), env, **SETTINGS)
    before = {k: v.clone() for k, v in model.policy.state_dict().items()}
    model.learn(60)
    after = model.policy.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert "q_net.features_extractor.policy.weights" in changed
    assert not [name for name in changed if name.startswith("explorer.")]
    encoders = {name for name, _ in model.q_net.named_parameters() if "encoder" in name}
    assert len(encoders) == 4
    assert {f"q_net.{name}" in changed for name in encoders} == {not freeze}


def test_what_is_refused() -> None:
    policy, env = make_policy("onehot"), make_env("onehot")
    for temperature in (0.0, float("nan")):
        with pytest.raises(ConfigurationError, match="temperature must be positive and finite"):
            rover_q_policy(policy, temperature=temperature)
    with pytest.raises(ConfigurationError, match="value must be finite, not inf"):
        rover_q_policy(policy, value=float("inf"))
    with pytest.raises(ConfigurationError, match="was given DQNPolicy: pass it rover_q_policy"):
        RoverDQN("MlpPolicy", env, **SETTINGS)
    with pytest.raises(ConfigurationError, match=r"net_arch: .* rover_q_policy\(\)"):
        DQN(rover_q_policy(policy), env, policy_kwargs={"net_arch": [3]}, **SETTINGS)
    with pytest.raises(
        ConfigurationError, match=r"shape \(11,\), and the environment has Discrete"
    ):
        DQN(rover_q_policy(policy), make_env("state"), **SETTINGS)
