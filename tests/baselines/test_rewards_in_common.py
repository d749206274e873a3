"""Laws of all intrinsic rewards; those of RND and E3B against values by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import (
    SPECS,
    batch_reaching,
    make_reward,
    observations,
    reward_of,
    ring_batch,
)
from small_agents import SMALL, SMALL_REWARDS
from small_envs import ENVIRONMENTS

from rover.baselines import agent_class, make_agent
from rover.baselines.maxent import _MaxentReward
from rover.baselines.rewards import IntrinsicReward, RunningMoments
from rover.data import Batch, gather
from rover.errors import NonFiniteError


def _make(name: str, kind: str = "one-hot", seed: int = 0, **settings: Any) -> IntrinsicReward[Any]:
    fast: Any = agent_class(name).presets["fast"]["intrinsic"]
    reward: IntrinsicReward[Any] = make_reward(
        name, kind, seed, **{**fast, **SMALL_REWARDS[name], **settings}
    )
    if name == "e3b":  # a bonus is given as steps are made
        ring = observations(kind).numpy()
        for step in range(40):
            reward.note(step % len(ring), ring[step % len(ring)], done=step % 10 == 9)
    return reward


def _leaves(state: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a nested state by their paths."""
    if not isinstance(state, dict):
        return {path: torch.as_tensor(state) if isinstance(state, np.ndarray) else state}
    return {k: v for key, part in state.items() for k, v in _leaves(part, f"{path}.{key}").items()}


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


def _batches(intrinsic: IntrinsicReward[Any], kind: str, count: int) -> list[Batch]:
    rng = np.random.default_rng(7)
    batches = []
    for _ in range(count):
        drawn = np.stack([intrinsic.sample_skill(rng) for _ in range(40)])
        skills = drawn if drawn.size else None
        batches.append(ring_batch(rng, kind=kind, skills=skills))
    return batches


def _learn(intrinsic: IntrinsicReward[Any], batch: Batch, kind: str) -> dict[str, float]:
    if isinstance(intrinsic, _MaxentReward):
        counts = np.bincount(batch.next_index.numpy(), minlength=9)
        used = np.flatnonzero(counts)
        intrinsic.refit(observations(kind)[used], counts[used])
        return {}
    return intrinsic.update(batch)[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize("name", SMALL_REWARDS)
def test_rewards_are_finite_and_training_repeats_and_resumes_to_the_bit(name, kind):
    first, again = _make(name, kind), _make(name, kind)
    batches, fresh = _batches(first, kind, 4), first.state()
    for batch in batches[:2]:
        metrics = _learn(first, batch, kind)
        assert all(np.isfinite(value) for value in metrics.values())
        assert _learn(again, batch, kind) == metrics
    saved, resumed = first.state(), _make(name, kind, seed=1)
    assert saved.keys() == fresh.keys()
    resumed.load_state(saved)
    for batch in batches[2:]:
        rewards = reward_of(first, batch)
        assert (rewards.shape, rewards.dtype) == ((40,), torch.float32)
        assert torch.isfinite(rewards).all()
        assert not rewards.requires_grad
        metrics = _learn(first, batch, kind)
        for other in (again, resumed):
            assert torch.equal(rewards, reward_of(other, batch))
            assert _learn(other, batch, kind) == metrics
    final = _leaves(first.state())
    for other in (again, resumed):
        assert all(_same(leaf, final[key]) for key, leaf in _leaves(other.state()).items())
    changed = [key for key, leaf in _leaves(saved).items() if not _same(leaf, final[key])]
    assert changed, "a saved state is a copy"


@pytest.mark.parametrize("name", ["apt", "cic", "rnd", "smm"])
def test_observations_that_are_not_finite_are_an_error_not_a_weight(name):
    intrinsic = _make(name)
    (batch,) = _batches(intrinsic, "one-hot", 1)
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


def _rnd(kind: str = "one-hot", **settings: object) -> Any:
    usual = {"hidden_sizes": (32,), "feature_dim": 16, "learning_rate": 1e-2}
    return make_reward("rnd", kind, **{**usual, **settings})


def test_rewards_are_errors_in_units_of_their_running_deviation():
    """After one update the deviation is that of the errors on the batch before the step."""
    rnd, batch = _rnd(learning_rate=1e-12), batch_reaching([1, 1, 1, 4])
    rnd.update(batch)
    reward = reward_of(rnd, batch).double().numpy()
    assert reward.std() == pytest.approx(1.0, rel=1e-4)


def test_the_ellipsoid_of_e3b_is_that_of_all_arrivals():
    rng = np.random.default_rng(0)
    reward = make_reward("e3b", "vector", feature_dim=5, hidden=4, ridge=0.1)
    seen = rng.normal(size=(7, *reward.observations.shape))
    for observation in seen:
        reward.note(0, observation, done=False)
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
