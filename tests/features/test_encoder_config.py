from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rover.errors import ConfigurationError
from rover.features import (
    EncoderConfig,
    Observations,
    encoder_config,
    input_statistics,
    make_encoder,
)

STATES = spaces.Discrete(5)
VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOX = spaces.Box(np.array([-1.2, -0.07]), np.array([0.6, 0.07]), dtype=np.float64)
IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)


def _features(config: EncoderConfig, observations: Any) -> Any:
    return make_encoder(config, torch.Generator().manual_seed(0)).features(np.asarray(observations))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encoder_config(VECTOR, depth=2), "setting depth=2: Extra inputs"),
        (
            lambda: encoder_config(spaces.Box(0, 1, (3,), np.float16)),
            r"float64, not Box\(.*float16\): wrap",
        ),
        (
            lambda: encoder_config(spaces.Dict({"a": spaces.Discrete(2)})),
            r"take Discrete observations and those of a Box, .* not Dict\('a'",
        ),
        (lambda: encoder_config(VECTOR, hidden_sizes=(8, -1)), r"setting hidden_sizes.1=-1"),
    ],
)
def test_mistakes_are_named(make: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_defaults_and_the_bias_that_vectors_need() -> None:
    observations = np.array([[0.3, 0.2], [0.6, 0.4]], dtype=np.float32)  # one is twice the other
    apart = _features(encoder_config(VECTOR), observations)
    merged = _features(encoder_config(Observations.from_space(VECTOR, one_hot=True)), observations)
    assert apart[0] @ apart[1] < 0.99
    assert merged[0] @ merged[1] == pytest.approx(1.0, abs=1e-5)
    assert _features(encoder_config(STATES), range(5)).shape == (5, 200)
    images = encoder_config(IMAGE)
    assert (images.kind, images.normalization, images.pool_to) == ("conv", "l2", None)


@pytest.mark.parametrize(
    ("space", "kind", "settings"),
    [
        (IMAGE, None, {"hidden_sizes": (8,)}),
        (STATES, "identity", {"feature_dim": 7}),
        (BOX, "scale", {"output_relu": True}),
    ],
)
def test_settings_without_a_meaning_are_refused(space: Any, kind: Any, settings: Any) -> None:
    name = next(iter(settings))
    with pytest.raises(ConfigurationError, match=f"^{name}=.* has no meaning for .*: leave it out"):
        encoder_config(space, kind=kind, **settings)


def test_identity_changes_no_bit_and_scale_fills_the_unit_interval() -> None:
    corners = np.array([[-1.2, -0.07], [0.6, 0.07], [-0.3, 0.0]])
    np.testing.assert_array_equal(_features(encoder_config(BOX, kind="identity"), corners), corners)
    np.testing.assert_allclose(
        _features(encoder_config(BOX, kind="scale"), corners),
        [[0, 0], [1, 1], [0.5, 0.5]],
        atol=1e-12,
    )
    assert _features(encoder_config(STATES, kind="identity"), [3, 1]).tolist() == [[3.0], [1.0]]


def test_input_statistics() -> None:
    vectors = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 3.0], [4.0, 5.0, 2.0]])
    center, scale = input_statistics(vectors)
    assert center.tolist() == [1.0, 5.0, 2.0]
    assert scale.tolist() == [4.0, 1.0, 2.0]
    center, scale = input_statistics(np.eye(7, dtype=np.float32)[:5])
    assert not center.any()
    assert (scale == 1.0).all()
    codes = np.array([[0, 3], [9, 5]], np.uint8)  # small numbers
    assert input_statistics(codes)[1].tolist() == [9.0, 2.0]
    assert input_statistics(np.full((3, 4), 7, np.uint8))[1].tolist() == [1.0] * 4
    images = np.full((9, 6, 6, 3), 230, dtype=np.uint8)
    images[np.arange(9), np.arange(9) % 6] = 40
    center, scale = input_statistics(images)
    assert (center == 230).all()
    assert (scale == 255).all()
