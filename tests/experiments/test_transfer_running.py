"""Runs of the transfer experiments that were interrupted, or that another process is at."""

from pathlib import Path

import pytest

from rover.errors import StorageError
from rover.experiments.transfer.rows import TWO_ROOMS, TransferRow
from rover.experiments.transfer.running import TransferRun, make_runs
from rover.finetuning import finetuning
from rover.storage import RunLock, read_json

ROW = TransferRow(
    "online",
    TWO_ROOMS,
    "room1",
    "scratch",
    "ddpg",
    (0,),
    100,
    overrides=(("evaluate_every", 50), ("checkpoint_every", 20)),
)


def run_of(row: TransferRow, folder: Path) -> TransferRun:
    (run,) = make_runs([row], folder, folder)
    return run


def stop_half_way(run: TransferRun, monkeypatch: pytest.MonkeyPatch) -> None:
    step = finetuning.Finetuning._step

    def interrupt(self: finetuning.Finetuning) -> None:
        if self.num_timesteps == 70:
            raise KeyboardInterrupt
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(finetuning.Finetuning, "_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.execute()


def test_an_interrupted_run_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = (run_of(ROW, tmp_path / name) for name in ("whole", "stopped"))
    whole.execute()
    stop_half_way(stopped, monkeypatch)
    assert not stopped.is_finished
    stopped.execute()
    assert stopped.is_finished
    for name in ("metrics.jsonl", "policy.safetensors"):
        assert (whole.folder / name).read_bytes() == (stopped.folder / name).read_bytes()
    assert read_json(stopped.folder / "summary.json")["steps"] == 100


def test_a_run_that_another_process_is_at_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(ROW, tmp_path)
    stop_half_way(run, monkeypatch)
    before = sorted(path.name for path in run.folder.rglob("*"))
    with RunLock(run.folder), pytest.raises(StorageError, match="is in use by process"):
        run.execute()
    assert sorted(path.name for path in run.folder.rglob("*")) == before
