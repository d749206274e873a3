"""``rover finetune``, and its ``rover resume``."""

import json
from pathlib import Path

import pytest

from rover.cli import main
from rover.policies import load_policy

# The tasks of runs this short are hardly ever solved.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:no reward was seen"),
]

QUICK = (
    "--set", "learner.batch_size=16", "--set", "learner.hidden_sizes=[8]",
    "--set", "evaluate_every=50",
)  # fmt: skip
ENDS = ("--task", "goal=4,0", "--task", "horizon=12")


def test_a_task_is_learned_from_a_run(corridor_run, capsys):
    words = ("finetune", str(corridor_run), *ENDS, "--steps", "150", *QUICK)
    assert main([*words, "--set", "warmup_steps=20", "--set", "seed_steps=20"]) == 0
    shown = capsys.readouterr().out
    folder = Path("runs/corridor-4-0-ddpg-policy-seed0")
    assert str(folder) in shown
    assert "best possible return" in shown
    assert json.loads((folder / "summary.json").read_text())["steps"] == 150
    config = json.loads((folder / "config.json").read_text())
    assert config["source"] == str(corridor_run)
    assert config["task"]["env_kwargs"]["goal"] == [4, 0]
    assert load_policy(folder / "policy.safetensors").n_actions == 4
    # again: a folder of its own
    assert main([*words, "--from", "scratch", "--algorithm", "sac"]) == 0
    assert Path("runs/corridor-4-0-sac-scratch-seed0/summary.json").exists()
