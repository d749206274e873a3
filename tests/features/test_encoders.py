"""Encoders and their inputs; losses, AdamW and sparse convolution against torch."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.errors import ConfigurationError
from rover.features import (
    ActionPredictor,
    AdamW,
    EncoderConfig,
    Observations,
    convolution,
    custom_encoder,
    encoder_config,
    info_nce_loss,
    input_statistics,
    learning_mode,
    make_encoder,
    scaled_encoder,
    state_encoder,
)

PIXELS = encoder_config(Observations((24, 20, 3), "uint8"), feature_dim=32, strides=(2, 2))
ONE_HOT = encoder_config(
    Observations((12,), "float32", one_hot=True), feature_dim=16, hidden_sizes=(32,)
)
STATES = state_encoder(spaces.Discrete(9)).config
BOX = EncoderConfig(kind="scale", observation_shape=(2,), low=(-1.2, -0.07), high=(0.6, 0.07))
EYE = np.eye(12, dtype=np.float32)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _square_images() -> NDArray[np.uint8]:
    """One image for each place of a red square on a grey floor: (n, 24, 20, 3)."""
    places = [(y, x) for y in range(0, 22, 3) for x in range(0, 18, 3)]
    images = np.full((len(places), 24, 20, 3), 230, dtype=np.uint8)
    for image, (y, x) in zip(images, places, strict=True):
        image[y : y + 3, x : x + 3] = (210, 40, 40)
    return images


def cosines(features: np.ndarray) -> np.ndarray:
    """Of the pairs of different rows."""
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    return (unit @ unit.T)[~np.eye(len(unit), dtype=bool)]


@pytest.mark.parametrize("config", [PIXELS, ONE_HOT, STATES, BOX], ids=lambda config: config.kind)
def test_a_config_from_json_rebuilds_the_encoder_with_its_weights(config):
    rng = np.random.default_rng(0)
    encoder = make_encoder(config, _generator())
    if config.kind in ("mlp", "conv"):
        encoder.set_centering(rng.random(config.observation_shape), 2.0)
    stored = EncoderConfig.model_validate(json.loads(config.model_dump_json()))
    restored = make_encoder(stored, _generator(1))
    restored.load_state_dict(encoder.state_dict())
    observations = rng.integers(0, 9, size=(5, *config.observation_shape))
    observations = observations.astype(config.observation_dtype)
    expected = encoder.features(observations)
    np.testing.assert_array_equal(restored.features(observations), expected)
    assert expected.shape == (5, encoder.feature_dim)


@pytest.mark.parametrize(("normalization", "order"), [("l2", 2), ("l1", 1)])
def test_features_have_unit_norm(normalization, order):
    for config, observations in ((PIXELS, _square_images()), (ONE_HOT, EYE)):
        changes = {"normalization": normalization, "output_relu": True}
        encoder = make_encoder(config.model_copy(update=changes), _generator())
        features = encoder.features(observations)
        np.testing.assert_allclose(np.linalg.norm(features, ord=order, axis=1), 1.0, rtol=1e-5)
        assert (features >= 0.0).all()


def test_centering_is_subtracted_and_divided_by():
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


def test_centred_images_come_apart_before_any_training():
    images = _square_images()
    encoder = make_encoder(PIXELS, _generator())
    raw = cosines(encoder.features(images))
    encoder.set_centering(*input_statistics(images))
    centred = cosines(encoder.features(images))
    assert raw.mean() > 0.95
    assert centred.mean() < 0.5
    assert centred.max() < 0.95
    # An image that is the center itself has a direction of its own.
    images[0] = 230
    encoder.set_centering(*input_statistics(images[:3]))
    features = encoder.features(images[:3])
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1.0, rtol=1e-5)
    assert abs(features[0] @ features[1:].T).max() < 0.9


class _Mean(nn.Module):
    """Somebody's encoder of images: mean colours through a linear layer."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.linear = nn.Linear(3, width)

    def forward(self, images: Tensor) -> Tensor:
        mean: Tensor = self.linear(images.float().mean(dim=(1, 2)) / 255.0)
        return mean


