"""Golden digests: twelve short runs and five solves give the bits that they gave before.

They prove that a change of the code changes no result. Where results are meant to change,
`ROVER_RENEW=1 pytest tests/golden` writes them anew, and the commit says why.

The last bits of a float follow the processor and the libraries: `bits` are compared where a few
products, factors and exponentials have the bits of the machine that wrote the file. The actions of
runs in finite environments are compared everywhere.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from small_envs import QUICK, ROOMS, SMALL_CONV, SMALL_NET, Disc

import rover
from rover import Rover
from rover.envs import GridWorld, RandomRooms
from rover.features.networks import torch_threads
from rover.solving import solve_in_contexts

FILE = Path(__file__).with_name("digests.json")
RENEWS = "ROVER_RENEW" in os.environ
SHORT = {"evaluation_episodes": 2, "measure_share": 0.0}
CONTEXTS: dict[str, Any] = {"contexts": 64, "horizon": 60, "observation": "view"}


def grid(**options: Any) -> GridWorld:
    return GridWorld(ROOMS, **{"horizon": 30, **options})


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
    "pixels": (lambda: grid(observation="pixels"), 60, {**QUICK, **SMALL_CONV}),
    "contexts": (lambda: RandomRooms(**CONTEXTS), 400, {"contexts": True}),
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

SOLVES: Mapping[str, tuple[str, Callable[[Rover], Any]]] = {
    "goals": ("exact", lambda agent: rover.solve(agent, goals="all")),
    "slippery reward": (
        "slippery",
        lambda agent: rover.solve(agent, np.cos(np.arange(len(agent.buffer)))),
    ),
    "terminal reward": ("terminal", lambda agent: rover.solve(agent, agent.env)),
    "continuous reward": (
        "continuous",
        lambda agent: rover.solve(agent, lambda x, a, y: y[:, 0] + 0.1 * np.asarray(a)),
    ),
    "contexts": (
        "contexts",
        lambda agent: solve_in_contexts(agent, reward=np.arange(len(agent.buffer)) % 7.0),
    ),
}


@cache
def run(name: str) -> Rover:
    make, steps, settings = RUNS[name]
    with warnings.catch_warnings(), torch_threads(1):
        warnings.simplefilter("ignore")
        return Rover(make(), seed=1, **{**SHORT, **settings}).learn(steps)


def digest(*values: Any) -> str:
    """Digest of arrays, tensors and numbers by their bits, nested in mappings or sequences."""
    hashed = hashlib.blake2b(digest_size=8)

    def take(value: Any) -> None:
        if isinstance(value, Mapping):
            take(sorted((str(key), value[key]) for key in value))
        elif isinstance(value, list | tuple):
            for part in value:
                take(part)
        elif isinstance(value, torch.Tensor):
            take(value.detach().numpy())
        elif isinstance(value, np.ndarray):
            hashed.update(np.ascontiguousarray(value).tobytes())
        else:
            hashed.update(repr(value).encode())

    take(values)
    return hashed.hexdigest()


@cache
def machine() -> str:
    """Digest of what a few routines of this machine's libraries make of the same numbers."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 200))
    tensor = torch.from_numpy(matrix)
    with torch_threads(1):
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


def actions(agent: Rover) -> str:
    buffer = agent.buffer
    return digest(buffer.actions, buffer.inputs, buffer.successors, buffer.terminated)


def bits(agent: Rover) -> str:
    summary, policy = agent.summary(), agent.policy
    figures = {name: summary[name] for name in ("model_objective", "objective") if name in summary}
    return digest(actions(agent), agent.buffer.observations.rows, content(policy), figures)


def compare(name: str, kind: str, found: str) -> None:
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    if RENEWS:
        stored.setdefault(kind, {})[name] = found
        stored["machine"] = machine()
        FILE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")
    assert found == stored[kind][name], (
        f"{kind} of {name!r} changed: if that is meant, write them anew with ROVER_RENEW=1"
    )


def of_this_machine() -> None:
    if not RENEWS and machine() != json.loads(FILE.read_text())["machine"]:
        pytest.skip("the digests were made where floats have other last bits")


@pytest.mark.parametrize("name", sorted(FINITE))
def test_actions_in_finite_environments(name):
    compare(name, "actions", actions(run(name)))


@pytest.mark.parametrize("name", RUNS)
def test_bits_of_runs(name):
    of_this_machine()
    compare(name, "bits", bits(run(name)))


@pytest.mark.parametrize("name", SOLVES)
def test_bits_of_solves(name):
    of_this_machine()
    source, solve = SOLVES[name]
    with warnings.catch_warnings(), torch_threads(1):
        warnings.simplefilter("ignore")
        compare(name, "solves", digest(content(solve(run(source)))))
