"""Searched ways: the best of all ways on a small problem, and what follows from the law."""

import itertools

import numpy as np
import pytest
from test_dynamics import rolled

from rover.world import dynamics
from rover.world.dynamics import ACTION_REPEAT, most_novel_sequence

DISCOUNT = 0.9


def model_and_begin(seed, n):
    world = rolled(seed, n)
    model = world.landmarks()
    return model, model.point(int(world.buffer.successors[-1]))


def way_of(model, begin, **options):
    return most_novel_sequence(
        model.dynamics,
        model._visited(),
        begin,
        lambda points: 0.3 - 0.01 * points[:, 0],
        discount=DISCOUNT,
        after_end=0.2,
        **options,
    )


def worth_of(model, begin, actions):
    """What the docstring of the module says, one way at a time."""
    point, worth, alive, passed = begin[None], 0.0, 1.0, []
    for length, action in enumerate(actions):
        ends, ended = model.dynamics.ends(point)
        point, ended = ends[:, action], float(ended[0, action])
        visited = np.array(passed).reshape(1, len(passed), len(begin))
        novelty = float(model._visited()(point, visited, ACTION_REPEAT)[0])
        worth += DISCOUNT**length * alive * (1.0 - DISCOUNT) * novelty
        passed, alive = [*passed, point[0]], alive * (1.0 - ended)
    onward = alive * float(0.3 - 0.01 * point[0, 0]) + (1.0 - alive) * 0.2
    return worth + DISCOUNT ** len(actions) * onward, passed


@pytest.mark.parametrize("seed", range(3))
def test_without_bounds_it_is_the_best_of_all_ways(seed, monkeypatch):
    unbounded = {"_LENGTH": 4, "_WIDTH": 100_000, "_MOST_BRANCHES": 100_000, "_CELL": 1e-6}
    for name, value in unbounded.items():
        monkeypatch.setattr(dynamics, name, value)
    model, begin = model_and_begin(seed, 200)
    sequence = way_of(model, begin)
    every = {
        actions: worth_of(model, begin, actions)[0]
        for actions in itertools.product(range(3), repeat=4)
    }
    assert every[tuple(sequence.actions.tolist())] == pytest.approx(max(every.values()), rel=1e-12)


def test_a_beam_is_nearly_as_good_and_its_points_follow_from_the_law():
    model, begin = model_and_begin(5, 300)
    sequence = way_of(model, begin)
    worth, points = worth_of(model, begin, sequence.actions)
    np.testing.assert_allclose(sequence.points, points, atol=1e-9)
    rng, n = np.random.default_rng(0), len(sequence.actions)
    others = [[action] * n for action in range(3)] + [rng.integers(3, size=n) for _ in range(100)]
    assert worth >= 0.98 * max(worth_of(model, begin, other)[0] for other in others)


def test_no_way_begins_with_an_action_that_has_just_changed_nothing():
    model, begin = model_and_begin(2, 200)
    free = way_of(model, begin).actions[0]
    others = [action for action in range(3) if action != free]
    assert way_of(model, begin, idle=[free]).actions[0] != free
    assert way_of(model, begin, idle=others).actions[0] == free
