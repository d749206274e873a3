from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.features import (
    EncoderSpec,
    Objective,
    RepresentationTrainer,
    cosine_learning_rate,
    feature_diagnostics,
    input_statistics,
    make_encoder,
    warn_if_collapsed,
)

N_STATES, N_ACTIONS = 8, 2
OBJECTIVES: tuple[Objective, ...] = ("info_nce", "byol", "self_predictive")
Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def _ring_batch(rng: np.random.Generator, size: int = 64) -> Batch:
    """Transitions on a ring of 8 states, left or right, merged; states as one-hot."""
    pairs = rng.integers(0, N_STATES * N_ACTIONS, size=size)
    rows, counts = np.unique(pairs, return_counts=True)
    states, actions = rows // N_ACTIONS, rows % N_ACTIONS
    next_states = (states + 2 * actions - 1) % N_STATES
    distinct, index = np.unique(np.concatenate([states, next_states]), return_inverse=True)
    observations = np.eye(N_STATES, dtype=np.float32)[distinct]
    return observations, index[: len(rows)], actions, index[len(rows) :], counts


def _trainer(seed: int = 0, **settings: Any) -> RepresentationTrainer:
    spec = EncoderSpec(
        kind="mlp", observation_shape=(N_STATES,), feature_dim=12, hidden_sizes=(16,), bias=False
    )
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(spec, generator)
    return RepresentationTrainer(encoder, n_actions=N_ACTIONS, generator=generator, **settings)


def _conv_trainer(seed: int = 0) -> RepresentationTrainer:
    spec = EncoderSpec(
        kind="conv",
        observation_shape=(16, 16, 3),
        observation_dtype="uint8",
        feature_dim=12,
        channels=(8, 8),
        strides=(2, 2),
    )
    generator = torch.Generator().manual_seed(seed)
    encoder = make_encoder(spec, generator)
    return RepresentationTrainer(encoder, n_actions=N_ACTIONS, generator=generator)


def _ring_images(observations: NDArray[Any]) -> NDArray[np.uint8]:
    images = np.full((len(observations), 16, 16, 3), 220, dtype=np.uint8)
    for image, state in zip(images, observations.argmax(axis=1), strict=True):
        image[2 * state : 2 * state + 2, 5:7] = (200, 20, 20)
    return images


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_training_lowers_the_loss(objective: Objective) -> None:
    rng = np.random.default_rng(0)
    trainer = _trainer(objective=objective, learning_rate=3e-3)
    losses = [trainer.update(*_ring_batch(rng)).loss for _ in range(150)]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])


def test_info_nce_reaches_the_entropy_of_the_next_state_and_keeps_states_apart() -> None:
    """With one target for each pair the loss tends to Σ_j m_j/B · log m_j, its least value."""
    rng = np.random.default_rng(0)
    trainer = _trainer()
    for _ in range(300):
        batch = _ring_batch(rng)
        metrics = trainer.update(*batch)
    counts = np.bincount(batch[3], weights=batch[4])
    least = float((counts * np.log(counts)).sum() / counts.sum())
    assert metrics.loss == pytest.approx(least, abs=0.05)
    features = trainer.frozen_encoder().features(np.eye(N_STATES, dtype=np.float32))
    diagnostics = feature_diagnostics(features)
    assert diagnostics.max_cosine < 0.9
    assert not warn_if_collapsed(diagnostics)


def test_metrics_report_the_gradient_and_the_cosine_of_the_batch() -> None:
    batch = _ring_batch(np.random.default_rng(1))
    trainer = _trainer()
    features = trainer.encoder.features(batch[0])
    metrics = trainer.update(*batch)
    assert metrics.mean_cosine == pytest.approx(feature_diagnostics(features).mean_cosine, abs=1e-5)
    gradients = [
        p.grad
        for module in (trainer.encoder, trainer.predictor)
        for p in module.parameters()
        if p.grad is not None
    ]
    norm = math.sqrt(sum(float(g.double().square().sum()) for g in gradients))
    assert metrics.grad_norm == pytest.approx(norm, rel=1e-5)
    assert metrics.learning_rate == 1e-3


