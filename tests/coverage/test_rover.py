"""Whole runs: every kind of environment, determinism, mistakes, and what a run must reach."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from small_envs import ENVIRONMENTS, QUICK, SMALL_CONV, SMALL_NET

from rover import Rover
from rover.envs import GridWorld
from rover.errors import NonFiniteError, RoverWarning

pytestmark = pytest.mark.filterwarnings("ignore:.*not positive definite")

NETS = {"onehot": SMALL_NET, "symbols": SMALL_CONV}
SETTINGS: dict[str, dict[str, Any]] = {
    name: {**QUICK, **NETS.get(name, {})} for name in ENVIRONMENTS
}
KNOWN_STATES = {"state", "onehot", "random starts and slip", "lake", "cliff"}


@functools.cache
def shared_run(name: str) -> Rover:
    """A run that several tests look at, and none changes."""
    return learn(name)


def learn(name: str, steps: int = 75, seed: int = 3, **changes: Any) -> Rover:
    return Rover(ENVIRONMENTS[name](), seed=seed, **{**SETTINGS[name], **changes}).learn(steps)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("pixels", "symbols", "acrobot")))
        for name in ENVIRONMENTS
    ],
)
def test_every_kind_of_environment_gets_a_policy(name):
    agent = shared_run(name)
    batch = agent.buffer.observations.rows[:10]
    # The plan itself: after so few steps uniform actions may be handed over in its place.
    probs = agent._improve()[0].probs(batch)
    assert probs.shape == (len(batch), agent.buffer.n_actions)
    np.testing.assert_allclose(probs.sum(axis=1), 1.0)
    assert np.abs(probs - 1 / probs.shape[1]).max() > 0.01
    summary = agent.summary()
    assert summary["steps"] == 75
    # A constant of landmarks is no figure.
    seen = agent._representation
    on_landmarks = seen is not None and seen.plans_on == "landmarks"
    assert (summary["sink_mass"] is None) == on_landmarks
    assert 0 <= (summary["sink_mass"] or 0.0) <= 1.001
    assert (summary["states_total"] is not None) == (name in KNOWN_STATES)


def test_global_random_state_is_neither_read_nor_moved():
    import random

    batch = np.arange(5)
    before = shared_run("state").policy.probs(batch)
    np.random.seed(99)  # noqa: NPY002
    torch.manual_seed(99)
    random.seed(99)
    state = torch.get_rng_state()
    np.testing.assert_array_equal(learn("state").policy.probs(batch), before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_too_short_for_a_policy_says_so():
    with pytest.warns(RoverWarning, match="10 steps were too few for a policy update.*uniform"):
        agent = Rover(GridWorld("S.."), **QUICK).learn(10)
    np.testing.assert_array_equal(agent.policy.probs(np.arange(3)), np.full((3, 4), 0.25))
    uniform = agent.measures.evaluator.uniform["objective"]
    assert agent.summary()["objective"] == pytest.approx(uniform)


def test_a_learning_rate_that_breaks_the_encoder_stops_the_run():
    with pytest.raises(NonFiniteError, match=r"update \d+ of the encoder.*lower the learning rate"):
        learn("onehot", learning_rate=1e12)


@pytest.mark.parametrize("name", ["state", "onehot", "pixels", "vector"])
def test_collecting_follows_the_policy_that_is_handed_over(name):
    agent = learn(name)
    agent._plan_and_follow()
    draws, rows = np.random.default_rng(0), agent.buffer.observations.rows
    taken = [agent._tabulated.sample(2, draws) for _ in range(2000)]
    shares = np.bincount(taken, minlength=agent.buffer.n_actions) / 2000
    np.testing.assert_allclose(shares, agent._policy.probs(rows[2:3])[0], atol=0.05)


@pytest.mark.parametrize("name", ["bytes", "numbers", "vector"])
def test_policies_are_planned_where_they_are_followed_or_measured(name, monkeypatch):
    """Here at the end alone, and a run that goes on after one is as if it had not ended."""
    planned: list[int] = []
    plan = Rover._improve

    def counted(agent: Rover, **options: Any) -> Any:
        planned.append(agent.num_timesteps)
        return plan(agent, **options)

    monkeypatch.setattr(Rover, "_improve", counted)
    settings = {**SETTINGS[name], "measure_share": 0.0}
    whole = Rover(ENVIRONMENTS[name](), seed=3, **settings).learn(80)
    assert planned == [80]
    assert whole.policy.details["steps"] == 80
    parts = Rover(ENVIRONMENTS[name](), seed=3, **settings).learn(60).learn(20)
    assert planned == [80, 60, 80]
    np.testing.assert_array_equal(parts.buffer.actions, whole.buffer.actions)
    batch = whole.buffer.observations.rows
    np.testing.assert_array_equal(parts.policy.probs(batch), whole.policy.probs(batch))


@pytest.mark.slow
def test_multi_rooms_is_covered_and_optimal():
    summary = Rover("rover/MultiRooms-v0", seed=0).learn(700).summary()
    assert summary["states_seen"] == summary["states_total"] == 109
    assert summary["steps_to_full_coverage"] <= 700
    assert summary["steps_to_95_in_20_episodes"] is not None
    assert summary["coverage"] >= 0.95
    assert summary["optimality_ratio"] <= 1.01 < summary["uniform_ratio"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "ratio"),
    [({"start": "random"}, 1.1), ({"slip": 0.1, "start": "random"}, 1.3)],
    ids=["random starts", "and slips"],
)
def test_chance_is_handled(settings, ratio):
    """What is left to the optimum is the estimate: of the slips, or of where episodes begin."""
    env = GridWorld("two_rooms", **settings)
    summary = Rover(env, seed=0).learn(1000).summary()
    assert summary["states_seen"] == summary["states_total"]
    assert summary["steps_to_full_coverage"] < 900
    assert summary["coverage"] > 0.85
    assert 1.0 <= summary["optimality_ratio"] <= ratio


def test_few_tries_that_are_alike_are_not_certain_where_outcomes_vary(monkeypatch):
    def figures(**where: Any) -> list[str]:
        settings: dict[str, Any] = {"env_kwargs": {"observation": "state", **where}, "seed": 1}
        agent, found = Rover("rover/TwoRooms-v0", **settings).learn(300), []
        for weight in (0.1, 2.0):
            monkeypatch.setattr("rover.coverage.improve._COVERED_ALIKE", weight)
            found.append(str(agent._improve()[1].figures))
        return found

    assert len(set(figures())) == 1
    assert len(set(figures(slip=0.3))) == 2
