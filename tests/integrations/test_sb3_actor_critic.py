"""PPO and A2C start from the pretrained probabilities, train what they should, and come back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pretrained_policies import (
    KINDS,
    N_ACTIONS,
    make_env,
    make_mixture,
    make_policy,
    make_skilled,
)

import rover
from rover.envs.gridworld import GridWorld
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.policies.coverage import CoveragePolicy

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from rover.integrations.sb3 import RoverActorCriticPolicy, fine_tuned, rover_policy

PPO_SETTINGS: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 2, "device": "cpu"}


def make_model(policy: Any, env: gym.Env[Any, Any], kind: str = "ppo", **extra: Any) -> Any:
    if kind == "a2c":
        return A2C(policy, env, device="cpu", seed=0, **extra)
    return PPO(policy, env, seed=0, **PPO_SETTINGS, **extra)


def probabilities(model: BaseAlgorithm, observations: np.ndarray) -> np.ndarray:
    tensor, _ = model.policy.obs_to_tensor(observations)
    with torch.no_grad():
        return model.policy.get_distribution(tensor).distribution.probs.numpy()


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_probabilities_are_at_first_the_pretrained_ones(algorithm: str, kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    model = make_model(rover_policy(policy), env, algorithm)
    observations = env.observations()
    expected = policy.probs(observations)
    assert expected.max() > 0.9
    np.testing.assert_allclose(probabilities(model, observations), expected, atol=1e-5)
    # What collects and what is differentiated: the same distribution, through other ways in.
    batch = model.env.reset()
    raw = env.reset()[0]
    tensor = torch.as_tensor(batch)
    action, value, log_prob = model.policy(tensor)
    np.testing.assert_allclose(
        float(log_prob.detach().exp()),
        policy.probs(np.asarray(raw)[None])[0, int(action)],
        atol=1e-5,
    )
    again, evaluated, _ = model.policy.evaluate_actions(tensor, action)
    assert torch.equal(again, value)
    torch.testing.assert_close(evaluated, log_prob)
    torch.testing.assert_close(model.policy.predict_values(tensor), value)
    model.learn(32)
    for name, tensor in policy.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_physical_quantities() -> None:
    agent = rover.Rover(gym.make("CartPole-v1"), seed=0, n_anchors=20)
    policy = agent.learn(60).policy
    assert policy.encoder.spec.kind == "scale"
    model = PPO(rover_policy(policy), gym.make("CartPole-v1"), **PPO_SETTINGS)
    observations = 0.1 * np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    np.testing.assert_allclose(
        probabilities(model, observations), policy.probs(observations), atol=1e-5
    )
    model.learn(32)


@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_and_skills(kind: str) -> None:
    env = make_env(kind)
    observations = env.observations()
    for policy in (make_mixture(kind), make_skilled(kind)):
        mean = make_model(rover_policy(policy), env)
        expected = policy.probs(observations)
        np.testing.assert_allclose(probabilities(mean, observations), expected, atol=1e-5)
        one = make_model(rover_policy(policy, component=2), env)
        expected = policy.component_probs(observations, 2)
        np.testing.assert_allclose(probabilities(one, observations), expected, atol=1e-5)
        back = fine_tuned(one)
        np.testing.assert_allclose(back.probs(observations), expected, atol=1e-12)


def gradients(model: Any, env: GridWorld) -> dict[str, torch.Tensor | None]:
    tensor, _ = model.policy.obs_to_tensor(env.observations())
    values, log_prob, _ = model.policy.evaluate_actions(tensor, torch.zeros(len(tensor)))
    (log_prob.sum() + values.sum()).backward()
    return {name: p.grad for name, p in model.policy.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_weights_with_the_scale_asked_for(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    observations = env.observations()
    tensors = torch.as_tensor(observations)
    torch.log_softmax(policy(tensors), dim=1)[:, 0].sum().backward()
    assert policy.weights.grad is not None
    for scale in (1.0, 30.0):
        model = make_model(rover_policy(policy, weight_scale=scale), env)
        found = gradients(model, env)
        weights = found["features_extractor.policy.weights"]
        torch.testing.assert_close(weights, scale * policy.weights.grad, rtol=1e-5, atol=1e-6)
        value_layers = [g for name, g in found.items() if "value" in name]
        assert len(value_layers) == 6
        assert all(g is not None and bool(g.any()) for g in value_layers)
        assert all(g is None for name, g in found.items() if "encoder" in name)


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize("kind", ["onehot", "pixels"])
def test_what_learning_changes(kind: str, freeze: bool) -> None:
    model = make_model(rover_policy(make_policy(kind), freeze_encoder=freeze), make_env(kind))
    before = {k: v.clone() for k, v in model.policy.state_dict().items()}
    model.learn(32)
    after = model.policy.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    encoders = {name for name, _ in model.policy.named_parameters() if "encoder" in name}
    assert "pi_features_extractor.policy.weights" in changed
    assert "value_net.weight" in changed
    assert len(encoders) > (5 if kind == "pixels" else 3)
    assert encoders <= changed if not freeze else not encoders & changed
    constants = {"basis", "center", "scale", "low", "width"}
    assert not [name for name in changed if name.rpartition(".")[2] in constants]


def test_one_seed_one_result() -> None:
    runs = [
        make_model(rover_policy(make_policy("onehot")), make_env("onehot")).learn(64)
        for _ in range(2)
    ]
    first, second = (run.policy.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_come_back(kind: str, tmp_path: Path) -> None:
    env = make_env(kind)
    path = tmp_path / "policy.safetensors"
    make_policy(kind).save(path)
    model = make_model(rover_policy(path, value_hidden=(8,)), env).learn(32)
    path.unlink()
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=env, device="cpu")
    assert isinstance(loaded.policy, RoverActorCriticPolicy)
    states, again = model.policy.state_dict(), loaded.policy.state_dict()
    assert states.keys() == again.keys()
    assert all(torch.equal(states[name], again[name]) for name in states)
    loaded.learn(32)
    model.policy.save(str(tmp_path / "policy.pt"))
    policy = type(model.policy).load(str(tmp_path / "policy.pt"), device="cpu")
    tensor, _ = policy.obs_to_tensor(env.observations())
    found = policy.get_distribution(tensor).distribution.probs.detach().numpy()
    np.testing.assert_array_equal(found, probabilities(model, env.observations()))


def test_a_model_is_read_in_another_process(tmp_path: Path) -> None:
    env = make_env("onehot")
    model = make_model(rover_policy(make_policy("onehot")), env).learn(32)
    model.save(tmp_path / "model")
    np.save(tmp_path / "observations.npy", env.observations())
    code = (
        "import sys, numpy as np\n"
        "from stable_baselines3 import PPO\n"
        "model = PPO.load(sys.argv[1] + '/model', device='cpu')\n"
        "print(model.predict(np.load(sys.argv[1] + '/observations.npy'), deterministic=True)[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
    )
    expected, _ = model.predict(env.observations(), deterministic=True)
    assert done.stdout.strip() == str(expected), done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_back_to_a_policy_of_this_package(kind: str, tmp_path: Path) -> None:
    env, policy = make_env(kind), make_policy(kind)
    model = make_model(rover_policy(policy), env)
    np.testing.assert_allclose(
        fine_tuned(model).probs(env.observations()), policy.probs(env.observations()), atol=1e-10
    )
    model.learn(64)
    fine_tuned(model).save(tmp_path / "tuned.safetensors")
    tuned = rover.load_policy(tmp_path / "tuned.safetensors")
    assert isinstance(tuned, CoveragePolicy)
    assert tuned.details == policy.details
    found = tuned.probs(env.observations())
    np.testing.assert_allclose(found, probabilities(model, env.observations()), atol=1e-6)
    np.testing.assert_allclose(fine_tuned(model.policy).probs(env.observations()), found, atol=0)
    assert np.abs(found - policy.probs(env.observations())).max() > 1e-3


@pytest.mark.slow
def test_it_learns_from_where_the_pretraining_left_off() -> None:
    settings = {"layout": "multi_rooms", "rooms": 3, "horizon": 100}
    policy = rover.Rover("rover/Grid-v0", env_kwargs=settings, seed=0).learn(400).policy
    env = Monitor(gym.make("rover/Grid-v0", **settings, goal=(11, 4)))  # 17 steps away
    kind = rover_policy(policy, weight_scale=60.0)
    model = PPO(kind, env, n_steps=400, batch_size=100, n_epochs=6, seed=0, learning_rate=6e-4)
    at_first, _ = evaluate_policy(model, env, n_eval_episodes=10, deterministic=False)
    model.learn(7200)
    sampled, _ = evaluate_policy(model, env, n_eval_episodes=10, deterministic=False)
    assert at_first < -60.0
    assert sampled > -30.0  # the best: −16; from scratch with the same settings: −99


@pytest.mark.parametrize(
    ("kind", "env", "words"),
    [
        (
            "state",
            GridWorld("S..", observation="state"),
            r"shape \(\), 11 states, .* Discrete\(3\)",
        ),
        (
            "onehot",
            GridWorld("S..", observation="onehot"),
            r"shape \(11,\), and .* \(3,\), float32",
        ),
        ("onehot", make_env("state"), r"float32 observations of shape \(11,\), .* Discrete\(11\)"),
        ("state", make_env("onehot"), r"int64 observations of shape \(\), 11 states"),
        ("pixels", make_env("onehot"), r"uint8 observations of shape \(84, 84, 3\)"),
    ],
)
def test_other_observations_are_refused(kind: str, env: GridWorld, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_model(rover_policy(make_policy(kind)), env)


class OtherSpaces(gym.Wrapper[Any, Any, Any, Any]):
    def __init__(self, dtype: Any = None, n_actions: int | None = None, start: int = 0) -> None:
        super().__init__(make_env("onehot"))
        if dtype is not None:
            self.observation_space = gym.spaces.Box(0.0, 1.0, (11,), dtype)
        if n_actions is not None:
            self.action_space = gym.spaces.Discrete(n_actions, start=start)


def test_another_dtype_or_other_actions_are_refused() -> None:
    kind = rover_policy(make_policy("onehot"))
    with pytest.raises(ConfigurationError, match=r"float32 observations.*float64"):
        make_model(kind, OtherSpaces(dtype=np.float64))
    for spaces in ({"n_actions": N_ACTIONS + 1}, {"n_actions": N_ACTIONS, "start": 1}):
        with pytest.raises(
            ConfigurationError, match=r"4 actions and the .*: make it with Discrete"
        ):
            make_model(kind, OtherSpaces(**spaces))


def test_settings_that_make_no_sense() -> None:
    policy = make_policy("onehot")
    for scale in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="weight_scale must be positive and finite"):
            rover_policy(policy, weight_scale=scale)
    with pytest.raises(ConfigurationError, match="value_hidden must hold positive widths"):
        rover_policy(policy, value_hidden=(64, 0))
    with pytest.raises(ConfigurationError, match="component 1 was asked for, of a policy with 1"):
        rover_policy(policy, component=1)
    with pytest.raises(ConfigurationError, match="component 3 was asked for, of a policy with 3"):
        rover_policy(make_mixture(), component=3)
    with pytest.raises(ConfigurationError, match="not a Linear: see"):
        rover_policy(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match="nowhere"):
        rover_policy("nowhere.safetensors")
    with pytest.raises(ConfigurationError, match=r"policy_kwargs net_arch: .* rover_policy\(\)"):
        make_model(rover_policy(policy), make_env("onehot"), policy_kwargs={"net_arch": [3]})


def test_logits_that_are_not_finite() -> None:
    model = make_model(rover_policy(make_policy("onehot")), make_env("onehot"))
    with pytest.raises(NonFiniteError, match="logits are not finite: look at the observations"):
        model.predict(np.full((1, 11), np.nan, dtype=np.float32))


def test_models_of_others_have_nothing_to_give_back() -> None:
    for other in (
        PPO("MlpPolicy", make_env("onehot"), **PPO_SETTINGS),
        DQN("MlpPolicy", make_env("onehot"), buffer_size=10, device="cpu"),
    ):
        with pytest.raises(ConfigurationError, match="no pretrained actor: make its policy with"):
            fine_tuned(other)
