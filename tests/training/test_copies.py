"""Several copies of an environment at once: runs resume, and processes change no bit."""

import multiprocessing
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from random_rooms import RandomRooms
from same_files import assert_same
from small_agents import SMALL
from small_envs import ENVIRONMENTS, QUICK, Disc
from transfer_cases import Stopped, stop_at
from walled_points import WalledPoint

import rover
from rover import make_agent, resume_agent
from rover.data import Buffer, relabel
from rover.envs import GridWorld
from rover.errors import ConfigurationError, RoverError
from rover.storage import read_json

pytestmark = pytest.mark.filterwarnings("ignore::rover.errors.RoverWarning")

EVERY = {"checkpoint_every": 10, "measure_share": 0.0}
CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "states": ("rover", ENVIRONMENTS["state"], QUICK),
    "slip": ("rover", ENVIRONMENTS["random starts and slip"], QUICK),
    "vectors": ("rover", WalledPoint, QUICK),
    "torques": ("rover", partial(gym.make, "Pendulum-v1"), {**QUICK, "policy_every": 40}),
    "lookahead": ("rover", partial(gym.make, "Acrobot-v1"), QUICK),
    "pictures": ("rover", Disc, QUICK),
    "contexts": ("rover", partial(RandomRooms, contexts=64, horizon=60), {"contexts": True}),
    "e3b": ("e3b", ENVIRONMENTS["vector"], SMALL["e3b"]),
    "cic": ("cic", ENVIRONMENTS["vector"], {**SMALL["cic"], "skill_every": 20}),
    "mepol": ("mepol", ENVIRONMENTS["random starts and slip"], SMALL["mepol"]),
}
FILES = "metrics.jsonl", "summary.json", "policy.safetensors", "buffer.safetensors"


def begin(case: str, folder: Any = None, **changes: Any) -> Any:
    name, make, settings = CASES[case]
    options = {**settings, **EVERY, "num_envs": 3, **changes}
    return make_agent(name, make, seed=5, run_dir=folder, **options)


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_goes_on_in_the_same_bits(case, tmp_path):
    """The steps 25, 50, … are in the middle of a round of three; and processes change nothing."""
    n_steps = 400 if case == "mepol" else 260
    whole = begin(case, tmp_path / "whole", env_processes=case in ("states", "vectors"))
    whole.learn(n_steps)
    assert whole.buffer.n_episodes >= 3
    stopped = begin(case, tmp_path / "stopped")
    with pytest.raises(Stopped):
        stopped.learn(n_steps, callback=stop_at(n_steps // 2))
    resume_agent(tmp_path / "stopped", env=CASES[case][1]).finish()
    assert_same(tmp_path / "whole", tmp_path / "stopped", *FILES)


def test_episodes_are_chains_and_copies_head_for_different_pairs():
    agent = begin("states", num_envs=4).learn(200)
    buffer = agent.buffer
    assert len({*zip(buffer.inputs[:4], buffer.actions[:4], strict=True)}) == 4
    for episode, start in enumerate(buffer.episode_starts.tolist()):
        rows = buffer.rows_of(episode)
        reached = [start, *buffer.successors[rows]]
        assert buffer.inputs[rows].tolist() == reached[:-1][: len(rows)]
        assert not buffer.is_end[rows[:-1]].any()
    task = relabel(buffer, lambda x, a, y: y == buffer.observations.rows[-1])
    for whole in (task, Buffer.merged([buffer, buffer])):
        inner = whole.previous >= 0
        before = whole.successors[whole.previous[inner]]
        np.testing.assert_array_equal(whole.inputs[inner], before)
        np.testing.assert_array_equal(whole.inputs[~inner], whole.episode_starts)
    assert agent.summary()["episodes"] == len(buffer.episode_starts)
    assert 0 < agent.summary()["steps_to_full_coverage"] < 200
    goals = rover.solve(agent, goals="all")
    assert goals.probs(np.arange(4)).shape == (4, 4)


class Breaks(GridWorld):
    """Raises in the 60th step of an instance."""

    made = 0

    def step(self, action: Any) -> Any:
        self.made += 1
        if self.made == 60:
            raise RuntimeError("no connection")
        return super().step(action)


@pytest.mark.parametrize("env_processes", [False, True])
def test_processes_end_with_an_error_that_names_the_step(tmp_path, env_processes):
    make = partial(Breaks, "S..#..\n......", horizon=25)
    options = {**QUICK, **EVERY, "num_envs": 3, "env_processes": env_processes}
    agent = rover.Rover(make, run_dir=tmp_path, **options)
    with pytest.raises(RuntimeError, match="no connection") as caught:
        agent.learn(400)
    assert "in step 10 of episode 6" in " ".join(caught.value.__notes__)
    assert not multiprocessing.active_children()
    assert 150 <= read_json(tmp_path / "summary.json")["steps"] < 180


def test_a_killed_process_is_named_and_the_run_goes_on_and_is_made_longer():
    whole, agent = begin("states").learn(130), begin("states", env_processes=True)

    def kill(_: Any) -> None:
        multiprocessing.active_children()[0].kill()

    with pytest.raises(RoverError, match="the process of a copy has ended, or was killed"):
        agent.learn(50, callback=kill)
    for n_steps in (50 - agent.num_timesteps, 80):
        agent.learn(n_steps)
        assert not multiprocessing.active_children()
    np.testing.assert_array_equal(whole.buffer.successors, agent.buffer.successors)


def test_what_has_no_copies_is_refused():
    with pytest.raises(ConfigurationError, match="an instance has none: give its id"):
        rover.Rover(Disc(), num_envs=2)
    with pytest.raises(ConfigurationError, match="of several copies: set num_envs"):
        rover.Rover(Disc, env_processes=True)
    one = Disc()
    with pytest.raises(ConfigurationError, match="returns the same instance each time"):
        rover.Rover(lambda: one, num_envs=2, **QUICK).learn(10)
