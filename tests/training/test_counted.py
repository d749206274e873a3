"""J on counted transitions: its bounds hold whatever untried pairs do, and meet without any."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from rover import Rover
from rover.data import Buffer
from rover.envs import FiniteDynamics
from rover.errors import RoverWarning
from rover.evaluation import policy_occupancy
from rover.evaluation.visits import _tried_pairs
from rover.policies import CoveragePolicy
from rover.training.agent import FinalPolicy
from rover.training.counted import CountedObjective

N_STATES, N_ACTIONS, DISCOUNT = 12, 3, 0.9
UNIFORM = np.full((N_STATES, N_ACTIONS), 1.0 / N_ACTIONS)


def made(successor: np.ndarray, tried: np.ndarray) -> Buffer:
    """A buffer of the tried pairs (S, A) of a table of successors, of S states."""
    buffer = Buffer((), np.int64, N_ACTIONS)
    numbers = [buffer.observations.intern(np.int64(state)) for state in range(N_STATES)]
    for state in numbers:  # every state is a start, so that all are known
        buffer.add_start(state)
        for action in np.flatnonzero(tried[state]):
            buffer.add(state, int(action), int(successor[state, action]), False, True)
            buffer.add_start(state)
    return buffer


@pytest.mark.parametrize("seed", range(20))
def test_bounds_hold_for_every_outcome_of_untried_pairs(seed):
    rng = np.random.default_rng(seed)
    successor = rng.integers(N_STATES, size=(N_STATES, N_ACTIONS))
    tried = rng.random(successor.shape) < rng.choice([0.5, 0.9, 1.0])
    buffer = made(successor, tried)
    objective = CountedObjective(buffer, discount=DISCOUNT)
    least, greatest = objective.bounds(None)
    starts = 1.0 + tried.sum(axis=1)
    assert _tried_pairs(buffer) == (tried.sum(), tried.any(axis=1).sum() * 3)
    for _ in range(5):
        true = np.where(tried, successor, rng.integers(N_STATES, size=successor.shape))
        dynamics = FiniteDynamics.from_table(true, starts / starts.sum(), np.zeros(N_STATES, bool))
        occupancy = policy_occupancy(dynamics, UNIFORM, discount=DISCOUNT)
        assert least - 1e-12 <= occupancy @ occupancy <= greatest + 1e-12
    if tried.all():
        np.testing.assert_allclose([least, greatest], occupancy @ occupancy, rtol=1e-12)


class Lights(gym.Env):
    """Lights out on 2 by 3 fields, 64 states, as their number or as floats; 30 steps an episode."""

    def __init__(self, observation_space: gym.spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, gym.spaces.Discrete(6)

    def _seen(self):
        is_number = isinstance(self.observation_space, gym.spaces.Discrete)
        return int(self._on @ 2 ** np.arange(6)) if is_number else self._on.astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._on, self._age = self.np_random.integers(0, 2, 6), 0
        return self._seen(), {}

    def step(self, action):
        row, column = np.divmod(np.arange(6), 3)
        self._on ^= np.abs(row - action // 3) + np.abs(column - action % 3) < 2
        self._age += 1
        return self._seen(), 0.0, False, self._age == 30, {}


@pytest.mark.parametrize(
    "space", [gym.spaces.Discrete(64), gym.spaces.Box(0, 1, (6,), np.float32)], ids=["n", "floats"]
)
def test_puzzles_are_judged_by_their_counts(space):
    few = Rover(Lights(space), seed=3).learn(150).summary()
    assert few["worse_than_random"] is None
    assert "was not measured: its roll-outs need" in few["left_out"]
    agent = Rover(Lights(space), seed=3).learn(1500)
    assert agent.summary()["worse_than_random"] is False
    # No steps are left for roll-outs, and a policy that stays where it is is found anyhow.
    with pytest.warns(RoverWarning, match="covers less than uniformly random actions do .J = "):
        Still(Lights(space), seed=3, measure_share=0.01).learn(1500)


class Still(Rover):
    """Rover whose last policy takes the first action, which goes to and fro, nearly always."""

    def _last_plan(self) -> FinalPolicy:
        policy, _ = self._plan()
        weights = torch.zeros_like(policy.weights)
        weights[:, 0] = 500.0
        still = CoveragePolicy(policy.encoder, policy.kernel, policy.basis, weights)
        return FinalPolicy(still, self.num_timesteps)
