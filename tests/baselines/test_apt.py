from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ring_batches import N_ACTIONS, SPECS, batch_reaching, expanded, ring_batch
from scipy.spatial.distance import cdist

from rover.baselines.apt import APT, APTConfig
from rover.baselines.icm import IntrinsicCuriosity
from rover.baselines.merging import merge_transitions
from rover.types import Batch


def _apt(kind: str = "one-hot", **settings: object) -> APT:
    config = APTConfig.model_validate(
        {"feature_dim": 16, "hidden": 32, "learning_rate": 3e-3, "k": 4, **settings}
    )
    return APT(config, SPECS[kind], N_ACTIONS, generator=torch.Generator().manual_seed(0))


def _curiosity(kind: str = "one-hot") -> IntrinsicCuriosity:
    return IntrinsicCuriosity(
        SPECS[kind],
        N_ACTIONS,
        feature_dim=16,
        hidden_sizes=(),
        model_hidden=32,
        forward_trains_features=True,
        generator=torch.Generator().manual_seed(0),
    )


def _features(apt: APT, batch: Batch) -> np.ndarray:
    """φ = tanh(LayerNorm(W x + b)), from the saved weights."""
    state = apt.state()
    weight = state["features.icm.encoder.layers.0.weight"].double().numpy()
    bias = state["features.icm.encoder.layers.0.bias"].double().numpy()
    hidden = batch.observations.double().numpy() @ weight.T + bias
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    return np.asarray(np.tanh(centred / np.sqrt(hidden.var(axis=1, keepdims=True) + 1e-5)))


def test_the_reward_is_brute_force_over_the_whole_batch() -> None:
    batch, apt = ring_batch(np.random.default_rng(0), skills=None), _apt()
    for scale_from_updates in (False, True):
        if scale_from_updates:
            apt.update(batch)
        reached = _features(apt, batch)[batch.next_index.numpy()]
        distances = cdist(reached, reached)
        np.fill_diagonal(distances, np.inf)
        mean = np.sort(distances, axis=1)[:, :4].mean(axis=1)
        # One update saw this batch alone, after its gradient step.
        scale = mean.mean() if scale_from_updates else 1.0
        np.testing.assert_allclose(
            apt.reward(batch).numpy(), np.log1p(mean / scale), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("features", ["icm", "contrastive"])
def test_merged_and_expanded_batches_give_the_same_rewards(features: str) -> None:
    merged, plain = _apt(features=features), _apt(features=features)
    batch = ring_batch(np.random.default_rng(1), skills=None)
    for _ in range(2):
        merged.update(batch)
        plain.update(expanded(batch))
    torch.testing.assert_close(
        merged.reward(batch), plain.reward(expanded(batch)), rtol=1e-2, atol=2e-3
    )


@pytest.mark.parametrize("features", ["icm", "contrastive"])
def test_a_lone_observation_is_worth_more_than_a_crowded_one(features: str) -> None:
    reward = _apt(features=features).reward(batch_reaching([1] * 20 + [2] * 20 + [7]))
    assert reward[:40].max() == 0.0
    assert reward[40] > 0.1


def test_losses_equal_those_of_the_transitions_one_by_one() -> None:
    model = _curiosity().double()
    batch = ring_batch(np.random.default_rng(0), skills=None)
    batch = Batch(batch.observations, batch.index, batch.actions, batch.next_index)
    features = model(batch.observations)  # (9, 16)
    inverse, forward = model.losses(features, merge_transitions(batch, n_actions=N_ACTIONS))
    w, b = model.inverse_first.weight, model.inverse_first.bias
    total_inverse, total_forward = 0.0, 0.0
    for x, a, y in zip(batch.index, batch.actions, batch.next_index, strict=True):
        hidden = torch.relu(model.forward_first(features[x]) + model.action[a])
        total_forward += 0.5 * (model.forward_output(hidden) - features[y]).square().sum().item()
        hidden = w[:32] @ features[x] + b[:32] + w[32:] @ features[y] + b[32:]
        logits = model.inverse_output(torch.relu(hidden))
        total_inverse -= torch.log_softmax(logits, dim=0)[a].item()
    assert forward.item() == pytest.approx(total_forward / 40, rel=1e-5)
    assert inverse.item() == pytest.approx(total_inverse / 40, rel=1e-5)


@pytest.mark.parametrize("kind", ["one-hot", "state", "vector"])
@pytest.mark.parametrize("joint", [False, True])
def test_the_dynamics_of_a_ring_are_learned(kind: str, joint: bool) -> None:
    apt, rng = _apt(kind, forward_trains_features=joint), np.random.default_rng(0)
    metrics = [apt.update(ring_batch(rng, kind=kind, skills=None)) for _ in range(200)]
    inverse = [values["icm_inverse_loss"] for values in metrics]
    forward = [values["icm_forward_loss"] for values in metrics]
    assert np.mean(inverse[-5:]) < 0.25 * math.log(2)
    assert np.mean(forward[-5:]) < 0.3 * np.mean(forward[:5])


def test_the_forward_loss_reaches_the_features_only_where_it_is_said_to() -> None:
    for joint in (False, True):
        model = _curiosity()
        model.forward_trains_features = joint
        batch = ring_batch(np.random.default_rng(0), skills=None)
        merged = merge_transitions(batch, n_actions=N_ACTIONS)
        _, forward = model.losses(model(batch.observations), merged)
        weight = next(model.encoder.parameters())
        (gradient,) = torch.autograd.grad(forward, weight, allow_unused=True)
        assert (gradient is not None) == joint


def test_contrastive_features_are_trained() -> None:
    apt, rng = _apt(features="contrastive"), np.random.default_rng(0)
    losses = [apt.update(ring_batch(rng, skills=None))["contrastive_loss"] for _ in range(100)]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])


@pytest.mark.parametrize("n_actions", [0, 2])
def test_merging_keeps_every_transition(n_actions: int) -> None:
    batch = ring_batch(np.random.default_rng(2), skills=None)
    merged = merge_transitions(batch, n_actions=n_actions)
    assert torch.equal(merged.index[merged.inverse], batch.index)
    assert torch.equal(merged.next_index[merged.inverse], batch.next_index)
    expected = batch.actions if n_actions else torch.zeros_like(batch.actions)
    assert torch.equal(merged.actions[merged.inverse], expected)
    assert torch.equal(merged.counts, torch.bincount(merged.inverse))
    rows = torch.stack([merged.index, merged.actions, merged.next_index], dim=1)
    assert len(torch.unique(rows, dim=0)) == len(rows)
