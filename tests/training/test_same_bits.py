"""One seed, one result, whatever the shell says of threads and whichever command asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from same_files import assert_same

import rover
from rover.cli import main

pytestmark = pytest.mark.slow

AGENT = """
import sys, warnings
warnings.simplefilter("ignore")
import rover
env = {"env_kwargs": {"observation": "onehot"}}
agent = rover.make_agent(sys.argv[1], "rover/TwoRooms-v0", seed=3, **env)
agent.learn(int(sys.argv[2]))
agent.policy.save(sys.argv[3])
"""
CONTINUOUS = AGENT.replace('"rover/TwoRooms-v0", seed=3, **env', '"MountainCar-v0", seed=3')
# As large as on images, where a library takes as many threads as there are cores.
LARGE = """
import sys
import numpy as np
from rover.baselines.maxent import _KernelDensity, _MaxentConfig
from rover.features import check_collapse, torch_threads
rows = np.random.default_rng(0).normal(size=(1000, 400))
with torch_threads(1):
    figures = check_collapse(rows)
    density = _KernelDensity.fit(rows, np.ones(1000), _MaxentConfig())
    mass = density.mass(rows[:200])
content = repr(figures).encode() + density.points.tobytes() + mass.tobytes()
open(sys.argv[-1], "wb").write(content)
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (AGENT, ("rover", "60")),
        (AGENT, ("rnd", "520")),
        (AGENT, ("mepol", "1700")),
        (CONTINUOUS, ("rover", "150")),
        (LARGE, ()),
    ],
    ids=["rover", "rnd", "mepol", "a net", "large matrices"],
)
def test_the_number_of_threads_in_the_shell_changes_no_bit(
    code: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    results = []
    for threads in ("1", "4", ""):
        path = tmp_path / f"policy-{threads}.safetensors"
        variables = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
        if threads:
            variables["OMP_NUM_THREADS"] = threads
        variables["PYTHONPATH"] = str(Path(rover.__file__).parents[1])
        command = [sys.executable, "-c", code, *words, str(path)]
        subprocess.run(command, env=variables, check=True, timeout=300)
        results.append(path.read_bytes())
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("agent", ["rover", "rnd"])
def test_compare_and_pretrain_agree_to_the_bit(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = ["rover/Corridor-v0", "--env", "length=5", "--observation", "onehot"]
    asked = ["--steps", "520", "--seeds", "1", "--jobs", "1"]
    assert main(["compare", *env, "--methods", agent, *asked, "--out", "out"]) == 0
    preset = "default" if agent == "rover" else "fast"
    words = ["--method", agent, "--preset", preset, "--steps", "520", "--seed", "0"]
    assert main(["pretrain", *env, *words, "--run-dir", "run"]) == 0
    names = ("policy.safetensors", "buffer.safetensors", "metrics.jsonl", "summary.json")
    assert_same("run", f"out/{agent}-{preset}/seed-0", *names)
