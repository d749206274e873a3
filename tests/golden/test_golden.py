"""Golden digests: short runs and solves give the bits that they gave before.

They prove that a change of the code changes no result. Where results are meant to change,
`ROVER_RENEW=1 pytest tests/golden` writes them anew, and the commit says why.

The last bits of a float follow the processor and the libraries. Digests are stored by kind of
machine, which is the bits of a few products, factors and exponentials. On a kind without digests
the figures of each run and solve are compared within `TOLERANCE` instead; no test is skipped. The
actions of runs in finite environments are compared everywhere.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pushing import pushing_buffer
from random_rooms import RandomRooms
from small_envs import QUICK, ROOMS, SMALL_NET, Disc
from walled_points import WalledPoint

import rover
from rover import Rover
from rover.envs import GridWorld
from rover.features import learning_mode
from rover.solving import PointGoal, solve_in_contexts

FILE = Path(__file__).with_name("digests.json")
TOLERANCE = 1e-3
"""Relative difference of figures; another BLAS and instruction set change them by up to 8e-5."""

RENEWS = "ROVER_RENEW" in os.environ
SHORT = {"evaluation_episodes": 2, "measure_share": 0.0}
CONTEXTS: dict[str, Any] = {"contexts": 64, "horizon": 60, "observation": "view"}


def grid(**options: Any) -> GridWorld:
    return GridWorld(ROOMS, **{"horizon": 30, **options})


def lower_right(observations: Any) -> Any:
    return (observations[:, 0] > 0.7) & (observations[:, 1] < 0.3)


def upper_left(images: Any) -> Any:
    """Whether the disc lies in the upper left corner."""
    return images[:, :6, :6].mean(axis=(1, 2, 3)) > 90.0


def rows_of(observations: Any) -> Any:
    """The half of the map that an observation's number lies in."""
    return np.asarray(observations).reshape(-1, 1) >= 12


RUNS: Mapping[str, tuple[Callable[[], gym.Env[Any, Any]], int, dict[str, Any]]] = {
    "exact": (grid, 400, {}),
    "slippery": (lambda: grid(slip=0.2, start="random"), 400, {}),
    "terminal": (lambda: gym.make("FrozenLake-v1", is_slippery=False), 300, {}),
    "continuous": (lambda: gym.make("MountainCar-v0"), 400, {"n_landmarks": 100}),
    "ends": (lambda: gym.make("CartPole-v1"), 200, {"n_landmarks": 100}),
    "cover exact": (grid, 300, {"cover": rows_of}),
    "cover continuous": (
        lambda: gym.make("MountainCar-v0"),
        300,
        {"cover": (0,), "n_landmarks": 60},
    ),
    "pictures": (Disc, 200, {"n_landmarks": 60}),
    "pixels": (lambda: grid(observation="pixels"), 60, QUICK),
    "contexts": (lambda: RandomRooms(**CONTEXTS), 400, {"contexts": True}),
    "walls": (WalledPoint, 500, {"n_landmarks": 80}),
    "paper": (
        lambda: grid(observation="onehot"),
        200,
        {**QUICK, **SMALL_NET, "preset": "paper", "seed_steps": 50, "first_policy": 50},
    ),
    "dense": (
        lambda: grid(observation="onehot"),
        200,
        {**QUICK, **SMALL_NET, "bandwidth": 1.0, "encoder_every": 100},
    ),
}
FINITE = {"exact", "slippery", "terminal", "cover exact", "contexts"}
"""Runs whose actions follow from whole numbers, counts and their ratios."""

SOLVES: Mapping[str, Callable[[], Any]] = {
    "goals": lambda: rover.solve(run("exact"), goals="all"),
    "slippery reward": lambda: rover.solve(
        run("slippery"), np.cos(np.arange(len(run("slippery").buffer)))
    ),
    "terminal reward": lambda: rover.solve(run("terminal"), run("terminal").env),
    "continuous reward": lambda: rover.solve(
        run("continuous"), lambda x, a, y: y[:, 0] + 0.1 * np.asarray(a)
    ),
    "contexts": lambda: solve_in_contexts(
        run("contexts"), reward=np.arange(len(run("contexts").buffer)) % 7.0
    ),
    "walls goals": lambda: rover.solve(
        run("walls"), goals=[lower_right, PointGoal([0.9, 0.9], columns=[0, 1], radius=0.1)]
    ),
    "pictures goal": lambda: rover.solve(run("pictures"), goal=upper_left),
    "sampled goal": lambda: rover.solve(
        pushing_buffer(1500, np.random.default_rng(0)),
        goal=PointGoal([0.8], columns=[1], radius=0.03),
    ),
}


