"""``rover export`` from its words to a data set."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from rover.cli import main


@pytest.fixture(autouse=True)
def _data_sets_of_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))


def test_a_run_becomes_a_data_set_that_is_not_overwritten(capsys, refused, corridor_run):
    minari = pytest.importorskip("minari")
    words = ["export", str(corridor_run), "rover/corridor-v0", "--author", "Ada"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    dataset = minari.load_dataset("rover/corridor-v0")
    assert lines == [
        f"rover/corridor-v0: 60 transitions in {dataset.total_episodes} episodes",
        f"files:     {dataset.storage.data_path}",
        "in Python: minari.load_dataset('rover/corridor-v0')",
    ]
    assert dataset.total_steps == 60
    assert dataset.storage.metadata["author"] == {"Ada"}
    assert dataset.recover_environment().unwrapped.layout.n_states == 5
    assert "there is a Minari data set 'rover/corridor-v0' already" in refused(*words)


def test_a_task_labels_the_data(capsys, refused, corridor_run):
    minari = pytest.importorskip("minari")
    words = ["export", str(corridor_run), "rover/corridor-end-v0", "--task"]
    assert main([*words, "goal=4,0"]) == 0
    assert "rover/corridor-end-v0: " in capsys.readouterr().out
    dataset = minari.load_dataset("rover/corridor-end-v0")
    rewards = [reward for episode in dataset for reward in episode.rewards]
    assert set(rewards) == {-1.0, 0.0}
    ends = [episode for episode in dataset if episode.terminations[-1]]
    assert len(ends) == rewards.count(0.0)
    assert dataset.recover_environment(eval_env=True).unwrapped.goal == (4, 0)
    assert "is outside the map" in refused(*words, "goal=9,9")


def test_runs_and_ids_that_cannot_be_used(refused, corridor_run):
    pytest.importorskip("minari")
    assert "'corridor' is no id of a Minari data set" in refused("export", corridor_run, "corridor")
    assert ". holds no run: it has no config.json" in refused("export", ".", "corridor-v0")
    shutil.copytree(corridor_run, "stopped")
    Path("stopped/buffer.h5").unlink()
    line = refused("export", "stopped", "corridor-v0")
    assert "stopped has no buffer.h5 yet: the run was stopped before its end" in line
    assert not Path("datasets").exists() or list(Path("datasets").iterdir()) == []


def test_what_is_refused_without_minari(refused, monkeypatch, corridor_run):
    monkeypatch.setitem(sys.modules, "minari", None)
    assert "'nowhere' does not exist" in refused("export", "nowhere", "corridor-v0")
    assert "arguments are required: DATASET_ID" in refused("export", corridor_run)
    line = refused("export", corridor_run, "corridor-v0")
    assert "Minari is not installed" in line
    assert 'pip install "rover-rl[minari]"' in line
