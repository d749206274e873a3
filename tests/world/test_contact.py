"""Exploration towards contact: a box is pushed, and decisions follow from the buffer alone."""

import numpy as np
import pytest
from pushing import pushed, seen

from rover.data import Buffer
from rover.world.contact import ContactSearch

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
    return explored(1200, [1], seed=0)


def test_the_box_is_pushed_far_more_often_than_by_chance(run):
    _, _, pushing = run
    _, _, unnamed = explored(1200, None, seed=0)
    _, _, by_chance = explored(1200, [0], seed=0)  # of the hand, which needs no contact
    assert by_chance < 0.1
    assert min(pushing, unnamed) > 0.2


def test_decisions_follow_from_the_buffer_alone(run):
    buffer, search, _ = run
    again, rng = ContactSearch(buffer, np.array([1])), np.random.default_rng(0)
    search.forget_plan()
    for row in (3, 4, 5):
        assert search.act(row, rng) == again.act(row, rng)
