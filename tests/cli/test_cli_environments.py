"""Environments that a user registered, through every command, and modules that a file names."""

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import gymnasium as gym
import pytest

import rover
from rover.cli import main
from rover.envs import registration
from rover.errors import ConfigurationError
from rover.policies import load_policy
from rover.storage import read_json

OWN = """
import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import register
from gymnasium.utils import RecordConstructorArgs


class Ring(gym.Env):
    def __init__(self, size=6):
        self.observation_space = gym.spaces.Discrete(size)
        self.action_space = gym.spaces.Discrete(2)
        self.initial_state_distrib = np.eye(size)[0]
        self.P = {state: {} for state in range(size)}
        for state in range(size):
            for action, new in enumerate([(state - 1) % size, (state + 1) % size]):
                self.P[state][action] = [(1.0, new, float(new == 3), False)]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = 0
        return self.state, {}

    def step(self, action):
        [(_, self.state, reward, done)] = self.P[self.state][action]
        return self.state, reward, done, False, {}


class Recorded(gym.Wrapper, RecordConstructorArgs):
    def __init__(self, env, depth=1):
        RecordConstructorArgs.__init__(self, depth=depth)
        gym.Wrapper.__init__(self, env)


recorded = (Recorded.wrapper_spec(depth=2),)
kinds = {
    "Ring": {"entry_point": "own_envs:Ring"},
    "RingRecorded": {"entry_point": "own_envs:Ring", "additional_wrappers": recorded},
}
for name, settings in kinds.items():
    register(f"own/{name}-v0", max_episode_steps=12, **settings)
"""

IMPORT = ("--import", "own_envs")
TINY = ("--set", "policy_every=10", "--set", "checkpoint_every=20")
QUICK = ("--set", "learner.batch_size=16", "--set", "learner.hidden_sizes=[8]")


def forget_own_envs() -> None:
    sys.modules.pop("own_envs", None)
    for env_id in [known for known in gym.registry if known.startswith("own/")]:
        del gym.registry[env_id]


@pytest.fixture(autouse=True)
def _own_module(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("own_envs.py").write_text(OWN)
    yield
    forget_own_envs()
    registration.IMPORTED.pop("own_envs", None)


@pytest.mark.slow
def test_a_registered_environment_goes_through_the_commands(refused):
    env_id = "own/RingRecorded-v0"
    typed = f"own_envs:{env_id}"  # what a user types has its module imported
    pretrain = ("pretrain", typed, "--env", "size=5", "--steps", "40", "--run-dir", "run", *TINY)
    assert main([*pretrain]) == 0
    config = read_json(Path("run/config.json"))
    assert (config["env_id"], config["env_kwargs"]) == (typed, {"size": 5})
    assert read_json(Path("run/summary.json"))["optimality_ratio"] >= 1.0 - 1e-9
    learn = ("finetune", "run", "--steps", "60", *QUICK, "--run-dir", "tuned")
    label = ("finetune", "run", "--offline", "--steps", "40", *QUICK, "--run-dir", "labelled")
    further = ("resume", "run", "--steps", "60")
    for words in (further, learn, label):
        forget_own_envs()
        assert "no file can have a module imported" in refused(*words)
        assert main([*words, *IMPORT]) == 0, words
    assert read_json(Path("run/summary.json"))["steps"] == 60


def test_what_is_wrong_with_an_import_is_said(refused, capsys):
    Path("broken.py").write_text("1 / 0")
    words = ("envs", "own/Ring-v0")
    assert "module 'nowhere' cannot be imported: Module" in refused(*words, "--import", "nowhere")
    assert "ZeroDivisionError: division by zero" in refused(*words, "--import", "broken")
    assert "argument --import: expected one argument" in refused(*words, "--import")
    assert "environment 'own/Ring-v0' cannot be made" in refused(*words)
    run = ("solve", ".", "--reward")
    assert "module own_envs has no function 'none'" in refused(*run, "own_envs:none")
    forget_own_envs()  # an id that the user types has its module imported
    assert main(["envs", "own_envs:own/Ring-v0"]) == 0
    assert "states        6\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["CartPole-v1", "Unknown-v0"])
def test_no_file_can_have_a_module_imported(refused, corridor_run, name):
    """Whether Gymnasium knows the environment or not."""
    Path("evil.py").write_text("from pathlib import Path; Path('imported').touch()")
    sys.path.append(str(Path.cwd()))
    env_id = f"evil:{name}"
    shutil.copytree(corridor_run, "run")
    config = read_json(Path("run/config.json")) | {"env_id": env_id, "env_kwargs": {}}
    Path("run/config.json").write_text(json.dumps(config))
    policy = load_policy("run/policy.safetensors")
    policy.details |= {"env_id": env_id, "env_kwargs": {}}
    for file in ("run/policy.safetensors", "policy.safetensors"):
        policy.save(file)
    task = {"env_id": env_id, "env_kwargs": {}, "goal_name": None}
    config |= {"kind": "finetune", "algorithm": "ddpg", "preset": "fast", "task": task}
    Path("tuned").mkdir()
    Path("tuned/config.json").write_text(json.dumps(config))
    Path("study.toml").write_text(
        f'extends = "comparison"\nrun = {{ env = "{env_id}", steps = 10, seeds = [0] }}\n'
        'title = "T"\naxes.agent.random = { agent = "random" }\n'
    )
    for words in (
        "resume run --steps 80",
        "evaluate run",
        "evaluate policy.safetensors",
        "solve run",
        "adapt run",
        "finetune run",
        "finetune run --offline",
        "resume tuned",
        *(["sweep study.toml"] if find_spec("pandas") else []),
    ):
        line = refused(*words.split())
        if name == "Unknown-v0":
            assert "no file can have a module imported" in line, words
            assert "--import evil" in line
    for resume in (rover.resume_agent, rover.Rover.resume, rover.resume_task):
        with pytest.raises((ConfigurationError, rover.errors.ArtefactError)):
            resume("tuned" if resume is rover.resume_task else "run")
    assert "evil" not in sys.modules
    assert not Path("imported").exists()
