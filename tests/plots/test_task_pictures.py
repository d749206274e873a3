"""Learning curves of runs that learned a task: what is averaged with what, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from rover.errors import ArtefactError, ConfigurationError
from rover.plots import plot_task_runs
from rover.plots.task_pictures import make_panels, read_task_run
from rover.storage import JsonLines, write_json

TASK = {
    "env_id": "rover/MultiRooms-v0",
    "env_kwargs": {"observation": "onehot"},
    "goal": [21, 4],
    "goal_name": "room5",
    "reward": "sparse",
    "horizon": None,
}


def write_run(path: Path, returns: tuple[float, ...] = (-300.0, -26.0), **changes: Any) -> Path:
    path.mkdir(parents=True)
    config = {
        "format": 1,
        "version": "0.1.0",
        "kind": "online",
        "algorithm": "ddpg",
        "preset": "fast",
        "method": "rover",
        "source": "runs/rooms",
        "transfer": "policy",
        "seed": 0,
        "task": TASK,
        "amount": 500,
        "settings": {"n_steps": 1, "learner": {"batch_size": 64}},
    }
    write_json(path / "transfer.json", {**config, **changes})
    with JsonLines(path / "metrics.jsonl") as lines:
        for number, value in enumerate(returns):
            lines.append({"step": 500 * number, "greedy_return": value})
    write_json(path / "summary.json", {"best_possible_return": -26.0})
    return path


def test_runs_are_averaged_over_seeds_by_task_start_and_learner(tmp_path: Path) -> None:
    near = {**TASK, "goal": [6, 4], "goal_name": None, "reward": "dense"}
    runs = [
        write_run(tmp_path / "a", (-300.0, -26.0)),
        write_run(tmp_path / "b", (-300.0, -28.0), seed=1),
        write_run(tmp_path / "c", algorithm="sac", transfer="both"),
        write_run(tmp_path / "d", method="scratch", source=None, transfer=None),
        write_run(tmp_path / "e", task=near),
    ]
    far, dense = make_panels([read_task_run(run) for run in runs])
    assert (far.title, far.best) == ("MultiRooms-v0, goal room5", -26.0)
    assert dense.title == "MultiRooms-v0, goal (6, 4), dense reward"
    assert [(c.method, c.learner, c.curve.n_runs) for c in far.curves] == [
        ("rover", "ddpg", 2),
        ("rover-both", "sac", 1),
        ("scratch", "ddpg", 1),
    ]
    assert far.curves[0].curve.mean.tolist() == [-300.0, -27.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        written = plot_task_runs(runs, out=tmp_path / "out", formats=("png", "svg"), dpi=40)
    assert written == [tmp_path / "out" / f"task_curves.{kind}" for kind in ("png", "svg")]
    assert "environment steps (thousands)" in written[1].read_text()
    assert "DDPG, SAC: mean over seeds, 95% bootstrap interval" in written[1].read_text()


def test_one_run_keeps_its_picture_and_counts_updates_offline(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", kind="offline", algorithm="cql", transfer=None, task=None)
    (picture,) = plot_task_runs([run], formats="svg")
    assert picture == run / "pictures" / "task_curves.svg"
    text = picture.read_text()
    assert "updates (thousands)" in text
    assert "CQL, seed 0" in text
    assert "an environment without an id" in text


def test_the_method_is_read_from_the_source_where_the_run_does_not_say_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", method=None, source=str(tmp_path / "apt-run"))
    assert read_task_run(tmp_path / "a").method == "apt-run"
    (tmp_path / "apt-run").mkdir()
    write_json(tmp_path / "apt-run" / "config.json", {"method": "apt"})
    assert read_task_run(tmp_path / "a").method == "apt"
    write_run(tmp_path / "b", method=None, source=None, transfer="encoder")
    assert read_task_run(tmp_path / "b").method == "own policy-encoder"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"n_steps": 1, "learner": {"batch_size": 8}}}, r"learner\.batch_size \(64 a"),
        ({"preset": "paper"}, r"would be one curve, but differ in preset \(fast and paper\)"),
        ({"freeze": ["policy"]}, "would be one curve, but differ in freeze"),
        ({"seed": 0}, "are both of seed 0: leave one of them out"),
        ({"kind": "offline"}, "counts environment steps, and others count updates"),
    ],
)
def test_runs_that_cannot_be_one_curve(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", **{"seed": 1, **changes}),
    ]
    with pytest.raises(ConfigurationError, match=message):
        plot_task_runs(runs, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refused_folders_and_words(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    with pytest.raises(ConfigurationError, match="there are no runs to draw"):
        plot_task_runs([])
    with pytest.raises(ConfigurationError, match="the picture of 2 runs belongs to none of them"):
        plot_task_runs([run, run])
    with pytest.raises(ConfigurationError, match="no picture format 'bmp'"):
        plot_task_runs([run], formats=("bmp",))
    with pytest.raises(ArtefactError, match="holds no run that learned a task"):
        plot_task_runs([tmp_path])
    with pytest.raises(ArtefactError, match="stopped before it was measured"):
        plot_task_runs([write_run(tmp_path / "short", ())])
    with pytest.raises(ArtefactError, match=r"of format 9, written by rover 0\.1\.0; this version"):
        plot_task_runs([write_run(tmp_path / "newer", format=9)])
    with pytest.raises(ArtefactError, match=r"does not describe a run \(KeyError: 'sarsa'\)"):
        plot_task_runs([write_run(tmp_path / "strange", kind="sarsa")])
    damaged = write_run(tmp_path / "damaged")
    (damaged / "metrics.jsonl").write_text('{"step":5,"greedy_return":"much"}\n')
    with pytest.raises(ArtefactError, match=r"metrics\.jsonl is damaged: record 1"):
        plot_task_runs([damaged])
