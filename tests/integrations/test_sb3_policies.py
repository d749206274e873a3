"""PPO, A2C and DQN start from a pretrained policy, train what they should, and come back."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pretrained_policies import (
    KINDS,
    N_ACTIONS,
    PPO_SETTINGS,
    make_env,
    make_mixture,
    make_policy,
    make_skilled,
)

import rover
from rover.envs.gridworld import GridWorld
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.policies import CoveragePolicy, ValuePolicy

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from rover.integrations.sb3 import RoverDQN, fine_tuned, rover_policy, rover_q_policy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*too few for a policy update"),
]

DQN_SETTINGS: dict[str, Any] = {
    "buffer_size": 500,
    "learning_starts": 10,
    "batch_size": 8,
    "train_freq": 4,
    "target_update_interval": 40,
}
ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (PPO, PPO_SETTINGS),
    "a2c": (A2C, {}),
    "dqn": (DQN, DQN_SETTINGS),
    "rover-dqn": (RoverDQN, DQN_SETTINGS),
}


def make_model(policy: Any, env: gym.Env[Any, Any], algorithm: str = "ppo", **extra: Any) -> Any:
    """A model on a pretrained policy, of which a policy class is made, or on a policy class."""
    model, settings = ALGORITHMS[algorithm]
    if isinstance(policy, CoveragePolicy | ValuePolicy | Path):
        policy = (rover_q_policy if "dqn" in algorithm else rover_policy)(policy)
    return model(policy, env, **{**settings, "seed": 0, "device": "cpu", **extra})


def outputs(policy: Any, env: GridWorld) -> np.ndarray:
    """Probabilities, or Q-values, on all observations."""
    tensor, _ = policy.obs_to_tensor(env.observations())
    with torch.no_grad():
        if hasattr(policy, "q_net"):
            return policy.q_net(tensor).numpy()
        return policy.get_distribution(tensor).distribution.probs.numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    return torch.softmax(torch.as_tensor(logits), dim=1).numpy()


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_probabilities_are_at_first_the_pretrained_ones(algorithm: str, kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    model = make_model(policy, env, algorithm)
    expected = policy.probs(env.observations())
    assert expected.max() > 0.9
    np.testing.assert_allclose(outputs(model.policy, env), expected, atol=1e-5)
    # What collects and what is differentiated: the same distribution, through other ways in.
    tensor, raw = torch.as_tensor(model.env.reset()), env.reset()[0]
    action, value, log_prob = model.policy(tensor)
    expected = policy.probs(np.asarray(raw)[None])[0, int(action)]
    np.testing.assert_allclose(float(log_prob.detach().exp()), expected, atol=1e-5)
    again, evaluated, _ = model.policy.evaluate_actions(tensor, action)
    assert torch.equal(again, value)
    torch.testing.assert_close(evaluated, log_prob)
    torch.testing.assert_close(model.policy.predict_values(tensor), value)
    model.learn(32)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_q_values_are_at_first_the_logits(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    model = make_model(rover_q_policy(policy, temperature=0.5, value=-7.0), env, "dqn")
    q, probs = outputs(model.policy, env), policy.probs(env.observations())
    np.testing.assert_allclose(q.mean(axis=1), -7.0, atol=1e-4)
    np.testing.assert_allclose(softmax(q / 0.5), probs, atol=1e-5)
    actions, _ = model.predict(env.observations(), deterministic=True)
    np.testing.assert_array_equal(actions, probs.argmax(axis=1))
    target = model.q_net_target(model.policy.obs_to_tensor(env.observations())[0])
    np.testing.assert_array_equal(target.detach().numpy(), q)


@cache
def solved(kind: str) -> ValuePolicy:
    agent = rover.make_agent("random", make_env(kind), seed=0).learn(300)
    return rover.solve(agent, make_env(kind))


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_solved_policy_is_what_learning_starts_from(
    kind: str, algorithm: str, tmp_path: Path
) -> None:
    env, policy = make_env(kind), solved(kind)
    model, seen = make_model(policy, env, algorithm), env.observations()
    before = policy.trainable().probs(seen)
    np.testing.assert_allclose(outputs(model.policy, env), before, atol=1e-5)
    np.testing.assert_array_equal(
        fine_tuned(model).probs(seen).argmax(axis=1), policy.action_values(seen).argmax(axis=1)
    )
    model.learn(32)
    fine_tuned(model).save(tmp_path / "tuned.safetensors")
    tuned = rover.load_policy(tmp_path / "tuned.safetensors")
    np.testing.assert_allclose(tuned.probs(seen), outputs(model.policy, env), atol=1e-5)
    assert np.abs(tuned.probs(seen) - before).max() > 1e-5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [None, 0.5])
def test_dqn_gets_the_action_values(kind: str, temperature: float | None) -> None:
    env, policy = make_env(kind), solved(kind)
    model = make_model(rover_q_policy(policy, temperature=temperature), env, "rover-dqn")
    seen = env.observations()
    expected = policy.action_values(seen)
    np.testing.assert_allclose(outputs(model.policy, env), expected, rtol=1e-5)
    batch, _ = model.policy.obs_to_tensor(seen)
    logits = model.policy.extract_features(batch, model.policy.explorer).numpy()
    probs = policy.trainable(temperature).probs(seen)
    np.testing.assert_allclose(softmax(logits), probs, atol=1e-5)
    model.learn(60)  # values that solve Bellman's equation have no error to learn from
    np.testing.assert_allclose(outputs(model.policy, env), expected, atol=0.02)


def test_one_of_several_solved_tasks_has_to_be_chosen() -> None:
    env = make_env("state")
    agent = rover.make_agent("random", env, seed=0).learn(300)
    goals = rover.solve(agent, goals="all")
    with pytest.raises(ConfigurationError, match="which one can be learned"):
        make_model(goals, env)
    make_model(rover_policy(goals, component=3), env).learn(16)


def test_physical_quantities() -> None:
    policy = rover.Rover(gym.make("CartPole-v1"), seed=0, n_anchors=20).learn(60).policy
    assert isinstance(policy, CoveragePolicy)
    assert policy.encoder.config.kind == "scale"
    model = make_model(policy, gym.make("CartPole-v1"))
    observations = 0.1 * np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
    distribution = model.policy.get_distribution(torch.as_tensor(observations)).distribution
    expected = policy.probs(observations)
    np.testing.assert_allclose(distribution.probs.detach(), expected, atol=1e-5)
    model.learn(32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [make_mixture, make_skilled])
def test_mixtures_and_skills(make: Any, kind: str) -> None:
    env, policy = make_env(kind), make(kind)
    observations = env.observations()
    mean = make_model(rover_policy(policy), env)
    expected = policy.probs(observations)
    np.testing.assert_allclose(outputs(mean.policy, env), expected, atol=1e-5)
    one = make_model(rover_policy(policy, component=2), env)
    expected = policy.component_probs(observations, 2)
    np.testing.assert_allclose(outputs(one.policy, env), expected, atol=1e-5)
    np.testing.assert_allclose(fine_tuned(one).probs(observations), expected, atol=1e-12)
    q = make_model(rover_q_policy(policy, component=2), env, "dqn")
    np.testing.assert_allclose(softmax(outputs(q.policy, env)), expected, atol=1e-5)
    with pytest.raises(ConfigurationError, match=r"a mixture of 3, .* name a component, 0 … 2"):
        rover_q_policy(policy)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_reach_the_weights_with_the_scale_asked_for(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    raw = torch.as_tensor(env.observations())
    torch.log_softmax(policy(raw), dim=1)[:, 0].sum().backward()
    assert policy.weights.grad is not None
    for scale in (1.0, 30.0):
        model = make_model(rover_policy(policy, weight_scale=scale), env)
        tensor, _ = model.policy.obs_to_tensor(env.observations())
        values, log_prob, _ = model.policy.evaluate_actions(tensor, torch.zeros(len(tensor)))
        (log_prob.sum() + values.sum()).backward()
        found = {name: p.grad for name, p in model.policy.named_parameters()}
        weights = found["features_extractor.policy.weights"]
        torch.testing.assert_close(weights, scale * policy.weights.grad, rtol=1e-5, atol=1e-6)
        value_layers = [g for name, g in found.items() if "value" in name]
        assert len(value_layers) == 6
        assert all(g is not None and bool(g.any()) for g in value_layers)
        assert all(g is None for name, g in found.items() if "encoder" in name)


@pytest.mark.parametrize("freeze", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "kind"), [("ppo", "onehot"), ("ppo", "pixels"), ("dqn", "onehot")]
)
def test_what_learning_changes(algorithm: str, kind: str, freeze: bool) -> None:
    is_dqn = algorithm == "dqn"
    make = rover_q_policy if is_dqn else rover_policy
    policy_class = make(make_policy(kind), freeze_encoder=freeze)
    model = make_model(policy_class, make_env(kind), algorithm)
    before = {k: v.clone() for k, v in model.policy.state_dict().items()}
    model.learn(60)
    after = model.policy.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    names = [name for name, _ in model.policy.named_parameters() if "encoder" in name]
    encoders = {name for name in names if not is_dqn or name.startswith("q_net.")}
    assert len(encoders) > (5 if kind == "pixels" else 3)
    assert encoders <= changed if not freeze else not encoders & changed
    if is_dqn:
        assert "q_net.features_extractor.policy.weights" in changed
        assert not [name for name in changed if name.startswith("explorer.")]
    else:
        assert {"pi_features_extractor.policy.weights", "value_net.weight"} <= changed
    constants = {"basis", "center", "scale", "low", "width"}
    assert not [name for name in changed if name.rpartition(".")[2] in constants]


@pytest.mark.parametrize("algorithm", ["ppo", "rover-dqn"])
def test_one_seed_one_result(algorithm: str) -> None:
    runs = [
        make_model(make_policy("onehot"), make_env("onehot"), algorithm).learn(64) for _ in range(2)
    ]
    first, second = (run.policy.state_dict() for run in runs)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("algorithm", ["ppo", "rover-dqn"])
@pytest.mark.parametrize("kind", KINDS)
def test_saved_models_come_back(kind: str, algorithm: str, tmp_path: Path) -> None:
    env, path = make_env(kind), tmp_path / "policy.safetensors"
    make_policy(kind).save(path)
    model = make_model(path, env, algorithm).learn(32)
    path.unlink()
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model", env=env, device="cpu")
    states, again = model.policy.state_dict(), loaded.policy.state_dict()
    assert states.keys() == again.keys()
    assert all(torch.equal(states[name], again[name]) for name in states)
    loaded.learn(32)
    model.policy.save(str(tmp_path / "policy.pt"))
    policy = type(model.policy).load(str(tmp_path / "policy.pt"), device="cpu")
    np.testing.assert_array_equal(outputs(policy, env), outputs(model.policy, env))


def test_a_model_is_read_in_another_process(tmp_path: Path) -> None:
    env = make_env("onehot")
    model = make_model(make_policy("onehot"), env).learn(32)
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
    model, observations = make_model(policy, env), env.observations()
    expected = policy.probs(observations)
    np.testing.assert_allclose(fine_tuned(model).probs(observations), expected, atol=1e-10)
    model.learn(64)
    fine_tuned(model).save(tmp_path / "tuned.safetensors")
    tuned = rover.load_policy(tmp_path / "tuned.safetensors")
    assert isinstance(tuned, CoveragePolicy)
    assert tuned.details == policy.details
    found = tuned.probs(observations)
    np.testing.assert_allclose(found, outputs(model.policy, env), atol=1e-6)
    np.testing.assert_allclose(fine_tuned(model.policy).probs(observations), found, atol=0)
    assert np.abs(found - expected).max() > 1e-3
    q = make_model(rover_q_policy(policy, temperature=2.0, value=3.0), env, "dqn").learn(60)
    expected = softmax((outputs(q.policy, env) - 3.0) / 2.0)
    np.testing.assert_allclose(fine_tuned(q).probs(observations), expected, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_exploration_is_the_pretrained_policys_whatever_was_learned(kind: str) -> None:
    env, policy = make_env(kind), make_policy(kind)
    model = make_model(policy, env, "rover-dqn")
    before = outputs(model.policy, env)
    model.learn(120)
    assert np.abs(outputs(model.policy, env) - before).max() > 0.01
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
        np.testing.assert_array_equal(greedy, outputs(model.policy, env)[[0, 5]].argmax(axis=1)[i])
    one, _ = model.predict(observations[0])
    assert np.shape(one) == ()
    model.exploration_rate = 0.0
    actions, _ = model.predict(env.observations())
    np.testing.assert_array_equal(actions, outputs(model.policy, env).argmax(axis=1))


def test_the_steps_before_learning_follow_the_pretrained_policy() -> None:
    env, policy = make_env("state"), make_policy("state")
    with torch.no_grad():  # always right, then always down
        policy.weights.zero_()
        policy.weights[:, 3], policy.weights[3, 1] = 50.0, 100.0
        policy.weights[6, 1] = 100.0
    model = make_model(policy, env, "rover-dqn", learning_starts=100)
    model.learn(50)
    buffer = model.replay_buffer
    states, actions = buffer.observations[:50, 0, 0], buffer.actions[:50, 0, 0]
    np.testing.assert_array_equal(actions, policy.probs(states).argmax(axis=1))
    assert (buffer.rewards[:50, 0] == 0.0).sum() == 10  # the goal is 5 steps away


def test_it_learns_from_where_the_pretraining_left_off() -> None:
    settings = {"layout": "multi_rooms", "rooms": 2, "horizon": 60}
    policy = rover.Rover("rover/Grid-v0", env_kwargs=settings, seed=0).learn(200).policy
    env = Monitor(gym.make("rover/Grid-v0", **settings, goal=(7, 3)))  # 10 steps away
    kind = rover_policy(policy, weight_scale=60.0)
    model = PPO(kind, env, n_steps=200, batch_size=100, n_epochs=6, seed=0, learning_rate=6e-4)
    at_first, _ = evaluate_policy(model, env, n_eval_episodes=10, deterministic=False)
    model.learn(2400)
    sampled, _ = evaluate_policy(model, env, n_eval_episodes=10, deterministic=False)
    assert at_first < -40.0
    assert sampled > -25.0  # the best: −9


@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
@pytest.mark.parametrize(
    ("kind", "env", "words"),
    [
        ("state", GridWorld("S..", observation="state"), r"\(\), 11 states, .* Discrete\(3\)"),
        ("onehot", GridWorld("S..", observation="onehot"), r"\(11,\), and .* \(3,\), float32"),
        ("onehot", make_env("state"), r"float32 observations of shape \(11,\), .* Discrete\(11\)"),
        ("state", make_env("onehot"), r"int64 observations of shape \(\), 11 states"),
        ("pixels", make_env("onehot"), r"uint8 observations of shape \(84, 84, 3\)"),
    ],
)
def test_other_observations_are_refused(
    kind: str, env: GridWorld, words: str, algorithm: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make_model(make_policy(kind), env, algorithm)


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


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (rover_policy, {"weight_scale": 0.0}, "weight_scale must be positive and finite"),
        (rover_policy, {"weight_scale": float("nan")}, "weight_scale must be positive"),
        (rover_policy, {"weight_scale": float("inf")}, "weight_scale must be positive"),
        (rover_policy, {"value_hidden": (64, 0)}, "value_hidden must hold positive widths"),
        (rover_policy, {"component": 1}, "component 1 was asked for, of a policy with 1"),
        (rover_q_policy, {"temperature": -1.0}, "temperature must be positive and finite"),
        (rover_q_policy, {"value": float("inf")}, "value must be finite, not inf"),
    ],
)
def test_settings_out_of_range(make: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(make_policy("onehot"), **settings)


def test_what_is_no_pretrained_policy() -> None:
    policy, env = make_policy("onehot"), make_env("onehot")
    with pytest.raises(ConfigurationError, match="component 3 was asked for, of a policy with 3"):
        rover_policy(make_mixture(), component=3)
    with pytest.raises(ConfigurationError, match="not a Linear: see"):
        rover_policy(torch.nn.Linear(2, 2))  # type: ignore[arg-type]
    with pytest.raises(ArtefactError, match="nowhere"):
        rover_policy("nowhere.safetensors")
    with pytest.raises(ConfigurationError, match="was given DQNPolicy: pass it rover_q_policy"):
        make_model("MlpPolicy", env, "rover-dqn")
    for algorithm, function in (("ppo", "rover_policy"), ("dqn", "rover_q_policy")):
        with pytest.raises(ConfigurationError, match=rf"policy_kwargs net_arch: .* {function}\(\)"):
            make_model(policy, env, algorithm, policy_kwargs={"net_arch": [3]})
        other = make_model("MlpPolicy", env, algorithm)
        with pytest.raises(ConfigurationError, match="no pretrained actor: make its policy with"):
            fine_tuned(other)


def test_logits_that_are_not_finite() -> None:
    model = make_model(make_policy("onehot"), make_env("onehot"))
    with pytest.raises(NonFiniteError, match="logits are not finite: look at the observations"):
        model.predict(np.full((1, 11), np.nan, dtype=np.float32))