IMAGES = spaces.Box(0, 255, (24, 20, 3), np.uint8)


def test_a_module_of_ones_own_is_an_encoder():
    module, images = _Mean(), _square_images()
    encoder = custom_encoder(module, IMAGES)
    assert (encoder.config.kind, encoder.feature_dim, encoder.is_trainable) == ("custom", 4, True)
    expected = module(torch.from_numpy(images)).detach().numpy()
    np.testing.assert_allclose(encoder.features(images), expected, rtol=1e-5)
    with torch.no_grad():
        module.linear.weight.zero_()  # the encoder has weights of its own
    np.testing.assert_allclose(encoder.features(images), expected, rtol=1e-5)
    assert not custom_encoder(_Mean().requires_grad_(False), IMAGES).is_trainable
    states = custom_encoder(nn.Embedding(7, 5), spaces.Discrete(7))
    assert states.features(np.arange(7)).shape == (7, 5)


MASKED = _Mean()
MASKED.register_buffer("mask", torch.tensor(-torch.inf))  # which no checkpoint may hold


@pytest.mark.slow
def test_weights_start_the_same_under_any_number_of_threads():
    """Of networks large enough for LAPACK to share work."""
    images = encoder_config(Observations((84, 84, 3), "uint8"))
    states = encoder_config(Observations((), "int64", n_states=600))

    def weights() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(0)
        for config in (images, states):
            yield from make_encoder(config, generator).state_dict().values()
        yield from ActionPredictor(200, 2, kind="silu", generator=generator).parameters()

    with learning_mode(1):
        first = list(weights())
    with learning_mode(2):
        assert all(map(torch.equal, first, weights()))
        assert torch.get_num_threads() == 2


STATE_SPACE = spaces.Discrete(5)
VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float32)
BOX_SPACE = spaces.Box(np.array([-1.2, -0.07]), np.array([0.6, 0.07]), dtype=np.float64)
IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)


def _features(config: EncoderConfig, observations: Any) -> Any:
    return make_encoder(config, torch.Generator().manual_seed(0)).features(np.asarray(observations))


def custom(module: nn.Module) -> Any:
    return custom_encoder(module, IMAGES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encoder_config(VECTOR, hidden_sizes=(8, -1)), r"setting hidden_sizes.1=-1"),
        (lambda: encoder_config(spaces.Box(0, 1, (3,), np.float16)), r"not Box\(.*float16\): wrap"),
        (lambda: encoder_config(IMAGE, hidden_sizes=(8,)), "^hidden_sizes=.* has no meaning for"),
        (lambda: _features(ONE_HOT, np.zeros((3, 11))), r"float32 .* \(n, 12\), .*\(3, 11\)"),
        (lambda: custom(nn.Linear(5, 3)), r"Linear failed on .* of shape \(2, 24, 20, 3\) and dt"),
        (lambda: custom(nn.Flatten()), r"Flatten returned .*\[2, 1440\]\) torch.uint8 for two obs"),
        (lambda: custom(MASKED), "and they and its weights must be finite"),
    ],
)
def test_mistakes_are_named(make, message):
    with pytest.raises(ConfigurationError, match=message):
        make()


def test_defaults_and_the_bias_that_vectors_need():
    observations = np.array([[0.3, 0.2], [0.6, 0.4]], dtype=np.float32)  # one is twice the other
    apart = _features(encoder_config(VECTOR), observations)
    merged = _features(
        encoder_config(Observations.from_space(VECTOR, states=np.eye(2))), observations
    )
    assert apart[0] @ apart[1] < 0.99
    assert merged[0] @ merged[1] == pytest.approx(1.0, abs=1e-5)
    assert _features(encoder_config(STATE_SPACE), range(5)).shape == (5, 200)
    images = encoder_config(IMAGE)
    assert (images.kind, images.normalization, images.pool_to) == ("conv", "l2", None)


