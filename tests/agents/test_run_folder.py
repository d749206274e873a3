"""The folder of a run: what is in it, what is refused, and what a full disk leaves."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_envs import ENVIRONMENTS, QUICK, numbered_place

import rover
from rover import Rover
from rover.artefacts import JsonLines, read_arrays, read_tensors, write_tensors
from rover.envs import GridWorld
from rover.errors import ArtefactError, ConfigurationError, ReplayMismatchError, StorageError

SETTINGS: dict[str, Any] = {**QUICK, "checkpoint_every": 50}
GRID = {"layout": "S..#..\n......\n...#..", "horizon": 25}

KEYS = {
    "steps",
    "states_total",
    "states_seen",
    "steps_to_full_coverage",
    "steps_to_95_in_20_episodes",
    "objective",
    "optimum",
    "optimality_ratio",
    "uniform_ratio",
    "sink_mass",
    "wall_seconds",
    "seconds",
}
UNKNOWN_STATES = KEYS - {"steps", "sink_mass", "wall_seconds", "seconds"}


def make_grid() -> gym.Env[Any, Any]:
    return gym.make("rover/Grid-v0", **GRID)


def begin(folder: Path, steps: int = 100, **changes: Any) -> Rover:
    return Rover(make_grid(), seed=1, run_dir=folder, **{**SETTINGS, **changes}).learn(steps)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "checkpoints").iterdir())


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "deep" / "run"
    begin(folder, 200)
    return folder


@pytest.fixture
def copy_of_finished(finished: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    for file in finished.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(finished)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    return folder


def test_the_files_of_a_finished_run(finished: Path) -> None:
    names = {path.name for path in finished.iterdir()} - {".lock"}
    assert names == {
        *("config.json", "metrics.jsonl", "summary.json", "policy.safetensors"),
        *("buffer.h5", "evaluation.h5", "checkpoints"),
    }
    assert [p.name for p in checkpoints(finished)] == [
        "step-000000150.safetensors",
        "step-000000200.safetensors",
    ]
    lines = JsonLines.read(finished / "metrics.jsonl").records
    assert [line["step"] for line in lines] == list(range(25, 201, 25))
    for line in lines:
        assert {"coverage", "objective", "optimality_ratio", "sink_mass", "states_seen"} <= {*line}
        assert line["optimality_ratio"] >= 1 - 1e-6


def test_the_summary(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    assert {*summary} >= KEYS
    assert summary["steps"] == 200
    assert summary["states_total"] == 16
    assert 0 < summary["states_seen"] <= 16
    assert summary["optimality_ratio"] == pytest.approx(summary["objective"] / summary["optimum"])
    assert {"collect", "represent", "estimate", "improve", "evaluate"} <= {*summary["seconds"]}
    assert 0 < sum(summary["seconds"].values()) <= summary["wall_seconds"] * 1.01
    lines = JsonLines.read(finished / "metrics.jsonl").records
    enough = [line["step"] for line in lines if line["coverage"] >= 0.95]
    assert summary["steps_to_95_in_20_episodes"] == (enough[0] if enough else None)
    everything = summary["steps_to_full_coverage"]
    if everything is not None:
        assert all((line["states_seen"] == 16) == (line["step"] >= everything) for line in lines)


def test_steps_to_full_coverage_is_the_step_at_which_the_last_state_was_seen(
    finished: Path,
) -> None:
    arrays = read_arrays(finished / "buffer.h5", kind="buffer").arrays
    seen = {int(arrays["starts"][0])}
    expected = None
    for step, state in enumerate(arrays["successors"].tolist(), start=1):
        seen.add(state)
        if len(seen) == 16 and expected is None:
            expected = step
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["steps_to_full_coverage"] == expected


def test_the_configuration_is_complete(finished: Path) -> None:
    config = json.loads((finished / "config.json").read_text())
    assert (config["seed"], config["preset"], config["method"]) == (1, "default", "rover")
    assert (config["env_id"], config["env_kwargs"]["horizon"]) == ("rover/Grid-v0", 25)
    assert config["total_timesteps"] == 200
    assert config["version"] == rover.__version__
    assert {*config["settings"]} == {*rover.RoverConfig.model_fields}
    assert config["settings"]["representation"] == "identity"


def test_where_the_states_are_unknown_the_keys_are_null(tmp_path: Path) -> None:
    env = numbered_place()
    Rover(env, seed=0, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {key for key in KEYS if summary[key] is None} == UNKNOWN_STATES


def test_the_policy_and_the_buffer_are_those_of_the_agent(tmp_path: Path) -> None:
    agent = begin(tmp_path / "run", 75)
    policy = rover.load_policy(tmp_path / "run" / "policy.safetensors")
    states = np.arange(16)
    np.testing.assert_array_equal(policy.probs(states), agent.policy.probs(states))
    stored = read_arrays(tmp_path / "run" / "buffer.h5", kind="buffer").arrays
    for name, values in agent.buffer.arrays().items():
        np.testing.assert_array_equal(stored[name], values)
    assert len(agent.buffer) == agent.num_timesteps == 75


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Rover(make_grid(), **SETTINGS).learn(50)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_changes_no_bit(finished: Path) -> None:
    agent = Rover(make_grid(), seed=1, **SETTINGS).learn(200)
    stored = rover.load_policy(finished / "policy.safetensors")
    np.testing.assert_array_equal(agent.policy.probs(np.arange(16)), stored.probs(np.arange(16)))


def test_an_existing_run_is_left_alone(copy_of_finished: Path) -> None:
    before = {p: p.read_bytes() for p in copy_of_finished.rglob("*") if p.is_file()}
    with pytest.raises(ConfigurationError, match=r"already holds a run; continue .*rover resume"):
        begin(copy_of_finished)
    assert {p: p.read_bytes() for p in before} == before
    (copy_of_finished / "config.json").unlink()
    with pytest.raises(ConfigurationError, match=r"no config.json but holds metrics.jsonl"):
        begin(copy_of_finished)
    (copy_of_finished / "metrics.jsonl").unlink()
    with pytest.raises(
        ConfigurationError, match=r"but holds step-000000150.safetensors of another"
    ):
        begin(copy_of_finished)


def test_a_finished_run_is_complete(copy_of_finished: Path) -> None:
    agent = Rover.resume(copy_of_finished)
    assert (agent.num_timesteps, agent.remaining_timesteps) == (200, 0)
    stored = rover.load_policy(copy_of_finished / "policy.safetensors")
    states = np.arange(16)
    np.testing.assert_array_equal(agent.policy.probs(states), stored.probs(states))
    assert agent.summary()["optimality_ratio"] is not None


def test_learning_twice_is_learning_once(finished: Path, tmp_path: Path) -> None:
    agent = begin(tmp_path / "run", 110).learn(90)
    assert agent.num_timesteps == 200
    for name in ("policy.safetensors", "buffer.h5", "metrics.jsonl", "config.json"):
        assert (tmp_path / "run" / name).read_bytes() == (finished / name).read_bytes(), name


def test_a_run_that_was_extended_is_resumed_to_its_new_end(tmp_path: Path) -> None:
    agent = begin(tmp_path / "run", 50)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(100, callback=interrupt)
    again = Rover.resume(tmp_path / "run")
    assert (again.num_timesteps, again.remaining_timesteps) == (50, 100)


def interrupt(record: Any) -> None:
    raise KeyboardInterrupt


def test_the_callback_sees_every_line_and_can_stop_the_run(tmp_path: Path) -> None:
    seen: list[int] = []

    def stop_at_75(record: Any) -> bool:
        seen.append(record["step"])
        return record["step"] < 75

    agent = Rover(make_grid(), seed=1, run_dir=tmp_path / "run", **SETTINGS)
    agent.learn(200, callback=stop_at_75)
    assert seen == [25, 50, 75]
    assert agent.num_timesteps == 75
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 75
    assert (tmp_path / "run" / "policy.safetensors").exists()
    assert Rover.resume(tmp_path / "run").remaining_timesteps == 125


def test_resuming_something_else(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"holds no run: it has no config\.json"):
        Rover.resume(tmp_path)


def edit_config(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 99, "version": "9.1"}, "format 99, written by rover 9.1; .*upgrade rover-rl"),
        ({"method": "smm"}, "holds a run of 'smm', which Rover cannot continue"),
        ({"settings": {"new_setting": 1}}, "does not fit this version of rover: new_setting"),
        ({"seed": "one"}, "does not fit RunConfig: seed"),
        ({"surprise": 1}, "does not fit RunConfig: surprise"),
        ({"seed": 8}, "latest checkpoint is not of this run: it has another seed than config"),
    ],
    ids=["newer", "method", "settings", "type", "key", "seed"],
)
def test_a_configuration_that_does_not_fit(
    copy_of_finished: Path, changes: dict[str, Any], words: str
) -> None:
    edit_config(copy_of_finished, **changes)
    with pytest.raises(ArtefactError, match=words):
        Rover.resume(copy_of_finished)


def test_a_checkpoint_that_was_changed(copy_of_finished: Path) -> None:
    earlier, latest = checkpoints(copy_of_finished)
    content = bytearray(latest.read_bytes())
    content[-100] ^= 1
    latest.write_bytes(content)
    with pytest.raises(ArtefactError, match=f"altered.*delete it to resume from {earlier.name}"):
        Rover.resume(copy_of_finished)
    latest.write_bytes(content[:1000])
    with pytest.raises(ArtefactError, match=f"truncated.*delete it to resume from {earlier.name}"):
        Rover.resume(copy_of_finished)
    earlier.unlink()
    with pytest.raises(ArtefactError, match="truncated") as caught:
        Rover.resume(copy_of_finished)
    assert "delete it" not in str(caught.value)


def test_the_earlier_checkpoint_leads_to_the_same_bits(
    copy_of_finished: Path, finished: Path
) -> None:
    checkpoints(copy_of_finished)[1].unlink()
    agent = Rover.resume(copy_of_finished)
    assert agent.num_timesteps == 150
    agent.learn(agent.remaining_timesteps)
    for name in ("policy.safetensors", "buffer.h5", "metrics.jsonl"):
        assert (copy_of_finished / name).read_bytes() == (finished / name).read_bytes(), name


def test_a_checkpoint_of_another_kind_or_run(copy_of_finished: Path, tmp_path: Path) -> None:
    latest = checkpoints(copy_of_finished)[1]
    latest.write_bytes((copy_of_finished / "policy.safetensors").read_bytes())
    with pytest.raises(ArtefactError, match="policy"):
        Rover.resume(copy_of_finished)
    latest.write_bytes(b"\x80\x04\x95 not a checkpoint but a pickle")
    with pytest.raises(ArtefactError, match=str(latest)):
        Rover.resume(copy_of_finished)
    begin(tmp_path / "other", 50, discount=0.5)
    latest.write_bytes(checkpoints(tmp_path / "other")[-1].read_bytes())
    with pytest.raises(ArtefactError, match="not of this run: it has another settings"):
        Rover.resume(copy_of_finished)


def test_a_sealed_checkpoint_that_lacks_something(copy_of_finished: Path) -> None:
    latest = checkpoints(copy_of_finished)[1]
    stored = read_tensors(latest, kind="checkpoint")
    kept = {k: v for k, v in stored.tensors.items() if k != "method.policy.weights"}
    write_tensors(latest, kept, kind="checkpoint", metadata=stored.metadata)
    with pytest.raises(ArtefactError, match=r"does not fit this run: 'policy\.weights'"):
        Rover.resume(copy_of_finished)


def test_lost_metrics_are_noticed(copy_of_finished: Path) -> None:
    lines = (copy_of_finished / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (copy_of_finished / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    with pytest.raises(ArtefactError, match="has 3 records but 8 are to be kept"):
        Rover.resume(copy_of_finished).learn(25)


def test_the_environment_of_a_resumed_run_must_be_the_same(copy_of_finished: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"CartPole-v1 .* is not that of .*rover/Grid-v0"):
        Rover.resume(copy_of_finished, env=gym.make("CartPole-v1"))
    other = gym.make("rover/Grid-v0", **{**GRID, "horizon": 26})
    with pytest.raises(ConfigurationError, match="is not that of"):
        Rover.resume(copy_of_finished, env=other)
    assert Rover.resume(copy_of_finished, env=make_grid()).num_timesteps == 200


def test_an_environment_that_cannot_be_made_again_must_be_given(tmp_path: Path) -> None:
    Rover(numbered_place(), seed=1, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    with pytest.raises(ConfigurationError, match=r"cannot be made from an id.*env=\.\.\."):
        Rover.resume(tmp_path / "run")
    assert Rover.resume(tmp_path / "run", env=numbered_place()).num_timesteps == 50


def test_an_environment_that_moved_is_noticed(tmp_path: Path) -> None:
    Rover(numbered_place(), seed=1, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    moved = numbered_place()
    moved.look = lambda x, y: 5 * x + y
    with pytest.raises(ReplayMismatchError, match="did not repeat itself"):
        Rover.resume(tmp_path / "run", env=moved)


def test_a_time_limit_of_its_own_is_kept(tmp_path: Path) -> None:
    env = gym.make("FrozenLake-v1", max_episode_steps=7)
    Rover(env, seed=0, run_dir=tmp_path / "run", **SETTINGS).learn(50)
    again = Rover.resume(tmp_path / "run")
    assert again.env.spec is not None
    assert again.env.spec.max_episode_steps == 7


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    """The second one learns of the first by the lock, whether it begins or resumes."""
    folder = tmp_path / "run"
    code = (
        "import sys; from rover import Rover\n"
        "try: Rover.resume(sys.argv[1]).learn(25)\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    said: list[str] = []

    def second_process(record: Any) -> bool:
        run = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
        said.append(run.stdout + run.stderr)
        return False

    Rover(make_grid(), seed=1, run_dir=folder, **SETTINGS).learn(100, callback=second_process)
    assert len(said) == 1
    assert said[0].startswith("StorageError")
    assert f"is in use by process {os.getpid()}" in said[0]
    with pytest.raises(StorageError, match="is in use"):
        Rover.resume(folder).learn(50, callback=lambda record: Rover.resume(folder).learn(25))
    assert Rover.resume(folder).num_timesteps == 25


@pytest.fixture
def fill_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Refuse every write to files of a name, after half of the first one went out."""
    real_open, real_write = os.open, os.write
    full: set[int] = set()
    names: list[str] = []

    def open_(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        file = real_open(path, flags, *args, **kwargs)
        full.discard(file)
        if flags & os.O_WRONLY and any(name in os.fspath(path) for name in names):
            full.add(file)
        return file

    def write(file: int, data: Any) -> int:
        if file in full:
            real_write(file, memoryview(data).cast("B")[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(file, data)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "write", write)
    yield names.append
    names.clear()


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("step-000000100", 50),
        ("step-000000050", 0),
        ("metrics.jsonl", 0),
        ("policy.safetensors", 150),
        ("buffer.h5", 150),
        ("summary.json", 50),
    ],
)
def test_a_full_disk_loses_nothing_that_was_written(
    name: str,
    step: int,
    finished: Path,
    tmp_path: Path,
    fill_disk: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "run"
    fill_disk(name)
    with pytest.raises(StorageError, match=r"the disk is full .*rover resume"):
        begin(folder, 200)
    monkeypatch.undo()
    agent = Rover.resume(folder)
    assert agent.num_timesteps == step
    agent.learn(agent.remaining_timesteps)
    for file in ("policy.safetensors", "buffer.h5", "metrics.jsonl", "config.json"):
        assert (folder / file).read_bytes() == (finished / file).read_bytes(), file


def test_too_small_a_disk_is_noticed_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=2**20))
    agent = Rover(make_grid(), run_dir=tmp_path / "run", **SETTINGS)
    with pytest.raises(StorageError, match=r"too little space: 1\.0 MiB free, .* needed"):
        agent.learn(50)
    assert agent.num_timesteps == 0


