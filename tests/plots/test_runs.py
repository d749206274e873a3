"""Run folders: what is read of them, and which ones are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from run_folders import (
    TASK,
    finite_records,
    grid_arrays,
    read_run,
    write_run,
    write_task_run,
)

from rover.errors import ArtefactError
from rover.plots import AgentStyle, RunFiles


def test_a_run_says_what_it_started_from_and_what_it_learned(tmp_path: Path) -> None:
    run = read_run(tmp_path / "run", style={"label": "Mine", "colour": "red"})
    assert (run.is_task, run.is_complete, run.agent) == (False, True, "rover")
    assert run.environment == "rover/TwoRooms-v0"
    assert RunFiles.styles_of({"rover": [run]}) == {"rover": AgentStyle("Mine", "red")}
    run = RunFiles.read(write_task_run(tmp_path / "a"))
    assert (run.is_task, run.agent, run.environment) == (True, "rover", "MultiRooms-v0, goal room5")
    assert run.settings["learner.batch_size"] == 64
    near = {**TASK, "env_kwargs": {"goal": [6, 4], "reward": "dense"}, "goal_name": None}
    run = RunFiles.read(write_task_run(tmp_path / "b", task=near, transfer="both"))
    assert (run.agent, run.environment) == (
        "rover-both",
        "MultiRooms-v0, goal (6, 4), dense reward",
    )
    unnamed = write_task_run(tmp_path / "c", agent=None, source=None, transfer="encoder", task=None)
    run = RunFiles.read(unnamed)
    assert (run.agent, run.environment) == ("own policy-encoder", "an environment without an id")


def test_the_agent_is_read_from_the_source_where_the_run_does_not_say_it(tmp_path: Path) -> None:
    source = tmp_path / "apt-run"
    write_task_run(tmp_path / "a", agent=None, source=str(source))
    assert RunFiles.read(tmp_path / "a").agent == "apt-run"
    style = {"label": "APT", "colour": "red"}
    write_run(source, "apt", records=[], arrays=None, style=style)
    run = RunFiles.read(tmp_path / "a")
    assert run.agent == "apt"
    assert RunFiles.styles_of({"apt": [run]})["apt"].label == "APT"


def test_sampled_occupancy_weighs_time_and_stops_at_the_end(tmp_path: Path) -> None:
    arrays = grid_arrays() | {"trajectories": np.array([[0, 1, 1], [0, 2, -1]])}
    run = read_run(tmp_path / "a", arrays=arrays, settings={"discount": 0.5})
    expected = np.array([2.0, 0.5 + 0.25, 0.5, *[0.0] * 6])
    assert run.sampled_occupancy() == pytest.approx(expected / expected.sum())


def test_damaged_files_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", records=finite_records(), arrays=grid_arrays())
    evaluation = run / "evaluation.safetensors"
    evaluation.write_bytes(evaluation.read_bytes()[:-10])
    with pytest.raises(ArtefactError, match=r"holds no run: it has no config\.json"):
        RunFiles.read(tmp_path)
    with pytest.raises(ArtefactError, match="is not the file that this run wrote"):
        RunFiles.read(run)
    (run / "manifest.json").unlink()  # as of a run that was stopped
    with pytest.raises(ArtefactError, match=r"evaluation\.safetensors is not a file of rover"):
        RunFiles.read(run)
    evaluation.unlink()
    for file, content, message in (
        ("metrics.jsonl", 'nonsense\n{"step":1}\n', r"metrics\.jsonl, line 1, is not JSON"),
        ("config.json", "{", r"config\.json is not JSON"),
        ("config.json", "[]", r"config\.json does not fit"),
    ):
        (run / file).write_text(content)
        with pytest.raises(ArtefactError, match=message):
            RunFiles.read(run)
