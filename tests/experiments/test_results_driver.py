"""The driver on tiny rows: processes, resumption, refusals, the command."""

import csv
import os
from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import pytest

import rover
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.experiments.driver import make_tasks, status_of
from rover.experiments.provenance import read_provenance
from rover.experiments.results import ResultRow, RunTask, measure_run, run_tasks
from rover.experiments.results.__main__ import main
from rover.storage import read_json, write_json

TINY = ResultRow(
    "tiny",
    "A corridor",
    "rover/Corridor-v0",
    {"length": 9},
    overrides={"policy_every": 10, "checkpoint_every": 20, "mirror_steps": 10},
    steps=60,
    seeds=(0, 1),
    bars={"steps_to_full_coverage": 60},
)
CONTINUOUS = ResultRow("continuous", "No such agent", "Pendulum-v1", steps=10, seeds=(0,))


class _EndsItsProcess:
    """Ends whichever process it is sent to, as a lack of memory would."""

    def __reduce__(self):
        return os._exit, (7,)


KILLED = ResultRow(
    "killed", "Killed", "rover/Corridor-v0", {"length": _EndsItsProcess()}, steps=10, seeds=(0,)
)
STOPPED = replace(TINY, name="stopped", seeds=(0,))


def make_agent(task: RunTask, **settings) -> rover.Rover:
    env = gym.make(task.row.env_id, **task.row.env_kwargs)
    overrides = {**task.row.overrides, **settings}
    return rover.Rover(env, seed=task.seed, run_dir=task.folder, **overrides)


@pytest.fixture(scope="module")
def driven(tmp_path_factory):
    """Both tiny runs, the second of them interrupted before, and three that fail."""
    runs = tmp_path_factory.mktemp("runs")
    tasks = make_tasks([TINY, CONTINUOUS, KILLED, STOPPED], None, runs)
    interrupted = make_agent(tasks[1])
    interrupted.learn(60, callback=lambda record: record["step"] < 40)
    assert status_of(tasks[1]) == "unfinished"
    make_agent(tasks[4]).learn(60)
    (tasks[4].folder / "evaluation.h5").unlink()
    lines: list[str] = []
    failures = run_tasks(tasks, jobs=2, report=lines.append)
    return tasks, failures, lines, runs


def test_runs_end_and_the_interrupted_one_is_resumed_in_the_same_bits(driven, tmp_path):
    tasks, _, lines, _ = driven
    assert any("tiny, seed 0: starts, 60 steps" in line for line in lines)
    assert any("tiny, seed 1: is resumed, 60 steps" in line for line in lines)
    assert [status_of(task) for task in tasks[:2]] == ["finished", "finished"]
    whole = make_agent(replace(tasks[1], folder=tmp_path / "whole"))
    whole.learn(60)
    for name in ("metrics.jsonl", "policy.safetensors"):
        resumed = (tasks[1].folder / name).read_bytes()
        assert resumed == (tmp_path / "whole" / name).read_bytes()


def test_failures_are_reported_and_stop_nothing(driven):
    _, failures, lines, _ = driven
    assert [failure.task.row.name for failure in failures] == ["continuous", "killed", "stopped"]
    assert failures[0].message.startswith("UnsupportedSpaceError: action space Box")
    assert "ended with exit code 7 without a word" in failures[1].message
    assert "stopped between its last step and its final files; delete" in failures[2].message
    assert sum(line.startswith("[") for line in lines) == 5
    assert any("continuous, seed 0: FAILED: UnsupportedSpaceError" in line for line in lines)


def test_every_run_says_where_it_was_made(driven):
    tasks, _, _, _ = driven
    (session,) = read_provenance(tasks[0].folder).sessions
    assert session.jobs == 2
    assert session.cores >= 1
    assert session.cpu
    assert session.versions["rover"] == rover.__version__


