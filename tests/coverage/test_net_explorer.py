"""Exploration plans over a net: its pieces by brute force, one that grew, blind to noise."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import KDTree

from rover import Rover
from rover.coverage import net
from rover.coverage.net import NetExplorer, _autocorrelation, _lag_scale, epsilon_net
from rover.data import Buffer
from rover.operators.support import FloatArray

SEEDS = st.integers(0, 2**31)
N_ACTIONS = 3


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


def explorer_on_a_net(buffer: Buffer) -> NetExplorer:
    places = buffer.observations
    return NetExplorer(buffer, lambda: (places.rows, None), discount=0.9, every=10)


def wander(seed: int, n_steps: int, *, untried: bool = False) -> tuple[Buffer, NetExplorer]:
    """A plane that three actions push about, explored by a net's plans; and the explorer.

    Args:
        untried: whether the last action is never taken.
    """
    rng, push = np.random.default_rng(seed), np.array([[0.2, 0.0], [-0.1, 0.2], [0.0, -0.2]])
    buffer = Buffer((2,), np.float64, N_ACTIONS)
    explorer, place = explorer_on_a_net(buffer), np.zeros(2)
    here = buffer.observations.intern(place)
    buffer.add_start(here)
    for row in range(n_steps):
        action = explorer.act(here, rng) % (N_ACTIONS - untried)
        place = place + push[action] * (1.0 + 0.5 * np.sin(place)) + rng.normal(size=2) * 0.02
        there, ends = buffer.observations.intern(place), row % 40 == 39
        buffer.add(here, action, there, ends, False)
        explorer.observe(row, done=ends)
        if ends:
            place = rng.normal(size=2) * 0.1
            there = buffer.observations.intern(place)
            buffer.add_start(there)
        here = there
    return buffer, explorer


@given(SEEDS, st.integers(50, 200), st.sampled_from([net.MAX_NET, 6]))
@settings(max_examples=12, deadline=None)
def test_a_net_that_grew_is_the_one_made_from_the_stored_buffer(
    seed: int, n_steps: int, largest: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(net, "MAX_NET", largest)
        buffer, grown = wander(seed, n_steps)
        stored = Buffer((2,), np.float64, N_ACTIONS)
        stored.load_state(buffer.state())
        again = explorer_on_a_net(stored)
        again._plan()
        grown._plan()
    assert len(grown._net) <= largest
    assert grown._radius == again._radius
    probes = np.random.default_rng(seed).normal(size=(20, 2)) * 3
    for first, second in (
        (grown._scale, again._scale),
        (grown._net, again._net),
        (grown._counts, again._counts),
        (grown._novelty(probes), again._novelty(probes)),
        (grown._values, again._values),
        *((grown._predict(a, probes), again._predict(a, probes)) for a in range(N_ACTIONS)),
    ):
        np.testing.assert_allclose(first, second, rtol=0, atol=1e-10)
    assert float(grown._counts.sum()) == n_steps


@given(SEEDS, st.integers(1, 40), st.integers(1, 30))
def test_neighbours_by_a_tree_and_by_products_are_the_nearest(seed: int, d: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    points, others, k = rng.normal(size=(7, d)), rng.normal(size=(m, d)), min(m, 3)
    everything = np.linalg.norm(points[:, None] - others[None], axis=2)
    distance, index = net._nearest(KDTree(others), points, k)
    np.testing.assert_array_equal(index, everything.argsort(axis=1)[:, :k])
    np.testing.assert_allclose(distance, np.sort(everything, axis=1)[:, :k], rtol=1e-6)


def gaussians(points: FloatArray, centres: FloatArray, width: float) -> FloatArray:
    """(n, m) exp(−d²/2 width²) by all distances."""
    distance = np.linalg.norm(points[:, None] - centres[None], axis=2)
    return np.asarray(np.exp(-0.5 * (distance / width) ** 2))


def of_the_nearest(points: FloatArray, centres: FloatArray, k: int, width: float) -> FloatArray:
    """(n, m) Gaussian weights on the k nearest centres, in rows that sum to 1."""
    distance = np.linalg.norm(points[:, None] - centres[None], axis=2)
    near = gaussians(points, centres, width) + 1e-12  # far from all of them: their mean
    np.put_along_axis(near, distance.argsort(axis=1)[:, k:], 0.0, axis=1)
    return np.asarray(near / near.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("largest", [net.MAX_NET, 6])
@pytest.mark.parametrize("seed", range(4))
def test_the_pieces_of_a_plan_on_a_net_by_brute_force(
    seed: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(net, "MAX_NET", largest)
    monkeypatch.setattr(net, "_TOLERANCE", 0.0)
    monkeypatch.setattr(net, "_SWEEPS", 1000)
    buffer, explorer = wander(seed, 150, untried=True)
    explorer._plan()
    rows, scale, gamma = buffer.observations.rows, explorer._scale, 0.9
    begins, ends = rows[buffer.inputs] / scale, rows[buffer.successors] / scale
    radius = net.RADIUS
    while len(epsilon_net(ends, radius)) > largest:
        radius *= 2.0
    assert (radius > net.RADIUS) == (largest == 6)
    centres = epsilon_net(ends, radius)
    np.testing.assert_allclose(explorer._net, centres)
    everything = np.concatenate([centres, np.random.default_rng(seed).normal(size=(9, 2)) * 2])

    owner = np.linalg.norm(ends[:, None] - centres[None], axis=2).argmin(axis=1)
    counts = np.bincount(owner, minlength=len(centres))
    slow = explorer._to_slow
    density = gaussians(everything * slow, centres * slow, net.DENSITY_WIDTH) @ counts
    novelty = (1.0 - gamma) / (1.0 + density)
    np.testing.assert_allclose(explorer._novelty(everything), novelty, rtol=1e-9)

    weights = of_the_nearest(everything, centres, 3, radius / 2)
    np.testing.assert_allclose(explorer._on_net(everything).toarray(), weights, atol=1e-9)

    for action in range(N_ACTIONS):
        made = buffer.actions == action
        expected = everything.copy()
        if made.any():
            near = of_the_nearest(everything, begins[made], 4, net.RADIUS)
            expected += near @ (ends - begins)[made]
        else:
            assert action == N_ACTIONS - 1, "what was never tried changes nothing"
        np.testing.assert_allclose(explorer._predict(action, everything), expected, atol=1e-9)

    # The optimal values by policy iteration: (I − γ P_π) V = r_π, until no action is better.
    ahead = [explorer._predict(action, centres) for action in range(N_ACTIONS)]
    gains = np.stack([explorer._novelty(points) for points in ahead], axis=1)  # (n, A)
    moves = np.stack([explorer._on_net(points).toarray() for points in ahead], axis=1)
    policy = np.zeros(len(centres), np.int64)
    for _ in range(50):
        at = np.arange(len(centres)), policy
        values = np.linalg.solve(np.eye(len(centres)) - gamma * moves[at], gains[at])
        policy = (gains + gamma * moves @ values).argmax(axis=1)
    np.testing.assert_allclose(explorer._values, values, rtol=1e-8)
    monkeypatch.undo()
    monkeypatch.setattr(net, "MAX_NET", largest)
    explorer._plan()
    short = (values - explorer._values) / values.max()
    assert short.min() > -1e-9, "values grow from zero"
    assert short.max() <= gamma / (1.0 - gamma) * 1e-3

    place = buffer.observations.rows[:1] / scale
    reached = np.concatenate([explorer._predict(action, place) for action in range(N_ACTIONS)])
    worth = explorer._novelty(reached) + gamma * (explorer._on_net(reached) @ explorer._values)
    assert explorer.act(0, np.random.default_rng(0)) == worth.argmax()


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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rover.errors.ConditioningWarning")
def test_mountain_car_is_seen_without_a_reward() -> None:
    agent = Rover("MountainCar-v0", seed=3, n_anchors=40, policy_every=200).learn(1200)
    rows = agent.buffer.observations.rows
    cells = np.unique(((rows - [-1.2, -0.07]) / [1.8, 0.14] * 20).astype(int), axis=0)
    assert len(cells) >= 100, "random actions see about 40"
    assert agent.buffer.terminated.any(), "random actions never reach the flag"
