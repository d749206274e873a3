"""Environments of others, in a random one of their ways, against a twin without it.

They change what they are given, return odd types and rewards, hold settings that were made after
them, share a simulator with their copies, or raise. The data of an agent must be its twin's.
"""

from __future__ import annotations

import random
import warnings
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import rover
from rover.data import Buffer, RunningEpisode
from rover.errors import ConfigurationError, RoverWarning

from .processes import Attempt

NUMBERS = range(12)


class World(gym.Env[Any, Any]):
    """A point in a box, or on a grid of numbers, that actions push; its goal is a corner.

    Args:
        rng: draws its kind, its size, and its horizon.
    """

    def __init__(self, rng: random.Random) -> None:
        self.is_discrete, self.is_exact = rng.random() < 0.5, rng.random() < 0.5
        self.push, self.horizon_of_its_own = rng.choice([0.125, 0.25]), rng.randrange(10, 40)
        self.goal = 1.0
        dtype = rng.choice([np.float32, np.float64])
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), dtype)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (2,), np.float32)
        if self.is_discrete:
            self.action_space = spaces.Discrete(4)
        self.calls = 0

    def seen(self) -> Any:
        return self.place.astype(self.observation_space.dtype)

    def earned(self) -> Any:
        return float((self.place >= self.goal).all())

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        noise = 0.0 if self.is_exact else 0.1
        self.place, self.n_steps = self.np_random.uniform(-noise, noise, 2), 0
        return self.seen(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.calls += 1
        moves = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float64)
        change = moves[int(action)] if self.is_discrete else np.array(action, np.float64)
        self.place = np.clip(self.place + self.push * change, -1.0, 1.0)
        self.n_steps += 1
        return self.seen(), self.earned(), False, self.n_steps == self.horizon_of_its_own, {}


def learned(env: gym.Env[Any, Any], name: str, n_steps: int, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoverWarning)
        return rover.make_agent(name, env, seed=1, **options).learn(n_steps)


def assert_same(one: Buffer, other: Buffer) -> None:
    for name, column in one.state().items():
        np.testing.assert_array_equal(column, other.state()[name], name)


def _mutating(rng: random.Random) -> type[World]:
    """Changes the action that it is given, and the observation that it returned before."""

    class Mutating(World):
        def seen(self) -> Any:
            if not hasattr(self, "array"):
                self.array = super().seen()
            self.array[:] = super().seen()
            return self.array

        def step(self, action: Any) -> Any:
            returned = super().step(action)
            if not self.is_discrete:
                action *= rng.choice([0.0, 0.13, -1.0])
            return returned

    return Mutating


def _odd_types(rng: random.Random) -> type[World]:
    """Returns lists, or numbers of a wider type, and rewards that are arrays or none at all."""
    kind = rng.choice([list, np.float64, np.longdouble])
    reward = rng.choice([np.nan, np.array([1.0]), np.array([[2]]), None, np.zeros(3), "none", True])

    class Odd(World):
        def seen(self) -> Any:
            seen = super().seen()
            return seen.tolist() if kind is list else seen.astype(kind)

        def earned(self) -> Any:
            return reward

    return Odd


def _named(rng: random.Random) -> type[World]:
    """Has attributes by names that mean something else elsewhere."""
    name, value = rng.choice(["horizon", "max_steps"]), rng.randrange(1, 9)

    class Named(World):
        def __init__(self, rng: random.Random) -> None:
            super().__init__(rng)
            setattr(self, name, value)

    return Named


def test_the_data_are_those_of_the_plain_twin(attempt: Attempt) -> None:
    rng, seed = attempt.rng, attempt.rng.randrange(10**6)
    make = rng.choice([_mutating, _odd_types, _named])(rng)
    name, n_steps = rng.choice(["rover", "rover", "random", "rmax"]), rng.randrange(60, 150)
    agents = [learned(kind(random.Random(seed)), name, n_steps) for kind in (World, make)]
    assert_same(*(agent.buffer for agent in agents))
    env = agents[1].env
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        observation, _ = env.reset(seed=3)
        action = agents[1].policy.act(observation, np.random.default_rng(0))
    env.step(np.array(action) if not env.is_discrete else action)


def test_steps_before_an_exception_are_the_twins(attempt: Attempt) -> None:
    rng, seed = attempt.rng, attempt.rng.randrange(10**6)
    name, n_steps = rng.choice(["rover", "random", "rmax"]), rng.randrange(60, 150)
    fails_in, kind = rng.randrange(1, n_steps), rng.choice([RuntimeError, ValueError, KeyError])

    class Raising(World):
        is_judge, is_mended = False, False

        def __deepcopy__(self, memo: Any) -> Any:
            judge = type(self)(random.Random(seed))
            judge.is_judge = True
            return judge

        def step(self, action: Any) -> Any:
            if self.calls == fails_in and not (self.is_judge or self.is_mended):
                raise kind("gave up")
            return super().step(action)

    twin = learned(World(random.Random(seed)), name, n_steps)
    env, folder = Raising(random.Random(seed)), attempt.folder / "run"
    with pytest.raises(kind) as caught:
        learned(env, name, n_steps, run_dir=folder)
    assert "raised by the environment in step" in caught.value.__notes__[0]
    assert f"{fails_in} steps are saved" in caught.value.__notes__[1]
    env.is_mended = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoverWarning)
        again = type(twin).resume(folder, env=env)
        rows = slice(0, fails_in)
        for column in ("inputs", "actions", "successors"):
            ours, theirs = (getattr(one.buffer, column)[rows] for one in (again, twin))
            np.testing.assert_array_equal(ours, theirs)
        assert again.finish().num_timesteps == n_steps


def test_policies_are_judged_in_the_world_that_was_set(attempt: Attempt) -> None:
    rng, seed = attempt.rng, attempt.rng.randrange(10**6)
    env = World(random.Random(seed))
    env.goal = rng.choice([-2.0, 0.25, 2.0])  # everywhere, a part, nowhere
    shares_simulator = rng.random() < 0.3
    if shares_simulator:
        env.__class__ = _Shared
    agent = learned(World(random.Random(seed)), "random", 80)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoverWarning)
        if shares_simulator:
            with pytest.raises(ConfigurationError, match="drive one simulator"):
                rover.adapt(agent, env, total_timesteps=60, seed=0)
            return
        run = rover.adapt(agent, env, total_timesteps=60, seed=0)
    policy, earned = run.policy, []
    assert policy is not None
    for number in range(3):
        episode, total = RunningEpisode(env, seed=number), 0.0
        observation, is_over = episode.observation, False
        while not is_over:
            action = int(policy.probs(observation[None])[0].argmax())
            observation, reward, terminated, truncated = episode.step(action)
            total, is_over = total + float(reward), terminated or truncated
        earned.append(total)
    if env.goal in (-2.0, 2.0):  # every policy earns the same there
        assert set(earned) == {run.summary["policy_return"]}


class _Shared(World):
    """Its copies hold the same simulator."""

    simulator: ClassVar[dict[str, Any]] = {}

    @property
    def place(self) -> Any:
        return self.simulator["place"]

    @place.setter
    def place(self, place: Any) -> None:
        self.simulator["place"] = place