def test_the_command_repeats_nothing_and_writes_the_table(driven, tmp_path, capsys):
    _, _, _, runs = driven
    before = (runs / "tiny" / "seed-0" / "summary.json").stat().st_mtime_ns
    code = main(["--runs-dir", str(runs), "--out", str(tmp_path / "out")], table=(TINY,))
    assert code == 0
    assert (runs / "tiny" / "seed-0" / "summary.json").stat().st_mtime_ns == before
    assert "[1/2] tiny, seed" in capsys.readouterr().out
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["seed"]) for row in rows] == [("tiny", "0"), ("tiny", "1")]
    summary = read_json(runs / "tiny" / "seed-0" / "summary.json")
    assert float(rows[0]["optimality_ratio"]) == summary["optimality_ratio"]
    assert float(rows[0]["steps_to_full_coverage"]) == summary["steps_to_full_coverage"]
    text = (tmp_path / "out" / "results.md").read_text()
    assert "| A corridor | 60 | 2 |" in text
    assert "≤ 60: met" in text
    assert "    python -m rover.experiments.results --jobs 2\n" in text
    assert str(tmp_path) not in text


def test_a_run_with_other_settings_is_refused_by_name(driven, tmp_path, capsys):
    tasks, _, _, runs = driven
    other = replace(TINY, overrides={**TINY.overrides, "mirror_steps": 11})
    with pytest.raises(
        ConfigurationError, match=r"other settings.*mirror_steps 10, not 11.*delete"
    ):
        status_of(replace(tasks[0], row=other))
    with pytest.raises(ConfigurationError, match="total_timesteps 60, not 70"):
        status_of(replace(tasks[0], row=replace(TINY, steps=70)))
    arguments = ["--runs-dir", str(runs), "--out", str(tmp_path)]
    assert main([*arguments, "--seeds", "0"], table=(other,)) == 1
    assert "failed: tiny, seed 0: ConfigurationError" in capsys.readouterr().err
    assert "## Runs that failed" in (tmp_path / "results.md").read_text()


def test_a_damaged_run_is_named_in_the_report(driven, tmp_path, capsys):
    tasks, _, _, _ = driven
    copy = tmp_path / "runs" / "tiny" / "seed-0"
    copy.mkdir(parents=True)
    for file in tasks[0].folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    (copy / "evaluation.h5").write_bytes(b"")
    arguments = ["--runs-dir", str(tmp_path / "runs"), "--out", str(tmp_path), "--seeds", "0"]
    assert main(arguments, table=(TINY,)) == 1
    assert "evaluation.h5 is empty" in capsys.readouterr().err


def test_arrivals_are_terminated_transitions(tmp_path):
    """A problem whose states are unknown: only arrivals are measured."""
    settings = {"n_anchors": 20, "policy_every": 10}
    row = ResultRow("car", "Car", "MountainCar-v0", overrides=settings, steps=20)
    task = RunTask(row, 0, tmp_path / "car")
    make_agent(task).learn(20)
    values = measure_run(row, 0, task.folder).values
    assert values["first_arrival"] == float("inf")
    assert values["arrivals"] == 0.0
    assert set(values) == {"wall_seconds", "first_arrival", "arrivals"}


def test_a_run_without_a_policy_update_has_no_ratio(tmp_path):
    row = replace(TINY, steps=5)
    with pytest.warns(RoverWarning, match="too few for a policy update"):
        make_agent(RunTask(row, 0, tmp_path / "short")).learn(5)
    values = measure_run(row, 0, tmp_path / "short").values
    assert "optimality_ratio" not in values
    assert values["steps_to_95_in_20_episodes"] == float("inf")


def test_a_summary_without_the_figures_is_refused(tmp_path: Path):
    write_json(tmp_path / "summary.json", {"steps": 3})
    with pytest.raises(ArtefactError, match=r"lacks a figure of the results table.*wall_seconds"):
        measure_run(TINY, 0, tmp_path)


def test_jobs_must_be_positive(tmp_path, capsys):
    with pytest.raises(ConfigurationError, match="jobs must be at least 1, not 0"):
        run_tasks((), jobs=0, report=lambda line: None)
    assert main(["--jobs", "0", "--runs-dir", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "jobs must be at least 1" in capsys.readouterr().err


def test_an_unknown_row_ends_the_command(tmp_path, capsys):
    assert main(["--rows", "no-such-row", "--out", str(tmp_path)], table=(TINY,)) == 1
    assert "there is no row 'no-such-row'" in capsys.readouterr().err
