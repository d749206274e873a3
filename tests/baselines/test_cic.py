"""CIC's estimate of information against its closed form, and its reward against brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from ring_batches import make_reward, reward_of, ring_batch
from scipy import special
from scipy.spatial.distance import cdist

from rover.features import info_nce_loss


def _cic(kind: str = "one-hot", **settings: object) -> Any:
    usual = {"skill_dim": 2, "hidden": 32, "learning_rate": 3e-3, "k": 3}
    return make_reward("cic", kind, **{**usual, **settings})


@pytest.mark.parametrize("concentration", [1.0, 5.0])
def test_the_estimator_on_a_circle_is_the_mutual_information(concentration: float) -> None:
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


def test_the_reward_is_brute_force_over_the_whole_batch() -> None:
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


@pytest.mark.slow
def test_skills_that_decide_the_transition_are_told() -> None:
    """The skill says where on the ring to be, so up to log 9 nats can be had."""
    cic = _cic(temperature=0.2)
    rng = np.random.default_rng(0)
    angle = np.arange(9) * 2 * np.pi / 9
    told = (0.5 + 0.5 * np.stack([np.cos(angle), np.sin(angle)], axis=1)).astype(np.float32)
    information = []
    for _ in range(120):
        batch = ring_batch(rng, n=60, skills=np.zeros((60, 2), np.float32))
        assert batch.skills is not None
        batch.skills.copy_(torch.from_numpy(told[batch.index.numpy()]))
        information.append(cic.update(batch)[1]["cic_information"])
    assert np.mean(information[-10:]) > max(0.3, np.mean(information[:5]) + 0.3)
    assert max(information) <= math.log(60)
