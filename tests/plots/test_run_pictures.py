from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from run_folders import (
    finite_arrays,
    finite_records,
    grid_arrays,
    unknown_records,
    vector_arrays,
    write_run,
)

from rover.errors import ArtefactError, ConfigurationError, RoverWarning, StorageError
from rover.plots import image_bytes, make_figure, plot_run, read_run_files

CURVES = ["learning_curves", "sink_mass"]
BEGINNINGS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


def names(paths: list[Path]) -> list[str]:
    return [path.stem for path in paths]


@pytest.fixture
def grid_run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", records=finite_records(), arrays=grid_arrays())


def test_grid_world_has_every_picture(grid_run: Path) -> None:
    written = plot_run(grid_run, dpi=40)
    assert names(written) == [*CURVES, "trajectories", "occupancy", "policy", "visits"]
    for path in written:
        assert path.parent == grid_run / "pictures"
        assert path.read_bytes().startswith(BEGINNINGS["png"])
    assert sorted(path.name for path in (grid_run / "pictures").iterdir()) == sorted(
        path.name for path in written
    )


def test_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=[], arrays=vector_arrays())
    first = [path.read_bytes() for path in plot_run(run, dpi=40)]
    second = [path.read_bytes() for path in plot_run(run, dpi=40)]
    assert first == second


def test_every_format_is_written(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=unknown_records(), arrays=None)
    written = plot_run(run, formats=("png", "svg", "pdf"), dpi=40)
    assert len(written) == 6
    for path in written:
        assert path.read_bytes().startswith(BEGINNINGS[path.suffix[1:]])


def test_finite_problem_without_a_map_has_bars(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", records=finite_records(), arrays=finite_arrays(16), env_id="FrozenLake-v1"
    )
    assert names(plot_run(run, dpi=40)) == [*CURVES, "occupancy"]


@pytest.mark.parametrize("d", [1, 2, 4])
def test_vectors_have_a_phase_plane(tmp_path: Path, d: int) -> None:
    run = write_run(
        tmp_path / "run",
        records=unknown_records(),
        arrays=vector_arrays(d),
        env_id={1: None, 2: "MountainCar-v0", 4: "CartPole-v1"}[d],
    )
    assert names(plot_run(run, dpi=40)) == [*CURVES, "phase_plane"]


def test_vectors_without_rollouts(tmp_path: Path) -> None:
    arrays = vector_arrays()
    del arrays["rollouts"]
    run = write_run(tmp_path / "run", records=[], arrays=arrays)
    assert names(plot_run(run, dpi=40)) == ["phase_plane"]


def test_images_of_unknown_states_have_curves(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=unknown_records(), arrays=None)
    assert names(plot_run(run, dpi=40)) == CURVES


def test_method_without_a_sink_has_no_such_picture(tmp_path: Path) -> None:
    lines = [{k: v for k, v in line.items() if k != "sink_mass"} for line in finite_records()]
    run = write_run(tmp_path / "run", records=lines, arrays=None, method="rnd")
    assert names(plot_run(run, dpi=40)) == ["learning_curves"]


def test_stopped_run_has_curves_and_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=finite_records(), arrays=None, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step":999')  # what a killed process leaves
    with pytest.warns(RoverWarning, match="has not ended.*drawing the curves only; continue it"):
        assert names(plot_run(run, dpi=40)) == CURVES


