"""Where states are unknown: roll-outs, cells of a net, k-NN entropies, aliased observations."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from rover.baselines import make_agent
from rover.data import Buffer
from rover.data.histories import are_aliased
from rover.envs import GridWorld
from rover.evaluation import CellNet, RolloutEvaluator
from rover.evaluation.regret import is_less


def always(probs: list[float]) -> Any:
    return lambda rng: lambda batch: np.array([probs] * len(batch))


def evaluator(env: gym.Env, n_actions: int, **options: Any) -> RolloutEvaluator:
    return RolloutEvaluator(env, n_actions, rng=np.random.default_rng(0), **options)


@pytest.mark.parametrize(("action", "length", "cells"), [(3, 4, 5), (0, 6, 1)])
def test_rollouts_count_steps_and_cells(action, length, cells):
    """Four steps to the right until the goal, or none of six from the start."""
    one = evaluator(GridWorld("S...G", goal="marked"), 4, horizon=6, n_episodes=3)
    figures = one.measure(always(np.eye(4)[action].tolist()), np.random.default_rng(0))
    interval = figures["episode_length"]
    assert interval["mean"] == interval["high"] == length
    assert figures["cells"] == cells
    assert figures["terminated"] == (action == 3)
    assert figures["n_steps"] == 3 * length


def test_sets_are_averaged_and_random_actions_are_as_wide_as_themselves():
    options = {"horizon": 500, "n_episodes": 20, "max_steps": 500, "n_sets": 10}
    one, uniform = evaluator(gym.make("CartPole-v1"), 2, **options), always([0.5, 0.5])
    figures = one.measure(uniform, np.random.default_rng(1))
    rng = np.random.default_rng(1)
    sets = [one.measure(uniform, rng, n_sets=1) for _ in range(10)]
    values = [each["cells"] for each in sets]
    assert figures["cells"] == pytest.approx(np.mean(values))
    assert figures["cells_error"] == pytest.approx(np.std(values, ddof=1) / math.sqrt(10))
    assert sets[0]["cells_error"] is None
    assert figures["n_steps"] == sum(each["n_steps"] for each in sets)
    ours, random = figures["cells"], one.uniform["cells"]
    errors = figures["cells_error"], one.uniform["cells_error"]
    assert not is_less((ours, random), errors, 10)
    assert is_less((0.5 * ours, random), errors, 10)


def test_an_episode_keeps_the_policy_that_it_drew():
    def sample_component(rng: np.random.Generator) -> Any:
        table = np.eye(2)[rng.integers(2)]
        return lambda observations: np.tile(table, (len(observations), 1))

    one = evaluator(gym.make("CartPole-v1"), 2, n_episodes=20, horizon=100)
    figures = one.measure(sample_component, np.random.default_rng(0))
    # Always the same push: the pole falls within a dozen steps, whichever side it is.
    assert figures["episode_length"]["mean"] < 12
    assert figures["terminated"] == 1.0


def test_recorded_rollouts_end_where_their_episode_does():
    settings = {"evaluation_episodes": 4, "measure_share": 30.0}
    agent = make_agent("random", "CartPole-v1", seed=0, **settings).learn(300)
    rollouts = agent.measures.record(agent.policy)["rollouts"]
    assert rollouts.shape == (4, 501, 4)
    lengths = np.isfinite(rollouts[:, :, 0]).sum(axis=1)
    assert ((lengths >= 9) & (lengths <= 200)).all()
    for rollout, length in zip(rollouts, lengths, strict=True):
        assert np.isnan(rollout[length:]).all()


Array = NDArray[np.float64]


def count(net: CellNet, visits: NDArray[np.generic]) -> int:
    return len(np.unique(net.cells_of(visits, np.random.default_rng(0))))


def normal(seed: int, n: int = 1500, width: int = 2) -> Array:
    return np.random.default_rng(seed).normal(size=(n, width))


def test_no_visit_is_farther_than_epsilon_from_its_centre():
    uniform, visits = normal(0), 3.0 * normal(1)
    net = CellNet(uniform, np.random.default_rng(0))
    cells = net.cells_of(visits, np.random.default_rng(0))
    for cell in np.unique(cells):
        members = visits[cells == cell] / uniform.std(axis=0)
        diameter = np.linalg.norm(members[:, None] - members[None], axis=2).max()
        assert diameter <= 2.0 * net.radius


def test_a_number_that_random_actions_never_change_opens_new_cells():
    uniform = np.column_stack([normal(0), np.zeros(1500)])
    visits = np.column_stack([normal(1), np.repeat([0.0, 5.0], 750)])
    net = CellNet(uniform, np.random.default_rng(0))
    assert count(net, visits) > 1.5 * count(net, uniform)
    still = CellNet(np.ones((10, 2)), np.random.default_rng(0))
    assert count(still, np.ones((10, 2))) == 1


def recorded(rows: list[tuple[int, int, int]]) -> bool:
    """Whether states are aliased, by rows of pairs, outcomes and episodes."""
    buffer = Buffer((), np.int64, 1)
    for n, (pair, outcome, episode) in enumerate(rows):
        x, y = map(buffer.observations.intern, (pair, -1 - outcome))
        buffer.add(x, 0, y, False, n + 1 == len(rows) or rows[n + 1][2] != episode)
    return are_aliased(buffer)


@pytest.mark.parametrize("insists", [False, True])
@pytest.mark.parametrize("stays", [0.3, 0.9])
def test_random_outcomes_are_not_aliased(stays, insists):
    for seed in range(60):
        rng, rows = np.random.default_rng(seed), []
        for episode in range(40):
            for pair in rng.integers(4, size=6).tolist():
                for _ in range(6 if insists else 1):  # again and again, as long as it is 0
                    rows.append((pair, int(rng.random() > stays), episode))
                    if rows[-1][1] != 0:
                        break
        assert not recorded(rows)


def test_layouts_are_told_where_hardly_a_pair_is_tried_twice_and_again():
    rng, rows = np.random.default_rng(0), []
    for episode in range(15):
        layout = rng.integers(3, size=60)
        tried = rng.choice(60, 20, replace=False)
        again = rng.choice(tried, 4, replace=False)
        rows += [(pair, layout[pair], episode) for pair in [*tried, *again]]
    assert recorded(rows)


def test_certain_walls_beside_random_ways_are_no_layouts():
    rng, rows = np.random.default_rng(0), []
    for episode in range(40):
        for pair in rng.integers(40, size=30):
            rows += [(pair, 0, episode)] * 3  # a wall, again and again
            rows.append((40 + pair, int(rng.integers(4)), episode))  # a way, once
    assert not recorded(rows)