def test_merged_rows_train_as_the_batch_of_duplicates() -> None:
    observations, inputs, actions, nexts, counts = _ring_batch(np.random.default_rng(2))
    rows = np.repeat(np.arange(len(counts)), counts)
    merged, plain = _trainer(), _trainer()
    a = merged.update(observations, inputs, actions, nexts, counts)
    b = plain.update(observations, inputs[rows], actions[rows], nexts[rows], np.ones(len(rows)))
    assert a.loss == pytest.approx(b.loss, rel=1e-6)
    assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-4)


@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    before=st.integers(0, 4),
    after=st.integers(1, 4),
    objective=st.sampled_from(OBJECTIVES),
    predictor=st.sampled_from(["linear", "mlp"]),
)
def test_a_restored_trainer_continues_with_the_same_bits(
    seed: int, before: int, after: int, objective: Objective, predictor: str
) -> None:
    settings: dict[str, Any] = {
        "objective": objective,
        "predictor": predictor,
        "schedule": "cosine",
        "schedule_updates": 6,
    }
    rng = np.random.default_rng(seed)
    batches = [_ring_batch(rng) for _ in range(before + after)]
    whole = _trainer(seed, **settings)
    whole.encoder.set_centering(rng.random(N_STATES), 2.0)
    for batch in batches[:before]:
        whole.update(*batch)
    saved = whole.state()
    resumed = _trainer(seed + 1, **settings)
    resumed.load_state(saved)
    for batch in batches[before:]:
        assert whole.update(*batch) == resumed.update(*batch)
    ours, theirs = whole.state(), resumed.state()
    assert ours.keys() == theirs.keys() == saved.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


def test_a_restored_convolutional_trainer_continues_with_the_same_bits() -> None:
    rng = np.random.default_rng(3)
    whole, resumed = _conv_trainer(0), _conv_trainer(1)
    for i in range(6):
        observations, *rest = _ring_batch(rng)
        images = _ring_images(observations)
        if i == 0:
            whole.encoder.set_centering(*input_statistics(images))
        if i == 3:
            resumed.load_state(whole.state())
        metrics = whole.update(images, *rest)
        if i >= 3:
            assert resumed.update(images, *rest) == metrics
    for name, tensor in whole.state().items():
        assert torch.equal(tensor, resumed.state()[name]), name


def test_the_same_seed_gives_the_same_bits() -> None:
    states = []
    for _ in range(2):
        trainer, rng = _trainer(5), np.random.default_rng(5)
        for _ in range(5):
            trainer.update(*_ring_batch(rng))
        states.append(trainer.state())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_state_is_a_copy_with_everything_in_it() -> None:
    trainer = _trainer(objective="byol")
    state = trainer.state()
    assert {name.split(".")[0] for name in state} == {
        "encoder",
        "predictor",
        "target_encoder",
        "optimizer",
        "n_updates",
    }
    before = {name: tensor.clone() for name, tensor in state.items()}
    trainer.update(*_ring_batch(np.random.default_rng(0)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in state.items())


def test_loading_a_state_that_does_not_fit_changes_nothing() -> None:
    trainer = _trainer()
    before = trainer.state()
    other = _trainer(3, objective="byol").state()
    with pytest.raises(ArtefactError, match=r"unknown \['target_encoder.*build the trainer with"):
        trainer.load_state(other)
    short = {name: tensor for name, tensor in before.items() if name != "predictor.weight"}
    with pytest.raises(ArtefactError, match=r"lacks \['predictor.weight'\]"):
        trainer.load_state(short)
    wrong = _trainer(3).state() | {"predictor.weight": torch.zeros(12, 2, 11)}
    with pytest.raises(ArtefactError, match=r"predictor.weight has shape \(12, 2, 11\)"):
        trainer.load_state(wrong)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.state().items())


