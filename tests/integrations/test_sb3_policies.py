"""PPO and A2C start from a pretrained policy or its features, train them, and come back."""

from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_networks import small_policy

import rover
from rover.data import ObservationTable
from rover.envs.gridworld import GridWorld
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.features import Observations, encoder_config, make_encoder
from rover.operators import Gaussian
from rover.policies import (
    CoveragePolicy,
    PlannedPolicy,
    StatePolicy,
    ValuePolicy,
)
from rover.wrappers import DiscreteActions

pytest.importorskip("stable_baselines3")

from stable_baselines3 import A2C, DQN, PPO

from rover.integrations.sb3 import RoverFeatures, fine_tuned, rover_policy

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*too few for a policy update")]

MAP = "S...\n.#..\n...."
N_STATES, N_ACTIONS = 11, 4
KINDS = ("state", "onehot", "pixels")
PPO_SETTINGS: dict[str, Any] = {"n_steps": 16, "batch_size": 8, "n_epochs": 2}


def make_env(kind: str, **settings: Any) -> GridWorld:
    return GridWorld(MAP, observation=kind, goal=(3, 2), horizon=20, **settings)


ENCODERS: dict[str, dict[str, Any]] = {
    "onehot": {"feature_dim": 16, "hidden_sizes": (32,)},
    "pixels": {"feature_dim": 16, "strides": (4, 4), "pool_to": 5},
}


def make_policy(kind: str, seed: int = 0) -> PlannedPolicy:
    """Logits of standard deviation 2 about a large constant, as pretraining leaves them."""
    generator = torch.Generator().manual_seed(seed)
    env = make_env(kind)
    observations = env.finite_mdp.observations
    if kind == "state":
        table = ObservationTable((), np.dtype(np.int64))
        for observation in observations:
            table.intern(observation)
        weights = 2.0 * torch.randn(N_STATES, N_ACTIONS, generator=generator, dtype=torch.float64)
        form = Observations.from_space(env.observation_space)
        return StatePolicy(form, table.names, weights - 2300.0)
    encoder = make_encoder(encoder_config(env.observation_space, **ENCODERS[kind]), generator)
    if kind == "pixels":
        encoder.set_centering(np.median(observations, axis=0), 255.0)
    encoder = encoder.frozen()
    basis = torch.from_numpy(encoder.features(observations)).double()
    weights = 2.0 * torch.randn(N_STATES, N_ACTIONS, generator=generator, dtype=torch.float64)
    # wide enough for features at distances up to 1.7 to share something: at 0.1 the kernel of two
    # different images is below 1e-18, and no gradient would reach the encoder
    kernel = Gaussian(0.1 if kind == "onehot" else 0.5)
    policy = CoveragePolicy(encoder, kernel, basis, weights - 2300.0)
    policy.details = {"seed": seed}
    return policy


ALGORITHMS: dict[str, tuple[Any, dict[str, Any]]] = {"ppo": (PPO, PPO_SETTINGS), "a2c": (A2C, {})}


def make_model(policy: Any, env: gym.Env[Any, Any], algorithm: str = "ppo", **extra: Any) -> Any:
    """A model on a pretrained policy, of which a policy class is made, or on a policy class."""
    model, settings = ALGORITHMS[algorithm]
    if isinstance(policy, PlannedPolicy | ValuePolicy | Path):
        policy = rover_policy(policy)
    return model(policy, env, **{**settings, "seed": 0, "device": "cpu", **extra})


def outputs(policy: Any, env: GridWorld) -> np.ndarray:
    """Probabilities on all observations."""
    tensor, _ = policy.obs_to_tensor(env.finite_mdp.observations)
    with torch.no_grad():
        return policy.get_distribution(tensor).distribution.probs.numpy()


@pytest.mark.parametrize(
    ("kind", "algorithm"), [*((kind, "ppo") for kind in KINDS), ("onehot", "a2c")]
)
def test_the_probabilities_are_at_first_the_pretrained_ones(kind, algorithm):
    env, policy = make_env(kind), make_policy(kind)
    before = {k: v.clone() for k, v in policy.state_dict().items()}
    model = make_model(policy, env, algorithm)
    expected = policy.probs(env.finite_mdp.observations)
    assert expected.max() > 0.85
    np.testing.assert_allclose(outputs(model.policy, env), expected, atol=1e-5)
    # What collects and what is differentiated: the same distribution, through other ways in.
    tensor, raw = torch.as_tensor(model.env.reset()), env.reset()[0]
    action, value, log_prob = model.policy(tensor)
    expected = policy.probs(np.asarray(raw)[None])[0, int(action)]
    np.testing.assert_allclose(float(log_prob.detach().exp()), expected, atol=1e-5)
    again, evaluated, _ = model.policy.evaluate_actions(tensor, action)
    assert torch.equal(again, value)
    torch.testing.assert_close(evaluated, log_prob)
    model.learn(32)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