def test_states_are_their_numbers_and_scaled_vectors_fill_the_unit_interval():
    corners = np.array([[-1.2, -0.07], [0.6, 0.07], [-0.3, 0.0]])
    encoder = scaled_encoder(BOX_SPACE, BOX_SPACE.low, BOX_SPACE.high)
    np.testing.assert_allclose(encoder.features(corners), [[0, 0], [1, 1], [0.5, 0.5]], atol=1e-12)
    assert state_encoder(STATE_SPACE).features(np.array([3, 1])).tolist() == [[3.0], [1.0]]


def test_input_statistics():
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


def _plain_info_nce(predicted: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """The paper's loss on a batch of transitions, duplicates and all (eq. l_nce)."""
    logits = F.normalize(predicted, dim=1) @ F.normalize(targets, dim=1).T / temperature
    return -logits.log_softmax(dim=1).diagonal().mean()


@settings(max_examples=50)
@given(
    seed=st.integers(0, 100_000),
    n=st.integers(1, 12),
    m=st.integers(1, 6),
    temperature=st.sampled_from([0.02, 0.05, 0.5, 1.0]),
)
def test_info_nce_on_merged_rows_equals_the_batch_of_duplicates(seed, n, m, temperature):
    generator = _generator(seed)
    predicted = torch.randn(n, 7, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(m, 7, generator=generator, dtype=torch.float64)
    positive = torch.randint(m, (n,), generator=generator)
    counts = torch.randint(1, 5, (n,), generator=generator)
    weights = counts.double()
    merged = info_nce_loss(predicted, targets, positive, weights, temperature=temperature)
    rows = torch.repeat_interleave(torch.arange(n), counts)
    plain = _plain_info_nce(predicted[rows], targets[positive[rows]], temperature)
    assert merged.item() == pytest.approx(plain.item(), abs=1e-9)
    (gradient,) = torch.autograd.grad(merged, predicted, retain_graph=True)
    (expected,) = torch.autograd.grad(plain, predicted)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "two_layer", "silu"])
@pytest.mark.parametrize("n", [3, 40])
def test_prediction_is_the_matrix_of_the_action_times_the_features(kind, n):
    """Few rows are predicted by action and many all at once: both are W (φ(x) ⊗ e_a)."""
    predictor = ActionPredictor(6, 4, kind=kind, generator=_generator())
    features = torch.randn(5, 6, generator=_generator())
    inputs = torch.randint(5, (n,), generator=_generator())
    actions = torch.randint(3, (n,), generator=_generator())  # the last action never occurs
    psi = torch.einsum("nz,na->naz", features[inputs], F.one_hot(actions, 4).float())
    expected = torch.einsum("naz,zaw->nw", psi, predictor.weight)
    if predictor.output is not None:
        hidden = F.silu(expected) if kind == "silu" else expected
        expected = hidden @ predictor.output
    torch.testing.assert_close(predictor(features, inputs, actions), expected)


def layers() -> nn.Sequential:
    """Two layers and one that is frozen, with weights of a seed."""
    made = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Linear(1, 1))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(generator=generator)
    made[3].requires_grad_(False)
    return made


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(1))