def test_a_folder_that_cannot_be_written_is_noticed_before_the_first_step(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    agent = Rover(make_grid(), run_dir=tmp_path / "file", **SETTINGS)
    with pytest.raises(StorageError, match="is a file, not a folder; choose another folder"):
        agent.learn(50)
    agent = Rover(make_grid(), run_dir=tmp_path / "file" / "run", **SETTINGS)
    with pytest.raises(StorageError, match="a part of its path is a file"):
        agent.learn(50)
    assert agent.num_timesteps == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's folder")
def test_a_folder_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    tmp_path.parent.chmod(0o755)
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o555)
    for parent in theirs.parents[:3]:
        parent.chmod(parent.stat().st_mode | 0o055)
    agent = Rover(make_grid(), run_dir=theirs / "run", **SETTINGS)
    os.seteuid(65534)
    try:
        with pytest.raises(StorageError, match="permission denied; change the permissions"):
            agent.learn(50)
    finally:
        os.seteuid(0)
    assert agent.num_timesteps == 0


def test_pictures_can_be_drawn_of_every_kind_of_environment(tmp_path: Path) -> None:
    expected = {
        "state": {"cells", "free", "occupancy", "trajectories", "buffer_visits"},
        "lake": {"occupancy", "trajectories", "buffer_visits"},
        "short vector": {"observations", "visits"},
        "mountain car": {"observations", "visits", "rollouts"},
    }
    for name, keys in expected.items():
        Rover(
            ENVIRONMENTS[name](), run_dir=tmp_path / name, evaluation_episodes=2, **SETTINGS
        ).learn(25)
        arrays = read_arrays(tmp_path / name / "evaluation.h5", kind="evaluation").arrays
        assert {*arrays} >= keys


class Shy(gym.Wrapper[Any, Any, Any, Any]):
    """Does not record how it was made, so gymnasium.make cannot make it again."""


def test_a_wrapper_that_cannot_be_made_again(tmp_path: Path) -> None:
    env = Shy(gym.make("MountainCar-v0"))
    Rover(env, run_dir=tmp_path / "run", **SETTINGS).learn(25)
    arrays = read_arrays(tmp_path / "run" / "evaluation.h5", kind="evaluation").arrays
    assert {*arrays} == {"observations", "visits"}
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["env_id"] is None


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    Rover(GridWorld("S.."), run_dir=tmp_path / "run", **SETTINGS).learn(50, tensorboard=True)
    assert list((tmp_path / "run" / "tensorboard").glob("events.*"))
    with pytest.raises(ConfigurationError, match="needs a run_dir"):
        Rover(GridWorld("S.."), **SETTINGS).learn(50, tensorboard=True)
