"""One seed, one result, whatever the shell says of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rover

CODE = """
import sys, warnings
warnings.simplefilter("ignore")
import rover
env = {"env_kwargs": {"observation": "onehot"}}
agent = rover.make_agent(sys.argv[1], "rover/TwoRooms-v0", seed=3, **env)
agent.learn(int(sys.argv[2]))
agent.policy.save(sys.argv[3])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "steps"), [("rover", 60), ("rnd", 520), ("mepol", 1700)])
def test_the_number_of_threads_in_the_shell_changes_no_bit(
    agent: str, steps: int, tmp_path: Path
) -> None:
    policies = []
    for threads in ("1", "2", ""):
        path = tmp_path / f"policy-{threads}.safetensors"
        variables = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        if threads:
            variables["OMP_NUM_THREADS"] = threads
        variables["PYTHONPATH"] = str(Path(rover.__file__).parents[1])
        words = [sys.executable, "-c", CODE, agent, str(steps), str(path)]
        subprocess.run(words, env=variables, check=True, timeout=300)
        policies.append(path.read_bytes())
    assert policies[0] == policies[1] == policies[2]
