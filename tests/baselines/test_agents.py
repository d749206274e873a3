"""All agents behind one interface; R-max, whose plans are of a table, against brute force."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_files import assert_same
from small_agents import BONUS_AGENTS, SMALL, lines_of
from small_envs import ENVIRONMENTS
from walks import numbered

import rover
from rover.baselines import make_agent, resume_agent
from rover.baselines.rmax import _optimal, _optimistic_values
from rover.data import Buffer
from rover.envs import GridWorld
from rover.errors import ConfigurationError
from rover.learners import DDPGConfig
from rover.policies import NetworkPolicy, PlannedPolicy
from rover.training.agent import Agent
from rover.world.counts import Counts

QUICK: dict[str, Any] = {"policy_every": 25, "checkpoint_every": 25, "evaluation_episodes": 2}


def test_the_policy_is_the_plan_with_ties_uniform():
    agent = make_agent("rmax", GridWorld("two_rooms"), seed=1, **QUICK)
    agent.learn(25)
    table = agent.policy.probs(agent.buffer.observations.rows)
    tried = np.zeros(table.shape, np.bool_)
    tried[agent.buffer.inputs, agent.buffer.actions] = True
    for x in np.flatnonzero(~tried.all(axis=1)):  # an untried action is the nearest unknown pair
        np.testing.assert_allclose(table[x], ~tried[x] / (~tried[x]).sum(), rtol=1e-12)
    unseen = np.setdiff1d(np.arange(40), agent.buffer.observations.rows)[:3]
    np.testing.assert_allclose(agent.policy.probs(unseen), 0.25)


def test_a_world_that_is_known_is_walked_uniformly():
    agent = make_agent("rmax", GridWorld("S...", horizon=20), seed=1, **QUICK)
    lines = lines_of(agent, 150)
    assert lines[-1]["known_pairs"] == lines[-1]["pairs"] == 16
    assert np.bincount(4 * agent.buffer.inputs + agent.buffer.actions, minlength=16).min() >= 1
    assert lines[-1]["start_value"] == 0.0
    np.testing.assert_allclose(agent.policy.probs(np.arange(4)), 0.25)


def tried(rng, n_states, n_outcomes, n_known, starts) -> Buffer:
    """`n_known` random pairs of a state and one of three actions, each tried `n_outcomes` times."""
    buffer = numbered(n_states, 3, starts=starts)
    for pair in rng.permutation(3 * n_states)[:n_known].repeat(n_outcomes).tolist():
        ends = bool(rng.random() < 0.1)
        buffer.add(pair // 3, pair % 3, int(rng.integers(n_states)), ends, False)
    return buffer


def value_iteration(buffer: Buffer, discount: float) -> np.ndarray:
    """Q (S, A) of the optimistic model, by brute force."""
    n, starts = len(buffer.observations), buffer.starts()
    counts = np.zeros((n, 3, n))
    np.add.at(counts, (buffer.inputs, buffer.actions, buffer.successors), ~buffer.terminated)
    ended = np.zeros(counts.shape[:2])
    np.add.at(ended, (buffer.inputs, buffer.actions), buffer.terminated)
    tries = counts.sum(axis=2) + ended
    values = np.zeros(len(counts))
    for _ in range(400):  # 0.9⁴⁰⁰ is below the rounding of 1
        at_start = np.average(values[starts[0]], weights=starts[1])
        onward = (counts @ values + ended * at_start) / np.maximum(tries, 1)
        q = np.where(tries > 0, discount * onward, 1.0)
        values = q.max(axis=1)
    return q


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    n_states=st.integers(1, 7),
    n_outcomes=st.integers(1, 4),
    share=st.floats(0.0, 1.0),
    n_starts=st.integers(1, 4),
)
def test_values_and_actions_are_those_of_value_iteration(
    seed, n_states, n_outcomes, share, n_starts
):
    rng = np.random.default_rng(seed)
    starts = rng.integers(n_states, size=n_starts)
    buffer = tried(rng, n_states, n_outcomes, int(share * n_states * 3), starts)
    values = _optimistic_values(Counts(buffer), 3, discount=0.9)
    q = value_iteration(buffer, 0.9)
    np.testing.assert_allclose(values.max(axis=1), q.max(axis=1), atol=1e-10)
    assert np.array_equal(_optimal(values), q >= q.max(axis=1, keepdims=True) - 1e-9)


def test_too_many_states_are_refused():
    agent = make_agent("rmax", "MountainCar-v0", seed=0, max_states=20)
    with pytest.raises(ConfigurationError, match="more than max_states = 20 distinct observations"):
        agent.learn(60)


GRID = {"layout": "S..#..\n......\n...#..", "horizon": 25}
FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")


def small_grid_agent(name: str, run_dir: Path | None = None, **changes: Any) -> Agent[Any]:
    settings = {"seed": 1, **SMALL[name], **changes}
    return make_agent(name, "rover/Grid-v0", env_kwargs=GRID, run_dir=run_dir, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_run_folder_and_what_is_read_from_it(name, tmp_path):
    """Also where learning went in two parts."""
    folder = tmp_path / "run"
    agent = small_grid_agent(name, folder).learn(100)
    assert (agent.name, agent.preset, len(agent.buffer)) == (name, "fast", 100)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == ([25, 50, 75, 100] if name != "mepol" else [50, 100])
    assert all(np.isfinite(line["optimality_ratio"]) for line in lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], summary["states_total"]) == (100, 16)
    assert summary["optimality_ratio"] >= 1.0 - 1e-6
    policy = rover.load_policy(folder / "policy.safetensors")
    assert isinstance(policy, NetworkPolicy if name in BONUS_AGENTS else PlannedPolicy)
    assert (policy.details["agent"], policy.details["steps"]) == (name, 100)
    states = np.arange(16)
    np.testing.assert_array_equal(policy.tables(states), agent.policy.tables(states))
    resumed = resume_agent(folder)
    assert (type(resumed), resumed.config) == (type(agent), agent.config)
    assert resumed.num_timesteps == resumed.total_timesteps == 100
    np.testing.assert_array_equal(resumed.policy.tables(states), policy.tables(states))
    small_grid_agent(name, tmp_path / "twice").learn(60).learn(40)
    assert_same(folder, tmp_path / "twice", *FILES)
    another = small_grid_agent(name, seed=2).learn(100)
    assert not np.array_equal(another.buffer.actions, agent.buffer.actions)


@pytest.mark.slow
def test_single_settings_by_mapping_by_dots_or_as_models():
    def config(**settings: Any) -> Any:
        return make_agent("apt", ENVIRONMENTS["state"](), **settings).config

    by_dots = config(**{"learner.batch_size": 9, "n_steps": 2})
    assert (by_dots.learner.batch_size, by_dots.n_steps) == (9, 2)
    assert by_dots.intrinsic == config().intrinsic
    learner = DDPGConfig(batch_size=9)
    assert config(learner=learner).learner == learner
