"""Plans that are sampled in a model whose best plan is known, and exploration towards contact."""

import numpy as np
import pytest
import torch
from pushing import pushed, pushing_buffer, seen

from rover.data import Buffer
from rover.world.gated import GatedSums
from rover.world.sampled import (
    ContactSearch,
    Controls,
    SampledPlan,
    Sampling,
    _coloured_noise,
)


def test_noise_has_unit_variance_and_falls_with_the_frequency():
    noise = _coloured_noise((400, 16, 3), np.random.default_rng(0)).numpy()
    assert noise.shape == (400, 16, 3)
    assert noise.std() == pytest.approx(1.0, abs=0.1)
    power = (np.abs(np.fft.rfft(noise, axis=1)) ** 2).mean(axis=(0, 2))
    np.testing.assert_allclose(power[1:8] / power[1], np.arange(1.0, 8.0) ** -2.0, rtol=0.15)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_hand_goes_where_it_is_worth_most_and_stays(is_discrete):
    sums = GatedSums(pushing_buffer(1500, np.random.default_rng(0)), size=100)
    sums.extend(1500)
    choices = np.linspace(-1.0, 1.0, 5)[:, None]
    controls = Controls.among(choices, is_continuous=not is_discrete)

    def played(seed: int) -> list[tuple[float, float]]:
        plan = SampledPlan(
            sums.model(),
            lambda points, _: -(points[:, 0] - 0.3).abs(),
            controls,
            Sampling(horizon=8, n_sequences=40),
            np.random.default_rng(seed),
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


CONTROLS = np.linspace(-1.0, 1.0, 5)[:, None].astype(np.float32)


def explored(n: int, covered: list[int] | None, seed: int) -> tuple[Buffer, ContactSearch, float]:
    """A buffer of n steps, where the search has no say uniformly random, and the share of the
    second half in which the box moves."""
    rng, buffer = np.random.default_rng(seed), Buffer((3,), np.float64, 5, action_set=CONTROLS)
    search = ContactSearch(buffer, None if covered is None else np.array(covered))
    for step in range(n):
        if step % 40 == 0:
            hand, box = rng.uniform(0.0, 0.2), rng.uniform(0.35, 0.55)
            row = buffer.observations.intern(seen(hand, box))
            buffer.add_start(row)
            search.forget_plan()
        action = search.act(row, rng)
        action = int(rng.integers(5)) if action is None else action
        hand, box = pushed(hand, box, float(CONTROLS[action, 0]))
        reached = buffer.observations.intern(seen(hand, box))
        buffer.add(row, action, reached, False, step % 40 == 39)
        row = reached
    table = buffer.observations.rows
    moves = table[buffer.successors, 1] - table[buffer.inputs, 1]
    return buffer, search, float((moves[n // 2 :] > 1e-3).mean())


@pytest.fixture(scope="module")
def run():
    return explored(800, [1], seed=0)


def test_the_box_is_pushed_far_more_often_than_by_chance(run):
    _, _, pushing = run
    _, _, unnamed = explored(800, None, seed=0)
    _, _, by_chance = explored(800, [0], seed=0)  # of the hand, which needs no contact
    assert by_chance < 0.1
    assert min(pushing, unnamed) > 0.2


def test_decisions_follow_from_the_buffer_alone(run):
    buffer, search, _ = run
    again, rng = ContactSearch(buffer, np.array([1])), np.random.default_rng(0)
    search.forget_plan()
    for row in (3, 4, 5):
        assert search.act(row, rng) == again.act(row, rng)
