from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError

from rover.errors import ConfigurationError
from rover.features import (
    Encoder,
    EncoderSpec,
    default_encoder_spec,
    feature_diagnostics,
    input_statistics,
    make_encoder,
    paper_encoder_spec,
)

PIXELS = EncoderSpec(
    kind="conv",
    observation_shape=(24, 20, 3),
    observation_dtype="uint8",
    feature_dim=32,
    channels=(8, 8),
    strides=(2, 2),
)
ONE_HOT = EncoderSpec(
    kind="mlp", observation_shape=(12,), feature_dim=16, hidden_sizes=(32,), bias=False
)
STATES = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=9)
BOX = EncoderSpec(kind="scale", observation_shape=(2,), low=(-1.2, -0.07), high=(0.6, 0.07))


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _square_images(height: int = 24, width: int = 20, side: int = 3) -> NDArray[np.uint8]:
    """One image for each place of a red square on a grey floor: (n, height, width, 3)."""
    places = [(y, x) for y in range(0, height - side + 1, side) for x in range(0, width - 2, side)]
    images = np.full((len(places), height, width, 3), 230, dtype=np.uint8)
    for image, (y, x) in zip(images, places, strict=True):
        image[y : y + side, x : x + side] = (210, 40, 40)
    return images


@pytest.mark.parametrize("spec", [PIXELS, ONE_HOT, STATES, BOX], ids=lambda spec: spec.kind)
def test_spec_survives_json_and_rebuilds_the_encoder_with_its_weights(spec: EncoderSpec) -> None:
    rng = np.random.default_rng(0)
    encoder = make_encoder(spec, _generator())
    if spec.kind in ("mlp", "conv"):
        encoder.set_centering(rng.random(spec.observation_shape), 2.0)
    restored = make_encoder(
        EncoderSpec.model_validate(json.loads(spec.model_dump_json())), _generator(1)
    )
    restored.load_state_dict(encoder.state_dict())
    observations = (
        rng.integers(0, 9, size=5)
        if spec.kind == "identity"
        else rng.integers(0, 255, size=(5, *spec.observation_shape)).astype(spec.observation_dtype)
    )
    expected = encoder.features(observations)
    np.testing.assert_array_equal(restored.features(observations), expected)
    assert expected.shape == (5, encoder.feature_dim)


def test_same_generator_state_gives_the_same_bits_and_leaves_global_randomness_alone() -> None:
    for spec in (PIXELS, ONE_HOT):
        before = torch.random.get_rng_state()
        first, second = (make_encoder(spec, _generator(7)) for _ in range(2))
        assert torch.equal(torch.random.get_rng_state(), before)
        for a, b in zip(first.parameters(), second.parameters(), strict=True):
            assert torch.equal(a, b)
        other = make_encoder(spec, _generator(8))
        assert not torch.equal(next(other.parameters()), next(first.parameters()))


def test_identity_passes_states_and_checks_them() -> None:
    encoder = make_encoder(STATES, _generator())
    features = encoder.features(np.array([0, 8, 3]))
    assert features.dtype == np.float64
    assert features.tolist() == [[0.0], [8.0], [3.0]]
    with pytest.raises(ConfigurationError, match=r"states must lie in 0 … 8, got 0 … 9"):
        encoder.features(np.array([0, 9]))
    assert encoder.features(np.empty(0, dtype=np.int64)).shape == (0, 1)


def test_scale_maps_the_bounds_to_zero_and_one() -> None:
    encoder = make_encoder(BOX, _generator())
    corners = np.array([[-1.2, -0.07], [0.6, 0.07], [-0.3, 0.0]], dtype=np.float32)
    features = encoder.features(corners)
    assert features.dtype == np.float64
    np.testing.assert_allclose(features, [[0, 0], [1, 1], [0.5, 0.5]], atol=1e-6)


def test_mlp_reads_discrete_states_as_one_hot() -> None:
    discrete = ONE_HOT.model_copy(
        update={"observation_shape": (), "observation_dtype": "int64", "n_states": 12}
    )
    a, b = make_encoder(discrete, _generator()), make_encoder(ONE_HOT, _generator())
    np.testing.assert_array_equal(
        a.features(np.arange(12)), b.features(np.eye(12, dtype=np.float32))
    )
    with pytest.raises(ConfigurationError, match=r"states must lie in 0 … 11, got -1 … 0"):
        a.features(np.array([-1, 0]))


