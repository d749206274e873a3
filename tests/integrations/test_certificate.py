"""Certificates: exact where they say so, the same again, and refused where they do not fit."""

import json
import shlex
import xml.etree.ElementTree
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import rover
from rover.cli.program import answer
from rover.data import Buffer
from rover.envs import finite_dynamics
from rover.envs.gridworld import GridWorld
from rover.errors import ArtefactError, ConfigurationError
from rover.evaluation import optimal_occupancy
from rover.integrations.certificate import (
    _data_digest,
    badge,
    certify,
    certify_path,
    check_certificate,
    one_line,
)
from rover.training.run_folder import load_run_buffer

pytestmark = pytest.mark.filterwarnings("ignore:.*too few for a policy update")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    agent = rover.Rover(
        "rover/Corridor-v0", seed=3, run_dir=folder, env_kwargs={"length": 6}, policy_every=40
    )
    agent.learn(120)
    return folder


def test_a_known_policy_has_its_exact_figures():
    env = GridWorld("S..\n.#.\n...", horizon=12)
    agent = rover.Rover(env, seed=0, policy_every=50)
    agent.learn(100)
    certificate = certify(agent.policy, agent.buffer, env, discount=0.9)
    problem = finite_dynamics(env)
    moves = problem.dynamics.dense()  # (A, S, S)
    probs = agent.policy.probs(problem.observations)
    chain = np.einsum("xa,axy->xy", probs, moves)
    d = 0.1 * np.linalg.solve(np.eye(8) - 0.9 * chain.T, problem.dynamics.start)
    assert abs(certificate["objective"] - d @ d) < 1e-12
    held = np.isin(np.arange(8), problem.states_of(agent.buffer.observations.rows))
    assert certificate["share"] == held.mean()
    assert abs(certificate["unseen"] - d[~held].sum()) < 1e-12
    best = optimal_occupancy(problem.dynamics, discount=0.9).objective
    assert certificate["optimality_ratio"] == pytest.approx(d @ d / best)
    interval = certificate["coverage"]
    assert 0 < interval["low"] <= interval["mean"] <= interval["high"]


def test_data_alone_has_the_shares_of_its_arrivals(run):
    certificate = certify_path(run / "buffer.safetensors", "rover/Corridor-v0", episodes=5)
    buffer = load_run_buffer(run)
    shares = buffer.visits() / buffer.visits().sum()
    assert certificate["objective"] == float(shares @ shares)
    assert certificate["coverage"] is None
    assert certificate["data_digest"] == _data_digest(buffer)
    assert "seen; J " in one_line(certificate)


def test_the_command_of_a_run_makes_its_data_again(run, tmp_path):
    certificate = certify_path(run)
    words = shlex.split(certificate["command"])
    assert words[:2] == ["rover", "pretrain"]
    assert "policy_every=40" in words
    again = tmp_path / "again"
    assert answer([*words[1:], "--run-dir", str(again), "--no-progress"]) == 0
    assert _data_digest(load_run_buffer(again)) == certificate["data_digest"]
    assert certify_path(again) == certificate


def test_states_that_are_unknown_are_counted_in_cells():
    env = gym.make("MountainCar-v0", max_episode_steps=60)
    agent = rover.make_agent("random", env, seed=0)
    agent.learn(200)
    certificate = certify(agent.policy, agent.buffer, env, episodes=3, repeats=2)
    assert certificate["share"] is None
    assert certificate["optimality_ratio"] is None
    for name in ("cells", "uniform_cells", "data_cells"):
        assert certificate[name] > 1
    certificate |= {"env_id": "MountainCar-v0", "env_kwargs": {"max_episode_steps": 60}}
    assert "of random actions" in one_line(certificate)
    of_data = certify(None, agent.buffer, env, episodes=3)
    made_with = {name: certificate[name] for name in ("env_id", "env_kwargs")}
    check_certificate(of_data | made_with, agent.buffer)


def test_the_line_the_json_and_the_badge(run, tmp_path, capsys):
    picture = tmp_path / "badge.svg"
    assert answer(["certify", str(run), "--badge", str(picture)]) == 0
    line = capsys.readouterr().out
    assert line.startswith("rover/Corridor-v0: 100.0% of 6 states seen; coverage ")
    assert line.count("\n") == 1
    assert answer(["certify", str(run), "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out)
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = [node.text for node in root.iter() if node.text]
    assert texts == ["coverage", f"J/J* {certificate['optimality_ratio']:.3f}"]
    assert "seen" in badge(certificate | {"optimality_ratio": None})
    with pytest.raises(ConfigurationError, match="observations"):
        certify_path(run / "buffer.safetensors", "CartPole-v1")
    nowhere = Buffer((3,), np.float32, 4)
    nowhere.add_start(nowhere.observations.intern(np.zeros(3, np.float32)))
    nowhere.add(0, 0, 0, False, True)
    with pytest.raises(ConfigurationError, match="made with other keywords"):
        certify(None, nowhere, GridWorld("S..", horizon=9, observation="onehot"))
    with pytest.raises(ConfigurationError, match="of a policy, of data"):
        certify(None, None, GridWorld("S.", horizon=2))


def test_a_data_set_carries_its_certificate(run):
    minari = pytest.importorskip("minari")
    from rover.integrations.minari import export_minari, load_minari, read_certificate

    export_minari(run, "corridor-v0", author="A")
    certificate = read_certificate("corridor-v0")
    assert certificate["command"] == certify_path(run)["command"]
    assert certificate["share"] == 1.0
    buffer, _ = load_minari("corridor-v0")

    def refused(message: str, **changes: Any) -> None:
        with pytest.raises(ArtefactError, match=message):
            check_certificate(certificate | changes, buffer)

    refused("share = 0.5", share=0.5)
    refused("optimality_ratio = 1.0, and", optimality_ratio=1.0)
    refused("other transitions", data_digest="0")
    other = rover.make_agent("random", GridWorld("S.....", horizon=20), seed=1)
    other.learn(50)
    with pytest.raises(ArtefactError, match="other transitions"):
        check_certificate(certificate, other.buffer)
    export_minari(other.buffer, "other-v0", env=gym.make("rover/Grid-v0", layout="S....."))
    with pytest.raises(ArtefactError, match="carries no certificate"):
        read_certificate(minari.load_dataset("other-v0"))
