from __future__ import annotations

import numpy as np
import pytest
import torch
from ring_batches import SPECS, batch_reaching, observations, ring_batch
from scipy import stats

from rover.baselines.maxent import MaxEnt, MaxEntConfig
from rover.errors import ArtefactError, ConfigurationError

COUNTS = np.array([8, 4, 2, 1, 1])


def _maxent(kind: str = "one-hot", **settings: object) -> MaxEnt:
    return MaxEnt(MaxEntConfig.model_validate(settings), SPECS[kind])


@pytest.mark.parametrize("kind", ["one-hot", "state", "pixels"])
def test_by_mass_the_reward_is_that_of_the_frequencies(kind: str) -> None:
    maxent = _maxent(kind, measure="mass")
    metrics = maxent.refit(observations(kind)[:5], COUNTS)
    assert metrics["maxent_components"] == 4
    assert metrics["maxent_explained"] == pytest.approx(1.0)
    batch = ring_batch(np.random.default_rng(0), kind=kind, skills=None)
    frequency = np.concatenate([COUNTS / 16, np.zeros(4)])[batch.next_index.numpy()]
    reached = batch.next_index.numpy() < 5
    expected = 1 / (frequency + 1e-3)
    np.testing.assert_allclose(maxent.reward(batch).numpy()[reached], expected[reached], rtol=1e-5)


def test_unseen_states_have_the_largest_reward() -> None:
    for measure in ("mass", "density"):
        maxent = _maxent(measure=measure)
        maxent.refit(torch.eye(9)[:5], COUNTS)
        reward = maxent.reward(batch_reaching([0, 3, 7]))
        assert reward[2].item() == pytest.approx(1000.0)
        assert reward[0] < reward[1] < reward[2]


def test_by_density_the_reward_agrees_with_scipy_on_the_projection() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(20, 2)) * np.array([3.0, 0.1])
    maxent = _maxent("vector", kernel="gaussian", bandwidth=0.7, n_components=1)
    maxent.refit(torch.from_numpy(samples), np.ones(20, np.int64))
    direction = np.linalg.eigh(np.cov(samples.T))[1][:, -1]
    along = (samples - samples.mean(axis=0)) @ direction
    reference = stats.gaussian_kde(along, bw_method=0.7 / along.std(ddof=1))
    batch = batch_reaching(list(range(9)))
    batch = type(batch)(torch.from_numpy(samples[:9]), batch.index, batch.actions, batch.next_index)
    expected = 1 / (reference(along[:9]) + 1e-3)
    np.testing.assert_allclose(maxent.reward(batch).numpy(), expected, rtol=1e-4)


def test_before_any_density_every_transition_is_alike() -> None:
    assert _maxent().reward(batch_reaching([1, 2])).tolist() == [1000.0, 1000.0]
    assert _maxent().update(batch_reaching([1, 2])) == {}


def test_a_refit_forgets_the_density_before() -> None:
    once, twice = _maxent(), _maxent()
    twice.refit(torch.eye(9)[5:], np.ones(4, np.int64))
    for maxent in (once, twice):
        maxent.refit(torch.eye(9)[:5], COUNTS)
    batch = batch_reaching([0, 6])
    assert torch.equal(once.reward(batch), twice.reward(batch))


def test_rollouts_that_cannot_be_used_are_named() -> None:
    with pytest.raises(ConfigurationError, match="needs samples"):
        _maxent().refit(torch.eye(9)[:0], np.zeros(0, np.int64))
    with pytest.raises(ConfigurationError, match="leave empty rows out"):
        _maxent().refit(torch.eye(9), np.zeros(9, np.int64))


def test_a_density_of_other_observations_is_refused() -> None:
    maxent = _maxent()
    maxent.refit(torch.eye(9)[:5], COUNTS)
    with pytest.raises(ArtefactError, match="do not fit observations of size 2"):
        _maxent("vector").load_state(maxent.state())