def test_cosine_schedule_falls_to_a_tenth() -> None:
    assert cosine_learning_rate(1.0, 0, 100) == pytest.approx(1.0)
    assert cosine_learning_rate(1.0, 50, 100) == pytest.approx(0.55)
    assert cosine_learning_rate(1.0, 100, 100) == pytest.approx(0.1)
    assert cosine_learning_rate(1.0, 1000, 100) == pytest.approx(0.1)
    trainer = _trainer(schedule="cosine", schedule_updates=2, learning_rate=0.01)
    rng = np.random.default_rng(0)
    rates = [trainer.update(*_ring_batch(rng)).learning_rate for _ in range(4)]
    np.testing.assert_allclose(rates, [0.01, 0.0055, 0.001, 0.001])


def test_byol_targets_move_slowly_towards_the_encoder() -> None:
    trainer = _trainer(objective="byol", target_decay=0.9)
    assert trainer.target_encoder is not None
    old = [p.clone() for p in trainer.target_encoder.parameters()]
    trainer.encoder.set_centering(np.full(N_STATES, 0.1))
    trainer.update(*_ring_batch(np.random.default_rng(0)))
    for before, target, online in zip(
        old, trainer.target_encoder.parameters(), trainer.encoder.parameters(), strict=True
    ):
        torch.testing.assert_close(target, 0.9 * before + 0.1 * online.detach())
    torch.testing.assert_close(trainer.target_encoder.center, trainer.encoder.center)


def test_only_one_observation_in_a_batch() -> None:
    metrics = _trainer().update(
        np.eye(N_STATES, dtype=np.float32)[:1], *([np.zeros(1, int)] * 3), np.ones(1)
    )
    assert math.isnan(metrics.mean_cosine)
    assert metrics.loss == pytest.approx(0.0, abs=1e-6)


def test_a_loss_that_is_not_finite_changes_no_weight() -> None:
    trainer = _trainer()
    observations, *rest = _ring_batch(np.random.default_rng(0))
    observations[0, 0] = np.nan
    before = trainer.state()
    with pytest.raises(
        NonFiniteError,
        match=r"update 1 of the encoder has loss nan .*: lower the learning rate \(now 0.001\)",
    ):
        trainer.update(observations, *rest)
    assert all(torch.equal(tensor, before[name]) for name, tensor in trainer.state().items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "vae"}, "objective 'vae' is unknown: use one of"),
        ({"schedule": "linear"}, "schedule 'linear' is unknown"),
        ({"schedule": "cosine"}, "needs schedule_updates"),
        ({"temperature": 0.0}, "temperature is 0.0, but must be positive"),
        ({"learning_rate": math.inf}, "learning_rate is inf"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0, but must be at least 0"),
        ({"target_decay": 1.0}, r"target_decay is 1.0, but must lie in \[0, 1\)"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        _trainer(**changes)


def test_an_encoder_without_weights_is_refused() -> None:
    spec = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=4)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ConfigurationError, match="'identity' encoder has no weights to train"):
        RepresentationTrainer(make_encoder(spec, generator), n_actions=2, generator=generator)


@pytest.mark.parametrize(
    ("position", "value", "message"),
    [
        (1, np.array([0, 99]), "input_index of the batch spans 0 … 99, but must lie in 0 … 7"),
        (2, np.array([0, 2]), "actions of the batch spans 0 … 2, but must lie in 0 … 1"),
        (3, np.array([-1, 2]), "next_index of the batch spans -1 … 2"),
        (4, np.array([1, 0]), "counts of a batch must be positive"),
        (4, np.array([1]), "of the same length"),
        (2, np.empty(0, dtype=np.int64), "of the same length"),
    ],
)
def test_wrong_batches_are_named(position: int, value: NDArray[Any], message: str) -> None:
    batch = [
        np.eye(N_STATES, dtype=np.float32),
        np.array([0, 1]),
        np.array([0, 1]),
        np.array([1, 2]),
        np.array([1, 3]),
    ]
    batch[position] = value
    with pytest.raises(ConfigurationError, match=message):
        _trainer().update(*batch)
