"""Runs brought to their end, here, on Ray and by Slurm: resumption, refusals, records."""

import csv
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from same_files import assert_same

import rover
from rover.errors import ArtefactError, ConfigurationError
from rover.storage import append_line, read_json, read_lines, read_run_config
from rover_bench import executors, load_study, run_study
from rover_bench.execute import _bring_to_end, _is_finished, _work, execute
from rover_bench.executors import EXECUTORS, _RayConfig
from rover_bench.measure import provenance
from rover_bench.study import Learning, Run

pytestmark = pytest.mark.slow

TINY = {
    "name": "tiny",
    "title": "Tiny",
    "csv": "tiny-",
    "run": {
        "env": "rover/Corridor-v0",
        "env_kwargs": {"length": 9},
        "settings": {"policy_every": 10, "checkpoint_every": 20, "mirror_steps": 10},
        "steps": 60,
        "seeds": [0, 1],
    },
    "axes": {"problem": {"tiny": {"title": "A corridor"}}},
    "tables": {
        "Figures": {
            "rows": ["problem"],
            "facts": ["steps", "runs"],
            "figures": ["steps_to_full_coverage", "optimality_ratio"],
            "statistic": "median and range",
            "bars": {"tiny": {"steps_to_full_coverage": 60}},
        }
    },
}


class EndsItsProcess(str):
    """Ends whichever process it is sent to, as a lack of memory would."""

    def __reduce__(self):
        return os._exit, (7,)


BROKEN = {
    "tiny": {},
    "impossible": {"env": "Pendulum-v1", "seeds": [0]},
    "killed": {"env_kwargs": {"length": EndsItsProcess()}, "seeds": [0]},
    "damaged": {"folder": "damaged", "seeds": [0]},
    "early": {"steps": 5, "seeds": [0]},
}


def tiny_runs(study: dict[str, Any], runs_dir: Path, **changes: Any) -> tuple[Run, ...]:
    run = {**study["run"], **changes}
    study = {**study, "run": run}
    return tuple(run for case in load_study(study).cases() for run in case.runs(runs_dir))


def make_agent(run: Run, folder: Path) -> rover.Rover:
    case = run.case
    return rover.Rover(
        case.env, env_kwargs=case.env_kwargs, seed=run.seed, run_dir=folder, **case.settings
    )


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """Two tiny runs, the second of them interrupted before, and three that fail."""
    folder = tmp_path_factory.mktemp("runs")
    runs = tiny_runs({**TINY, "axes": {"problem": BROKEN}}, folder)
    make_agent(runs[1], runs[1].folder).learn(60, callback=lambda record: record["step"] < 40)
    append_line(runs[1].folder / "provenance.jsonl", provenance(jobs=1))
    assert not _is_finished(runs[1])
    make_agent(runs[4], runs[4].folder).learn(60)
    (runs[4].folder / "summary.json").write_text("{")
    lines: list[str] = []
    finished, failures = execute(runs, jobs=2, say=lines.append)
    assert finished == [*runs[:2], runs[5]]
    return runs, failures, lines, folder


def test_runs_end_and_the_interrupted_one_is_resumed_in_the_same_bits(executed, tmp_path):
    runs, _, lines, _ = executed
    assert lines[0] == "6 of 6 runs to be made, 2 side by side"
    assert all(_is_finished(run) for run in runs[:2])
    sittings = read_lines(runs[1].folder / "provenance.jsonl")
    assert [sitting["jobs"] for sitting in sittings] == [1, 2]
    make_agent(runs[1], tmp_path / "whole").learn(60)
    assert_same(runs[1].folder, tmp_path / "whole", "metrics.jsonl", "policy.safetensors")


def test_failures_are_reported_and_stop_nothing(executed):
    runs, failures, lines, _ = executed
    failed = [run.case.name for run in runs if run.folder in failures]
    assert failed == ["impossible", "killed", "damaged"]
    assert failures[runs[2].folder].startswith("ConfigurationError: environment 'Pendulum-v1'")
    assert "its process ended without a word" in failures[runs[3].folder]
    assert "summary.json is not JSON" in failures[runs[4].folder]
    assert lines[1].startswith("damaged, seed 0: FAILED: ")
    assert [line[:5] for line in lines[2:]] == [f"[{k}/5]" for k in range(1, 6)]
    assert any("] early, seed 0: done" in line for line in lines)
    assert any("impossible, seed 0: FAILED: ConfigurationError" in line for line in lines)


