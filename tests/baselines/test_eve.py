"""EVE: its fixed point against brute force over policies, and the agent on a small world."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import rover
from rover.baselines.eve import _most_entropic
from rover.envs import finite_dynamics
from rover.envs.gridworld import GridWorld
from rover.errors import ConfigurationError


def grid_moves(text: str) -> np.ndarray:
    problem = finite_dynamics(GridWorld(text, horizon=10))
    assert problem is not None
    return problem.dynamics.dense().argmax(axis=2).T  # (S, A)


def stationary(probs: np.ndarray, following: np.ndarray) -> np.ndarray:
    chain = np.zeros((len(probs), len(probs)))
    for action in range(probs.shape[1]):
        chain[np.arange(len(probs)), following[:, action]] += probs[:, action]
    system = np.vstack([chain.T - np.eye(len(probs)), np.ones(len(probs))])
    return np.linalg.lstsq(system, np.r_[np.zeros(len(probs)), 1.0], rcond=None)[0]


def objective(probs: np.ndarray, following: np.ndarray, beta: float) -> float:
    d = np.maximum(stationary(probs, following), 1e-300)
    divergence = (probs * np.log(np.maximum(probs, 1e-300) * probs.shape[1])).sum(axis=1)
    return float(-(d * np.log(d)).sum() - d @ divergence / beta)


def brute_force(following: np.ndarray, beta: float) -> float:
    def negative(logits: np.ndarray) -> float:
        table = np.exp(logits.reshape(following.shape))
        return -objective(table / table.sum(axis=1, keepdims=True), following, beta)

    rng = np.random.default_rng(0)
    starts = (0.5 * rng.normal(size=following.size) for _ in range(3))
    return max(-minimize(negative, start, method="BFGS").fun for start in starts)


MODELS = {
    "grid": grid_moves("S..\n.#.\n.#."),
    "one-way ring with shortcuts": np.array([[1, 3], [2, 0], [3, 3], [4, 1], [0, 2]]),
    "two-periodic": np.array([[1, 3], [0, 2], [1, 3], [2, 0]]),
}


@pytest.mark.parametrize("beta", [0.5, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_one_round_solves_the_regularised_objective(name: str, beta: float) -> None:
    following = MODELS[name]
    probs, occupancy = _most_entropic(following, beta=beta, rounds=1, iterations=20_000)
    np.testing.assert_allclose(occupancy, stationary(probs, following), atol=1e-7)
    assert objective(probs, following, beta) == pytest.approx(
        brute_force(following, beta), abs=1e-6
    )


@pytest.mark.parametrize("name", MODELS)
def test_rounds_raise_the_entropy_to_the_most_there_is(name: str) -> None:
    following = MODELS[name]
    entropies = []
    for rounds in (1, 2, 4, 8, 300):
        probs, occupancy = _most_entropic(following, beta=1.0, rounds=rounds, iterations=2000)
        entropies.append(float(-(occupancy * np.log(occupancy)).sum()))
        np.testing.assert_allclose(occupancy, stationary(probs, following), atol=1e-6)
    assert np.diff(entropies).min() > -1e-9
    assert entropies[-1] == pytest.approx(brute_force(following, 1e6), abs=1e-4)


def test_the_agent_learns_a_known_world() -> None:
    env = GridWorld("S....\n.###.\n.....", horizon=60)
    agent = rover.make_agent("eve", env, seed=0)
    agent.learn(600)
    assert agent.measures.summary()["states_seen"] == 12
    assert agent.measures.latest["optimality_ratio"] < 1.2
    assert agent.measures.latest["model_entropy"] == pytest.approx(np.log(12), abs=0.02)


@pytest.mark.parametrize("name", ["eve", "rmax"])
def test_too_many_states_are_refused(name: str) -> None:
    agent = rover.make_agent(name, "MountainCar-v0", seed=0, max_states=20)
    with pytest.raises(ConfigurationError, match="more than max_states = 20 distinct observations"):
        agent.learn(60)
