"""Drawn situations in which a plan would be wrong without a word: far goals, goals as functions of
continuous numbers or of bytes, and a number that only grows."""

import random
import warnings
from typing import Any

import numpy as np
from walks import Walk, numbered

import rover
from rover.data import Buffer
from rover.data.kinds import kinds_of
from rover.errors import RoverWarning


def test_far_goals_are_walked_to_or_a_discount_is_named(drawn: random.Random) -> None:
    """A line with a few ways back, each place with actions of its own order."""
    n, gamma = drawn.randint(3, 600), drawn.choice((0.5, 0.9, 0.99, 0.999))
    buffer, ways = numbered(n, 3), np.zeros((n, 3), np.int64)
    for x in range(n - 1):
        ways[x] = drawn.sample((x + 1, max(x - 1, 0), drawn.randint(0, x)), 3)
        for action, y in enumerate(ways[x].tolist()):
            buffer.add(x, action, y, y == n - 1, y == n - 1)
    rewards = np.full(len(buffer), drawn.choice((0.0, -0.5)))
    rewards[buffer.successors == n - 1] = 1.0
    if drawn.random() < 0.5:
        rewards[np.flatnonzero(buffer.successors < buffer.inputs)[0]] = -1e8
    task: Any = (
        {"reward": rewards} if drawn.random() < 0.5 else {"goal": np.int64(n - 1), "stay": False}
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        policy = rover.solve(buffer, **task, discount=gamma)
    if said := [str(one.message) for one in caught if one.category is RoverWarning]:
        named = float(said[0].rpartition("discount=")[2].split()[0].rstrip(".,;)"))
        policy = rover.solve(buffer, **task, discount=named)
    probs = policy.probs(np.arange(n - 1))
    onward = ways[:-1] == np.arange(1, n)[:, None]
    np.testing.assert_allclose(probs[onward], 1.0, atol=1e-6, err_msg=str(said))


def test_bytes_are_planned_on_as_whole_numbers_are(drawn: random.Random) -> None:
    n, rng = drawn.randint(4, 30), np.random.default_rng(drawn.randrange(10**9))
    rows = np.unique(rng.integers(0, 256, (n, 2)), axis=0)
    ways = rng.integers(0, len(rows), (len(rows), 3))
    limit, weights = drawn.randint(-200, 200), rng.integers(-3, 4, 2)
    buffers = []
    for kind in (np.uint8, np.int64):
        buffers.append(buffer := Buffer((2,), kind, 3))
        names = [buffer.observations.intern(row.astype(kind)) for row in rows]
        for x, action in np.ndindex(*ways.shape):
            buffer.add(names[x], action, names[ways[x, action]], False, True)
    if (rows @ weights > limit)[np.unique(ways)].any() and drawn.random() < 0.5:
        task: Any = {"goal": lambda seen: seen @ weights.astype(seen.dtype) > limit}
    else:
        task = {"reward": lambda o, a, n: ((n - o) @ weights.astype(o.dtype)).astype(float) - a}
    policies: list[Any] = [rover.solve(buffer, **task) for buffer in buffers]
    small, large = policies
    np.testing.assert_array_equal(small.value(rows.astype(np.uint8)), large.value(rows))


def test_a_goal_as_a_function_is_arrived_at(drawn: random.Random) -> None:
    """One number that moves by a length that each step draws."""
    rng, step = np.random.default_rng(drawn.randrange(10**9)), drawn.uniform(0.02, 0.06)
    centre, radius = drawn.uniform(0.1, 0.9), drawn.uniform(0.75, 2.0) * step

    def moved(x: float, action: int) -> float:
        return float(np.clip(x + (2 * action - 1) * step * rng.uniform(0.8, 1.2), 0.0, 1.0))

    walk = Walk(Buffer((1,), np.float32, 2))
    for t in range(1500):
        if t % 30 == 0:
            x = rng.random()
            walk.begin(np.array([x], np.float32))
        action = int(rng.integers(2))
        x = moved(x, action)
        walk.step(action, np.array([x], np.float32), truncated=t % 30 == 29)
    stay = drawn.random() < 0.5
    policy = rover.solve(walk.buffer, goal=lambda x: np.abs(x[:, 0] - centre) < radius, stay=stay)
    for x in (0.02, 0.5, 0.98):
        places = [x]
        for _ in range(80):
            seen = np.array([places[-1:]], np.float32)
            places.append(moved(places[-1], int(policy.probs(seen).argmax())))
        inside = np.abs(np.array(places) - centre) < radius
        assert inside.any()
        assert not stay or radius < 1.25 * step or inside[-20:].mean() > 0.9


def test_a_number_that_only_grows_is_named(drawn: random.Random) -> None:
    rng, n = np.random.default_rng(drawn.randrange(10**9)), drawn.randint(200, 600)
    grows, size = drawn.random() < 0.5, drawn.randint(2, 3)
    places = np.abs(np.cumsum(rng.choice((-1, 1), (n + 1, size - 1)), axis=0)) % 5
    moves = rng.random(n + 1) * (rng.random(n + 1) < drawn.uniform(0.3, 1.0))
    moves *= 1.0 if grows else rng.choice((-1.0, 1.0), n + 1)
    column = drawn.randrange(size)
    seen = np.insert(places.astype(float), column, np.cumsum(moves) * drawn.choice((-1, 1)), axis=1)
    goes_on = np.zeros(n, np.bool_)
    made = Buffer.from_arrays(seen, rng.integers(3, size=n), None, goes_on, goes_on)
    said = [one for one in kinds_of(made) if "only grows" in one]
    assert [f"grows: {column} of" in one for one in said] == [True] * grows
