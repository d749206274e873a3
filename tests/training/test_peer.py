"""The peers behind the interface of `Rover`: settings, run folders, resuming, policies."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from killed_runs import Moment, pretrain_in_process
from small_envs import ENVIRONMENTS, QUICK
from small_peers import SMALL, bonus_of

import rover
from rover import Rover
from rover.baselines.methods import BONUS_METHODS
from rover.baselines.peer import METHODS, PEERS, Peer, make_agent, resume_agent
from rover.baselines.peer_config import make_bonus_config
from rover.errors import ArtefactError, ConfigurationError, UnsupportedSpaceError
from rover.learners import DDPGConfig
from rover.policies.coverage import CoveragePolicy
from rover.policies.network import NetworkPolicy

GRID = {"layout": "S..#..\n......\n...#..", "horizon": 25}


def small_grid_peer(method: str, run_dir: Path | None = None, **changes: Any) -> Peer:
    settings = {**SMALL[method], **changes}
    return Peer("rover/Grid-v0", method, env_kwargs=GRID, seed=1, run_dir=run_dir, **settings)


@pytest.mark.parametrize("method", PEERS)
def test_a_run_folder_and_what_is_read_from_it(method: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    agent = small_grid_peer(method, folder).learn(100)
    assert agent.method == method
    assert len(agent.buffer) == 100
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == (
        [25, 50, 75, 100] if method != "mepol" else [50, 100]
    )
    assert all(np.isfinite(line["optimality_ratio"]) for line in lines)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["steps"], summary["states_total"]) == (100, 16)
    assert summary["optimality_ratio"] >= 1.0 - 1e-6
    policy = rover.load_policy(folder / "policy.safetensors")
    assert isinstance(policy, NetworkPolicy if method in BONUS_METHODS else CoveragePolicy)
    assert (policy.details["method"], policy.details["steps"]) == (method, 100)
    states = np.arange(16)
    np.testing.assert_array_equal(policy.tables(states), agent.policy.tables(states))
    resumed = resume_agent(folder)
    assert isinstance(resumed, Peer)
    assert resumed.config == agent.config
    assert (resumed.num_timesteps, resumed.remaining_timesteps) == (100, 0)
    np.testing.assert_array_equal(resumed.policy.tables(states), policy.tables(states))


@pytest.mark.parametrize("method", PEERS)
def test_learning_twice_is_learning_once(method: str, tmp_path: Path) -> None:
    small_grid_peer(method, tmp_path / "once").learn(150)
    small_grid_peer(method, tmp_path / "twice").learn(60).learn(90)
    for name in ("policy.safetensors", "buffer.h5", "metrics.jsonl", "config.json"):
        one, other = ((tmp_path / run / name).read_bytes() for run in ("once", "twice"))
        assert one == other, name


KILLS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "random": ("random", "random starts and slip", {}),
    "rmax": ("rmax", "onehot", {}),
    "rnd, images": ("rnd", "pixels", {}),
    "rnd, updates out of step with snapshots": (
        "rnd",
        "onehot",
        {"learner": {"hidden_sizes": (16,), "batch_size": 24, "update_every": 7}},
    ),
    "smm": ("smm", "vector", {}),
    "apt, contrastive": (
        "apt",
        "onehot",
        {"intrinsic": {"feature_dim": 8, "hidden": 16, "k": 4, "features": "contrastive"}},
    ),
    "apt": ("apt", "random starts and slip", {}),
    "maxent": ("maxent", "lake", {}),
    "cic": ("cic", "onehot", {"skill_every": 20, "reward_scale": "standard"}),
    "mepol": ("mepol", "state", {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", KILLS)
def test_a_run_killed_twice_ends_in_the_same_bits(case: str, tmp_path: Path) -> None:
    method, env, changes = KILLS[case]
    settings = {**SMALL[method], **changes}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    # Before the first checkpoint (at step 50), and after it.
    moments: tuple[Moment, Moment] = (("step", 5 + len(case)), ("step", 90 + len(case)))
    assert pretrain_in_process(whole, env, 220, settings, None, method=method) == 0
    for moment in moments:
        code = pretrain_in_process(killed, env, 220, settings, moment, method=method)
        assert code == -signal.SIGKILL
    assert list(killed.glob("checkpoints/*.safetensors"))
    assert pretrain_in_process(killed, env, 220, settings, None, method=method) == 0
    for name in ("config.json", "policy.safetensors", "buffer.h5", "metrics.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.parametrize("method", METHODS)
def test_an_agent_by_the_name_of_its_method(method: str) -> None:
    env = ENVIRONMENTS["state"]()
    agent = make_agent(method, env, seed=2, **(QUICK if method == "rover" else SMALL[method]))
    assert agent.method == method
    assert agent.preset == ("default" if method == "rover" else "fast")
    assert agent.config.discount == env.unwrapped.suggested_discount


def test_a_run_of_another_method_is_not_continued(tmp_path: Path) -> None:
    small_grid_peer("random", tmp_path / "random").learn(50)
    with pytest.raises(ArtefactError, match="holds a run of 'random', which Rover cannot"):
        Rover.resume(tmp_path / "random")
    Rover("rover/Grid-v0", env_kwargs=GRID, run_dir=tmp_path / "rover", **QUICK).learn(25)
    with pytest.raises(ArtefactError, match="a run of 'rover', which is not one of the peers"):
        Peer.resume(tmp_path / "rover")
    assert isinstance(resume_agent(tmp_path / "rover"), Rover)


def test_a_configuration_from_another_version(tmp_path: Path) -> None:
    small_grid_peer("rnd", tmp_path / "run").learn(50)
    path = tmp_path / "run" / "config.json"
    config = json.loads(path.read_text())
    config["settings"]["intrinsic"]["new_setting"] = 1
    path.write_text(json.dumps(config))
    with pytest.raises(ArtefactError, match=r"does not fit this version .*intrinsic\.new_setting"):
        Peer.resume(tmp_path / "run")


@pytest.mark.parametrize(
    ("method", "preset", "settings", "words"),
    [
        ("rdn", "fast", {}, "unknown method 'rdn'; did you mean 'rnd'"),
        ("sarsa", "fast", {}, "unknown method 'sarsa'; choose one of random, rmax, rnd"),
        *(
            (method, "default", {}, "unknown preset 'default'.*choose 'fast' or 'paper'")
            for method in PEERS
        ),
        *(
            (method, "fast", {"policy_evry": 5}, "unknown setting 'policy_evry'")
            for method in PEERS
        ),
        *(
            (method, "fast", {"threads": 0}, "setting threads=0: .*greater than or equal to 1")
            for method in PEERS
        ),
        ("rnd", "fast", {"seed_step": 5}, "'seed_step'; did you mean 'seed_steps'"),
        ("cic", "fast", {"intrinsic": {"hiden": 5}}, "did you mean 'intrinsic.hidden'"),
        ("cic", "fast", {"learner.batch": 5}, "did you mean 'learner.batch_size'"),
        ("apt", "fast", {"learner.batch_size": 0}, "setting learner.batch_size=0: "),
        ("apt", "fast", {"intrinsic.k": "many"}, "setting intrinsic.k='many': "),
        ("smm", "fast", {"learner": 5}, "'learner' takes a mapping of settings, not learner=5"),
        ("smm", "fast", {"n_steps.k": 5}, "'n_steps' takes one value, not n_steps.k={'k': 5}"),
        ("smm", "fast", {"lerner.k": 5}, "unknown setting 'lerner'; did you mean 'learner'"),
    ],
)
def test_what_does_not_exist(
    method: str, preset: str, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Peer(ENVIRONMENTS["state"](), method, preset, **settings)


def test_single_settings_by_mapping_by_dots_or_as_models() -> None:
    by_mapping = make_bonus_config("apt", "fast", {"learner": {"batch_size": 9}, "n_steps": 2})
    by_dots = make_bonus_config("apt", "fast", {"learner.batch_size": 9, "n_steps": 2})
    assert by_mapping == by_dots
    assert (by_dots.learner.batch_size, by_dots.n_steps) == (9, 2)
    assert by_dots.intrinsic == make_bonus_config("apt", "fast", {}).intrinsic
    learner = DDPGConfig(batch_size=9)
    assert make_bonus_config("apt", "fast", {"learner": learner}).learner == learner


@pytest.mark.parametrize("method", BONUS_METHODS)
def test_the_papers_settings(method: str) -> None:
    config = make_bonus_config(method, "paper", {})
    learner = config.learner
    assert (learner.batch_size, learner.update_every, learner.target_rate) == (1024, 2, 0.01)
    assert set(learner.hidden_sizes) == {1024}
    assert learner.actor_learning_rate == learner.critic_learning_rate == 1e-4
    assert learner.entropy_coefficient == 0.0
    assert config.exploration_epsilon == 0.25
    assert config.seed_steps == 2000
    assert config.reward_scale == "raw"
    assert config.learner_discount == 0.99
    assert config.n_steps == {"rnd": 1, "smm": 3, "apt": 3, "maxent": 1, "cic": 3}[method]
    assert config.skill_every == (50 if method == "cic" else None)


def test_the_papers_networks_learn_too() -> None:
    agent = Peer(
        ENVIRONMENTS["onehot"](),
        "rnd",
        "paper",
        seed_steps=30,
        policy_every=40,
        **{"learner.batch_size": 16},
    )
    agent.learn(40)
    assert bonus_of(agent)._learner.n_updates == 6


@pytest.mark.parametrize("method", PEERS)
def test_unsupported_spaces_are_named(method: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=r"action space Box\(-2.0, 2.0"):
        Peer(gym.make("Pendulum-v1"), method)