@cache
def solved(kind: str) -> ValuePolicy:
    agent = rover.make_agent("random", make_env(kind), seed=0).learn(300)
    return rover.solve(agent, make_env(kind))


@pytest.mark.parametrize("networks", [{"n_networks": 3}, {"skill_dim": 5}])
def test_mixtures_and_skills(networks):
    env = make_env("onehot")
    observations = env.finite_mdp.observations
    seen = Observations.from_space(env.observation_space, observations)
    policy = small_policy(seen, N_ACTIONS, **networks)
    mean = make_model(rover_policy(policy), env)
    expected = policy.probs(observations)
    np.testing.assert_allclose(outputs(mean.policy, env), expected, atol=1e-5)
    one = make_model(rover_policy(policy, component=2), env)
    expected = policy.component_probs(observations, 2)
    np.testing.assert_allclose(outputs(one.policy, env), expected, atol=1e-5)
    np.testing.assert_allclose(fine_tuned(one).probs(observations), expected, atol=1e-12)


@pytest.mark.parametrize("freeze", [True, False])
def test_what_learning_changes(freeze):
    policy_class = rover_policy(make_policy("pixels"), freeze_encoder=freeze)
    model = make_model(policy_class, make_env("pixels"))
    before = {k: v.clone() for k, v in model.policy.state_dict().items()}
    model.learn(60)
    after = model.policy.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    encoders = {name for name, _ in model.policy.named_parameters() if "encoder" in name}
    assert len(encoders) > 5
    assert encoders <= changed if not freeze else not encoders & changed
    assert {"pi_features_extractor.policy.weights", "value_net.weight"} <= changed
    constants = {"basis", "center", "scale", "low", "width"}
    assert not [name for name in changed if name.rpartition(".")[2] in constants]


def test_saved_models_come_back(tmp_path):
    env = make_env("onehot")
    path = tmp_path / "policy.safetensors"
    make_policy("onehot").save(path)
    model = make_model(path, env).learn(32)
    path.unlink()
    model.save(tmp_path / "model")
    loaded = PPO.load(tmp_path / "model", env=env, device="cpu")
    states, again = model.policy.state_dict(), loaded.policy.state_dict()
    assert all(torch.equal(states[name], again[name]) for name in states | again)
    loaded.learn(32)


@pytest.mark.parametrize(
    ("make", "kind"), [*((make_policy, kind) for kind in KINDS), (solved, "onehot")]
)
def test_back_to_a_policy_of_this_package(make, kind, tmp_path):
    env, policy = make_env(kind), make(kind)
    model, observations = make_model(policy, env), env.finite_mdp.observations
    starts = policy.trainable() if isinstance(policy, ValuePolicy) else policy
    expected = starts.probs(observations)
    np.testing.assert_allclose(fine_tuned(model).probs(observations), expected, atol=1e-10)
    np.testing.assert_allclose(outputs(model.policy, env), expected, atol=1e-5)
    model.learn(64)
    fine_tuned(model).save(tmp_path / "tuned.safetensors")
    tuned = rover.load_policy(tmp_path / "tuned.safetensors")
    assert type(tuned) is type(policy)
    assert tuned.details == policy.details
    found = tuned.probs(observations)
    np.testing.assert_allclose(found, outputs(model.policy, env), atol=1e-5)
    np.testing.assert_allclose(fine_tuned(model.policy).probs(observations), found, atol=0)
    assert np.abs(found - expected).max() > 1e-5


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (GridWorld("S..", observation="onehot"), r"\(11,\), and .* \(3,\), float32"),
        (make_env("state"), r"float32 observations of shape \(11,\), .* Discrete\(11\)"),
        (DiscreteActions(gym.make("Pendulum-v1")), r"4 actions and the .*: make it with Discrete"),
    ],
)
def test_other_spaces_are_refused(env, words):
    with pytest.raises(ConfigurationError, match=words):
        make_model(make_policy("onehot"), env)


