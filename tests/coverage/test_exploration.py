"""Exploration plans over states and over a net: exact on small problems, blind to noise."""

from __future__ import annotations

from collections import deque
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from rover import Rover
from rover.coverage.exploration import StateExplorer, _stopping_values
from rover.coverage.net import NetExplorer, _autocorrelation, _lag_scale, epsilon_net
from rover.coverage.plan import start_distribution
from rover.data import Buffer

SEEDS = st.integers(0, 2**31)
N_ACTIONS = 3


def fill(buffer: Buffer, moves: list[tuple[int, int, int, bool]]) -> None:
    for x, action, y, terminated in moves:
        buffer.add(x, action, y, terminated, truncated=False)


def state_buffer(n_states: int, moves: list[tuple[int, int, int, bool]]) -> Buffer:
    buffer = Buffer((), np.int64, N_ACTIONS)
    for state in range(n_states):
        buffer.observations.intern(np.int64(state))
    buffer.add_start(0)
    fill(buffer, moves)
    return buffer


def explorer_of(buffer: Buffer) -> StateExplorer:
    return StateExplorer(buffer, discount=0.95, variance_ridge=1.0)


def steps_to_an_untried_pair(table: NDArray[np.int64], begin: int) -> int | None:
    """Breadth-first on a table (S, A) of successors, −2 for a pair that was never tried."""
    queue, depth = deque([begin]), {begin: 0}
    while queue:
        state = queue.popleft()
        if (table[state] == -2).any():
            return depth[state]
        for y in table[state].tolist():
            if y not in depth:
                depth[y] = depth[state] + 1
                queue.append(y)
    return None


@given(SEEDS, st.integers(2, 12))
def test_the_plan_is_a_shortest_path_where_outcomes_are_certain(seed: int, n_states: int) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(n_states, size=(n_states, N_ACTIONS))
    table[rng.random(table.shape) < 0.2] = -2
    known = [(x, a, int(table[x, a]), False) for x, a in np.argwhere(table >= 0).tolist()]
    explorer = explorer_of(state_buffer(n_states, known))
    state = int(rng.integers(n_states))
    distance = steps_to_an_untried_pair(table, state)
    for _ in range(distance or 0):
        action = explorer.act(state, rng)
        assert action is not None
        state = int(table[state, action])
    action = explorer.act(state, rng)
    if distance is None:
        assert action is None
    else:
        assert action is not None
        assert table[state, action] == -2


@given(SEEDS, st.integers(2, 8))
def test_values_solve_the_stopping_problem(seed: int, n_states: int) -> None:
    rng = np.random.default_rng(seed)
    dense = rng.dirichlet(np.full(n_states + 1, 0.3), size=(n_states, N_ACTIONS))
    novelty = rng.random((n_states, N_ACTIONS)) ** 4
    start = np.array([0, n_states - 1]), np.array([0.25, 0.75])
    pair_index, to = np.nonzero(dense.reshape(-1, n_states + 1))
    share = dense.reshape(-1, n_states + 1)[pair_index, to]
    to = np.where(to == n_states, -1, to)
    values = _stopping_values(novelty, pair_index, to, share, start, discount=0.9)
    oracle = np.zeros(n_states)
    for _ in range(500):
        onward = np.append(oracle, start[1] @ oracle[start[0]])
        oracle = np.maximum(novelty, 0.9 * dense @ onward).max(axis=1)
    onward = np.append(oracle, start[1] @ oracle[start[0]])
    np.testing.assert_allclose(values, np.maximum(novelty, 0.9 * dense @ onward), atol=2e-3)


def test_chance_makes_tried_pairs_worth_another_try_until_they_are_known() -> None:
    """Two states; every action leads to either by chance, so one try of a pair says little."""
    rng, chance = np.random.default_rng(0), np.random.default_rng(1)
    buffer = state_buffer(2, [])
    explorer, state, planned = explorer_of(buffer), 0, np.zeros((2, N_ACTIONS), int)
    for row in range(600):
        action = explorer.act(state, rng)
        if action is None:  # nothing contradicts the plan before a pair is tried again
            action = int(rng.integers(N_ACTIONS))
        else:
            planned[state, action] += 1
        y = int(chance.integers(2))
        buffer.add(state, action, y, False, False)
        explorer.observe(row, done=False)
        state = y
    assert planned.min() >= 10
    assert planned.max() <= 70, "novelty below what is worth a plan is left alone"
    assert explorer.outcome_variance == pytest.approx(0.5, abs=0.05)
    assert explorer.outcome_variance == pytest.approx(buffer.counts().outcome_variance)


