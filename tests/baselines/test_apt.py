from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from ring_batches import make_reward, ring_batch
from scipy.spatial.distance import cdist

from rover.baselines.apt import _AptReward, _IntrinsicCuriosity
from rover.baselines.shared.rewards import IntrinsicReward
from rover.data import Batch


def _apt(kind: str = "one-hot", **settings: object) -> _AptReward:
    usual = {"feature_dim": 16, "hidden": 32, "learning_rate": 3e-3, "k": 4}
    reward: _AptReward = make_reward("apt", kind, **{**usual, **settings})
    return reward


def _curiosity(**settings: object) -> _IntrinsicCuriosity:
    return _apt(**settings)._features


def _merged(batch: Batch) -> tuple[list[torch.Tensor], torch.Tensor]:
    transitions, counts, _ = IntrinsicReward._merged(batch.index, batch.actions, batch.next_index)
    return transitions, counts


def _features(apt: _AptReward, batch: Batch) -> np.ndarray:
    """φ = tanh(LayerNorm(W x + b)), from the saved weights."""
    state = apt.state()
    weight = state["features.encoder.layers.0.weight"].double().numpy()
    bias = state["features.encoder.layers.0.bias"].double().numpy()
    hidden = batch.observations.double().numpy() @ weight.T + bias
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    return np.asarray(np.tanh(centred / np.sqrt(hidden.var(axis=1, keepdims=True) + 1e-5)))


def test_the_reward_is_brute_force_over_the_whole_batch() -> None:
    batch, apt = ring_batch(np.random.default_rng(0), skills=None), _apt()
    scale = 1.0
    for _ in range(2):
        reached = _features(apt, batch)[batch.next_index.numpy()]
        distances = cdist(reached, reached)
        np.fill_diagonal(distances, np.inf)
        mean = np.sort(distances, axis=1)[:, :4].mean(axis=1)
        rewards, _ = apt.update(batch)
        np.testing.assert_allclose(rewards.numpy(), np.log1p(mean / scale), rtol=1e-4, atol=1e-5)
        scale = mean.mean()  # the first update saw this batch alone


def test_the_reward_as_the_code_has_it() -> None:
    """Of where transitions begin, with every particle the nearest of its own neighbours."""
    batch, apt = (
        ring_batch(np.random.default_rng(0), skills=None),
        _apt(count_itself=True, normalize=False),
    )
    left = _features(apt, batch)[batch.index.numpy()]
    mean = np.sort(cdist(left, left), axis=1)[:, :4].mean(axis=1)
    rewards, _ = apt.update(replace(batch, valued=batch.index))
    np.testing.assert_allclose(rewards.numpy(), np.log1p(mean), rtol=1e-4, atol=1e-5)


def test_losses_equal_those_of_the_transitions_one_by_one() -> None:
    model = _curiosity().double()
    batch = ring_batch(np.random.default_rng(0), skills=None)
    features = model(batch.observations)  # (9, 16)
    transitions, counts = _merged(batch)
    inverse, forward = model.losses(features, transitions, counts)
    w, b = model.inverse_first[0].weight, model.inverse_first[0].bias
    total_inverse, total_forward = 0.0, 0.0
    for x, a, y in zip(batch.index, batch.actions, batch.next_index, strict=True):
        hidden = torch.relu(model.forward_first(features[x]) + model.action[a])
        total_forward += 0.5 * (model.forward_output(hidden) - features[y]).square().sum().item()
        hidden = w[:32] @ features[x] + b[:32] + w[32:] @ features[y] + b[32:]
        logits = model.inverse_output(torch.relu(hidden))
        total_inverse -= torch.log_softmax(logits, dim=0)[a].item()
    assert forward.item() == pytest.approx(total_forward / 40, rel=1e-5)
    assert inverse.item() == pytest.approx(total_inverse / 40, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one-hot", "state", "vector"])
@pytest.mark.parametrize("joint", [False, True])
def test_the_dynamics_of_a_ring_are_learned(kind: str, joint: bool) -> None:
    apt, rng = _apt(kind, forward_trains_features=joint), np.random.default_rng(0)
    metrics = [apt.update(ring_batch(rng, kind=kind, skills=None))[1] for _ in range(200)]
    inverse = [values["icm_inverse_loss"] for values in metrics]
    forward = [values["icm_forward_loss"] for values in metrics]
    assert np.mean(inverse[-5:]) < 0.25 * math.log(2)
    assert np.mean(forward[-5:]) < 0.3 * np.mean(forward[:5])


def test_the_forward_loss_reaches_the_features_only_where_it_is_said_to() -> None:
    for joint in (False, True):
        model = _curiosity(forward_trains_features=joint)
        batch = ring_batch(np.random.default_rng(0), skills=None)
        _, forward = model.losses(model(batch.observations), *_merged(batch))
        weight = next(model.encoder.parameters())
        (gradient,) = torch.autograd.grad(forward, weight, allow_unused=True)
        assert (gradient is not None) == joint
