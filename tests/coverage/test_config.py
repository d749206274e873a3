"""Settings: mistakes, what the environment decides, and presets beside what was published."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from rover import Rover, load_policy
from rover.coverage.config import RoverConfig, _is_physical, resolve
from rover.coverage.run import _is_due
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.features import encoder_config, make_encoder
from rover.policies import policy as policies
from rover.storage import write_tensors
from rover.training.config import DEFAULT_DISCOUNT, validate_settings

STATES = spaces.Discrete(9)
SHORT = spaces.Box(-1.0, 1.0, (3,), np.float32)
LONG = spaces.Box(0.0, 1.0, (20,), np.float32)
IMAGE = spaces.Box(0, 255, (16, 16, 3), np.uint8)
SPACES = {"states": STATES, "short": SHORT, "long": LONG, "image": IMAGE}


def make_config(preset: str, **overrides: Any) -> RoverConfig:
    return validate_settings(RoverConfig, {**Rover.presets[preset], **overrides})


@pytest.mark.parametrize("name", SPACES)
def test_nothing_is_learned_unless_somebody_asks(name):
    config = resolve(make_config("default"), SPACES[name])
    assert (config.representation, config.kernel, config.bandwidth) == ("identity", None, None)
    assert resolve(config, SPACES[name]) == config
    asked = resolve(make_config("default", representation="info_nce"), SPACES[name])
    assert (asked.kernel, asked.bandwidth) == ("gaussian", 0.1)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("settings", [{"kernel": "linear"}, {"encoder": "paper"}])
def test_a_kernel_takes_physical_quantities_as_they_are_and_encodes_the_rest(name, settings):
    config = resolve(make_config("default", **settings), SPACES[name])
    learned = "identity" if name in ("states", "short") else "info_nce"
    assert (config.representation, config.kernel is None) == (learned, False)


def test_the_environment_suggests_a_discount_and_the_user_has_the_last_word():
    assert Rover(GridWorld("S..")).config.discount == DEFAULT_DISCOUNT
    assert Rover(GridWorld("middle_room")).config.discount == 0.9
    assert Rover(GridWorld("middle_room"), discount=0.5).config.discount == 0.5


@pytest.mark.parametrize(
    ("space", "settings", "words"),
    [
        ("states", {"discont": 0.9}, r"unknown setting 'discont'; did you mean 'discount'\?"),
        ("states", {"discount": 1.0}, r"setting discount=1\.0: .*less than 1"),
        ("states", {"bandwidth": 0.1, "kernel": "linear"}, "no meaning for the linear kernel"),
        ("states", {"kind": "landmarks"}, "kind='landmarks' is for vectors and images"),
        ("states", {"plan_transitions": 9}, "plan_transitions and plan_window are of kernels"),
        ("short", {"cover": (0,), "kernel": "linear"}, "cover is of states and landmarks"),
        ("long", {"hidden_sizes": (8,)}, "hidden_sizes=.* is of an encoder, and none is learned"),
        ("image", {"representation": "identity", "kernel": "linear"}, "does not suit images"),
    ],
)
def test_mistakes_and_contradictions_are_named(space, settings, words):
    with pytest.raises(ConfigurationError, match=words):
        resolve(make_config("default", **settings), SPACES[space])


@pytest.mark.parametrize(
    ("low", "size", "is_scaled"), [(0, 8, True), (0, 9, False), (-1, 64, True), (-1, 65, False)]
)
def test_physical_quantities_are_scaled_and_what_may_be_one_hot_is_not(low, size, is_scaled):
    assert _is_physical(spaces.Box(float(low), 1.0, (size,), np.float32)) == is_scaled


def test_the_image_head_of_the_paper():
    config = encoder_config(spaces.Box(0, 255, (84, 84, 3), np.uint8), architecture="paper")
    encoder = make_encoder(config, torch.Generator().manual_seed(0), gain=1.0)
    assert encoder.output.weight.shape == (200, 32 * 49)
    torch.testing.assert_close(
        torch.linalg.svdvals(encoder.output.weight.detach()), torch.ones(200)
    )
    features = encoder.features(np.random.default_rng(0).integers(0, 256, (2, 84, 84, 3), np.uint8))
    np.testing.assert_allclose(np.abs(features).sum(axis=1), 1.0, rtol=1e-5)


SMALL: dict[str, Any] = {
    "hidden_sizes": (8,),
    "feature_dim": 6,
    "batch_size": 16,
    "encoder_every": 20,
    "mirror_steps": 3,
    "evaluation_episodes": 2,
    "plan_transitions": 50,
}


def corridor(preset: str, **settings: Any) -> Rover:
    where = {"observation": "onehot", "length": 9, "horizon": 10}
    return Rover("rover/Corridor-v0", preset, env_kwargs=where, **{**SMALL, **settings})


@pytest.mark.parametrize(("first", "steps"), [(7, [27, 50, 75]), (None, [25, 50])])
def test_the_first_policy(first, steps):
    lines: list[int] = []
    agent = corridor("paper", seed_steps=20, policy_every=25, first_policy=first)
    agent.learn(steps[-1], callback=lambda line: lines.append(line["step"]) is None)
    assert lines == steps


@given(
    st.integers(1, 60),
    st.sampled_from([0.0, 0.02, 0.1, 0.2, 0.25, 0.5]),
    st.integers(0, 100),
    st.booleans(),
)
def test_policies_are_a_share_of_all_steps_apart(every, share, begin, has_first):
    settings = {"policy_every": every, "seed_steps": begin}
    config = RoverConfig(**settings, first_policy=0 if has_first else None)
    steps = [step for step in range(1, 3000) if _is_due(config, step, share)]
    later = [step for step in steps if step > begin or not has_first]
    assert all(step >= begin and step % every == 0 for step in later)
    assert not has_first or begin == 0 or begin in steps
    for step, following in itertools.pairwise(later[1:]):
        assert following - step <= every * max(1, 2 * np.ceil(share * following / every))
    most = min(1500 / every, 2.0 / share if share else np.inf) + 2
    assert sum(step > 1500 for step in later) <= most


def test_a_policy_keeps_its_share_of_uniform_actions(tmp_path):
    agent = corridor("code-2026-06", seed_steps=20, first_policy=10).learn(40)
    policy, observations = agent.policy, np.eye(9, dtype=np.float32)
    regressors = policy.regressors(torch.from_numpy(observations))
    shares = torch.softmax(policy.logits_from_regressors(regressors), 1)
    expected = 0.85 * shares.detach().numpy() + 0.15 / 4
    np.testing.assert_allclose(policy.probs(observations), expected, rtol=1e-12)
    policy.save(tmp_path / "policy")
    assert np.array_equal(
        load_policy(tmp_path / "policy").probs(observations), policy.probs(observations)
    )
    content = {"type": policy.file_type, "details": {}, **policy.content()}
    del content["epsilon"]  # a file of version 0.2
    write_tensors(tmp_path / "other", content, kind=policies.POLICY_KIND)
    assert load_policy(tmp_path / "other").epsilon == 0.0
