"""``rover finetune``, and its ``rover resume``."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("finetune", "RUN", "--task", "gaol=4,0"), "key of --task 'gaol'; did you mean 'goal'?"),
        (
            ("finetune", "RUN", "--offline"),
            "has no reward until it has a goal, so there is no task",
        ),
    ],
)
def test_wrong_input_is_one_line_with_exit_code_2(refused, corridor_run, words, expected):
    before = sorted(p.name for p in corridor_run.rglob("*"))
    assert expected in refused(*(str(corridor_run) if word == "RUN" else word for word in words))
    assert os.listdir() == []
    assert sorted(p.name for p in corridor_run.rglob("*")) == before


@pytest.mark.parametrize("kind", ["finetune", "offline"])
def test_a_stopped_run_is_resumed(refused, corridor_run, capsys, monkeypatch, kind):
    from rover.finetuning.offline import OfflineTraining

    from rover.finetuning import Finetuning

    shutil.copytree(corridor_run, "source")
    cls, mode = {
        "finetune": (Finetuning, ()),
        "offline": (OfflineTraining, ("--offline",)),
    }[kind]
    step = cls._step

    def interrupt(self: Any, *, is_last: bool) -> Any:
        if self.num_timesteps == 110:
            raise KeyboardInterrupt
        return step(self, is_last=is_last)

    words = ("finetune", "source", *mode, *ENDS, *QUICK)
    words += ("--steps", "120", "--set", "checkpoint_every=40")
    with monkeypatch.context() as patch:
        patch.setattr(cls, "_step", interrupt)
        assert main([*words, "--run-dir", "stopped"]) == 130
    interrupted = "rover: interrupted; continue with: rover resume stopped\n"
    assert interrupted in capsys.readouterr().err
    assert "it takes no further words" in refused("resume", "stopped", "--steps=9")
    if kind == "offline":
        Path("source").rename("moved")
        assert "are not at source" in refused("resume", "stopped")
        Path("moved").rename("source")
    assert main(["resume", "stopped"]) == 0
    assert main(["resume", "stopped"]) == 0
    assert "stopped is complete: 120 steps." in capsys.readouterr().out