def test_a_study_repeats_nothing_and_writes_its_files(executed, tmp_path):
    runs, _, _, folder = executed
    summary, out = runs[0].folder / "summary.json", tmp_path / "out"
    before, lines = summary.stat().st_mtime_ns, list[str]()
    study = load_study(TINY)
    places = {"runs_dir": folder, "out": out, "jobs": 1, "say": lines.append}
    run_study(study, command="rover sweep", **places)
    assert summary.stat().st_mtime_ns == before
    assert lines == ["0 of 2 runs to be made, 1 side by side"]
    with (out / "tiny-runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["problem"], row["seed"]) for row in rows] == [("tiny", "0"), ("tiny", "1")]
    assert float(rows[0]["optimality_ratio"]) == read_json(summary)["optimality_ratio"]
    text = (out / "tiny.md").read_text()
    for words in ("| A corridor | 60 | 2 |", "≤ 60: met", "    rover sweep\n"):
        assert words in text
    run_study(study, seeds=[0, 7], report_only=True, **places)  # only what is there is reported
    assert "| A corridor | 60 | 1 of 2 |" in (out / "tiny.md").read_text()


def test_a_run_with_other_settings_is_refused_by_name(executed, tmp_path):
    runs, _, _, folder = executed
    place = runs[0].folder.parent.relative_to(folder).as_posix()
    settings = {**TINY["run"]["settings"], "mirror_steps": 11}
    other, _ = tiny_runs(TINY, folder, settings=settings, folder=place)
    with pytest.raises(ConfigurationError, match=r"mirror_steps 10, not 11.*delete"):
        _is_finished(other)
    study = load_study({**TINY, "run": {**TINY["run"], "settings": settings, "folder": place}})
    with pytest.raises(ArtefactError, match=r"no run came to its end.*tiny, seed 0: Config"):
        run_study(study, jobs=1, runs_dir=folder, out=tmp_path, say=lambda line: None)


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_an_executor_that_is_not_installed_names_its_extra(name, package, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"pip install '\.\[{name}\]'$"):
        execute(tiny_runs(TINY, tmp_path), jobs=1, say=print, executor=EXECUTORS[name])


def task_runs(folder: Path, **axes: Any) -> tuple[Run, ...]:
    settings = {"evaluate_every": 50, "checkpoint_every": 20}
    learn = {"goal": "room1", "steps": 100, "settings": settings}
    run = {
        "env": "rover/TwoRooms-v0",
        "env_kwargs": {"observation": "onehot"},
        "steps": 50,
        "seeds": [0],
        "learn": learn,
    }
    study = load_study({"name": "tasks", "title": "Tasks", "run": run, "axes": {"start": axes}})
    return tuple(run for case in study.cases() for run in case.runs(folder))


@pytest.mark.filterwarnings("ignore::rover.errors.RoverWarning")
def test_tasks_start_from_pretraining_that_is_made_first_and_once(tmp_path):
    wrong = {"agent": "rnd", "settings": {"no_such_setting": 1}}
    runs = task_runs(tmp_path, online={"agent": "random"}, wrong=wrong)
    for way in ({"offline": True}, {"algorithm": "plan"}):
        learn = Learning(goal="room1", steps=20, **way)
        runs += runs[0].case.model_copy(update={"learn": learn}).runs(tmp_path)
    assert {runs[i].source.folder for i in (0, 2, 3)} == {runs[0].source.folder}
    _bring_to_end(runs[0].source)
    runs[2].folder.mkdir(parents=True)
    lines: list[str] = []
    _, failures = execute(runs, jobs=1, say=lines.append)
    assert [run.name for run in runs if run.folder in failures] == ["wrong, seed 0"]
    assert "which it starts from, failed" in failures[runs[1].folder]
    assert any(
        "FAILED: ConfigurationError: " in line and "no_such_setting" in line for line in lines
    )
    assert all(_is_finished(run) for run in (runs[0], runs[2], runs[3]))
    kinds = [read_run_config(runs[i].folder).kind for i in (0, 2, 3)]
    assert kinds == ["finetune", "offline", "adapt"]


def assert_bits_of_local_runs(runs: tuple[Run, ...], folder: Path) -> None:
    """Also of those that are made here without a break."""
    for made, here in zip(runs, tiny_runs(TINY, folder), strict=True):
        assert _work(here, {}) is None
        names = ("metrics.jsonl", "summary.json", "policy.safetensors", "buffer.safetensors")
        assert_same(made.folder, here.folder, *names)


def test_jobs_of_submitit_have_the_bits_of_local_runs(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr(executors, "_CLUSTER", "local")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runs = tiny_runs(TINY, tmp_path / "jobs")
    finished, failures = execute(runs, jobs=2, say=print, executor=EXECUTORS["slurm"])
    assert (finished, failures) == (list(runs), {})
    assert_bits_of_local_runs(runs, tmp_path / "local")
    assert (tmp_path / "state/rover/slurm").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(shutil.which("sbatch") is not None, reason="Slurm is here")
def test_a_machine_without_slurm_is_named(tmp_path):
    pytest.importorskip("submitit")
    with pytest.raises(ConfigurationError, match="Slurm is not on this machine"):
        EXECUTORS["slurm"].open(1)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_tasks_of_ray_have_the_bits_of_local_runs(tmp_path):
    pytest.importorskip("ray")
    runs = tiny_runs(TINY, tmp_path / "ray")
    finished, _ = execute(runs, jobs=2, say=print, executor=_RayConfig())
    assert finished == list(runs)
    assert_bits_of_local_runs(runs, tmp_path / "local")