def test_torques_are_chosen_in_their_own_space_by_the_same_probabilities():
    policy = rover.Rover("Pendulum-v1", seed=0, measure_share=0.0).learn(100).policy
    env = gym.make("Pendulum-v1")
    model = PPO(rover_policy(policy), env, n_steps=32, batch_size=32)
    observations = np.stack([env.reset(seed=seed)[0] for seed in range(20)])
    tensor, _ = model.policy.obs_to_tensor(observations)
    with torch.no_grad():
        action, _, log_prob = model.policy(tensor)
        assert torch.allclose(model.policy.evaluate_actions(tensor, action)[1], log_prob)
    probs = policy.probs(observations)
    taken = (action.numpy()[:, None] == policy.action_set).all(axis=2).argmax(axis=1)
    np.testing.assert_allclose(log_prob.exp(), probs[np.arange(20), taken], atol=1e-5)
    model.learn(64)
    assert all(env.action_space.contains(model.predict(row)[0]) for row in observations)
    assert np.array_equal(fine_tuned(model).action_set, policy.action_set)
    other = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), *np.float32([-1.0, 1.0]))
    with pytest.raises(ConfigurationError, match="make it with the actions of pretraining"):
        PPO(rover_policy(policy), other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: rover_policy(torch.nn.Linear(2, 2)), "a Linear has no network or table"),
        (lambda: rover_policy("nowhere.safetensors"), "nowhere"),
        (
            lambda: with_features(make_env("state"), make_policy("state")),
            "exact states and solved ones have none",
        ),
        (
            lambda: fine_tuned(make_model("MlpPolicy", make_env("onehot"))),
            "no pretrained actor: make",
        ),
    ],
)
def test_what_is_no_pretrained_policy(make, words):
    with pytest.raises((ArtefactError, ConfigurationError), match=words):
        make()


def test_logits_that_are_not_finite():
    model = make_model(make_policy("onehot"), make_env("onehot"))
    with pytest.raises(NonFiniteError, match="NaN or infinite; look at the observations"):
        model.predict(np.full((1, 11), np.nan, dtype=np.float32))


def with_features(env: GridWorld, policy: Any, *, images: bool = True) -> PPO:
    policy_kwargs = {
        "features_extractor_class": RoverFeatures,
        "features_extractor_kwargs": {"policy": policy, "scaled_images": images},
        "normalize_images": images,
    }
    return PPO("MlpPolicy", env, policy_kwargs=policy_kwargs, seed=0, device="cpu", **PPO_SETTINGS)


@pytest.mark.parametrize(
    ("kind", "images"), [("onehot", True), ("pixels", True), ("pixels", False)]
)
def test_features_are_the_encoders_on_raw_observations(kind, images):
    env, policy = make_env(kind), make_policy(kind)
    model = with_features(env, policy, images=images)
    expected = torch.as_tensor(policy.encoder.features(env.finite_mdp.observations))
    assert model.policy.features_dim == expected.shape[1]
    tensor, _ = model.policy.obs_to_tensor(env.finite_mdp.observations)
    # Bit for bit, also after the initialisation that overwrites other extractors.
    assert torch.equal(model.policy.extract_features(tensor), expected)


class FromOne(gym.ActionWrapper):
    """Actions 1 and 2, which are recorded."""

    def __init__(self) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.action_space, self.taken = gym.spaces.Discrete(2, start=1), set()

    def action(self, action):
        self.taken.add(int(action))
        return action - 1


@pytest.mark.filterwarnings("ignore")
def test_actions_that_begin_at_one_are_shifted_or_refused():
    settings = {"representation": "info_nce", "policy_every": 50, "measure_share": 0.0}
    policy = rover.Rover(FromOne(), seed=0, **settings).learn(100).policy
    for algorithm in (PPO, A2C):
        env = FromOne()
        model = algorithm(rover_policy(policy), env, n_steps=32, device="cpu").learn(64)
        assert env.taken == {1, 2}
        assert fine_tuned(model).act(env.reset(seed=0)[0], np.random.default_rng(0)) in (1, 2)
    features = {"features_extractor_class": RoverFeatures}
    features["features_extractor_kwargs"] = {"policy": policy}
    for algorithm in (PPO, A2C, DQN):
        with pytest.raises(ConfigurationError, match=r"actions are 1 to 2, .* sends 0 to 1"):
            algorithm("MlpPolicy", FromOne(), policy_kwargs=features)
