"""Files that were altered and sealed anew, and folders that lost a part."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from grid_runs import begin, checkpoints, list_checkpoints

from rover import Rover
from rover.errors import ArtefactError, RoverError, StorageError
from rover.storage import read_sealed, write_sealed

pytestmark = pytest.mark.filterwarnings("ignore")  # of environments and settings made up


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin(folder)
    return folder


@pytest.fixture
def fresh(whole: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of the run without its manifest, as of a run that was stopped."""

    def make() -> Path:
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / "manifest.json").unlink()
        return folder

    return make


@pytest.mark.parametrize(
    ("place", "form", "words"),
    [
        (("warm_start", "dual"), lambda dual: dual[:, None], "as dual, but"),
        (("warm_start", "step_size"), lambda size: -size, "step size -"),
        (("policy", "weights"), lambda weights: weights[:-1], "weights has shape|as weights, but"),
        (("policy", "weights"), lambda weights: weights[:, :-1], "3 actions"),
        (("policy", "weights"), lambda weights: weights * torch.nan, "weights is not finite"),
    ],
)
def test_a_checkpoint_is_checked_as_a_whole_before_anything_is_written(
    place: tuple[str, str], form: Any, words: str, fresh: Callable[[], Path]
) -> None:
    folder = fresh()
    file = checkpoints(folder)[-1]
    content = read_sealed(file, kind="checkpoint")
    part = content["state"]["content"]["agent"][place[0]]
    part[place[1]] = form(part[place[1]])
    write_sealed(file, content, kind="checkpoint")
    list_checkpoints(folder)
    shutil.copyfile(file, file.with_name("step-000000001.safetensors"))  # as a kill may leave
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RoverError, match=words):
        Rover.resume(folder).learn(1000)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_whose_checkpoints_were_removed_is_left_as_it_is(
    fresh: Callable[[], Path],
) -> None:
    folder = fresh()
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "metrics.jsonl").read_text()
    with pytest.raises(ArtefactError, match="has no checkpoints to go on from"):
        Rover.resume(folder).finish()
    assert (folder / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize("name", ["summary.json", "buffer.safetensors"])
def test_a_folder_in_the_place_of_a_file_is_noticed_before_the_run_goes_on(
    name: str, fresh: Callable[[], Path]
) -> None:
    folder = fresh()
    (folder / name).unlink()
    (folder / name).mkdir()
    before = (folder / "config.json").read_text()
    with pytest.raises(StorageError, match=f"{name} is a folder, where a run has a file; move it"):
        Rover.resume(folder).learn(1000)
    assert (folder / "config.json").read_text() == before
