"""One seed, one result, whatever the shell says of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import rover

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, warnings
from pathlib import Path
import numpy as np
import rover
from rover.baselines.maxent import _KernelDensity, _MaxentConfig
from rover.coverage.trainer import check_collapse
from rover.features.networks import torch_threads

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
# As large as on images, where a library takes as many threads as there are cores.
rows = np.random.default_rng(0).normal(size=(1000, 400))
with torch_threads(1):
    figures = check_collapse(rows)
    density = _KernelDensity.fit(rows, np.ones(1000), _MaxentConfig())
    mass = density.mass(rows[:200])
content = repr(figures).encode() + density.points.tobytes() + mass.tobytes()
(folder / "large matrices").write_bytes(content)
"""


def test_the_number_of_threads_in_the_shell_changes_no_bit(tmp_path: Path) -> None:
    results = []
    for threads in ("1", "4"):
        variables = {**os.environ, "OMP_NUM_THREADS": threads}
        variables["PYTHONPATH"] = str(Path(rover.__file__).parents[1])
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / threads)]
        subprocess.run(command, env=variables, check=True, timeout=300)
        results.append({path.name: path.read_bytes() for path in (tmp_path / threads).iterdir()})
    assert len(results[0]) == 4
    assert results[0] == results[1]
