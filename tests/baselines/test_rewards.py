"""Laws of all intrinsic rewards, and each against its formulas."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import batch_reaching, make_reward, observations, reward_of, ring_batch
from scipy import integrate
from scipy.spatial.distance import cdist
from small_agents import SMALL, SMALL_REWARDS
from small_envs import ENVIRONMENTS

from rover.baselines import make_agent
from rover.baselines.apt import _AptReward
from rover.baselines.maxent import _KernelDensity
from rover.baselines.rewards import RunningMoments
from rover.data import Batch, gather
from rover.errors import NonFiniteError


@pytest.mark.parametrize("name", ["apt", "cic", "rnd", "smm"])
def test_observations_that_are_not_finite_are_an_error_not_a_weight(name):
    intrinsic, rng = make_reward(name, **SMALL_REWARDS[name]), np.random.default_rng(0)
    drawn = np.stack([intrinsic.sample_skill(rng) for _ in range(40)])
    batch = ring_batch(rng, skills=drawn if drawn.size else None)
    batch.observations[int(batch.next_index[0]), 0] = torch.nan
    with pytest.raises(NonFiniteError, match="observations are finite"):
        intrinsic.update(batch)


def test_running_moments_are_those_of_all_rows_together():
    rng = np.random.default_rng(0)
    moments, rows, counts = RunningMoments(3), [], []
    for _ in range(4):
        rows.append(rng.normal(1e4, 2.0, size=(5, 3)))
        counts.append(rng.integers(0, 4, size=5))
        counts[-1][0] += 1
        moments.update(torch.from_numpy(rows[-1]), torch.from_numpy(counts[-1]))
    everything = np.repeat(np.concatenate(rows), np.concatenate(counts), axis=0)
    assert moments.count == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, everything.var(axis=0), rtol=1e-9)


def test_rewards_are_errors_in_units_of_their_running_deviation():
    """After one update the deviation is that of the errors on the batch before the step."""
    rnd = make_reward("rnd", hidden_sizes=(32,), feature_dim=16, learning_rate=1e-12)
    batch = batch_reaching([1, 1, 1, 4])
    rnd.update(batch)
    reward = reward_of(rnd, batch).double().numpy()
    assert reward.std() == pytest.approx(1.0, rel=1e-4)


def test_the_ellipsoid_of_e3b_is_that_of_all_arrivals():
    rng = np.random.default_rng(0)
    reward = make_reward("e3b", "vector", feature_dim=5, hidden=4, ridge=0.1)
    seen = rng.normal(size=(7, *reward.observations.shape))
    for observation in seen:
        reward.note(observation, done=False)
    with torch.no_grad():
        features = reward._encoder(torch.from_numpy(seen)).double().numpy()
    for step, phi in enumerate(features):
        gram = 0.1 * np.eye(5) + features[:step].T @ features[:step]
        assert reward._bonuses[step] == pytest.approx(phi @ np.linalg.solve(gram, phi), rel=1e-3)


def test_e3b_gives_the_bonuses_of_its_steps():
    agent: Any = make_agent("e3b", ENVIRONMENTS["state"](), seed=1, **SMALL["e3b"]).learn(60)
    rows = np.array([3, 59, 3])
    rewards, _ = agent._reward.update(gather(agent.buffer, rows))
    assert rewards.tolist() == pytest.approx([agent._reward._bonuses[row] for row in rows])


def test_rewards_of_icm_are_errors_of_the_forward_model():
    reward = make_reward("icm", "vector", feature_dim=6, hidden=8, eta=0.3)
    batch = ring_batch(np.random.default_rng(0), kind="vector", n=30, skills=None)
    reward.update(batch)  # which relates the input of the networks to the data
    with torch.no_grad():
        features = reward._encoder(batch.observations)
        first = reward._forward_first(features[batch.index]) + reward._action[batch.actions]
        errors = reward._forward_output(first.relu()) - features[batch.next_index]
    expected = 0.15 * errors.square().sum(dim=1)
    torch.testing.assert_close(reward_of(reward, batch), expected)


COUNTS = np.array([8, 4, 2, 1, 1])


@pytest.mark.parametrize("kind", ["one-hot", "pixels"])
def test_by_mass_the_reward_is_that_of_the_frequencies(kind):
    maxent = make_reward("maxent", kind, measure="mass")
    maxent.refit(observations(kind)[4:], np.ones(5, np.int64))  # which the next fit forgets
    maxent.refit(observations(kind)[:5], COUNTS)
    batch = ring_batch(np.random.default_rng(0), kind=kind, skills=None)
    frequency = np.concatenate([COUNTS / 16, np.zeros(4)])[batch.next_index.numpy()]
    reached = batch.next_index.numpy() < 5
    expected = 1 / (frequency + 1e-3)
    np.testing.assert_allclose(
        reward_of(maxent, batch).numpy()[reached], expected[reached], rtol=1e-5
    )


def test_unseen_states_have_the_largest_reward_and_all_have_it_at_first():
    for measure in ("mass", "density"):
        maxent, batch = make_reward("maxent", measure=measure), batch_reaching([0, 3, 7])
        assert reward_of(maxent, batch).tolist() == [1000.0] * 3
        maxent.refit(torch.eye(9)[:5], COUNTS)
        reward = reward_of(maxent, batch)
        assert reward[2].item() == pytest.approx(1000.0)
        assert reward[0] < reward[1] < reward[2]


@pytest.mark.parametrize("d", [1, 2, 3, 32])
def test_kernels_integrate_to_one(d):
    """∫ K_h = S_d ∫ K_h(r) r^(d−1) dr with S_d the surface of the unit sphere."""
    density = _KernelDensity(np.zeros(d), np.eye(d), np.zeros((1, d)), np.ones(1), 0.3)
    surface = 2 * math.pi ** (d / 2) / math.gamma(d / 2)

    def radial(r: float) -> float:
        query = np.zeros((1, d))
        query[0, 0] = r
        return float(density.density(query)[0]) * surface * r ** (d - 1)

    total, _ = integrate.quad(radial, 0, 0.3, limit=200)
    assert total == pytest.approx(1.0, rel=1e-6)


PROBABILITIES = np.array([0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
REVERSED = PROBABILITIES[::-1]


SMM: dict[str, Any] = {
    "n_skills": 2,
    "beta": 1.0,
    "density_hidden": 32,
    "latent_dim": 4,
    "density_rate": 5e-3,
    "discriminator_hidden": 32,
    "noise_std": None,
    "reward_samples": 64,
}


def _exact_batch() -> Batch:
    """100 transitions under each of two skills, in exactly the known proportions."""
    skills = [np.round(100 * p).astype(np.int64) for p in (PROBABILITIES, REVERSED)]
    reached = np.concatenate([np.repeat(np.arange(6), counts) for counts in skills])
    vectors = np.repeat(np.eye(2, dtype=np.float32), 100, axis=0)
    return batch_reaching(reached.tolist(), skills=vectors)


@pytest.mark.slow
def test_the_reward_of_a_known_distribution_is_its_closed_form():
    """r = −log ρ(x|z) + log q(z|x) + log k, with both densities known."""
    smm, batch = make_reward("smm", **SMM), _exact_batch()
    figures = [smm.update(batch)[1] for _ in range(500)][-50:]
    rewards = reward_of(smm, batch).numpy()
    posterior = PROBABILITIES / (PROBABILITIES + REVERSED)
    expected = -np.log(PROBABILITIES) + np.log(posterior) + math.log(2)
    state = batch.next_index.numpy()
    expected = np.concatenate([expected[state[:100]], expected[5 - state[100:]]])
    np.testing.assert_allclose(rewards, expected, atol=0.25)
    entropy = float(-(PROBABILITIES * np.log(PROBABILITIES)).sum())
    density_loss = np.mean([line["smm_density_loss"] for line in figures])  # of one draw each
    assert entropy - 0.01 < density_loss < entropy + 0.15
    conditional = -np.concatenate(
        [PROBABILITIES * np.log(posterior), REVERSED * np.log(posterior[::-1])]
    )
    assert figures[-1]["smm_discriminator_loss"] == pytest.approx(conditional.sum() / 2, abs=0.02)


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
def test_the_forward_loss_reaches_the_features_only_where_it_trains_them(joint):
    apt, rng = _apt(forward_trains_features=joint), np.random.default_rng(0)
    features = torch.ones(9, 16, requires_grad=True)
    _, loss = mean_losses(apt, features, ring_batch(rng, skills=None))
    (gradient,) = torch.autograd.grad(loss, features, allow_unused=True)
    assert (gradient is not None) == joint


def test_the_reward_of_cic_is_brute_force_over_the_whole_batch():
    settings = {"skill_dim": 2, "hidden": 32, "learning_rate": 3e-3, "k": 3}
    cic, rng = make_reward("cic", normalize=False, **settings), np.random.default_rng(0)
    batch = ring_batch(rng, skills=np.stack([cic.sample_skill(rng) for _ in range(40)]))
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
