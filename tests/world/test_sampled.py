"""Plans that are sampled in a model whose best plan is known."""

import numpy as np
import pytest
import torch
from pushing import pushing_buffer

from rover.world.gated import GatedSums
from rover.world.sampled import Controls, SampledPlan, Sampling, coloured_noise


def test_noise_has_unit_variance_and_falls_with_the_frequency():
    noise = coloured_noise((400, 16, 3), np.random.default_rng(0)).numpy()
    assert noise.shape == (400, 16, 3)
    assert noise.std() == pytest.approx(1.0, abs=0.1)
    power = (np.abs(np.fft.rfft(noise, axis=1)) ** 2).mean(axis=(0, 2))
    np.testing.assert_allclose(power[1:8] / power[1], np.arange(1.0, 8.0) ** -2.0, rtol=0.15)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_hand_goes_where_it_is_worth_most_and_stays(is_discrete):
    sums = GatedSums(pushing_buffer(1500, np.random.default_rng(0)), size=100)
    sums.extend(1500)
    controls = Controls.among(np.linspace(-1.0, 1.0, 5)[:, None])

    def played(seed: int) -> list[tuple[float, float]]:
        plan = SampledPlan(
            sums.model(),
            lambda points, _: -(points[:, 0] - 0.3).abs(),
            controls,
            Sampling(horizon=8, n_sequences=40),
            np.random.default_rng(seed),
            is_continuous=not is_discrete,
        )
        hand, steps = 0.05, []
        for _ in range(12):
            control = float(plan.act(np.array([hand, 0.6, 0.6 - hand])))
            hand += 0.05 * control
            steps.append((hand, control))
        return steps

    steps = played(0)
    assert steps == played(0)
    assert all(abs(hand - 0.3) < 0.03 for hand, _ in steps[-4:])
    assert steps[0][1] > 0.3
    if is_discrete:
        assert {control for _, control in steps} <= {-1.0, -0.5, 0.0, 0.5, 1.0}


def test_the_nearest_of_one_hot_controls_is_the_largest_number():
    rng, controls = np.random.default_rng(0), Controls.among(np.eye(4))
    numbers = torch.from_numpy(rng.normal(size=(20, 3, 4))).float()
    torch.testing.assert_close(controls.nearest(numbers), numbers.argmax(dim=2))
