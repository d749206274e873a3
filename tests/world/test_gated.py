"""The dynamics model with contacts, plans sampled in it, and exploration towards contact."""

import numpy as np
import pytest
import torch
from pushing import pushed, pushing_buffer, seen
from scipy.spatial import KDTree
from walks import Walk

from rover.data import Buffer
from rover.world.gated import GatedSums, _ridge
from rover.world.net import between
from rover.world.sampled import ContactSearch, Controls, SampledPlan, Sampling, _coloured_noise


def extended(buffer: Buffer, covered: list[int] | None = None, *, size: int = 50) -> GatedSums:
    """Sums over all of a buffer."""
    sums = GatedSums(buffer, None if covered is None else np.array(covered), size=size)
    sums.extend(len(buffer))
    return sums


@pytest.fixture(scope="module")
def buffer() -> Buffer:
    return pushing_buffer(3000, np.random.default_rng(0))


@pytest.fixture(scope="module")
def sums(buffer):
    return extended(buffer, size=300)


def transitions(buffer: Buffer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = buffer.observations.rows
    begins, ends = table[buffer.inputs], table[buffer.successors]
    return begins, buffer.controls[buffer.actions], ends - begins


def test_what_moves_on_contact_is_found_by_its_statistics(buffer, sums):
    model, (_, _, changes) = sums.model(), transitions(buffer)
    assert model.still.tolist() == [1]
    # of an unbroken motion the first four steps count
    length = counted = 0
    for step, change in enumerate(changes[:, 1]):
        length = length + 1 if change > 1e-3 else 0
        counted += 0 < length <= 4
        length = 0 if step % 40 == 39 else length
    assert sums.n_moving == pytest.approx(counted, abs=20)
    # nor does a speed or a flag, which comes back to one value
    flag = Buffer((2,), np.float64, 2)
    rng, places = np.random.default_rng(0), [0.0, 0.0]
    walk, seen = Walk(flag), []
    for step in range(401):
        places[1] += (step % 20 == 0) * rng.normal()
        seen.append(np.array([step % 20 == 0, places[1]], np.float64))
    walk.begin(seen[0])
    for row in seen[1:]:
        walk.step(int(rng.integers(2)), row)
    assert extended(flag).units.gated.tolist() == [1]
    # a world without contacts has no gate
    smooth = Buffer((2,), np.float64, 2)
    rng, at, walk = np.random.default_rng(0), np.zeros(2), Walk(smooth)
    walk.begin(at)
    for _ in range(300):
        action = int(rng.integers(2))
        at = at + np.array([0.1 * (2 * action - 1), rng.normal()])
        walk.step(action, at)
    free = extended(smooth)
    assert len(free.model().still) == free.n_moving == 0


def test_a_push_is_foreseen_and_rest_stays_rest(sums):
    rng, model = np.random.default_rng(1), sums.model()
    hands = rng.uniform(0.25, 0.5, 500)
    boxes = hands + np.where(rng.random(500) < 0.5, 0.1, 0.3) + rng.uniform(0.0, 0.03, 500)
    controls = rng.uniform(-1.0, 1.0, len(hands))
    truth = np.array([seen(*pushed(*state)) for state in zip(hands, boxes, controls, strict=True)])
    begins = np.stack([hands, boxes, boxes - hands], axis=1)
    reached, chance = model.step(
        torch.from_numpy(begins).float(), torch.from_numpy(controls[:, None]).float()
    )
    reached, moves = reached.numpy(), truth[:, 1] - boxes
    np.testing.assert_allclose(reached[:, 0], truth[:, 0], atol=0.02)
    np.testing.assert_allclose(reached[:, 2], reached[:, 1] - reached[:, 0], atol=1e-5)
    far, pushing = boxes - hands > 0.25, moves > 0.02
    assert np.abs(reached[far, 1] - boxes[far]).mean() < 0.05 * moves[pushing].mean()
    missed = reached[pushing, 1] - truth[pushing, 1]
    assert (missed**2).sum() < 0.35 * (moves[pushing] ** 2).sum()
    assert chance.numpy()[pushing].mean() > 0.7


def test_differences_are_found_among_few_moves_of_boxes_that_lie_alike():
    rng, n = np.random.default_rng(0), 300
    for n_shown, expected in ((0, [[-1, 0, 1, 0], [0, -1, 0, 1]]), (1, [])):
        places = Buffer((4 + n_shown,), np.float64, 2)
        walk = Walk(places)
        for step in range(n):
            hand, box = rng.uniform(0.0, 0.5, 2), rng.uniform(0.5, 1.0, 2)
            moves = step % 30 == 29
            if moves:  # ten pushes to the right, of boxes that lie on one height
                box[1] = rng.uniform(0.68, 0.72)
                hand = box + np.array([-0.1, rng.uniform(-0.05, 0.05)])
            states, push = [], np.array([1.0, rng.normal(0.0, 0.1)])
            for change in (0.0, 0.04):
                state = [hand[0] + change, hand[1], *(box + moves * change * push)]
                states.append(np.array(state + [state[2] - state[0]] * n_shown))
            walk.begin(states[0])
            walk.step(int(rng.integers(2)), states[1], truncated=True)
        assert extended(places, [2, 3]).model().differences.T.tolist() == expected


def test_a_feature_that_begins_to_move_is_found():
    """In 500 transitions nothing moves, in a tenth of the next 100 something does; 567 are due."""
    buffer, rng = Buffer((2,), np.float64, 2), np.random.default_rng(0)
    box, walk = 0.0, Walk(buffer)
    for step in range(600):
        moves = step >= 500 and step % 10 == 0
        walk.begin([rng.normal(), box])
        box += 0.1 * moves
        walk.step(int(rng.integers(2)), [rng.normal(), box], truncated=True)
        box = box if moves else rng.normal()
    sums = GatedSums(buffer, np.array([1]), size=50)
    sums.extend(500)
    assert sums.n_moving == 0
    sums.extend(600)  # a fifth more transitions
    assert sums.units.gated.tolist() == [1]
    assert sums.n_moving == 10


@pytest.mark.parametrize("turns", [False, True])
def test_a_speed_without_friction_is_no_object(turns):
    """It changes under one action of four, along an axis or wherever a ship is headed, and coasts.

    A box that lies still at as many places, and moves as often but under any action, is one.
    """
    buffer, rng = Buffer((4,), np.float64, 4), np.random.default_rng(0)
    speed, box, angle = np.zeros(2), 0.0, 0.0
    walk = Walk(buffer)
    walk.begin([*speed, box, np.cos(angle)])
    for step in range(600):
        action = int(rng.integers(4))
        angle += turns * 0.5 * (action == 1)
        if action == 0:
            speed = speed + 0.1 * np.array([np.cos(angle), np.sin(angle)])
        if step % 50 == 49:  # a wall
            speed = np.zeros(2)
        box += 0.1 * (step % 4 == 1)
        walk.step(action, [*speed, box, np.cos(angle)])
    for covered in (None, [0, 2]):
        sums = extended(buffer, covered)
        assert sums.units.gated.tolist() == [2]
        assert 0 not in sums.units.still
        assert not sums.units.at_rest


def test_units_are_taken_anew_when_moves_that_show_a_difference_have_doubled():
    """Of 567 transitions four are pushes, of the next 133 ten: units are due at 567 and at 850."""
    buffer, rng = Buffer((2,), np.float64, 2), np.random.default_rng(0)
    walk = Walk(buffer)
    for step in range(700):
        moves = step in (30, 130, 230, 330) or (step >= 600 and step % 10 == 0)
        hand, box = rng.normal(size=2)
        hand = box - 0.1 + 0.01 * rng.normal() if moves else hand
        begin = np.array([hand, box])
        end = begin + np.array([0.05 * rng.normal(), 0.1 * moves])
        walk.begin(begin)
        walk.step(int(rng.integers(2)), end, truncated=True)
    sums = GatedSums(buffer, np.array([1]), size=50)
    for n, expected in ((699, []), (700, [[-1.0, 1.0]])):
        sums.extend(n)
        at_once = GatedSums(buffer, np.array([1]), size=50)
        at_once.extend(n)
        for one in (sums, at_once):
            assert one.model().differences.T.tolist() == expected


def test_coefficients_are_those_of_the_dense_regressions(buffer, sums):
    """The gate is ridge regression with balanced weights, the move one of the moving rows."""
    begins, controls, changes = transitions(buffer)
    model = sums.model()
    inputs = (np.concatenate([begins, controls], axis=1) - model.centre.numpy()).astype(np.float32)
    z = np.clip(inputs / model.spread.numpy(), -8.0, 8.0)
    wide = np.maximum(z @ model.projection.numpy() + model.offsets.numpy(), 0.0)
    design = np.concatenate([np.ones((len(z), 1)), z, wide], axis=1)
    moving, still = sums.units.kinds(len(buffer))
    design, changes = design[moving | still], changes[moving | still]
    moving = moving[moving | still]
    weights = np.where(moving, 0.5 / moving.mean(), 0.5 / (1.0 - moving.mean()))[:, None]

    def ridge(rows, targets, penalty):
        gram = rows.T @ rows + penalty * np.eye(rows.shape[1])
        return np.linalg.solve(gram, rows.T @ targets)

    gate = ridge(design * weights**0.5, moving[:, None] * weights**0.5, 3.0)
    predicted = design @ model.change.numpy()[:, -2:]
    np.testing.assert_allclose(predicted[:, :1], design @ gate, atol=5e-3)
    rows, limit = design[moving][:, : 1 + z.shape[1]], float(model.most_moved[0]) / 1.3
    move = ridge(rows, np.clip(changes[moving][:, 1:2], -limit, limit), 1.0)
    np.testing.assert_allclose(predicted[moving, 1:], rows @ move, atol=1e-4)


def test_sums_are_a_function_of_the_buffer(buffer, sums):
    often = GatedSums(buffer, size=300)
    for n in (60, 900, 901, 2500, len(buffer)):
        often.extend(n)
    for name, tensor in often.model().tensors().items():
        expected = sums.model().tensors()[name]
        torch.testing.assert_close(tensor, expected, rtol=1e-2, atol=2e-3, msg=name)


def test_noise_has_unit_variance_and_falls_with_the_frequency():
    noise = _coloured_noise((400, 16, 3), np.random.default_rng(0)).numpy()
    assert noise.shape == (400, 16, 3)
    assert noise.std() == pytest.approx(1.0, abs=0.1)
    power = (np.abs(np.fft.rfft(noise, axis=1)) ** 2).mean(axis=(0, 2))
    np.testing.assert_allclose(power[1:8] / power[1], np.arange(1.0, 8.0) ** -2.0, rtol=0.15)


@pytest.mark.parametrize("is_discrete", [False, True])
def test_the_hand_goes_where_it_is_worth_most_and_stays(is_discrete):
    sums = extended(pushing_buffer(1500, np.random.default_rng(0)), size=100)
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
    walk = Walk(buffer)
    for step in range(n):
        if step % 40 == 0:
            hand, box = rng.uniform(0.0, 0.2), rng.uniform(0.35, 0.55)
            walk.begin(seen(hand, box))
            search.forget_episodes()
        action = search.act(walk.here, rng)
        action = int(rng.integers(5)) if action is None else action
        hand, box = pushed(hand, box, float(CONTROLS[action, 0]))
        walk.step(action, seen(hand, box), truncated=step % 40 == 39)
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
    search.forget_episodes()
    for row in (3, 4, 5):
        assert search.act(row, rng) == again.act(row, rng)


def test_large_numbers_are_interpolated_and_regressed():
    """Products of matrices lose what is small beside them: distances, and a ridge."""
    points = 1e6 + np.random.default_rng(0).normal(scale=1e-4, size=(60, 40))
    index, weights = between(KDTree(points), points + 1e-6, 4, exact=True)
    assert (index == np.arange(60)[:, None]).any(axis=1).all()
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    features = torch.from_numpy(1e9 + points[:, :1] * points)
    found = _ridge(features.T @ features, features.T @ features[:, :1], 1e-3)
    assert found.isfinite().all()
