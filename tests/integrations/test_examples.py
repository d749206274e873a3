"""The scripts of examples/ run, those of the gallery as a reader runs them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from command_line import python

from rover.data import ObservationTable
from rover.features import Observations
from rover.policies.policy import StatePolicy

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
N_STATES = 109  # of Multi-Rooms 5


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def policy_file(tmp_path):
    """A uniform policy on exact states."""
    table = ObservationTable((), np.dtype(np.int64))
    for state in range(N_STATES):
        table.intern(state)
    form = Observations((), "int64", n_states=N_STATES)
    policy = StatePolicy(form, table.names, torch.zeros(N_STATES, 4, dtype=torch.float64))
    policy.details = {"env_id": "rover/MultiRooms-v0", "env_kwargs": {"layout": "multi_rooms"}}
    policy.save(tmp_path / "policy.safetensors")
    return str(tmp_path / "policy.safetensors")


def test_plain_ppo_learns(policy_file, monkeypatch):
    example = load_example("cleanrl_ppo")
    monkeypatch.setattr(example, "GOAL", (3, 0))
    settings = {"n_envs": 2, "n_steps": 100}
    assert example.train(policy_file, 200, 0, **settings) < -20.0
    assert example.train(policy_file, 1600, 0, **settings) > -4.0  # the best: −2


def test_every_start_of_the_comparison(policy_file, monkeypatch, capsys):
    pytest.importorskip("stable_baselines3")
    example = load_example("sb3_multi_rooms")
    monkeypatch.setattr(example, "GOAL", (2, 0))
    monkeypatch.setattr(example, "N_ENVS", 1)
    example.SETTINGS["ppo"] |= {"n_steps": 60, "batch_size": 60}
    arguments = f"--policy {policy_file} --algorithms ppo a2c --seeds 1 --steps 360"
    monkeypatch.setattr(sys, "argv", ["sb3_multi_rooms.py", *arguments.split()])
    example.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[4:]]
    assert [row[0] for row in rows] == ["ppo"] * 2 + ["a2c"] * 2
    assert all(-300.0 <= float(figure) <= -1.0 for row in rows for figure in row[-4:-1])


def test_every_goal_of_a_goal_conditioned_environment():
    assert load_example("goal_env").success_rate(steps=700, episodes=10, seed=1) == 1.0


@pytest.mark.parametrize("name", sorted(path.stem for path in (EXAMPLES / "gallery").glob("*.py")))
def test_every_example_of_the_gallery_runs(name, tmp_path):
    """In an empty folder, without a window."""
    script = str(EXAMPLES / "gallery" / f"{name}.py")
    done = python(script, cwd=tmp_path, places=[str(EXAMPLES)], env={"MPLBACKEND": "Agg"})
    assert done.returncode == 0, done.stderr[-3000:]
