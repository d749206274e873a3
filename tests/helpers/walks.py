"""Buffers of states by their numbers, of what is seen step by step, and of random actions."""

from collections.abc import Iterable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from rover.data import Buffer, Collector
from rover.envs import Spaces


def numbered(
    n_states: int,
    n_actions: int,
    transitions: Iterable[Sequence[Any]] = (),
    starts: Iterable[int] = (0,),
    **options: Any,
) -> Buffer:
    """Transitions (x, a, y, terminated, truncated) among states, all of which are in the table."""
    buffer = Buffer((), np.int64, n_actions, **options)
    for state in range(n_states):
        buffer.observations.intern(state)
    for start in starts:
        buffer.add_start(int(start))
    for transition in transitions:
        buffer.add(*transition)
    return buffer


def collected(env: gym.Env[Any, Any], n_steps: int, *, seed: int = 0, **options: Any) -> Collector:
    """What has made n steps of uniform actions."""
    collector = Collector(env, Buffer.of(Spaces.of(env), **options), seed=seed)
    collector.start_episode()
    rng, n_actions = np.random.default_rng(seed), collector.buffer.n_actions
    for _ in range(n_steps):
        collector.step(int(rng.integers(n_actions)))
    return collector


class Walk:
    """Adds what is seen to a buffer, episode after episode; it stands in the row `here`."""

    here = 0

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer

    def begin(self, seen: Any) -> None:
        self.here = self.buffer.observations.intern(np.asarray(seen))
        self.buffer.add_start(self.here)

    def step(
        self, action: int, seen: Any, terminated: bool = False, truncated: bool = False
    ) -> None:
        there = self.buffer.observations.intern(np.asarray(seen))
        self.buffer.add(self.here, action, there, terminated, truncated)
        self.here = there


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