@pytest.mark.parametrize(("normalization", "order"), [("l2", 2), ("l1", 1)])
def test_features_have_unit_norm(normalization: str, order: int) -> None:
    for spec, observations in (
        (PIXELS, _square_images()),
        (ONE_HOT, np.eye(12, dtype=np.float32)),
    ):
        spec = EncoderSpec.model_validate(
            {**spec.model_dump(), "normalization": normalization, "output_relu": True}
        )
        features = make_encoder(spec, _generator()).features(observations)
        np.testing.assert_allclose(np.linalg.norm(features, ord=order, axis=1), 1.0, rtol=1e-5)
        assert (features >= 0.0).all()


def test_normalization_none_leaves_the_linear_output() -> None:
    spec = ONE_HOT.model_copy(update={"normalization": "none", "hidden_sizes": ()})
    encoder = make_encoder(spec, _generator())
    (weight,) = encoder.parameters()
    np.testing.assert_array_equal(
        encoder.features(np.eye(12, dtype=np.float32)), weight.detach().numpy().T
    )


def test_centering_is_subtracted_and_divided_by() -> None:
    rng = np.random.default_rng(1)
    observations = rng.normal(size=(6, 12)).astype(np.float32)
    center, scale = rng.normal(size=12).astype(np.float32), np.float32(0.5) + rng.random(12)
    plain, centred = make_encoder(ONE_HOT, _generator()), make_encoder(ONE_HOT, _generator())
    centred.set_centering(center, scale)
    np.testing.assert_allclose(
        centred.features(observations),
        plain.features(((observations - center) / scale).astype(np.float32)),
        atol=1e-6,
    )


def test_features_do_not_depend_on_how_sparse_the_deviation_is() -> None:
    """A byte more in the center makes every pixel differ; the features hardly move."""
    images = _square_images()
    encoder = make_encoder(PIXELS, _generator())
    center, scale = input_statistics(images)
    encoder.set_centering(center, scale)
    sparse = encoder.features(images)
    encoder.set_centering(center + np.float32(1e-4), scale)
    np.testing.assert_allclose(encoder.features(images), sparse, atol=1e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_centred_images_come_apart_before_any_training(seed: int) -> None:
    images = _square_images()
    encoder = make_encoder(PIXELS, _generator(seed))
    raw = feature_diagnostics(encoder.features(images))
    encoder.set_centering(*input_statistics(images))
    centred = feature_diagnostics(encoder.features(images))
    assert raw.mean_cosine > 0.95
    assert centred.mean_cosine < 0.5
    assert centred.max_cosine < 0.95
    # Images that were not there when the centre was chosen look new as well.
    encoder.set_centering(*input_statistics(images[:4]))
    features = encoder.features(images)
    assert (features[4:] @ features[:4].T).max() < 0.95


def test_an_image_equal_to_the_center_has_finite_features_of_its_own() -> None:
    images = _square_images()[:3]
    images[0] = 230
    encoder = make_encoder(PIXELS, _generator())
    encoder.set_centering(*input_statistics(images))
    features = encoder.features(images)
    assert np.isfinite(features).all()
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-5)
    assert abs(features[0] @ features[1:].T).max() < 0.9


def test_input_statistics() -> None:
    vectors = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 3.0], [4.0, 5.0, 2.0]])
    center, scale = input_statistics(vectors)
    assert center.tolist() == [1.0, 5.0, 2.0]
    assert scale.tolist() == [4.0, 1.0, 2.0]
    center, scale = input_statistics(np.eye(7, dtype=np.float32)[:5])
    assert not center.any()
    assert (scale == 1.0).all()
    images = _square_images()
    center, scale = input_statistics(images)
    assert (center == 230).all()
    assert (scale == 255).all()
    np.testing.assert_array_equal(input_statistics(images, max_observations=5)[0], center)
    with pytest.raises(ConfigurationError, match="no observations: collect at least one"):
        input_statistics(images[:0])


def test_frozen_copy_is_apart_from_the_original() -> None:
    encoder = make_encoder(ONE_HOT, _generator())
    frozen = encoder.frozen()
    observations = np.eye(12, dtype=np.float32)
    before = frozen.features(observations)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(1.0)
    np.testing.assert_array_equal(frozen.features(observations), before)
    assert not frozen.training
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_batches_and_read_only_input_give_the_same_features() -> None:
    observations = np.eye(12, dtype=np.float32)
    observations.setflags(write=False)
    encoder = make_encoder(ONE_HOT, _generator())
    np.testing.assert_allclose(
        encoder.features(observations, batch_size=5), encoder.features(observations), atol=1e-6
    )


