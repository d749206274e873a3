"""A point on a line that two actions move."""

import numpy as np
from walks import Walk

from rover.data import Buffer


def line(
    n: int,
    rng: np.random.Generator,
    *,
    n_episodes: int = 20,
    forced: float = 1.0,
    wall: float = 1.0,
    noise: int = 0,
) -> Buffer:
    """Steps of about 0.01 on [0, 1], left for 25 steps and right for 25, from starts all over.

    They go as their actions say in a `forced` share of the steps, and else by chance; from the left
    no step passes the wall; further features are noise.
    """
    buffer, length = Buffer((1 + noise,), np.float64, 2), n // n_episodes
    walk = Walk(buffer)
    for episode in range(n_episodes):
        x = (episode + rng.random()) / n_episodes
        walk.begin(np.r_[x, rng.random(noise)])
        for step in range(length):
            action = step // 25 % 2
            sign = 2 * action - 1 if rng.random() < forced else rng.choice([-1.0, 1.0])
            x = np.clip(x + sign * rng.uniform(0.009, 0.011), 0.0, wall if x <= wall else 1.0)
            walk.step(action, np.r_[x, rng.random(noise)], truncated=step == length - 1)
    return buffer
