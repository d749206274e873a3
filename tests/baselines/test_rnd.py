from __future__ import annotations

from typing import Any

import pytest
import torch
from ring_batches import batch_reaching, make_reward, reward_of


def _rnd(kind: str = "one-hot", **settings: object) -> Any:
    usual = {"hidden_sizes": (32,), "feature_dim": 16, "learning_rate": 1e-2}
    return make_reward("rnd", kind, **{**usual, **settings})


def test_the_error_falls_on_repeated_states_and_not_on_new_ones() -> None:
    rnd = _rnd()
    familiar, new = batch_reaching([1, 2, 3] * 8), batch_reaching([6, 7, 8])
    losses = [rnd.update(familiar)[1]["rnd_loss"] for _ in range(150)]
    assert losses[-1] < 0.02 * losses[0]
    assert reward_of(rnd, new).min() > 20 * reward_of(rnd, familiar).max()


def test_rewards_are_errors_in_units_of_their_running_deviation() -> None:
    """After one update the deviation is that of the errors on the batch before the step."""
    rnd, batch = _rnd(learning_rate=1e-12), batch_reaching([1, 1, 1, 4])
    rnd.update(batch)
    reward = reward_of(rnd, batch).double().numpy()
    assert reward.std() == pytest.approx(1.0, rel=1e-4)


def test_the_target_never_moves() -> None:
    rnd, batch = _rnd(), batch_reaching([1, 2])
    before = rnd.state()
    rnd.update(batch)
    moved = {name for name, tensor in rnd.state().items() if not torch.equal(tensor, before[name])}
    assert "reward._predictor.0.weight" in moved
    assert not any("_target" in name for name in moved)