def test_finished_run_does_not_warn(grid_run: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot_run(grid_run, dpi=40)


def test_nothing_to_draw(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=[], arrays=None, finished=False)
    with pytest.raises(ArtefactError, match="nothing to draw: the run was stopped before its fir"):
        plot_run(run)
    assert not (run / "pictures").exists()


def test_no_run(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds no run: it has no config\.json"):
        plot_run(tmp_path)


def test_newer_run_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", records=[], arrays=None, format=2, version="9.9")
    with pytest.raises(ArtefactError, match=r"format 2, written by rover 9\.9; .* upgrade"):
        plot_run(run)


def test_damaged_configurations_are_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", records=[], arrays=None, settings={})
    with pytest.raises(ArtefactError, match=r"config\.json lacks 'discount'; restore it"):
        plot_run(run)
    run = write_run(tmp_path / "b", records=[], arrays=None, seed="three")
    with pytest.raises(ArtefactError, match="is not the configuration of a run"):
        plot_run(run)
    run = write_run(tmp_path / "c", records=[], arrays=None, format="1")
    with pytest.raises(ArtefactError, match="is not the configuration of a run"):
        plot_run(run)
    (run / "config.json").write_text("{")
    with pytest.raises(ArtefactError, match=r"config\.json is not JSON"):
        plot_run(run)


def test_damaged_files_are_named(grid_run: Path) -> None:
    evaluation = grid_run / "evaluation.h5"
    evaluation.write_bytes(evaluation.read_bytes()[:-10])
    with pytest.raises(ArtefactError, match=r"evaluation\.h5 is truncated"):
        plot_run(grid_run)
    evaluation.unlink()
    (grid_run / "metrics.jsonl").write_text('nonsense\n{"step":1}\n')
    with pytest.raises(ArtefactError, match=r"metrics\.jsonl, line 1, is not JSON"):
        plot_run(grid_run)
    (grid_run / "summary.json").write_text('{"steps":"many"}')
    with pytest.raises(ArtefactError, match=r"summary\.json: steps is 'many', not a number"):
        plot_run(grid_run)
    (grid_run / "summary.json").write_text("[]")
    with pytest.raises(ArtefactError, match=r"summary\.json is not a JSON object"):
        plot_run(grid_run)


def test_incomplete_arrays_are_refused(tmp_path: Path) -> None:
    arrays = grid_arrays()
    del arrays["free"], arrays["trajectories"]
    run = write_run(tmp_path / "a", records=[], arrays=arrays)
    with pytest.raises(ArtefactError, match="lacks the arrays trajectories, free"):
        plot_run(run)
    arrays = grid_arrays()
    arrays["occupancy"][2] = np.nan
    run = write_run(tmp_path / "b", records=[], arrays=arrays)
    with pytest.raises(ArtefactError, match=r"evaluation\.h5: occupancy holds NaN"):
        plot_run(run)


def test_arrays_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "run", records=[], arrays=grid_arrays() | {"policy_probs": np.ones((9, 3)) / 3}
    )
    with pytest.raises(ArtefactError, match="do not fit together; picture policy: policy_probs"):
        plot_run(run, dpi=40)


def test_unknown_output_is_refused_before_anything_is_drawn(grid_run: Path) -> None:
    with pytest.raises(ConfigurationError, match="no picture format 'gif'; use one or more of png"):
        plot_run(grid_run, formats=("png", "gif"))
    with pytest.raises(ConfigurationError, match="no picture format ''"):
        plot_run(grid_run, formats=())
    with pytest.raises(ConfigurationError, match="dpi is 5; use 30 to 1200"):
        plot_run(grid_run, dpi=5)
    assert not (grid_run / "pictures").exists()
    with pytest.raises(ConfigurationError, match="no picture format 'gif'; use one of png"):
        image_bytes(make_figure(1, 1), "gif", dpi=50)
    with pytest.raises(ConfigurationError, match="dpi is 9000"):
        image_bytes(make_figure(1, 1), "png", dpi=9000)


def test_pictures_that_cannot_be_written(grid_run: Path) -> None:
    (grid_run / "pictures").write_text("in the way")
    with pytest.raises(StorageError, match="is a file, not a folder"):
        plot_run(grid_run)


def test_read_run_files_says_what_the_run_is(grid_run: Path) -> None:
    run = read_run_files(grid_run)
    assert (run.is_finite, run.is_grid, run.is_vector, run.is_complete) == (True, True, False, True)
    assert (run.method, run.seed, run.discount) == ("rover", 3, 0.9)
    assert len(run.records) == 4


def test_drawing_touches_no_global_state_of_matplotlib() -> None:
    program = (
        "import sys, rover; assert 'matplotlib' not in sys.modules; import rover.plots;"
        "import matplotlib as m; before = m.rcParams.copy();"
        "f = rover.plots.make_figure(2, 2); rover.plots.draw_map(f.subplots(),"
        "__import__('numpy').ones((2, 2), bool)); rover.plots.image_bytes(f, 'png', dpi=50);"
        "assert 'matplotlib.pyplot' not in sys.modules; assert m.rcParams.copy() == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
