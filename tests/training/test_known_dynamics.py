"""What is said where known dynamics are hidden, disproved, or cannot be covered."""

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
from same_files import assert_same

from rover.baselines import make_agent, resume_agent
from rover.cli import main
from rover.envs import GridWorld
from rover.errors import RoverWarning

ROOM = "S...\n....\n...."
SETTINGS: dict[str, Any] = {"policy_every": 50, "checkpoint_every": 50, "evaluation_episodes": 2}


class Logged(gym.Wrapper[Any, Any, Any, Any]):
    """A user's wrapper that notes every step and changes nothing."""

    def step(self, action: Any) -> Any:
        self.latest = action
        return self.env.step(action)


class Turned(Logged):
    """One that changes what actions do."""

    def step(self, action: Any) -> Any:
        return super().step((action + 1) % 4)


class Impatient(Logged):
    """One that ends episodes early."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, self.unwrapped._elapsed >= 5, info


def make(wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]], horizon: int = 20) -> Any:
    return wrap(GridWorld(ROOM, horizon=horizon))


def test_a_wrapper_that_changes_nothing_keeps_the_exact_figures() -> None:
    bare, wrapped = (
        make_agent("random", make(wrap), **SETTINGS).learn(100)
        for wrap in (lambda env: env, Logged)
    )
    assert bare.summary()["optimality_ratio"] is not None
    keys = ("optimality_ratio", "coverage", "states_seen", "states_total")
    assert [bare.summary()[key] for key in keys] == [wrapped.summary()[key] for key in keys]


@pytest.mark.parametrize(
    ("wrap", "what"),
    [
        (Turned, "action . led where it never leads"),
        (Impatient, "an episode was truncated after 5 steps"),
    ],
)
def test_a_wrapper_that_changes_transitions_is_found_out(
    wrap: Any, what: str, tmp_path: Path
) -> None:
    message = rf"{wrap.__name__} changes the environment whose dynamics are known \({what}\)"
    agents = [make_agent("random", make(wrap), run_dir=tmp_path / run, **SETTINGS) for run in "ab"]
    for agent, steps in zip(agents, (100, 50), strict=True):
        with pytest.warns(RoverWarning, match=message):
            agent.learn(steps)
        assert agent.summary()["coverage"] is agent.summary()["states_total"] is None
    with pytest.warns(RoverWarning, match=message):
        resumed = resume_agent(tmp_path / "b", env=make(wrap))
    resumed.learn(50)
    assert resumed.summary()["coverage"] is None
    assert_same(tmp_path / "a", tmp_path / "b", "metrics.jsonl")


@pytest.mark.parametrize("wrap", [Logged, Turned])
def test_a_policy_is_measured_exactly_where_a_wrapper_keeps_what_is_known(
    wrap: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(gym.registry, "Wrapped-v0", EnvSpec("Wrapped-v0", lambda: make(wrap)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make_agent("random", "Wrapped-v0", **SETTINGS).learn(50).policy.save(tmp_path / "policy")
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["evaluate", str(tmp_path / "policy"), "--episodes", "2", "--json"]) == 0
    out, err = capsys.readouterr()
    assert ("optimality_ratio" in json.loads(out)["policy"]) == (wrap is Logged)
    assert ("Turned changes the environment" in err) == (wrap is Turned)


def test_a_wrapper_that_means_to_change_observations_is_named() -> None:
    with pytest.warns(RoverWarning, match="FlattenObservation changes the .* J/J. are not rep"):
        agent = make_agent("random", FlattenObservation(GridWorld(ROOM)), **SETTINGS)
    assert agent.learn(50).summary()["optimality_ratio"] is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing was known of this one
        make_agent("random", FlattenObservation(gym.make("CartPole-v1")), **SETTINGS)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (GridWorld(ROOM, horizon=4), r"1 of 12 states cannot .* of 4 steps: the farthest takes 5"),
        (TimeLimit(GridWorld(ROOM), 3), "3 of 12 states cannot be reached within an episode of 3"),
        (GridWorld("S.G..", goal="marked"), "2 of 5 states can only be reached through a state th"),
    ],
)
def test_states_out_of_reach_are_counted(env: Any, message: str) -> None:
    with pytest.warns(RoverWarning, match=message):
        make_agent("random", env, **SETTINGS)


def test_what_can_be_reached_is_no_warning() -> None:
    for env in (make(Logged, 5), GridWorld(ROOM, horizon=1, start="random")):
        make_agent("random", env, **SETTINGS)  # warnings are errors in these tests
