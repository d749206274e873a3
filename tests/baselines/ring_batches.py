"""Batches of transitions to test intrinsic rewards on."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.arrays import IntArray
from rover.baselines import agent_class
from rover.data import Batch
from rover.features import Observations

N_STATES, N_ACTIONS = 9, 2

SPECS = {
    "one-hot": Observations(shape=(N_STATES,), dtype="float32", one_hot=True),
    "state": Observations(shape=(), dtype="int64", n_states=N_STATES),
    "vector": Observations(shape=(2,), dtype="float64"),
    "pixels": Observations(shape=(48, 48, 3), dtype="uint8"),
    "symbols": Observations(shape=(5, 5, 3), dtype="uint8"),
}


def observations(kind: str) -> Tensor:
    """The nine observations of a ring: (9, *shape)."""
    states = np.arange(N_STATES)
    if kind == "one-hot":
        return torch.eye(N_STATES)
    if kind == "state":
        return torch.from_numpy(states)
    if kind == "vector":
        angle = 2 * np.pi * states / N_STATES
        return torch.from_numpy(np.stack([40.0 * np.cos(angle), np.sin(angle)], axis=1))
    if kind == "symbols":  # numbers of kinds and colours
        cells = np.ones((N_STATES, 25, 3), dtype=np.uint8)
        cells[states, 2 * states] = (10, 4, 0)
        return torch.from_numpy(cells.reshape(N_STATES, 5, 5, 3))
    images = np.full((N_STATES, 48, 48, 3), 220, dtype=np.uint8)
    for state in states:
        row, column = divmod(int(state), 3)
        images[state, 15 * row : 15 * row + 6, 15 * column : 15 * column + 6] = (200, 20, 20)
    return torch.from_numpy(images)


def _batch(
    kind: str, index: IntArray, actions: IntArray, reached: IntArray, skills: NDArray[Any] | None
) -> Batch:
    columns = map(torch.from_numpy, (index, actions, reached))
    drawn = None if skills is None else torch.from_numpy(skills)
    return Batch(observations(kind), *columns, drawn, steps=torch.arange(len(index)))


def ring_batch(
    rng: np.random.Generator, *, kind: str = "one-hot", n: int = 40, skills: NDArray[Any] | None
) -> Batch:
    """n random steps to the left or right on the ring."""
    index = rng.integers(N_STATES, size=n)
    actions = rng.integers(N_ACTIONS, size=n)
    return _batch(kind, index, actions, (index + 2 * actions - 1) % N_STATES, skills)


def batch_reaching(states: list[int], *, skills: NDArray[Any] | None = None) -> Batch:
    """Transitions of the one-hot ring from state 0 to the given states."""
    nothing = np.zeros(len(states), np.int64)
    return _batch("one-hot", nothing, nothing, np.array(states, np.int64), skills)


def make_reward(name: str, kind: str = "one-hot", seed: int = 0, **settings: Any) -> Any:
    """The intrinsic reward of an agent, on one kind of the ring's observations."""
    agent: Any = agent_class(name)
    config = agent.config_class.model_fields["intrinsic"].annotation(**settings)
    generator = torch.Generator().manual_seed(seed)
    return agent.reward_class(config, SPECS[kind], N_ACTIONS, generator)


def reward_of(intrinsic: Any, batch: Batch) -> Tensor:
    """Rewards of a batch from which nothing is learned."""
    before = intrinsic.state()
    rewards: Tensor = intrinsic.update(batch)[0]
    intrinsic.load_state(before)
    return rewards