def test_a_new_start_is_a_state_nothing_is_known_of() -> None:
    buffer = state_buffer(1, [(0, a, 0, False) for a in range(N_ACTIONS)])
    explorer, rng = explorer_of(buffer), np.random.default_rng(0)
    assert explorer.act(0, rng) is None
    assert explorer.act(buffer.observations.intern(np.int64(7)), rng) is not None


def test_termination_leads_to_where_episodes_begin() -> None:
    """From state 1 nothing new can be reached but through the end of the episode."""
    moves = [(0, 0, 1, False), *((1, a, 1, a == 2) for a in range(N_ACTIONS))]
    explorer = explorer_of(state_buffer(2, moves))
    assert explorer.act(1, np.random.default_rng(0)) == 2


@given(SEEDS)
def test_a_plan_made_from_a_stored_buffer_is_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    moves = [
        (int(x), int(a), int(y), bool(t))
        for x, a, y, t in zip(
            rng.integers(5, size=60),
            rng.integers(N_ACTIONS, size=60),
            rng.integers(5, size=60),
            rng.random(60) < 0.1,
            strict=True,
        )
    ]
    grown = state_buffer(5, [])
    explorer = explorer_of(grown)
    for row, move in enumerate(moves):
        fill(grown, [move])
        explorer.observe(row, done=move[3])
    explorer.forget_plan()
    again = explorer_of(state_buffer(5, moves))
    for state in range(5):
        first, second = (e.act(state, np.random.default_rng(3)) for e in (explorer, again))
        assert first == second
        explorer.forget_plan()
        again.forget_plan()


