"""CoverageBonus: the reward that Stable-Baselines3 sees, worked out by hand, and learned from."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from rover.baselines.rnd import RndReward
from rover.envs import GridWorld
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning

pytest.importorskip("stable_baselines3")

from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from rover.integrations.sb3 import AgentNovelty, CountNovelty, CoverageBonus, DensityNovelty
from rover.world.model import LANDMARKS

RIGHT = 3


def line() -> GridWorld:
    """Three places in a row; episodes of two steps at most; each earns −1 but the last place."""
    return GridWorld("S..", goal=(2, 0), horizon=2)


def test_counts_are_lambda_over_tries_plus_lambda():
    env = CoverageBonus(DummyVecEnv([line]), "counts", extrinsic=0.0)
    env.reset()
    bonuses = [float(env.step(np.array([action]))[1][0]) for action in (3, 3, 3, 3, 2, 3)]
    # right, right, reset, right, right, reset, left at the start, right
    assert bonuses == [1.0, 1.0, 0.5, 0.5, 1.0, pytest.approx(1 / 3)]


def test_extrinsic_and_scale_are_factors_and_info_has_the_bonus():
    env = CoverageBonus(DummyVecEnv([line]), extrinsic=2.0, scale=0.5, ridge=3.0)
    env.reset()
    _, reward, _, infos = env.step(np.array([RIGHT]))
    assert reward[0] == 2.0 * -1.0 + 0.5 * 1.0
    assert infos[0]["bonus"] == 1.0


def test_a_bonus_sees_where_an_episode_ended_and_not_where_the_next_began():
    seen: list[tuple[list[int], ...]] = []

    def remember(x: Any, a: Any, y: Any, done: Any, /) -> Any:
        seen.append((x.tolist(), a.tolist(), y.tolist(), done.tolist()))
        return np.zeros(1)

    env = CoverageBonus(DummyVecEnv([line]), remember)
    env.reset()
    for _ in range(3):
        env.step(np.array([RIGHT]))
    assert seen == [([0], [3], [1], [False]), ([1], [3], [2], [True]), ([0], [3], [1], [False])]


def test_a_density_is_the_sum_of_the_visits_near_by():
    rng = np.random.default_rng(0)
    novelty = DensityNovelty(units_after=60, width=0.5)
    walk = np.cumsum(rng.normal(size=(31, 2, 1)), axis=0)
    no, action = np.zeros(2, np.bool_), np.zeros(2, np.int64)
    for step in range(30):
        assert novelty(walk[step], action, walk[step + 1], no).tolist() == [1.0, 1.0]
    # the units are those of each walk on its own, not of the jumps between the two
    lag = min(40, 60 // 2)
    changes = np.concatenate([walk[lag:, i] - walk[:-lag, i] for i in range(2)])
    unit = np.sqrt(np.mean(changes**2))
    visited = walk[1:].reshape(-1) / unit
    queries = np.array([[0.0], [100.0]])
    got = novelty(queries, action, queries, no)
    exact = np.exp(-0.5 * ((queries / unit - visited) / 0.5) ** 2).sum(axis=1)
    # cells of radius 0.2 stand for what is in them
    assert got[0] == pytest.approx(1 / (1 + exact[0]), rel=0.2)
    assert got[1] == pytest.approx(1.0)
    again = novelty(queries[1:].repeat(2, axis=0), action, queries[1:].repeat(2, axis=0), no)
    assert again == pytest.approx([0.5, 0.5])


def test_no_visit_is_lost_when_there_are_too_many_cells(monkeypatch):
    few = LANDMARKS._replace(most_cells=10)
    monkeypatch.setattr("rover.integrations.sb3.bonus.LANDMARKS", few)
    novelty = DensityNovelty(units_after=60)
    walk = np.cumsum(np.random.default_rng(0).normal(size=(81, 2, 1)), axis=0)
    no, action = np.zeros(2, np.bool_), np.zeros(2, np.int64)
    for step in range(80):
        novelty(walk[step], action, walk[step + 1], no)
    assert novelty._visits.sum() == 160
    assert np.count_nonzero(novelty._visits) == len(novelty._net) <= 10
    assert novelty._net.radius > 0.2


def test_a_predictor_learns_from_each_transition_once_after_those_of_the_first_step(monkeypatch):
    learned: list[list[float]] = []
    update = RndReward.update

    def remember(self: Any, batch: Any) -> Any:
        learned.append(batch.observations[batch.next_index, 0].tolist())
        return update(self, batch)

    monkeypatch.setattr(RndReward, "update", remember)
    novelty = AgentNovelty("rnd", spaces.Box(0.0, np.inf, (1,)), 2)
    numbers = np.arange(1024, dtype=np.float32)
    for new in numbers.reshape(-1, 8, 1):
        assert novelty(new, np.zeros(8, np.int64), new, np.zeros(8, np.bool_)).shape == (8,)
    assert sorted(set(learned[0])) == list(range(8))
    assert np.ravel(learned[1:]).tolist() == numbers.tolist()


@pytest.mark.parametrize("name", ["counts", "density", *AgentNovelty.names()])
def test_a_seed_gives_the_same_bits(name):
    results = []
    for _ in range(2):
        venv = make_vec_env("CartPole-v1", n_envs=2, seed=3)
        settings = {"refit_every": 40} if name == "maxent" else {}
        settings |= {"units_after": 50} if name == "density" else {}
        env = CoverageBonus(venv, name, extrinsic=0.0, seed=4, **settings)
        env.reset()
        rng = np.random.default_rng(0)
        results.append(np.array([env.step(rng.integers(2, size=2))[1] for _ in range(60)]))
    assert np.isfinite(results[0]).all()
    assert results[0].std() > 0 or name == "counts"
    np.testing.assert_array_equal(*results)


def test_the_agents_that_can_be_a_bonus():
    assert {*AgentNovelty.names()} == {"apt", "icm", "maxent", "rnd"}


def test_what_cannot_be_said_is_refused():
    with pytest.raises(ConfigurationError, match="bonus='density'"):
        CoverageBonus(make_vec_env("Pendulum-v1"), "rnd")
    places = DummyVecEnv([line])
    for bonus, settings, message in (
        ("couts", {}, "did you mean 'counts'"),
        ("smm", {}, "needs neither a skill"),
        ("e3b", {}, "nor its episode"),
        ("rmax", {}, "take [a-z, ]*icm.*, or novelty by counts or density"),
        ("density", {}, "bonus='counts'"),
        ("counts", {"ridge": 0.0}, "ridge must be positive"),
        ("counts", {"width": 1.0}, "unexpected keyword"),
        (CountNovelty(), {"ridge": 1.0}, "by its name"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            CoverageBonus(places, bonus, **settings)
    broken = CoverageBonus(places, lambda *_: np.array([np.nan]))
    broken.reset()
    with pytest.raises(NonFiniteError, match="not finite"):
        broken.step(np.array([0]))


def test_observations_that_do_not_repeat_are_warned_of():
    env = CoverageBonus(make_vec_env("CartPole-v1", n_envs=8, seed=0), "counts")
    env.reset()
    for _ in range(249):
        env.step(np.zeros(8, np.int64))
    with pytest.warns(RoverWarning, match="hardly repeat"):
        env.step(np.zeros(8, np.int64))
