"""Runs that are killed end in the same bits as runs that are not.

Each run happens in a process of its own and gets SIGKILL twice, at moments drawn for every case:
before and after its first checkpoint, between writes or in the middle of one.
"""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest
from killed_runs import Moment, pretrain_in_process
from same_files import assert_same
from small_envs import QUICK, SMALL_CONV, SMALL_NET

from rover.storage import read_sealed

pytestmark = pytest.mark.slow

SAME_FILES = ("config.json", "policy.safetensors", "buffer.safetensors", "metrics.jsonl")

CASES: dict[str, tuple[str, int, dict[str, Any]]] = {
    "exact states": ("state", 160, {}),
    "learned from one-hot vectors": ("onehot", 150, {**SMALL_NET}),
    "byol, updates out of step with policies": (
        "onehot",
        150,
        {**SMALL_NET, "representation": "byol", "encoder_every": 40},
    ),
    "images": ("pixels", 120, {**SMALL_CONV, "encoder_updates": 1}),
    "mountain car, exact then anchors": ("mountain car", 150, {"max_exact_states": 80}),
    "cart pole, moving range": ("cart pole", 130, {"encoder_every": 10}),
    "slippery lake": ("lake", 160, {}),
    "random starts and slip": ("random starts and slip", 150, {}),
    "the paper's preset": (
        "onehot",
        260,
        {
            "preset": "paper",
            "feature_dim": 12,
            "batch_size": 64,
            "encoder_every": 5,
            "policy_every": 20,
            "seed_steps": 50,
            "first_policy": 5,
            "decay_predictor": False,
            "predictor_width": 16,
            "policy_epsilon": 0.1,
            "plan_transitions": 90,
            "mirror_steps": 15,
            "sink_warmup": 200,
        },
    ),
}


def moments(case: str) -> tuple[Moment, Moment]:
    """When the first process and the one that resumes it are killed."""
    draw = random.Random(case)
    first: Moment = draw.choice([("step", draw.randrange(1, 50)), ("write", draw.randrange(3, 10))])
    # The first checkpoint is due at step 50: this one comes after it.
    second: Moment = draw.choice(
        [("step", draw.randrange(65, 100)), ("write", draw.randrange(9, 14))]
    )
    return first, second


@pytest.mark.parametrize("case", CASES)
def test_a_run_killed_twice_ends_in_the_same_bits(case: str, tmp_path: Path) -> None:
    name, steps, settings = CASES[case]
    settings = {**QUICK, "checkpoint_every": 50, "evaluation_episodes": 2, **settings}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert pretrain_in_process(whole, name, steps, settings, None) == 0
    for moment in moments(case):
        assert pretrain_in_process(killed, name, steps, settings, moment) == -signal.SIGKILL
    later = steps  # where policies are rolled out, steps of roll-outs count
    while not list(killed.glob("checkpoints/*.safetensors")):
        code = pretrain_in_process(killed, name, steps, settings, ("step", later))
        assert code == -signal.SIGKILL
        later += 40
    assert pretrain_in_process(killed, name, steps, settings, None) == 0
    assert_same(killed, whole, "summary.json", *SAME_FILES)
    if (whole / "evaluation.safetensors").exists():
        expected = read_sealed(whole / "evaluation.safetensors", kind="evaluation")
        found = read_sealed(killed / "evaluation.safetensors", kind="evaluation")
        assert {k: v.tobytes() for k, v in found.items()} == {
            k: v.tobytes() for k, v in expected.items()
        }
    whole_files = {str(path.relative_to(whole)) for path in whole.rglob("[!.]*")}
    assert {str(path.relative_to(killed)) for path in killed.rglob("[!.]*")} == whole_files
