from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover
from rover.coverage.represent import Learned
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.features import (
    Encoder,
    Observations,
    custom_encoder,
    encoder_config,
    info_nce_loss,
    make_encoder,
    state_encoder,
)
from rover.operators import Gaussian
from rover.world.world import World

N_STATES, N_ACTIONS = 8, 2
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


VECTORS = encoder_config(
    Observations((N_STATES,), "float32", one_hot=True), feature_dim=12, hidden_sizes=(16,)
)


def _learned(
    seed: int = 0, encoder: Encoder | None = None, loss: Any = None, **settings: Any
) -> Learned:
    """With an encoder of the ring's states."""
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    encoder = make_encoder(VECTORS, generator) if encoder is None else encoder
    config = RoverConfig(**{"representation": "info_nce"} | settings)
    buffer = Buffer((N_STATES,), np.float32, N_ACTIONS)
    parts = World(buffer), Cover(buffer, None), encoder, Gaussian(0.1), loss, config
    return Learned(*parts, generator=generator, rng=rng)


def _assert_equal(ours: Learned, theirs: Learned) -> None:
    first, second = ours.state(), theirs.state()
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_merged_rows_train_as_the_batch_of_duplicates():
    observations, inputs, actions, nexts, counts = _ring_batch(np.random.default_rng(2))
    rows = np.repeat(np.arange(len(counts)), counts)
    merged, plain = _learned(), _learned()
    a = merged.update(observations, inputs, actions, nexts, counts)
    b = plain.update(observations, inputs[rows], actions[rows], nexts[rows], np.ones(len(rows)))
    assert a == pytest.approx(b, rel=1e-6)
    for name, moment in merged.state().items():  # one step: the first moments are the gradients
        if name.startswith("optimizer.exp_avg."):
            torch.testing.assert_close(moment, plain.state()[name], rtol=1e-3, atol=1e-6)


def test_cosine_schedule_falls_to_a_tenth():
    learned = _learned(cosine_updates=2, learning_rate=0.01)
    rng, rates = np.random.default_rng(0), []
    for _ in range(4):
        learned.update(*_ring_batch(rng))
        rates.append(learned._optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.01, 0.0055, 0.001, 0.001])


def test_a_loss_of_ones_own():
    """InfoNCE as a function is the built-in one to the bit."""

    def loss(
        predicted: Tensor, features: Tensor, *, next_index: Tensor, counts: Tensor, **_: Tensor
    ) -> Tensor:
        targets = features.detach()
        return info_nce_loss(predicted, targets, next_index, counts, temperature=0.05)

    ours, builtin = _learned(loss=loss), _learned()
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch = _ring_batch(rng)
        assert ours.update(*batch) == builtin.update(*batch)
    _assert_equal(ours, builtin)


@pytest.mark.parametrize("value", [1.0, torch.zeros(()), torch.zeros(3, requires_grad=True)])
def test_a_loss_of_ones_own_that_is_no_scalar_of_the_encoder(value):
    with pytest.raises(ConfigurationError, match="must return a scalar tensor that depends on the"):
        _learned(loss=lambda *_, **__: value).update(*_ring_batch(np.random.default_rng(0)))


def test_a_module_of_ones_own_is_trained():
    module = nn.Sequential(nn.Linear(N_STATES, 12), nn.Tanh())
    space = spaces.Box(0, 1, (N_STATES,), np.float32)
    learned = _learned(0, custom_encoder(module, space))
    before = learned.state()
    learned.update(*_ring_batch(np.random.default_rng(0)))
    changed = {k for k, v in learned.state().items() if not torch.equal(v, before[k])}
    assert "encoder.module.0.weight" in changed
    frozen = custom_encoder(module.requires_grad_(False), space)
    with pytest.raises(ConfigurationError, match="'custom' encoder has no weights to train"):
        _learned(0, frozen)
    with pytest.raises(ConfigurationError, match="'identity' encoder has no weights to train"):
        _learned(0, state_encoder(spaces.Discrete(4)))
