"""Warnings of known dynamics that a wrapper hides, or that cannot be covered."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import FlattenObservation, TimeLimit

from rover.baselines import make_agent
from rover.cli import main
from rover.envs import GridWorld, finite_dynamics
from rover.errors import RoverWarning

ROOM = "S...\n....\n...."
SETTINGS: dict[str, Any] = {"policy_every": 50, "checkpoint_every": 50, "evaluation_episodes": 2}


class Logged(gym.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper that notes every step and changes nothing."""

    def step(self, action: Any) -> Any:
        self.latest = action
        return self.env.step(action)


class Stated(Logged):
    """One that says so."""

    finite_mdp = property(lambda self: finite_dynamics(self.env))


def make(wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]], horizon: int = 20) -> Any:
    return wrap(GridWorld(ROOM, horizon=horizon))


@pytest.mark.parametrize(("wrap", "is_known"), [(Stated, True), (Logged, False)])
def test_a_policy_is_measured_exactly_where_dynamics_are_known(
    wrap: Any,
    is_known: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(gym.registry, "Wrapped-v0", EnvSpec("Wrapped-v0", lambda: make(wrap)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent = make_agent("random", "Wrapped-v0", **SETTINGS).learn(50)
    assert (agent.summary()["optimality_ratio"] is not None) == is_known
    agent.policy.save(tmp_path / "policy")
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "policy"), "--episodes", "2", "--json"]) == 0
    assert ("optimality_ratio" in json.loads(capsys.readouterr().out)["policy"]) == is_known


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (FlattenObservation(GridWorld(ROOM)), "FlattenObservation may change .* J/J. are not rep"),
        (Logged(GridWorld(ROOM)), "Logged may change .* J/J. are not reported"),
        (GridWorld(ROOM, horizon=4), r"1 of 12 states cannot .* of 4 steps: the farthest takes 5"),
        (TimeLimit(GridWorld(ROOM), 3), "3 of 12 states cannot be reached within an episode of 3"),
        (GridWorld("S.G..", goal="marked"), "2 of 5 states can only be reached through a state th"),
    ],
)
def test_hidden_dynamics_and_states_out_of_reach_are_warned_of(env: Any, message: str) -> None:
    with pytest.warns(RoverWarning, match=message):
        make_agent("random", env, **SETTINGS)


def test_what_can_be_reached_is_no_warning() -> None:
    nothing_known = FlattenObservation(gym.make("CartPole-v1"))
    for env in (make(Stated, 5), GridWorld(ROOM, horizon=1, start="random"), nothing_known):
        make_agent("random", env, **SETTINGS)  # warnings are errors in these tests
