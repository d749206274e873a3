"""MAXENT and SMM: densities and the rewards that they make against closed forms."""

import math

import numpy as np
import pytest
import torch
from ring_batches import batch_reaching, make_reward, observations, reward_of, ring_batch
from scipy import integrate, stats

from rover.baselines.maxent import _KernelDensity, _MaxentReward
from rover.baselines.smm import _ConditionalVAE, _SmmConfig, _SmmReward
from rover.data import Batch

COUNTS = np.array([8, 4, 2, 1, 1])


def _maxent(kind: str = "one-hot", **settings: object) -> _MaxentReward:
    reward: _MaxentReward = make_reward("maxent", kind, **settings)
    return reward


@pytest.mark.parametrize("kind", ["one-hot", "pixels"])
def test_by_mass_the_reward_is_that_of_the_frequencies(kind):
    maxent = _maxent(kind, measure="mass")
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
        maxent, batch = _maxent(measure=measure), batch_reaching([0, 3, 7])
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


def _smm(kind: str = "one-hot", **settings: object) -> _SmmReward:
    usual = {
        "n_skills": 2,
        "beta": 1.0,
        "density_hidden": 32,
        "latent_dim": 4,
        "density_rate": 5e-3,
        "discriminator_hidden": 32,
        "categorical": True,
        "noise_std": None,
        "reward_samples": 64,
    }
    reward: _SmmReward = make_reward("smm", kind, **{**usual, **settings})
    return reward


def _exact_batch() -> Batch:
    """100 transitions under each of two skills, in exactly the known proportions."""
    skills = [np.round(100 * p).astype(np.int64) for p in (PROBABILITIES, REVERSED)]
    reached = np.concatenate([np.repeat(np.arange(6), counts) for counts in skills])
    vectors = np.repeat(np.eye(2, dtype=np.float32), 100, axis=0)
    return batch_reaching(reached.tolist(), skills=vectors)


@pytest.mark.slow
def test_the_reward_of_a_known_distribution_is_its_closed_form():
    """r = −log ρ(x|z) + log q(z|x) + log k, with both densities known."""
    smm, batch = _smm(), _exact_batch()
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


@pytest.mark.slow
def test_the_density_of_a_gaussian_is_its_closed_form():
    """States N(0, 4) under one likelihood of deviation 1: the VAE can be exact."""
    config = _SmmConfig(n_skills=2, beta=1.0, latent_dim=2, density_hidden=32)
    vae = _ConditionalVAE(1, config, categorical=False, generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(1)
    skills = torch.zeros(256, dtype=torch.int64)

    def density(rows: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        chosen = skills[: len(rows)]
        return vae.log_density(rows, chosen, vae.encode(rows, chosen), noise)

    for _ in range(500):
        rows = 2.0 * torch.empty(256, 1).normal_(generator=generator)
        noise = torch.empty(1, 256, 2).normal_(generator=generator)
        optimizer.zero_grad()
        (-density(rows, noise).mean()).backward()
        optimizer.step()
    grid = torch.linspace(-4, 4, 9)[:, None]
    noise = torch.empty(2000, 1, 2).normal_(generator=generator)
    with torch.no_grad():
        bound = density(grid, noise).numpy()
    np.testing.assert_allclose(bound, stats.norm.logpdf(grid[:, 0].numpy(), scale=2.0), atol=0.3)
