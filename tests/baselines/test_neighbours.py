"""APT and CIC: rewards by nearest neighbours, and losses, against the formulas."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ring_batches import make_reward, reward_of, ring_batch
from scipy import special
from scipy.spatial.distance import cdist

from rover.baselines.apt import ParticleConfig, _AptReward, particle_rewards
from rover.baselines.rewards import RunningMoments
from rover.features import info_nce_loss


def _apt(kind: str = "one-hot", **changes: object) -> _AptReward:
    usual = {"feature_dim": 16, "hidden": 32, "learning_rate": 3e-3, "k": 4}
    reward: _AptReward = make_reward("apt", kind, **{**usual, **changes})
    return reward


def _features(apt: _AptReward, observations: torch.Tensor) -> np.ndarray:
    """φ = tanh(LayerNorm(W x + b)), from the weights."""
    layer = apt._encoder.layers[0]
    weight, bias = layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()
    hidden = observations.double().numpy() @ weight.T + bias
    centred = hidden - hidden.mean(axis=1, keepdims=True)
    return np.asarray(np.tanh(centred / np.sqrt(hidden.var(axis=1, keepdims=True) + 1e-5)))


@pytest.mark.parametrize("preset", ["fast", "published"])
def test_the_reward_of_apt_is_brute_force_over_the_whole_batch(preset):
    """By the code of where transitions begin, each particle the nearest of its own neighbours."""
    as_code = preset == "published"
    apt = _apt(count_itself=as_code, normalize=not as_code)
    batch, scale = ring_batch(np.random.default_rng(0), skills=None), 1.0
    batch = replace(batch, valued=batch.index) if as_code else batch
    for _ in range(2):
        points = _features(apt, batch.observations)[batch.valued_index.numpy()]
        distances = cdist(points, points)
        np.fill_diagonal(distances, 0.0 if as_code else np.inf)
        mean = np.sort(distances, axis=1)[:, :4].mean(axis=1)
        rewards, _ = apt.update(batch)
        np.testing.assert_allclose(rewards.numpy(), np.log1p(mean / scale), rtol=1e-4, atol=1e-5)
        scale = 1.0 if as_code else mean.mean()  # the first update saw this batch alone


@given(
    n=st.integers(2, 30),
    d=st.sampled_from([1, 2, 40]),
    k=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    counts_itself=st.booleans(),
)
@settings(max_examples=80)
def test_distances_are_those_of_brute_force(n, d, k, seed, counts_itself):
    rng = np.random.default_rng(seed)
    points, index, k = rng.normal(size=(n, d)) + 100.0, rng.integers(n, size=n), min(k, n - 1)
    distances = cdist(points[index], points[index])
    np.fill_diagonal(distances, 0.0 if counts_itself else np.inf)
    config = ParticleConfig(k=k, count_itself=counts_itself)
    rewards, found = particle_rewards(
        torch.from_numpy(points), torch.from_numpy(index), config, RunningMoments(1)
    )
    np.testing.assert_allclose(found, np.sort(distances, axis=1)[:, :k].mean(axis=1), atol=1e-6)
    np.testing.assert_array_equal(rewards, torch.log1p(found))


def mean_losses(apt: Any, features: torch.Tensor, batch: Any) -> tuple[torch.Tensor, ...]:
    *losses, counts, _ = apt._errors(features, batch)
    return tuple((counts / counts.sum() * loss).sum() for loss in losses)


def test_losses_equal_those_of_the_transitions_one_by_one():
    apt, batch = _apt().double(), ring_batch(np.random.default_rng(0), skills=None)
    features = torch.randn(9, 16, generator=torch.Generator().manual_seed(0)).double()
    inverse, forward = mean_losses(apt, features, batch)
    w, b = apt._inverse_first[0].weight, apt._inverse_first[0].bias
    total_inverse, total_forward = 0.0, 0.0
    for x, a, y in zip(batch.index, batch.actions, batch.next_index, strict=True):
        hidden = torch.relu(apt._forward_first(features[x]) + apt._action[a])
        total_forward += 0.5 * (apt._forward_output(hidden) - features[y]).square().sum().item()
        hidden = w[:32] @ features[x] + b[:32] + w[32:] @ features[y] + b[32:]
        logits = apt._inverse_output(torch.relu(hidden))
        total_inverse -= torch.log_softmax(logits, dim=0)[a].item()
    assert forward.item() == pytest.approx(total_forward / 40, rel=1e-5)
    assert inverse.item() == pytest.approx(total_inverse / 40, rel=1e-5)


@pytest.mark.parametrize("joint", [False, True])
def test_the_dynamics_of_a_ring_are_learned(joint):
    apt, rng = _apt(forward_trains_features=joint), np.random.default_rng(0)
    metrics = [apt.update(ring_batch(rng, skills=None))[1] for _ in range(200)]
    inverse = [values["icm_inverse_loss"] for values in metrics]
    forward = [values["icm_forward_loss"] for values in metrics]
    assert np.mean(inverse[-5:]) < 0.25 * math.log(2)
    assert np.mean(forward[-5:]) < 0.3 * np.mean(forward[:5])
    features = torch.ones(9, 16, requires_grad=True)
    _, loss = mean_losses(apt, features, ring_batch(rng, skills=None))
    (gradient,) = torch.autograd.grad(loss, features, allow_unused=True)
    assert (gradient is not None) == joint  # the forward loss reaches the features only then


def _cic(kind: str = "one-hot", **settings: object) -> Any:
    usual = {"skill_dim": 2, "hidden": 32, "learning_rate": 3e-3, "k": 3}
    return make_reward("cic", kind, **{**usual, **settings})


@pytest.mark.parametrize("concentration", [1.0, 5.0])
def test_the_estimator_on_a_circle_is_the_mutual_information(concentration):
    """Skills uniform on a circle, transitions von Mises around them, and cos/T the exact log-ratio:

    log n − L → I = κ I₁(κ)/I₀(κ) − log I₀(κ) for T = 1/κ as the batch grows.
    """
    n, rng = 3000, np.random.default_rng(0)
    skill = rng.uniform(0, 2 * np.pi, size=n)
    transition = skill + rng.vonmises(0.0, concentration, size=n)
    on_circle = [
        torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1)).float()
        for angle in (skill, transition)
    ]
    loss = info_nce_loss(*on_circle, torch.arange(n), torch.ones(n), temperature=1 / concentration)
    ratio = special.i1(concentration) / special.i0(concentration)
    exact = concentration * ratio - math.log(special.i0(concentration))
    assert math.log(n) - loss.item() == pytest.approx(exact, abs=0.05)


def test_the_reward_of_cic_is_brute_force_over_the_whole_batch():
    cic, rng = _cic(normalize=False), np.random.default_rng(0)
    batch = ring_batch(rng, skills=cic.evaluation_skills(40, rng))
    cic.update(batch)
    with torch.no_grad():
        ends = cic._encoder(batch.observations)
        first = cic._first[0]
        layer = torch.nn.Linear(4, 32)  # g on (e(x), e(x')) as one layer
        layer.weight.copy_(torch.cat(first.weight.chunk(2), dim=1))
        layer.bias.copy_(sum(first.bias.chunk(2)))
        pairs = torch.cat([ends[batch.index], ends[batch.next_index]], dim=1)
        rows = cic._output(torch.relu(layer(pairs))).numpy()
    distances = cdist(rows, rows)
    np.fill_diagonal(distances, np.inf)
    nearest = np.sort(distances, axis=1)[:, :3]
    # Rounding moves coinciding rows of the expanded batch apart by about 1e-7.
    np.testing.assert_allclose(
        reward_of(cic, batch).numpy(), np.log1p(nearest.mean(axis=1)), atol=1e-5
    )