def test_steps_are_those_of_torch_with_single_rates_and_the_state_has_its_names_from_the_start():
    ours, theirs = layers(), layers()
    rates = {"2.bias": 0.5}
    optimizer = AdamW("x", ours, 0.1, weight_decay=0.1, learning_rates=rates)
    names = optimizer.tensors().keys()
    others = [parameter for name, parameter in theirs[:3].named_parameters() if name != "2.bias"]
    apart = {"params": [theirs[2].bias], "lr": 0.5, "weight_decay": 0.0}
    reference = torch.optim.AdamW([{"params": others}, apart], lr=0.1, weight_decay=0.1)
    for _ in range(3):
        loss = theirs(X).square().mean()
        reference.zero_grad()
        loss.backward()
        reference.step()
        assert optimizer.descend(ours(X).square().mean())["loss"] == pytest.approx(loss.item())
        for found, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(found, expected)
    assert optimizer.n_updates == 3
    assert optimizer.tensors().keys() == names >= {"3.bias", "optimizer.exp_avg.0.weight"}
    assert "optimizer.exp_avg.3.bias" not in names


def test_moments_without_a_gradient_become_zero_and_not_denormal():
    """Denormal numbers, which they would be for hundreds of steps, are slow to compute with."""
    unit = nn.ParameterDict({"u": nn.Parameter(torch.ones(1))})
    optimizer = AdamW("x", unit, 1e-3)
    optimizer.descend(1e-30 * unit["u"].sum())
    moment, steps = optimizer.tensors()["optimizer.exp_avg.u"], 0
    while float(moment) != 0.0:
        assert float(moment) >= torch.finfo(torch.float32).tiny
        optimizer.descend(0.0 * unit["u"].sum())
        steps += 1
    assert 150 < steps < 200  # 1e-31 times 0.9 to the power of 157 is 6e-39


def _images(
    seed: int, n: int, height: int, width: int, channels: int, changed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of one random image with ``changed`` random pixels replaced in each."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randint(0, 256, (height, width, channels), generator=generator, dtype=torch.uint8)
    images = base.repeat(n, 1, 1, 1)
    y, x = (torch.randint(size, (n, changed), generator=generator) for size in (height, width))
    colours = torch.randint(0, 256, (n, changed, channels), generator=generator, dtype=torch.uint8)
    images[torch.arange(n)[:, None], y, x] = colours
    return images, base.float()


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(
        st.integers(1, 3), st.integers(5, 20), st.integers(5, 20), st.sampled_from([1, 3])
    ),
    changed=st.integers(0, 4),
    kernel=st.integers(1, 4),
    strides=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_sparse_convolution_equals_the_ordinary_one(seed, shape, changed, kernel, strides):
    images, center = _images(seed, *shape, changed)
    generator = torch.Generator().manual_seed(seed)
    scale = 1.0 + torch.rand(center.shape, generator=generator)
    expected = ((images - center) / scale).permute(0, 3, 1, 2).double()
    padding = kernel // 2
    kernels = []
    for i, stride in enumerate(strides):
        fan_in = shape[-1] if i == 0 else 4
        kernels.append(torch.randn(4, kernel, kernel, fan_in, generator=generator))
        weight = kernels[-1].double().permute(0, 3, 1, 2)
        expected = F.relu(F.conv2d(expected, weight, stride=stride, padding=padding))
    result = convolution.convolved(images, center, scale, kernels, strides=strides, padding=padding)
    tolerance = 1e-5 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(result.double(), expected, rtol=1e-5, atol=tolerance)


def test_gradients_equal_those_of_the_ordinary_convolution(monkeypatch):
    images, center = _images(3, 4, 18, 15, 3, 3)
    scale = torch.full_like(center, 255.0)
    generator = torch.Generator().manual_seed(0)
    shapes = (5, 3, 3, 3), (6, 3, 3, 5)
    initial = [torch.randn(shape, generator=generator) for shape in shapes]
    gradients = []
    for fraction in (1.0, 0.0):  # sparse to the end, and dense from the beginning
        monkeypatch.setattr(convolution, "_DENSE_FRACTION", fraction)
        weights = [one.clone().requires_grad_() for one in initial]
        output = convolution.convolved(images, center, scale, weights, strides=(2, 2), padding=1)
        (output.square().sum() + output[:, 0].sum()).backward()
        gradients.append([weight.grad for weight in weights])
    for ours, reference in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-4, atol=1e-5)
