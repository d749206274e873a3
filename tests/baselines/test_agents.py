"""All agents behind one interface: names, settings, run folders, resuming; and a new one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from same_files import assert_same
from small_agents import BONUS_AGENTS, SMALL
from small_envs import ENVIRONMENTS

import rover
from rover.baselines import make_agent, resume_agent
from rover.learners import DDPGConfig
from rover.policies import CoveragePolicy, NetworkPolicy
from rover.training.agent import Agent

pytestmark = pytest.mark.slow

GRID = {"layout": "S..#..\n......\n...#..", "horizon": 25}
FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")


def small_grid_agent(name: str, run_dir: Path | None = None, **changes: Any) -> Agent[Any]:
    settings = {"seed": 1, **SMALL[name], **changes}
    return make_agent(name, "rover/Grid-v0", env_kwargs=GRID, run_dir=run_dir, **settings)


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
    assert isinstance(policy, NetworkPolicy if name in BONUS_AGENTS else CoveragePolicy)
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


def test_single_settings_by_mapping_by_dots_or_as_models():
    def config(**settings: Any) -> Any:
        return make_agent("apt", ENVIRONMENTS["state"](), **settings).config

    by_dots = config(**{"learner.batch_size": 9, "n_steps": 2})
    assert (by_dots.learner.batch_size, by_dots.n_steps) == (9, 2)
    assert by_dots.intrinsic == config().intrinsic
    learner = DDPGConfig(batch_size=9)
    assert config(learner=learner).learner == learner
