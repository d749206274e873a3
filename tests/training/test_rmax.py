"""R-max: it sees everything fast, hands over its plan, and resumes in the same bits."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from method_runs import assert_same_bits, pretraining, run
from small_envs import ENVIRONMENTS

from rover.baselines.rmax import RmaxConfig, make_rmax_config, make_rmax_method
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.policies.loading import load_policy

CONFIG = make_rmax_config(policy_every=25, checkpoint_every=25, evaluation_episodes=2)

STEPS_TO_ALL_STATES = {"two_rooms": 474, "multi_rooms": 537, "maze": 708, "middle_room": 926}
"""Medians over 20 seeds; that of three must come near."""


@pytest.mark.parametrize("layout", STEPS_TO_ALL_STATES)
def test_steps_until_every_state_was_seen(layout: str) -> None:
    config = make_rmax_config(policy_every=500, evaluation_episodes=1)
    steps = []
    for seed in range(3):
        explorer = pretraining(make_rmax_method, config, GridWorld(layout), seed=seed)
        run(explorer, 1000)
        steps.append(explorer.summary()["steps_to_full_coverage"])
    assert np.median(steps) == pytest.approx(STEPS_TO_ALL_STATES[layout], rel=0.12)


@pytest.mark.parametrize(
    "name",
    ["state", "onehot", "random starts and slip", "pixels", "vector", "numbers", "lake", "bytes"],
)
def test_every_kind_of_finite_observation_and_resuming(name: str, tmp_path: Path) -> None:
    make_env = ENVIRONMENTS[name]
    straight = pretraining(make_rmax_method, CONFIG, make_env(), seed=4)
    lines = run(straight, 200)
    first = pretraining(make_rmax_method, CONFIG, make_env(), seed=4, run_dir=tmp_path / "run")
    begun = run(first, 100)
    resumed = pretraining(make_rmax_method, CONFIG, make_env(), seed=4, run_dir=tmp_path / "run")
    resumed.restore()
    assert begun + run(resumed, 200) == lines
    assert_same_bits(straight, resumed)
    stored = load_policy(tmp_path / "run" / "policy.safetensors")
    table = straight.buffer.observations.rows
    np.testing.assert_array_equal(stored.probs(table), straight.policy.probs(table))


def test_the_policy_is_the_plan_with_ties_uniform() -> None:
    explorer = pretraining(make_rmax_method, CONFIG, GridWorld("two_rooms"), seed=1)
    run(explorer, 25)
    table = explorer.policy.probs(explorer.buffer.observations.rows)
    tried = np.zeros(table.shape, np.bool_)
    tried[explorer.buffer.inputs, explorer.buffer.actions] = True
    for x in np.flatnonzero(~tried.all(axis=1)):  # an untried action is the nearest unknown pair
        np.testing.assert_allclose(table[x], ~tried[x] / (~tried[x]).sum(), rtol=1e-12)
    unseen = np.setdiff1d(np.arange(40), explorer.buffer.observations.rows)[:3]
    np.testing.assert_allclose(explorer.policy.probs(unseen), 0.25)


def test_a_world_that_is_known_is_walked_uniformly() -> None:
    explorer = pretraining(make_rmax_method, CONFIG, GridWorld("S...", horizon=20), seed=1)
    lines = run(explorer, 100)
    assert lines[-1]["known_pairs"] == lines[-1]["pairs"] == 16
    assert lines[-1]["start_value"] == 0.0
    np.testing.assert_allclose(explorer.policy.probs(np.arange(4)), 0.25)


def test_a_pair_is_known_after_as_many_tries_as_are_asked_for() -> None:
    config = CONFIG.model_copy(update={"known_after": 5})
    explorer = pretraining(make_rmax_method, config, GridWorld("S..", horizon=20), seed=1)
    run(explorer, 100)
    x, a = explorer.buffer.inputs, explorer.buffer.actions
    assert np.bincount(4 * x + a, minlength=12).min() >= 5


def test_a_lucky_accident_does_not_hold_up_exploration() -> None:
    # slipping makes first outcomes misleading; plans that ignored later ones would wait for luck
    for seed in range(3):
        env = GridWorld("two_rooms", slip=0.4)
        explorer = pretraining(
            make_rmax_method, make_rmax_config(policy_every=1500), env, seed=seed
        )
        run(explorer, 1500)
        assert explorer.summary()["steps_to_full_coverage"] is not None


def test_seed_steps_and_random_actions_are_uniform() -> None:
    for changes in ({"seed_steps": 400}, {"exploration_epsilon": 1.0}):
        config = make_rmax_config(policy_every=400, **changes)
        explorer = pretraining(make_rmax_method, config, GridWorld("S"), seed=2)
        run(explorer, 400)
        shares = np.bincount(explorer.buffer.actions, minlength=4) / 400
        np.testing.assert_allclose(shares, 0.25, atol=0.08)


def test_continuous_observations_are_refused_once_there_are_too_many() -> None:
    config = make_rmax_config(max_states=30)
    explorer = pretraining(make_rmax_method, config, gym.make("MountainCar-v0"))
    with pytest.raises(ConfigurationError, match="more than max_states = 30 distinct observations"):
        run(explorer, 100)


def test_settings() -> None:
    assert make_rmax_config("paper") == make_rmax_config("fast") == RmaxConfig()
    with pytest.raises(ConfigurationError, match="unknown preset 'default'; choose 'fast' or"):
        make_rmax_config("default")
    with pytest.raises(ConfigurationError, match="unknown setting 'known'; did you mean 'known_af"):
        make_rmax_config(known=2)
    with pytest.raises(ConfigurationError, match="setting known_after=0"):
        make_rmax_config(known_after=0)
    env = GridWorld("middle_room")
    assert pretraining(make_rmax_method, RmaxConfig(), env).method.config.discount == 0.9  # type: ignore[attr-defined]
