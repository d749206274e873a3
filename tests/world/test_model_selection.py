"""The decision between exact states and landmarks."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from small_envs import Small
from walks import Walk, collected
from walled_points import WalledPoint

from rover import Rover
from rover.data import Buffer
from rover.world.world import World


def walk(kind: str, steps: int) -> Buffer:
    """Steps of a point: new ones, or on a ring of 30 places, at first or late, some at a wall."""
    walker, rng, here = Walk(Buffer((1,), np.float32, 2)), np.random.default_rng(0), 0.0
    for step in range(steps):
        is_ring = kind == "ring" or (kind == "late ring" and step >= 2500)
        place = float(step % 30) if is_ring else 100.0 + rng.random()
        here = here if kind == "wall" and step % 2 else place  # where it stands still
        walker.step(0, np.array([here], np.float32))
    return walker.buffer


class Line(Small):
    """A point on a line between walls, left, right, or no change.

    Args:
        step: of an action; 0 draws each anew.
        is_shuffled: whether the number that is seen names the place only.
    """

    observation_space = spaces.Box(-1e3, 1e3, (1,), np.float32)
    action_space = spaces.Discrete(3)
    limit = 100

    def __init__(self, step: float, *, is_shuffled: bool = False) -> None:
        self._step, self._names = step, np.random.default_rng(0).permutation(100)
        self._is_shuffled = is_shuffled

    def begin(self) -> None:
        self.place = 5.0

    def look(self) -> Any:
        name = self._names[round(self.place)] if self._is_shuffled else self.place
        return np.array([name], np.float32)

    def move(self, action: Any) -> None:
        step = self._step or self.np_random.uniform(0.5, 1.5)
        self.place = float(np.clip(self.place + (int(action) - 1) * step, 0.0, 30.0))


class Tilt(Line):
    """A ball that rolls on a line whose slope the actions change by steps of one size."""

    observation_space = spaces.Box(-1e3, 1e3, (2,), np.float32)

    def begin(self) -> None:
        self.place, self.ball = 0.0, self.np_random.uniform(-0.5, 0.5)

    def look(self) -> Any:
        return np.array([self.place, self.ball], np.float32)

    def move(self, action: Any) -> None:
        self.place += (int(action) - 1) * self._step
        self.ball += np.sin(self.place)


@pytest.mark.parametrize(
    ("kind", "steps", "is_exact"),
    [
        ("new", 30, True),  # too few to tell
        ("new", 300, False),
        ("ring", 300, True),
        ("wall", 300, False),
        ("late ring", 30_000, False),
    ],
)
def test_states_repeat_if_moves_come_back(kind, steps, is_exact):
    assert (World(walk(kind, steps)).kind == "states") == is_exact


@pytest.mark.parametrize(
    ("shape", "dtype", "is_exact"),
    [((4, 1, 1), np.uint8, False), ((4,), np.int64, True)],  # pictures; names, all that there is
)
def test_pictures_are_what_their_first_2000_transitions_say(shape, dtype, is_exact):
    buffer = Buffer(shape, dtype, 2)
    selection, walker = World(buffer), Walk(buffer)
    for step in range(12_000):
        number = step if step < 2500 else step % 30
        digits = np.array([number // 10**place % 10 for place in range(4)], dtype)
        walker.step(0, digits.reshape(shape))
        if step == 2400:
            assert selection.kind == "landmarks"
    assert selection.kind == World(buffer).kind
    assert (selection.kind == "states") == is_exact


@pytest.mark.parametrize(
    ("env", "is_exact"),
    [
        (Line(1.0), True),
        (Line(0.0), False),  # but at its walls and where nothing is done
        (Line(1.0, is_shuffled=True), True),  # whose neighbours are none
        (WalledPoint(), True),
        (gym.make("MountainCar-v0"), False),
        (Tilt(0.1), False),  # steps of an actuator are no lattice of what it moves
    ],
)
def test_worlds_that_repeat_in_part(env, is_exact):
    buffer = collected(env, 1000, seed=3).buffer
    assert (World(buffer).kind == "states") == is_exact


def test_the_decision_is_in_metrics_and_summary():
    lines: list[Any] = []
    settings = {"mirror_steps": 5, "evaluation_episodes": 2}
    agent = Rover(Line(0.0), seed=1, **settings)
    agent.learn(300, callback=lambda line: lines.append(line) is None)
    assert agent.summary()["exact_states"] is lines[-1]["exact_states"] is False


def test_models_of_all_transitions_are_made_once_until_there_are_more():
    buffer = collected(Line(1.0), 100, seed=3).buffer
    world, made = World(buffer), []

    def make() -> int:
        made.append(len(buffer))
        return len(buffer)

    assert [world.part("length", make), world.part("length", make)] == [100, 100]
    assert world.part(("length", 2), make) == 100
    buffer.add(0, 0, 0, False, False)
    assert world.part("length", make) == 101
    assert made == [100, 100, 101]
