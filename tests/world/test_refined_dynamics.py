"""The refined dynamics model, against a pendulum."""

from __future__ import annotations

import numpy as np

from rover.data import Buffer
from rover.world.dynamics import RefinedDynamics
from rover.world.model import LandmarkModel

TORQUES = np.array([-2.0, 0.0, 2.0])


def turned(angle: np.ndarray, speed: np.ndarray, torque: np.ndarray) -> tuple[np.ndarray, ...]:
    speed = speed + 0.1 * (10.0 * np.sin(angle) + 3.0 * torque) / 2.0
    return angle + 0.1 * speed, speed


def seen(angle: np.ndarray, speed: np.ndarray) -> np.ndarray:
    return np.stack([np.cos(angle), np.sin(angle), speed], axis=-1).astype(np.float32)


def refined(rng: np.random.Generator) -> tuple[RefinedDynamics, LandmarkModel]:
    buffer = Buffer((3,), np.dtype(np.float32), 3)
    for _ in range(10):
        angle, speed = rng.uniform(-3.0, 3.0, 2)
        here = buffer.observations.intern(seen(angle, speed))
        buffer.add_start(here)
        for step in range(80):
            action = int(rng.integers(3))
            angle, speed = turned(angle, speed, TORQUES[action])
            there = buffer.observations.intern(seen(angle, speed))
            buffer.add(here, action, there, terminated=False, truncated=step == 79)
            here = there
    table = buffer.observations.rows.astype(np.float64)
    model = LandmarkModel(buffer, lambda rows, _: (table[rows], None))
    model.fit()
    return RefinedDynamics(model.buffer, model.points, model.dynamics), model


def test_ten_steps_ahead_are_on_the_circle_and_near_the_truth() -> None:
    rng = np.random.default_rng(3)
    law, model = refined(rng)
    assert law.unexplained < 1e-3
    angle, speed = rng.uniform(-2.0, 2.0, (2, 50))
    points, actions = seen(angle, speed) / model.scale, rng.integers(3, size=(10, 50))
    for chosen in actions:
        ends, ended = law.step(points[None])
        assert ended.shape == (3, 50)
        points = ends[chosen, np.arange(50)]
        angle, speed = turned(angle, speed, TORQUES[chosen])
    x = points * model.scale
    assert np.abs(x[:, 0] ** 2 + x[:, 1] ** 2 - 1.0).max() < 1e-2
    inside = np.abs(speed) < 6.0  # what was seen
    assert np.median(np.abs(x - seen(angle, speed))[inside]) < 0.05


def test_what_is_missed_is_what_the_others_say() -> None:
    rng = np.random.default_rng(3)
    law, model = refined(rng)
    actions = model.buffer.actions[law.rows]
    ends, _ = law.step(law.begins[None])
    fitted = law.arrivals - ends[actions, np.arange(len(actions))]
    assert np.abs(law.missed).mean() > np.abs(fitted).mean(), "left out is missed by more"
