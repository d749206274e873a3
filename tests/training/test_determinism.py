"""One seed, one result, whatever a caller has set in torch, and the shell of threads."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from command_line import python
from small_agents import SMALL
from small_envs import SMALL_NET

from rover import finetune, make_agent, train_offline

AGENTS: dict[str, Any] = {
    "rover": {"policy_every": 25, "encoder_every": 25, **SMALL_NET},
    **{name: SMALL[name] for name in ("rnd", "smm", "apt", "cic", "mepol")},
}
GRID = {"layout": "S..#..\n......\n...#..", "horizon": 20, "observation": "onehot"}


@contextmanager
def as_a_caller_may_have_it() -> Iterator[None]:
    """No gradients, which inference_mode refuses later too, and another dtype."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def weights(module: torch.nn.Module) -> dict[str, bytes]:
    return {name: np.asarray(x).tobytes() for name, x in module.state_dict().items()}


def pretrained(name: str, steps: int, **options: Any) -> Any:
    settings = {"evaluation_episodes": 2, "seed": 1, "env_kwargs": GRID, **AGENTS[name], **options}
    return make_agent(name, "rover/Grid-v0", **settings).learn(steps)


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_is_trained_in_the_same_bits(name):
    expected = weights(pretrained(name, 100).policy)
    assert expected != weights(pretrained(name, 50).policy)
    with as_a_caller_may_have_it():
        agent = pretrained(name, 100)
    assert weights(agent.policy) == expected


@pytest.mark.parametrize("learner", ["ddpg", "sac", "offline"])
def test_tasks_are_learned(learner):
    buffer = pretrained("rover", 200).buffer

    def learned() -> dict[str, bytes]:
        env = gym.make("rover/Grid-v0", **GRID, goal=(5, 2))
        if learner == "offline":
            return weights(train_offline(buffer, env, updates=50, seed=0).actor)
        options = {"algorithm": learner, "learner": {"hidden_sizes": (16,), "batch_size": 16}}
        return weights(finetune(None, env, total_timesteps=300, seed=0, **options).actor)

    expected = learned()
    with as_a_caller_may_have_it():
        assert learned() == expected


PROGRAM = """
import sys, warnings
from pathlib import Path
import rover

warnings.simplefilter("ignore")
folder = Path(sys.argv[1])
folder.mkdir()
onehot = {"env_kwargs": {"observation": "onehot"}}
for name, steps, env, keywords in (
    ("rover", 60, "rover/TwoRooms-v0", onehot),
    ("rnd", 120, "rover/TwoRooms-v0", {**onehot, "seed_steps": 100, "policy_every": 20}),
    ("rover", 80, "MountainCar-v0", {"measure_share": 0.0}),
):
    keywords = {"evaluation_episodes": 2, **keywords}
    agent = rover.make_agent(name, env, seed=3, **keywords).learn(steps)
    agent.policy.save(folder / f"{name} in {agent.env.spec.name}")
"""


@pytest.mark.slow
def test_the_number_of_threads_in_the_shell_changes_no_bit(tmp_path):
    results = []
    for threads in ("1", "4"):
        done = python("-c", PROGRAM, str(tmp_path / threads), env={"OMP_NUM_THREADS": threads})
        assert done.returncode == 0, done.stderr
        results.append({path.name: path.read_bytes() for path in (tmp_path / threads).iterdir()})
    assert len(results[0]) == 3
    assert results[0] == results[1]