@given(SEEDS, st.integers(1, 60), st.floats(0.05, 2.0))
def test_a_net_covers_its_points_and_only_grows_with_them(seed: int, n: int, radius: float) -> None:
    points = np.random.default_rng(seed).normal(size=(n, 2))
    net = epsilon_net(points, radius)
    distance = np.linalg.norm(points[:, None] - net[None], axis=2)
    assert (distance.min(axis=1) <= radius).all()
    apart = np.linalg.norm(net[:, None] - net[None], axis=2) + 10 * radius * np.eye(len(net))
    assert (apart > radius).all()
    np.testing.assert_array_equal(
        epsilon_net(points[: n // 2], radius), net[: len(epsilon_net(points[: n // 2], radius))]
    )


@given(SEEDS, st.integers(1, 7))
def test_units_are_the_change_within_episodes(seed: int, lag: int) -> None:
    rng = np.random.default_rng(seed)
    paths = [rng.normal(size=(int(rng.integers(8, 15)), 2)).cumsum(axis=0) for _ in range(4)]
    points = np.concatenate([path[:-1] for path in paths])
    ends = np.concatenate([path[1:] for path in paths])
    episodes = np.repeat(np.arange(4), [len(path) - 1 for path in paths])
    changes = np.concatenate([path[lag:] - path[:-lag] for path in paths])
    np.testing.assert_allclose(
        _lag_scale(points, ends, episodes, lag), np.sqrt((changes**2).mean(axis=0))
    )


def test_noise_is_told_from_what_moves() -> None:
    rng = np.random.default_rng(0)
    walk, noise = rng.normal(size=(500, 1)).cumsum(axis=0), rng.random((500, 1))
    path = np.concatenate([walk, noise, np.ones((500, 1))], axis=1)
    moving, noisy, constant = _autocorrelation(path[:-1], path[1:])
    assert moving > 0.9
    assert abs(noisy) < 0.15
    assert constant == 1.0


def explore(env: gym.Env[NDArray[np.float32], int], n_noise: int, steps: int) -> list[int]:
    """Actions of a net's plans, with dimensions of noise appended to every observation."""
    rng, chance = np.random.default_rng(5), np.random.default_rng(6)
    buffer = Buffer((2 + n_noise,), np.float64, 3)

    def intern(state: NDArray[np.float32]) -> int:
        return buffer.observations.intern(np.append(state, chance.random(n_noise)))

    explorer = NetExplorer(
        buffer, lambda: (buffer.observations.rows, None), discount=0.98, every=10
    )
    here, actions = intern(env.reset(seed=1)[0]), []
    for row in range(steps):
        actions.append(explorer.act(here, rng))
        state, _, terminated, truncated, _ = env.step(actions[-1])
        there = intern(state)
        buffer.add(here, actions[-1], there, bool(terminated), bool(truncated))
        explorer.observe(row, done=bool(terminated or truncated))
        here = intern(env.reset()[0]) if terminated or truncated else there
    return actions


def test_dimensions_of_noise_change_nothing() -> None:
    plain, noisy = (explore(gym.make("MountainCar-v0"), n, 150) for n in (0, 3))
    assert plain == noisy
    assert len(set(plain[60:])) > 1


class Noisy(gym.Wrapper[NDArray[np.float32], int, NDArray[np.float32], int]):
    """Appends dimensions of noise to every observation."""

    def __init__(self, env: gym.Env[NDArray[np.float32], int], n_noise: int) -> None:
        super().__init__(env)
        space, self._n_noise = env.observation_space, n_noise
        assert isinstance(space, gym.spaces.Box)
        low, high = np.append(space.low, [0.0] * n_noise), np.append(space.high, [1.0] * n_noise)
        self.observation_space = gym.spaces.Box(low.astype(np.float32), high.astype(np.float32))
        self._rng = np.random.default_rng(0)

    def _append(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.append(observation, self._rng.random(self._n_noise)).astype(np.float32)

    def reset(self, **kwargs: Any) -> tuple[NDArray[np.float32], dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return self._append(observation), info

    def step(self, action: int) -> tuple[NDArray[np.float32], Any, bool, bool, dict[str, Any]]:
        observation, *rest = self.env.step(action)
        return (self._append(observation), *rest)  # type: ignore[return-value]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rover.errors.ConditioningWarning")
def test_an_agent_sees_through_noise() -> None:
    """Data and policy are those of the environment without its dimensions of noise."""
    plain, noisy = (
        Rover(Noisy(gym.make("MountainCar-v0"), n), seed=2, n_anchors=40).learn(150) for n in (0, 2)
    )
    np.testing.assert_array_equal(plain.buffer.actions, noisy.buffer.actions)
    rows = plain.buffer.observations.rows[::10], noisy.buffer.observations.rows[::10]
    probs, with_noise = plain.policy.probs(rows[0]), noisy.policy.probs(rows[1])
    np.testing.assert_allclose(probs, with_noise, atol=1e-3)
    assert np.ptp(probs) > 0.1


def test_starts_that_were_seen_once_say_how_many_were_not() -> None:
    buffer = state_buffer(4, [(0, 0, 1, False), (1, 0, 2, True)])
    states, weights = start_distribution(buffer, unseen=True)
    assert (states.tolist(), weights.tolist()) == ([0], [1.0])  # one episode says nothing
    for start in (0, 3):
        buffer.add_start(start)
    states, weights = start_distribution(buffer, unseen=True)
    # seen once: 3, one episode of three; spread over the states 0 and 1 that were acted in
    assert states.tolist() == [0, 1, 3]
    np.testing.assert_allclose(weights, [2 / 3 * 2 / 3 + 1 / 6, 1 / 6, 2 / 3 * 1 / 3])
    states, weights = start_distribution(buffer, unseen=False)
    assert states.tolist() == [0, 3]
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rover.errors.ConditioningWarning")
def test_mountain_car_is_seen_without_a_reward() -> None:
    agent = Rover("MountainCar-v0", seed=3, n_anchors=40, policy_every=200).learn(1200)
    rows = agent.buffer.observations.rows
    cells = np.unique(((rows - [-1.2, -0.07]) / [1.8, 0.14] * 20).astype(int), axis=0)
    assert len(cells) >= 100, "random actions see about 40"
    assert agent.buffer.terminated.any(), "random actions never reach the flag"
