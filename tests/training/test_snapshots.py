"""Which policies on a run's way are kept, and that a resumed run keeps the same ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from grid_runs import SETTINGS, make_grid
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.coverage.agent import Rover
from rover.storage import read_sealed
from rover.training.measures import MAX_SNAPSHOTS, RECORDED_SNAPSHOTS
from rover.training.measures import _Snapshots as Snapshots


def episodes(step: int) -> np.ndarray:
    """Two episodes of three steps that say which step they were taken after."""
    return np.full((2, 4), step % 300, np.int64)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 400))
def test_first_and_last_are_kept_and_the_others_lie_evenly(n_updates: int) -> None:
    snapshots = Snapshots()
    for number in range(1, n_updates + 1):
        snapshots.append(50 * number, episodes(50 * number))
        assert len(snapshots.state()["steps"]) <= MAX_SNAPSHOTS + 1
    recorded = snapshots.record()
    steps = recorded["snapshot_steps"]
    assert len(steps) == min(n_updates, RECORDED_SNAPSHOTS)
    assert steps[0] == 50
    assert steps[-1] == 50 * n_updates
    for step, taken in zip(steps.tolist(), recorded["snapshot_trajectories"], strict=True):
        np.testing.assert_array_equal(taken, episodes(step))
    if n_updates >= RECORDED_SNAPSHOTS:
        gaps = np.diff(steps) / (steps[-1] - steps[0])
        assert (np.diff(steps) > 0).all()
        assert gaps.max() <= 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 100), st.integers(0, 60))
def test_restored_snapshots_go_on_as_if_nothing_had_happened(before: int, after: int) -> None:
    whole, restored = Snapshots(), Snapshots()
    assert whole.record() == {}
    for step in range(1, before + 1):
        whole.append(step, episodes(step))
    restored.load_state(whole.state())
    for step in range(before + 1, before + after + 1):
        whole.append(step, episodes(step))
        restored.append(step, episodes(step))
    assert whole.state()["steps"] == restored.state()["steps"]
    expected, found = whole.record(), restored.record()
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name])


@pytest.mark.slow
def test_a_resumed_run_has_the_snapshots_of_one_that_was_never_stopped(
    finished: Path, tmp_path: Path
) -> None:
    stopped = Rover(make_grid(), seed=1, run_dir=tmp_path / "stopped", **SETTINGS)
    stopped.learn(200, callback=lambda record: record["step"] < 125)
    Rover.resume(tmp_path / "stopped", env=make_grid()).learn(75)
    whole, resumed = (
        read_sealed(folder / "evaluation.safetensors", kind="evaluation")
        for folder in (finished, tmp_path / "stopped")
    )
    assert whole.keys() == resumed.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, resumed[name])
    assert whole["snapshot_steps"].tolist() == [25, 75, 150, 200]
    assert whole["snapshot_trajectories"].shape == (4, 20, 26)
