"""Files of others whose digests fit: each is refused in one line, or harmless."""

from __future__ import annotations

import copy
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from grid_runs import begin

import rover
from rover import Rover
from rover.baselines import make_agent
from rover.data import Buffer
from rover.errors import ArtefactError, RoverError, StorageError
from rover.plots import RunFiles
from rover.storage import read_json, read_sealed, write_json, write_sealed
from rover.training.run_folder import read_run_config

pytestmark = pytest.mark.filterwarnings("ignore")  # of environments and settings made up


def use_policy(path: Path) -> None:
    policy = rover.load_policy(path)
    if policy.observation_shape == ():
        policy.probs(np.arange(3))


def resume(folder: Path) -> None:
    Rover.resume(folder).learn(1)


def draw(folder: Path) -> None:
    run = RunFiles.read(folder)
    for key in ("coverage", "optimality_ratio"):
        run.series(key)
    _ = run.agent, run.environment, run.settings
    if "trajectories" in run.arrays:
        run.sampled_occupancy()


# How each file of a run is read. Without a manifest, as of a run that was stopped.
SEALED: dict[str, tuple[str, Callable[[Path], object]]] = {
    "policy.safetensors": ("policy", lambda folder: use_policy(folder / "policy.safetensors")),
    "skills.safetensors": ("policy", lambda folder: use_policy(folder / "skills.safetensors")),
    "buffer.safetensors": ("buffer", lambda folder: Buffer.load(folder / "buffer.safetensors")),
    "evaluation.safetensors": ("evaluation", draw),
    "checkpoints/step-000000100.safetensors": ("checkpoint", resume),
}
PLAIN: dict[str, Callable[[Path], object]] = {
    "config.json": resume,
    "summary.json": draw,
    "manifest.json": read_run_config,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("forged") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begin(folder)
        small = {"learner": {"hidden_sizes": [4]}, "intrinsic": {"n_skills": 3}}
        agent = make_agent("smm", "rover/Corridor-v0", env_kwargs={"length": 5}, **small)
        agent.policy.save(folder / "skills.safetensors")
    return folder


@pytest.fixture
def fresh(whole: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Makes a copy of the run, in which nothing vouches for the file of a name."""

    def make(name: str) -> Path:
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        if name != "manifest.json":
            (folder / "manifest.json").unlink()
        return folder

    return make


def assert_harmless(read: Callable[[Path], object], folder: Path) -> None:
    """Check that it is read, or that one line says why it is not."""
    text = ""
    try:
        read(folder)
    except RoverError as error:
        text = str(error)
    assert "\n" not in text
    assert len(text) < 2000


MANY = [1] * 200_000
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 10**18, 0.5, 1e308, "x", "", [], {}, {"a": 1}, [30_000, 30_000], MANY
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a nested value."""
    found = [path] if path else []
    if isinstance(value, dict):
        items = list(value.items())
    else:
        items = list(enumerate(value[:3])) if isinstance(value, list) else []
    return found + [inner for key, item in items for inner in places(item, (*path, key))]


def forge(content: Any, rng: np.random.Generator) -> Any:
    """`content` with one of its values replaced, changed or left out."""
    forged = copy.deepcopy(content)
    among = places(forged)
    *path, last = among[rng.integers(len(among))]
    owner = forged
    for key in path:
        owner = owner[key]
    value, kind = owner[last], rng.integers(4)
    is_tensor = isinstance(value, torch.Tensor)
    if kind == 0:
        del owner[last]
    elif kind < 3 and (is_tensor or isinstance(value, np.ndarray)):
        array = value.numpy() if is_tensor else value
        forms = [array[None], array.astype(np.float16), array.ravel()[:0], array.astype(int) - 7]
        if array.dtype.kind == "f":
            forms.append(array * np.nan)
        form = np.ascontiguousarray(forms[rng.integers(len(forms))])
        owner[last] = torch.from_numpy(form) if is_tensor else form
    else:
        owner[last] = copy.deepcopy(WRONG[rng.integers(len(WRONG))])
    return forged


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
    place: tuple[str, str], form: Any, words: str, fresh: Callable[[str], Path]
) -> None:
    folder = fresh("")
    file = sorted((folder / "checkpoints").iterdir())[-1]
    content = read_sealed(file, kind="checkpoint")
    part = content["state"]["content"]["agent"][place[0]]
    part[place[1]] = form(part[place[1]])
    write_sealed(file, content, kind="checkpoint")
    shutil.copyfile(file, file.with_name("step-000000001.safetensors"))  # as a kill may leave
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(RoverError, match=words):
        Rover.resume(folder).learn(1000)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_run_whose_checkpoints_were_removed_is_left_as_it_is(
    fresh: Callable[[str], Path],
) -> None:
    folder = fresh("")
    shutil.rmtree(folder / "checkpoints")
    before = (folder / "metrics.jsonl").read_text()
    with pytest.raises(ArtefactError, match="has no checkpoints to go on from"):
        Rover.resume(folder).finish()
    assert (folder / "metrics.jsonl").read_text() == before


def test_lines_that_were_broken_behind_the_checkpoint_change_nothing(
    fresh: Callable[[str], Path],
) -> None:
    folder = fresh("")
    file = sorted((folder / "checkpoints").iterdir())[-1]
    shutil.copyfile(file, file.with_name("step-000000001.safetensors"))  # as a kill may leave
    with (folder / "metrics.jsonl").open("a") as lines:
        lines.write('{"step"\n{}\n')
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ArtefactError, match="is not JSON"):
        Rover.resume(folder).learn(1000)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


@pytest.mark.parametrize("name", ["summary.json", "buffer.safetensors"])
def test_a_folder_in_the_place_of_a_file_is_noticed_before_the_run_goes_on(
    name: str, fresh: Callable[[str], Path]
) -> None:
    folder = fresh("")
    (folder / name).unlink()
    (folder / name).mkdir()
    before = (folder / "config.json").read_text()
    with pytest.raises(StorageError, match=f"{name} is a folder, where a run has a file; move it"):
        Rover.resume(folder).learn(1000)
    assert (folder / "config.json").read_text() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SEALED, "config.json", "summary.json", "manifest.json"])
def test_content_that_was_changed_and_sealed_anew(
    name: str, fresh: Callable[[str], Path], whole: Path
) -> None:
    rng = np.random.default_rng(1)
    kind, read = SEALED[name] if name in SEALED else ("", PLAIN[name])
    content = read_sealed(whole / name, kind=kind) if kind else read_json(whole / name)
    for _ in range(15):
        folder, forged = fresh(name), forge(content, rng)
        if kind:
            write_sealed(folder / name, forged, kind=kind)
        else:
            write_json(folder / name, forged)
        assert_harmless(read, folder)
        if name == "config.json":
            assert_harmless(draw, folder)