@cache
def run(name: str) -> Rover:
    make, steps, settings = RUNS[name]
    with warnings.catch_warnings(), learning_mode(1):
        warnings.simplefilter("ignore")
        return Rover(make(), seed=1, **{**SHORT, **settings}).learn(steps)


def parts(value: Any) -> Iterator[Any]:
    """Arrays and scalars nested in mappings, in the order of their keys, and sequences."""
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield str(key)
            yield from parts(value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            yield from parts(part)
    else:
        yield value.detach().numpy() if isinstance(value, torch.Tensor) else value


def digest(*values: Any) -> str:
    """Digest of the bits of nested arrays, tensors and scalars."""
    hashed = hashlib.blake2b(digest_size=8)
    for part in parts(values):
        is_array = isinstance(part, np.ndarray)
        hashed.update(np.ascontiguousarray(part).tobytes() if is_array else repr(part).encode())
    return hashed.hexdigest()


def figures(*values: Any) -> list[float]:
    """Size, sum of magnitudes and root of the sum of squares of each nested array; scalars."""
    found: list[float] = []
    for part in parts(values):
        if isinstance(part, np.ndarray) and part.dtype.kind in "fiub":
            numbers = np.nan_to_num(part.astype(np.float64).ravel())
            found += [numbers.size, np.abs(numbers).sum(), float(np.linalg.norm(numbers))]
        elif isinstance(part, int | float):
            found.append(float(part))
    return found


@cache
def machine() -> str:
    """Digest of what a few routines of this machine's libraries make of the same numbers."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 200))
    tensor = torch.from_numpy(matrix)
    with learning_mode(1):
        return digest(
            matrix @ matrix,
            np.linalg.svd(matrix)[1],
            np.exp(matrix),
            tensor @ tensor,
            torch.linalg.lu_factor(tensor)[0],
            torch.softmax(tensor.float(), dim=1),
            torch.linalg.eigh(tensor @ tensor.T)[1],
        )


def content(policy: Any) -> Mapping[str, Any]:
    found = dict(policy.state_dict())
    return found or policy.content()


def of_run(agent: Rover) -> Sequence[Any]:
    buffer, summary = agent.buffer, agent.summary()
    objectives = {k: summary[k] for k in ("model_objective", "objective") if k in summary}
    steps = (buffer.actions, buffer.inputs, buffer.successors, buffer.terminated)
    return steps, buffer.observations.rows, content(agent.policy), objectives


def compare(kind: str, name: str, values: Sequence[Any]) -> None:
    """Compare bits with those of this kind of machine, or figures where it has none."""
    stored = json.loads(FILE.read_text())
    if RENEWS:
        stored["figures"].setdefault(kind, {})[name] = figures(values)
        # Other machines' digests are of the results before.
        stored["bits"] = {machine(): stored["bits"].get(machine(), {})}
        stored["bits"][machine()].setdefault(kind, {})[name] = digest(values)
        FILE.write_text(json.dumps(stored, sort_keys=True, indent=1) + "\n")
    advice = f"{kind} {name!r} changed: if that is meant, write it anew with ROVER_RENEW=1"
    digests = stored["bits"].get(machine(), {}).get(kind, {})
    if name in digests:
        assert digest(values) == digests[name], advice
    else:
        expected = stored["figures"][kind][name]
        np.testing.assert_allclose(figures(values), expected, rtol=TOLERANCE, err_msg=advice)


@pytest.mark.parametrize("name", sorted(FINITE))
def test_actions_in_finite_environments(name):
    buffer = run(name).buffer
    found = digest(buffer.actions, buffer.inputs, buffer.successors, buffer.terminated)
    stored = json.loads(FILE.read_text())
    if RENEWS:
        stored["actions"][name] = found
        FILE.write_text(json.dumps(stored, sort_keys=True, indent=1) + "\n")
    assert found == stored["actions"][name]


@pytest.mark.parametrize("name", RUNS)
def test_runs(name):
    compare("run", name, of_run(run(name)))


@pytest.mark.parametrize("name", SOLVES)
def test_solves(name):
    with warnings.catch_warnings(), learning_mode(1):
        warnings.simplefilter("ignore")
        compare("solve", name, [content(SOLVES[name]())])
