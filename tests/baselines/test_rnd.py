from __future__ import annotations

import numpy as np
import pytest
import torch
from ring_batches import batch_reaching, make_reward, reward_of, ring_batch

from rover.baselines.rnd import RndReward
from rover.baselines.shared.rewards import RunningMoments


def _rnd(kind: str = "one-hot", **settings: object) -> RndReward:
    usual = {"hidden_sizes": (32,), "feature_dim": 16, "learning_rate": 1e-2}
    reward: RndReward = make_reward("rnd", kind, **{**usual, **settings})
    return reward


def test_the_error_falls_on_repeated_states_and_not_on_new_ones() -> None:
    rnd = _rnd()
    familiar, new = batch_reaching([1, 2, 3] * 8), batch_reaching([6, 7, 8])
    losses = [rnd.update(familiar)[1]["rnd_loss"] for _ in range(150)]
    assert losses[-1] < 0.02 * losses[0]
    assert reward_of(rnd, new).min() > 20 * reward_of(rnd, familiar).max()
    rnd.update(new)
    for _ in range(150):
        rnd.update(new)
    assert reward_of(rnd, new).max() < reward_of(rnd, batch_reaching([5])).item()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["state", "vector", "pixels"])
def test_the_reward_falls_on_other_observations_too(kind: str) -> None:
    rnd = _rnd(kind, learning_rate=3e-3)
    batch = ring_batch(np.random.default_rng(0), kind=kind, skills=None)
    losses = [rnd.update(batch)[1]["rnd_loss"] for _ in range(60)]
    assert losses[-1] < 0.3 * losses[1]


def test_rewards_are_errors_in_units_of_their_running_deviation() -> None:
    """After one update the deviation is that of the errors on the batch before the step."""
    rnd, batch = _rnd(learning_rate=1e-12), batch_reaching([1, 1, 1, 4])
    rnd.update(batch)
    reward = reward_of(rnd, batch).double().numpy()
    assert reward.std() == pytest.approx(1.0, rel=1e-4)


def test_a_frozen_target_never_moves() -> None:
    rnd, batch = _rnd(), batch_reaching([1, 2])
    before = rnd.state()
    rnd.update(batch)
    after = rnd.state()
    targets = [name for name in before if name.startswith("target.")]
    assert targets
    assert all(torch.equal(before[name], after[name]) for name in targets)
    assert not torch.equal(before["predictor.0.weight"], after["predictor.0.weight"])


def test_running_moments_are_those_of_all_rows_together() -> None:
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
