"""Studies of short runs, and their bits when they are made on this machine without a break."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from same_files import assert_same

from rover_bench import load_study
from rover_bench.execute import _work
from rover_bench.study import Run

STUDY = """
extends = "comparison"
title = "Short runs"

[run]
env = "rover/Corridor-v0"
env_kwargs = {{length = 9}}
steps = {steps}
seeds = {seeds}

[run.settings]  # checkpoints all the time
policy_every = 10
checkpoint_every = 20
mirror_steps = 10

[axes.agent.rover]
"""


def short_study(n: int, *, steps: int) -> str:
    """The TOML file of `n` runs."""
    return STUDY.format(steps=steps, seeds=list(range(n)))


def runs_of(study: str, folder: Path) -> tuple[Run, ...]:
    return load_study({"name": "short", **tomllib.loads(study)}).cases()[0].runs(folder)


def assert_bits_of_local_runs(runs: Sequence[Run], study: str, folder: Path) -> None:
    for made, here in zip(runs, runs_of(study, folder), strict=True):
        assert _work(here, {}) is None
        names = ("metrics.jsonl", "summary.json", "policy.safetensors", "buffer.safetensors")
        assert_same(made.folder, here.folder, *names)
