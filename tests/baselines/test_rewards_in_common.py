"""What every intrinsic reward must do, on every kind of observation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import N_ACTIONS, SPECS, batch_reaching, observations, ring_batch

from rover.baselines.making import INTRINSIC_CONFIGS, make_intrinsic, make_intrinsic_config
from rover.baselines.maxent import MaxEnt
from rover.baselines.protocol import IntrinsicReward
from rover.baselines.rnd import RNDConfig
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.types import Batch

SMALL: dict[str, dict[str, Any]] = {
    "apt": {"feature_dim": 8, "hidden": 12},
    "apt-contrastive": {"features": "contrastive", "feature_dim": 8, "hidden": 12},
    "cic": {"skill_dim": 5, "hidden": 12},
    "maxent": {},
    "rnd": {"hidden_sizes": (12,), "feature_dim": 8},
    "smm": {"density_hidden": 8, "latent_dim": 3, "discriminator_hidden": 8, "image_features": 6},
}


def _make(name: str, kind: str = "one-hot", seed: int = 0, **settings: Any) -> IntrinsicReward:
    method = name.split("-")[0]
    config = make_intrinsic_config(method, "fast", **{**SMALL[name], **settings})
    generator = torch.Generator().manual_seed(seed)
    return make_intrinsic(method, config, SPECS[kind], N_ACTIONS, generator)


def _batches(intrinsic: IntrinsicReward, kind: str, count: int) -> list[Batch]:
    rng = np.random.default_rng(7)
    batches = []
    for _ in range(count):
        skills = intrinsic.skills_for_evaluation(40, rng) if intrinsic.skill_dim else None
        batches.append(ring_batch(rng, kind=kind, skills=skills))
    return batches


def _learn(intrinsic: IntrinsicReward, batch: Batch, kind: str) -> dict[str, float]:
    if isinstance(intrinsic, MaxEnt):
        counts = np.bincount(batch.next_index.numpy(), minlength=9)
        used = np.flatnonzero(counts)
        return intrinsic.refit(observations(kind)[used], counts[used])
    return intrinsic.update(batch)


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", SMALL)
def test_rewards_are_finite_and_training_repeats_and_resumes_to_the_bit(
    name: str, kind: str
) -> None:
    first, again = _make(name, kind), _make(name, kind)
    batches = _batches(first, kind, 6)
    for batch in batches[:3]:
        metrics = _learn(first, batch, kind)
        assert all(np.isfinite(value) for value in metrics.values())
        assert _learn(again, batch, kind) == metrics
    saved = first.state()
    resumed = _make(name, kind, seed=1)
    resumed.load_state(saved)
    for batch in batches[3:]:
        rewards = first.reward(batch)
        assert rewards.shape == (40,)
        assert rewards.dtype == torch.float32
        assert not rewards.requires_grad
        assert torch.isfinite(rewards).all()
        assert torch.equal(rewards, first.reward(batch)), "a reward changes nothing"
        for other in (again, resumed):
            assert torch.equal(rewards, other.reward(batch))
        metrics = _learn(first, batch, kind)
        for other in (again, resumed):
            assert _learn(other, batch, kind) == metrics
    final = first.state()
    for other in (again, resumed):
        assert all(torch.equal(tensor, final[key]) for key, tensor in other.state().items())
    changed = [key for key, tensor in saved.items() if not torch.equal(tensor, final[key])]
    assert changed, "a saved state is a copy"


@pytest.mark.parametrize("name", SMALL)
def test_a_fresh_reward_answers_before_any_update_and_keeps_its_names(name: str) -> None:
    intrinsic = _make(name)
    (batch,) = _batches(intrinsic, "one-hot", 1)
    assert torch.isfinite(intrinsic.reward(batch)).all()
    before = intrinsic.state()
    _learn(intrinsic, batch, "one-hot")
    assert intrinsic.state().keys() == before.keys()


@pytest.mark.parametrize("name", SMALL)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    intrinsic = _make(name)
    for batch in _batches(intrinsic, "one-hot", 2):
        _learn(intrinsic, batch, "one-hot")
    saved = intrinsic.state()
    other = _make(name, seed=5)
    before = other.state()
    lacking = dict(list(saved.items())[1:])
    with pytest.raises(ArtefactError, match=r"lacks \['.*unknown nothing"):
        other.load_state(lacking)
    wrong = dict(saved)
    last = sorted(key for key in saved if saved[key].ndim)[-1]
    wrong[last] = saved[last][:-1]
    with pytest.raises(ArtefactError, match="saved with"):
        other.load_state(wrong)
    assert all(torch.equal(tensor, before[key]) for key, tensor in other.state().items())


@pytest.mark.parametrize("name", ["apt", "apt-contrastive", "cic", "rnd", "smm"])
def test_observations_that_are_not_finite_are_an_error_not_a_weight(name: str) -> None:
    intrinsic = _make(name)
    (batch,) = _batches(intrinsic, "one-hot", 1)
    batch.observations[int(batch.next_index[0]), 0] = torch.nan
    with pytest.raises(NonFiniteError, match="observations are finite"):
        intrinsic.update(batch)


@pytest.mark.parametrize("name", SMALL)
def test_empty_batches_and_rows_outside_the_table_are_named(name: str) -> None:
    intrinsic = _make(name)
    with pytest.raises(ConfigurationError, match="at least one transition"):
        intrinsic.reward(batch_reaching([]))
    (batch,) = _batches(intrinsic, "one-hot", 1)
    batch.next_index[0] = 9
    with pytest.raises(ConfigurationError, match=r"next_index of the batch spans 0 … 9"):
        intrinsic.reward(batch)


@pytest.mark.parametrize("name", ["cic", "smm"])
def test_missing_skills_are_named(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"needs skills of shape \(40, .\) and has none"):
        _make(name).update(ring_batch(np.random.default_rng(0), skills=None))


@pytest.mark.parametrize("name", ["apt", "cic"])
def test_a_batch_smaller_than_the_neighbourhood_is_named(name: str) -> None:
    intrinsic = _make(name, k=3)
    skills = np.zeros((3, intrinsic.skill_dim), np.float32)
    with pytest.raises(ConfigurationError, match="3 nearest neighbours were asked for among 3"):
        intrinsic.reward(batch_reaching([1, 2, 3], skills=skills))


@pytest.mark.parametrize("name", ["apt", "apt-contrastive"])
def test_an_action_out_of_range_is_named(name: str) -> None:
    batch = ring_batch(np.random.default_rng(0), skills=None)
    batch.actions[3] = N_ACTIONS
    with pytest.raises(ConfigurationError, match="actions of the batch span 0 … 2"):
        _make(name).update(batch)


def test_skills_have_the_distribution_they_are_drawn_from() -> None:
    rng = np.random.default_rng(0)
    assert _make("rnd").sample_skill(rng).shape == (0,)
    assert _make("apt").skills_for_evaluation(3, rng).shape == (3, 0)
    one_hot = _make("smm").skills_for_evaluation(10, rng)
    assert sorted(one_hot.sum(axis=0).tolist()) == [2, 2, 3, 3]
    assert (one_hot.sum(axis=1) == 1).all()
    drawn = np.mean([_make("smm").sample_skill(rng) for _ in range(200)], axis=0)
    np.testing.assert_allclose(drawn, 0.25, atol=0.12)
    cube = _make("cic").skills_for_evaluation(2000, rng)
    assert cube.dtype == np.float32
    np.testing.assert_allclose(cube.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(cube.var(axis=0), 1 / 12, atol=0.01)
    assert _make("cic").sample_skill(rng).shape == (5,)


def test_the_presets_are_those_of_the_paper_and_smaller_ones() -> None:
    paper = {name: make_intrinsic_config(name, "paper").model_dump() for name in INTRINSIC_CONFIGS}
    assert (paper["rnd"]["hidden_sizes"], paper["rnd"]["learning_rate"]) == ((512, 512), 1e-4)
    assert (paper["apt"]["feature_dim"], paper["apt"]["k"]) == (512, 12)
    smm = paper["smm"]
    assert (smm["n_skills"], smm["beta"], smm["density_rate"]) == (4, 0.5, 1e-2)
    assert smm["discriminator_rate"] == 1e-3
    cic = paper["cic"]
    assert (cic["skill_dim"], cic["temperature"]) == (64, 0.5)
    maxent = paper["maxent"]
    assert (maxent["kernel"], maxent["bandwidth"]) == ("epanechnikov", 0.1)
    assert (maxent["n_components"], maxent["smoothing"], maxent["refit_every"]) == (32, 1e-3, 5000)


def test_bad_names_and_settings_are_named() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'rnd'"):
        make_intrinsic_config("rnb")
    with pytest.raises(ConfigurationError, match="unknown preset 'quick'; choose one of"):
        make_intrinsic_config("rnd", "quick")
    with pytest.raises(ConfigurationError, match="did you mean 'temperature'"):
        make_intrinsic_config("cic", temprature=1.0)
    with pytest.raises(ConfigurationError, match="apt setting k=0"):
        make_intrinsic_config("apt", k=0)
    generator = torch.Generator()
    with pytest.raises(ConfigurationError, match="apt needs its own settings, APTConfig"):
        make_intrinsic("apt", RNDConfig(), SPECS["state"], 2, generator)
    with pytest.raises(ConfigurationError, match="n_actions is 0"):
        make_intrinsic("rnd", RNDConfig(), SPECS["state"], 0, generator)
