"""What a run stores happened: whoever steps its environment, however it ended, and wherever it goes
on."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from small_agents import SMALL
from small_envs import number_maps, numbered_place, short_vector_place
from transfer_cases import QUICK as QUICK_TASK
from transfer_cases import corridor

import rover
from rover import load_policy, make_agent, resume_agent
from rover.cli import main
from rover.errors import ConfigurationError, ReplayMismatchError, RoverWarning, StorageError
from rover.finetuning import finetune, resume_task
from rover.storage import is_complete, read_json, read_lines, write_json
from rover.training.run_folder import load_run_buffer, run_env

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(covers less|too few|no reward|none of the|contradicts its own)"
)


def car() -> gym.Env[Any, Any]:
    return gym.make("MountainCar-v0", max_episode_steps=60)


def play(env: gym.Env[Any, Any], n_steps: int = 7) -> None:
    env.reset()
    for _ in range(n_steps):
        env.step(env.action_space.sample())


def assert_same_data(agent: Any, other: Any) -> None:
    for name, column in other.buffer.state().items():
        np.testing.assert_array_equal(agent.buffer.state()[name], column, err_msg=name)


AGENTS: dict[str, dict[str, Any]] = {
    "rover": {"policy_every": 25, "n_landmarks": 25, "mirror_steps": 10},
    "random": SMALL["random"],
    "rnd": SMALL["rnd"],
    "mepol": SMALL["mepol"],
}


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("make", [car, short_vector_place])
def test_an_environment_that_the_user_steps_changes_nothing(name, make, tmp_path):
    how = {**AGENTS[name], "seed": 0, "measure_share": 0.0}
    env, alone = make(), make_agent(name, make(), **how).learn(130)
    agent = make_agent(name, env, run_dir=tmp_path, **how)
    for n_steps in (30, 50, 50):
        agent.learn(n_steps, callback=lambda line: play(env))
        play(env.unwrapped, 3)
        env.reset()
    assert_same_data(agent, alone)
    assert_same_data(resume_agent(tmp_path, env=make()), alone)


def test_a_task_is_learned_the_same_in_an_environment_that_the_user_steps():
    env = corridor().make_env()
    how = {**QUICK_TASK, "total_timesteps": 250, "stop_after": None}
    touched = finetune(None, env, callback=lambda line: play(env), **how)
    assert touched.curve == finetune(None, corridor().make_env(), **how).curve


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize("n_steps", [43, 163])
def test_a_run_comes_back_as_it_ended(name, n_steps, tmp_path):
    how = {**AGENTS[name], "seed": 0, "measure_share": 0.0, "checkpoint_every": 100}
    agent = make_agent(name, "MountainCar-v0", run_dir=tmp_path, **how).learn(n_steps)
    again = resume_agent(tmp_path)
    assert again.num_timesteps == n_steps
    assert_same_data(again, agent)
    rows = agent.buffer.observations.rows
    np.testing.assert_array_equal(again.policy.probs(rows), agent.policy.probs(rows))
    file = tmp_path / "metrics.jsonl"
    lines = file.read_bytes() if file.exists() else b""
    again.learn(40)
    whole = make_agent(name, "MountainCar-v0", **how).learn(n_steps + 40)
    assert_same_data(again, whole)
    assert not lines or file.read_bytes().startswith(lines)


def test_planned_made_and_asked_steps_are_three_numbers(tmp_path, capsys):
    run = tmp_path / "run"
    agent = make_agent("random", "rover/TwoRooms-v0", seed=0, run_dir=run, **SMALL["random"])
    agent.learn(300, callback=lambda line: line["step"] < 75)
    figures = read_json(run / "summary.json")
    assert (figures["steps"], figures["complete"], figures["ended"]) == (75, False, True)
    assert read_json(run / "config.json")["total_timesteps"] == 300
    assert main(["resume", str(run), "--steps", "110"]) == 0
    assert not is_complete(run)
    assert main(["resume", str(run)]) == 0
    assert (read_json(run / "summary.json")["steps"], is_complete(run)) == (300, True)
    capsys.readouterr()
    assert main(["resume", str(run), "--steps", "200"]) == 0
    assert "is complete: 300 steps" in capsys.readouterr().out
    whole = make_agent("random", "rover/TwoRooms-v0", seed=0, **SMALL["random"]).learn(300)
    assert_same_data(resume_agent(run), whole)


def test_a_task_is_made_longer(tmp_path):
    how = {**QUICK_TASK, "stop_after": None, "run_dir": tmp_path}
    finetune(None, corridor().make_env(), total_timesteps=200, **how)
    with pytest.raises(ConfigurationError, match=r"complete: .*give total_timesteps"):
        resume_task(tmp_path, total_timesteps=200)
    assert main(["resume", str(tmp_path), "--steps", "400"]) == 0
    longer = [line["greedy_return"] for line in read_lines(tmp_path / "metrics.jsonl")]
    del how["run_dir"]
    whole = finetune(None, corridor().make_env(), total_timesteps=400, **how)
    assert longer == [line["greedy_return"] for line in whole.curve]
    assert is_complete(tmp_path)


def test_two_agents_that_go_on_with_one_run(tmp_path):
    make_agent("random", car(), seed=0, run_dir=tmp_path, **SMALL["random"]).learn(60)
    first, second = resume_agent(tmp_path, env=car()), resume_agent(tmp_path, env=car())
    first.learn(40)
    lines = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(StorageError, match="another agent has gone on with the run"):
        second.learn(10)
    assert (tmp_path / "metrics.jsonl").read_bytes() == lines
    assert first.learn(10).num_timesteps == 110


LAKE = {"map_name": None, "is_slippery": False}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: Any) -> Path:
    run, named = tmp_path_factory.mktemp("lake") / "run", "drawn when it is made"
    with pytest.MonkeyPatch.context() as patch:
        number_maps(patch, 0)
        with pytest.warns(RoverWarning, match=named):
            make_agent("rover", "FrozenLake-v1", env_kwargs=LAKE, seed=0, run_dir=run).learn(300)
    return run


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate",),
        ("evaluate", "policy"),
        ("resume", "--steps", "400"),
        ("solve",),
        ("finetune", "--steps", "100"),
        ("finetune", "--offline", "--steps", "10"),
        ("adapt", "--steps", "50"),
    ],
)
def test_another_map_is_named(command, lake, capsys, monkeypatch, tmp_path):
    number_maps(monkeypatch, 2)
    monkeypatch.chdir(tmp_path)
    name, *options = command
    path = lake
    if options == ["policy"]:
        path, options = lake / "policy.safetensors", []
    before = {file: file.read_bytes() for file in lake.iterdir()}
    assert main([name, str(path), *options]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert "did not repeat itself: step" in said
    assert "contradicts" not in said
    assert {file: file.read_bytes() for file in lake.iterdir()} == before


@pytest.mark.parametrize("learn", [finetune, rover.train_offline])
def test_another_map_of_a_task_is_named(learn, lake, monkeypatch, tmp_path):
    number_maps(monkeypatch, 2)
    env = gym.make("FrozenLake-v1", **LAKE)
    stop: Any = {"run_dir": tmp_path, "evaluate_every": 20}
    stop["callback"] = lambda line: line["step"] < 60
    if learn is finetune:
        learn(None, env, total_timesteps=200, **stop)
    else:
        stop["reward"] = lambda x, a, y: ((y == 63).astype(float), y == 63)
        learn(load_run_buffer(lake), env, updates=100, source=str(lake), **stop)
    with pytest.raises(ReplayMismatchError, match=r"step \d+ of episode"):
        resume_task(tmp_path)


class Forgetful(gym.Wrapper[Any, Any, Any, Any]):
    """Moves that no seed decides."""

    def step(self, action: Any) -> Any:
        return self.env.step(int(np.random.default_rng().integers(3)))


@pytest.mark.filterwarnings("ignore:.*(unexplained|does not repeat)")
def test_chance_beside_the_seed_is_warned_of_and_not_resumed(tmp_path):
    gym.register("Forgetful-v0", lambda: Forgetful(gym.make("MountainCar-v0")))
    make_agent("random", "Forgetful-v0", seed=0, run_dir=tmp_path, **SMALL["random"]).learn(600)
    with pytest.warns(RoverWarning, match="seed does not determine it") as warned:
        rover.solve(tmp_path, lambda x, a, y: y[:, 0])
    assert sum("seed does not" in str(one.message) for one in warned) == 1
    with pytest.raises(ReplayMismatchError, match=r"step \d+ of episode 0"):
        resume_agent(tmp_path)
    del gym.registry["Forgetful-v0"]


def test_other_versions_are_named(tmp_path):
    make_agent("random", car(), seed=0, run_dir=tmp_path, **SMALL["random"]).learn(60)
    config = json.loads((tmp_path / "config.json").read_text())
    policy = load_policy(tmp_path / "policy.safetensors")
    assert {"python", "numpy", "gymnasium"} <= {*config["versions"]}
    assert policy.details["versions"] == config["versions"]
    config["versions"]["gymnasium"] = policy.details["versions"]["gymnasium"] = "0.26.3"
    write_json(tmp_path / "config.json", config)
    words = rf"gymnasium 0\.26\.3, not {gym.__version__}"
    with pytest.warns(RoverWarning, match=words):
        resume_agent(tmp_path, env=car())
    with pytest.warns(RoverWarning, match=words):
        run_env(tmp_path)
    with pytest.warns(RoverWarning, match=words):
        policy.check_fits(car())


def test_an_edited_environment_is_noticed_where_few_episodes_show_it(tmp_path):
    make_agent("random", numbered_place(), seed=0, run_dir=tmp_path, **SMALL["random"]).learn(300)
    edited = numbered_place()
    look = edited.look_at
    edited.look_at = lambda x, y: 0 if (x, y) == (4, 4) else look(x, y)
    with pytest.raises(ReplayMismatchError, match=r"step \d+ of episode \d"):
        resume_agent(tmp_path, env=edited)


def test_logs_know_their_run_and_keep_the_point_of_the_checkpoint(tmp_path, monkeypatch):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    begun: list[dict[str, Any]] = []

    def init(**how: Any) -> Any:
        begun.append(how)
        return nullcontext()

    fake = SimpleNamespace(init=init, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run: Any
    for run in ("run", "run", "other"):
        folder = tmp_path / run
        if folder.exists():
            resume_agent(folder).learn(50, log=["wandb"])
        else:
            made = make_agent("random", "MountainCar-v0", run_dir=folder, **SMALL["random"])
            made.learn(50, log=["wandb"])
    assert begun[0]["id"] == begun[1]["id"] != begun[2]["id"]
    events = accumulator.EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [one.step for one in events.Scalars("observations")] == [25, 50, 75, 100]
