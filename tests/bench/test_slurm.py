"""A sweep on a running Slurm whose jobs and whose own process end early: ``make test-slurm``."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import start, until
from short_runs import assert_bits_of_local_runs, runs_of, short_study, sittings

from rover_bench.study import Run

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif("ROVER_TEST_SLURM" not in os.environ, reason="needs Slurm: make test-slurm"),
]

SETTINGS = ("runs_per_job=8", "minutes=10", "megabytes=1500")
WORDS = ["-m", "rover", "sweep", "short.toml", "--out", "pages", "--executor", "slurm"]
WORDS += [word for setting in SETTINGS for word in ("--set", setting)]


def slurm(*words: str) -> str:
    """What a command of Slurm says; nothing if it is refused."""
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    except OSError as error:
        pytest.fail(f"{error}; install Slurm, start munged, slurmctld and slurmd; see `sinfo`")
    return "" if done.returncode else done.stdout or "done"


def in_mid_run(runs: Sequence[Run]) -> bool:
    """Whether one of the runs has a checkpoint and goes on."""
    return any(
        next(run.folder.glob("checkpoints/step-*"), None)
        and not (run.folder / "manifest.json").exists()
        for run in runs
    )


@pytest.fixture
def sweep(tmp_path, monkeypatch):
    """Starts the sweep; what is left of it, Slurm's jobs too, ends with the test."""
    assert "idle" in slurm("sinfo"), "start munged, slurmctld and slurmd, until sinfo says idle"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    started: list[subprocess.Popen[str]] = []

    def begin() -> subprocess.Popen[str]:
        started.append(start(*WORDS))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate()
    for array in arrays():
        slurm("scancel", array)


def arrays() -> list[str]:
    """The arrays that were sent to Slurm, the first one first."""
    files = Path("state/rover/slurm").glob(".submission_file_*")
    return sorted((file.readlink().name.split("_")[0] for file in files), key=int)


def test_a_sweep_loses_jobs_and_its_own_process_and_ends_in_the_same_bits(sweep, tmp_path):
    study = short_study(40, steps=400)
    Path("short.toml").write_text(study)
    runs = runs_of(study, Path("runs"))
    parts = [runs[first : first + 8] for first in range(0, 40, 8)]
    first = sweep()
    until(lambda: in_mid_run(parts[0]), 300.0)
    (array,) = arrays()
    assert slurm("scancel", f"{array}_0")
    until(lambda: in_mid_run(parts[1]), 300.0)
    # As Slurm does before the time limit; scancel itself may wait for a job that ends at once.
    signal = subprocess.Popen(("scancel", "--signal=USR2", f"{array}_1"))
    until(lambda: in_mid_run(parts[2]), 300.0)
    signal.kill()
    signal.wait()
    assert slurm("scontrol", "requeue", f"{array}_2")
    first.kill()
    for k in (1, 2):  # they would wait for two minutes
        until(lambda k=k: slurm("scontrol", "update", f"JobId={array}_{k}", "StartTime=now") != "")
    second = sweep()
    out, err = second.communicate(timeout=600)
    assert second.returncode == 0, err
    assert "[40/40] " in out
    # nothing that was finished is made anew, and jobs outlived the process that had sent them
    counts = [sum(sittings(run) - 1 for run in part) for part in parts]
    assert max(counts[:3]) == 1
    assert counts[3:] == [0, 0]
    assert len(arrays()) == 2
    assert_bits_of_local_runs(runs, study, tmp_path / "local")