def test_greyscale_images_need_no_channel_axis() -> None:
    spec = PIXELS.model_copy(update={"observation_shape": (24, 20)})
    images = _square_images()[..., 0]
    assert make_encoder(spec, _generator()).features(images).shape == (len(images), 32)


def test_default_specs_and_the_bias_that_vectors_need() -> None:
    vector = default_encoder_spec((2,), observation_dtype="float32")
    one_hot = default_encoder_spec((2,), observation_dtype="float32", one_hot=True)
    observations = np.array([[0.3, 0.2], [0.6, 0.4]], dtype=np.float32)  # one is twice the other
    apart, merged = (
        make_encoder(spec, _generator()).features(observations) for spec in (vector, one_hot)
    )
    assert apart[0] @ apart[1] < 0.99
    assert merged[0] @ merged[1] == pytest.approx(1.0, abs=1e-5)
    discrete = default_encoder_spec((), observation_dtype="int64", n_states=5)
    assert make_encoder(discrete, _generator()).features(np.arange(5)).shape == (5, 200)
    images = default_encoder_spec((84, 84, 3), observation_dtype="uint8")
    assert images.kind == "conv"
    assert images.normalization == "l2"


def test_paper_presets() -> None:
    images = paper_encoder_spec((84, 84, 3), observation_dtype="uint8")
    encoder = make_encoder(images, _generator())
    sizes = {name: tuple(p.shape) for name, p in encoder.named_parameters()}
    assert sizes["output.weight"] == (200, 32 * 7 * 7)
    assert len([name for name in sizes if name.startswith("kernels")]) == 4
    observations = np.zeros((2, 84, 84, 3), dtype=np.uint8)
    observations[1, 30:40, 30:40] = 255
    features = encoder.features(observations)
    np.testing.assert_allclose(features.sum(axis=1), 1.0, rtol=1e-5)
    one_hot = make_encoder(paper_encoder_spec((9,), observation_dtype="float32"), _generator())
    assert [tuple(p.shape) for p in one_hot.parameters()] == [(1024, 9), (200, 1024)]
    features = one_hot.features(np.eye(9, dtype=np.float32))
    assert (features >= 0).all()
    np.testing.assert_allclose(features.sum(axis=1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (STATES.model_copy(update={"n_states": None}), "set n_states to their number"),
        (
            STATES.model_copy(update={"observation_shape": (3,)}),
            "takes Discrete states: observation_shape",
        ),
        (BOX.model_copy(update={"low": None}), "needs low and high with 2 numbers each"),
        (
            BOX.model_copy(update={"high": (float("inf"), 1.0)}),
            r"dimension 0 has bounds \[-1.2, inf\].*use an 'mlp' encoder",
        ),
        (
            PIXELS.model_copy(update={"observation_shape": (3,)}),
            r"takes images .* not observations of shape \(3,\): use an 'mlp' encoder",
        ),
        (PIXELS.model_copy(update={"strides": (2,)}), "must have the same length"),
    ],
)
def test_contradicting_settings(spec: EncoderSpec, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_encoder(spec, _generator())


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError, match="extra_forbidden"):
        EncoderSpec.model_validate({"kind": "mlp", "observation_shape": [3], "depth": 2})
    with pytest.raises(ValidationError, match=r"strides.1[^$]*greater than 0"):
        EncoderSpec.model_validate({**PIXELS.model_dump(), "strides": (2, 0)})


@pytest.mark.parametrize("encoder", [make_encoder(ONE_HOT, _generator())])
def test_wrong_input_is_named(encoder: Encoder) -> None:
    with pytest.raises(ConfigurationError, match=re.escape("shape (n, 12) and was given (3, 11)")):
        encoder.features(np.zeros((3, 11), dtype=np.float32))
    with pytest.raises(ConfigurationError, match=r"expects .* dtype float32 and was given float64"):
        encoder.features(np.zeros((3, 12)))


def test_wrong_centering_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"the 'identity' encoder .* has no centring"):
        make_encoder(STATES, _generator()).set_centering(np.zeros(()))
    encoder = make_encoder(ONE_HOT, _generator())
    with pytest.raises(ConfigurationError, match=r"center has shape \(3,\)"):
        encoder.set_centering(np.zeros(3))
    with pytest.raises(ConfigurationError, match="must be finite and the scale positive"):
        encoder.set_centering(np.zeros(12), 0.0)
    with pytest.raises(ConfigurationError, match="must be finite"):
        encoder.set_centering(np.full(12, np.nan))
    with pytest.raises(ConfigurationError, match=r"scale has shape \(5,\)"):
        encoder.set_centering(np.zeros(12), np.ones(5))
