"""Runs on Ray and as jobs of Slurm, in the bits of local ones."""

import shutil

import pytest
from short_runs import assert_bits_of_local_runs, runs_of, short_study

from rover.errors import ConfigurationError
from rover_bench import executors
from rover_bench.execute import execute
from rover_bench.executors import EXECUTORS, _RayConfig

pytestmark = pytest.mark.slow


def test_jobs_of_submitit_have_the_bits_of_local_runs(tmp_path, monkeypatch):
    pytest.importorskip("submitit")
    monkeypatch.setattr(executors, "_CLUSTER", "local")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    study = short_study(2, steps=60)
    runs = runs_of(study, tmp_path / "jobs")
    finished, failures = execute(runs, jobs=2, say=print, executor=EXECUTORS["slurm"])
    assert (finished, failures) == (list(runs), {})
    assert_bits_of_local_runs(runs, study, tmp_path / "local")
    assert (tmp_path / "state/rover/slurm").stat().st_mode & 0o077 == 0


@pytest.mark.skipif(shutil.which("sbatch") is not None, reason="Slurm is here")
def test_a_machine_without_slurm_is_named(tmp_path):
    pytest.importorskip("submitit")
    with pytest.raises(ConfigurationError, match="Slurm is not on this machine"):
        EXECUTORS["slurm"].open(1)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_tasks_of_ray_have_the_bits_of_local_runs(tmp_path):
    pytest.importorskip("ray")
    study = short_study(2, steps=60)
    runs = runs_of(study, tmp_path / "ray")
    finished, _ = execute(runs, jobs=2, say=print, executor=_RayConfig())
    assert finished == list(runs)
    assert_bits_of_local_runs(runs, study, tmp_path / "local")
    with pytest.raises(ConfigurationError, match=r"no Ray cluster answers at 127.0.0.1:9: "):
        execute(
            runs_of(study, tmp_path / "other"),
            jobs=2,
            say=print,
            executor=_RayConfig(address="127.0.0.1:9"),
        )
