"""The pretrained encoder as a features extractor of Stable-Baselines3's own policies."""

from typing import Any

import numpy as np
import pytest
import torch
from pretrained_policies import KINDS, PPO_SETTINGS, make_env, make_policy

from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError

pytest.importorskip("stable_baselines3")

from stable_baselines3 import PPO

from rover.integrations.sb3 import RoverFeatures

pytestmark = pytest.mark.slow


def make_model(env: GridWorld, policy: Any, *, images: bool = True, **kwargs: Any) -> PPO:
    policy_kwargs = {
        "features_extractor_class": RoverFeatures,
        "features_extractor_kwargs": {"policy": policy, "scaled_images": images, **kwargs},
        "normalize_images": images,
    }
    return PPO("MlpPolicy", env, policy_kwargs=policy_kwargs, seed=0, device="cpu", **PPO_SETTINGS)


def features_of(model: PPO, observations: np.ndarray) -> torch.Tensor:
    tensor, _ = model.policy.obs_to_tensor(observations)
    with torch.no_grad():
        features: torch.Tensor = model.policy.extract_features(tensor)
    return features


@pytest.mark.parametrize("images", [True, False])
@pytest.mark.parametrize("kind", ["onehot", "pixels"])
def test_features_are_the_encoders_on_raw_observations(kind, images):
    env, policy = make_env(kind), make_policy(kind)
    model = make_model(env, policy, images=images)
    expected = torch.as_tensor(policy.encoder.features(env.observations()))
    assert model.policy.features_dim == expected.shape[1]
    # Bit for bit, also after the initialisation that overwrites other extractors.
    assert torch.equal(features_of(model, env.observations()), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_linear_in_the_regressors(kind):
    env, policy = make_env(kind), make_policy(kind)
    found = features_of(make_model(env, policy, features="regressors"), env.observations())
    centred = policy.weights.detach() - policy.weights.detach().mean(dim=1, keepdim=True)
    logits = found.double() @ centred
    expected = torch.as_tensor(policy.probs(env.observations()))
    torch.testing.assert_close(torch.softmax(logits, dim=1), expected, atol=1e-5, rtol=0.0)
    if kind == "state":
        assert torch.equal(found, torch.eye(11))


def test_what_is_refused():
    env = make_env("onehot")
    with pytest.raises(ConfigurationError, match="'regressors' are of ROVER's own"):
        make_model(make_env("state"), make_policy("state"))
    with pytest.raises(ConfigurationError, match="no features='both'"):
        make_model(env, make_policy("onehot"), features="both")
