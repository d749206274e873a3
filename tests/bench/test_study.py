"""Studies as data: products, files that extend others, refusals; statistics of several runs."""

import importlib
import json
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rover.baselines import agent_class, preset_of
from rover.envs import make_env
from rover.errors import ArtefactError, ConfigurationError
from rover.training.config import merge_settings, validate_settings
from rover_bench import load_study, paper_study
from rover_bench.execute import _TASK_CONFIGS
from rover_bench.load import REPRODUCTIONS, SCALES
from rover_bench.statistics import STATISTICS, Aggregate
from rover_bench.study import SCRATCH, Case

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NEED_EXTRA = (
    "gymnasium.envs.box2d",
    "benchmarks.worlds.arenas:point_maze",
    "benchmarks.worlds.arenas:mini_grid",
)
COMMITTED = sorted(path.stem for path in EXPERIMENTS.glob("*.toml"))


PAPER = [f"{name}:{scale}" for name in REPRODUCTIONS for scale in SCALES]


def small(**changes: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "title": "Small",
        "run": {"env": "rover/Corridor-v0", "env_kwargs": {"length": 9}, "steps": 60, "seeds": [0]},
        "axes": {
            "agent": {"rover": {}, "rnd": {"agent": "rnd", "settings": {"discount": 0.9}}},
            "size": {"short": {}, "long": {"env_kwargs": {"slip": 0.1}, "steps": 70}},
        },
        **changes,
    }


@lru_cache
def made(env: str, env_kwargs: str) -> gym.Env[Any, Any]:
    return make_env(env, json.loads(env_kwargs))


@pytest.mark.parametrize("name", [*COMMITTED, *PAPER])
def test_committed_studies_load_and_name_settings_that_exist(name):
    importlib.import_module("benchmarks.worlds.arenas")
    name, _, scale = name.partition(":")
    study = paper_study(name, scale) if scale else load_study(EXPERIMENTS / f"{name}.toml")
    assert study.tables
    for case in study.cases():
        if case.agent != SCRATCH:
            agent = agent_class(case.agent)
            preset = agent.presets[preset_of(case.agent, case.preset)]
            config = validate_settings(agent.config_class, merge_settings(preset, case.settings))
            if not str(gym.spec(case.env).entry_point).startswith(NEED_EXTRA):
                agent.resolve(config, made(case.env, json.dumps(case.env_kwargs)))
        if case.learn is not None:
            make = _TASK_CONFIGS[case.learn.kind].make
            make(case.learn.algorithm, case.learn.preset, case.learn.settings)


def test_products_merge_what_options_change():
    cases = load_study(small()).cases()
    names = ["rover, short", "rover, long", "rnd, short", "rnd, long"]
    assert [case.name for case in cases] == names
    last = cases[-1]
    assert (last.agent, last.settings) == ("rnd", {"discount": 0.9})
    assert (last.env_kwargs, last.steps) == ({"length": 9, "slip": 0.1}, 70)
    assert cases[0].preset == ""
    assert [case.seeds for case in load_study(small()).cases([3, 4])] == [(3, 4)] * 4
    chosen = small(runs=[{"agent": ["rnd"]}, {"agent": ["rover"], "size": ["long"]}])
    assert [case.name for case in load_study(chosen).cases()] == ["rnd", "rover, long"]


def test_folders_say_what_is_run():
    short, long, other, _ = (case.runs(Path("runs"))[0] for case in load_study(small()).cases())
    assert short.folder == Path("runs/rover-Corridor-v0-length-9/rover-default-60/seed-0")
    assert long.folder == Path("runs/rover-Corridor-v0-length-9-slip-0.1/rover-default-70/seed-0")
    assert other.folder.parent.name.startswith("rnd-fast-60-")
    assert short.source is None
    learn = {"goal": "room1", "steps": 50, "transfer": "both", "reward": "dense"}
    study = small(axes={"start": {"scratch": {"agent": "scratch"}, "rnd": {"agent": "rnd"}}})
    study["run"] |= {"env": "rover/TwoRooms-v0", "env_kwargs": {}, "learn": learn}
    scratch, rnd = (case.runs(Path())[0] for case in load_study(study).cases())
    assert (scratch.source, scratch.case.budget) == (None, 50)
    assert rnd.source.folder == Path("rover-TwoRooms-v0/rnd-fast-60/seed-0")
    assert rnd.folder == Path("rover-TwoRooms-v0-room1-dense/ddpg-50-from-rnd-fast-60-both/seed-0")
    odd = Case(
        env="module:rover/Maze-v0", env_kwargs={"slip": 0.1, "a": "x y"}, steps=1, seeds=(0,)
    )
    assert odd.env_name == "rover-Maze-v0-a-x-y-slip-0.1-5616b740"


def test_a_file_takes_over_what_it_extends(tmp_path):
    (tmp_path / "base.toml").write_text(
        'title = "Base"\nrun = { env = "rover/Maze-v0", steps = 5, seeds = [0] }\n'
        'axes.agent = { rover = {}, rnd = { agent = "rnd" } }\n'
        '[tables.End]\nrows = ["agent"]\nfigures = ["coverage"]\n'
    )
    (tmp_path / "own.toml").write_text(
        'extends = "base.toml"\nrun.steps = 6\nruns = [{ agent = ["rnd"] }]\n'
        'tables.End.statistic = "median"\n'
    )
    study = load_study(tmp_path / "own.toml")
    assert (study.name, study.csv, study.title) == ("own", "own-", "Base")
    (case,) = study.cases()
    assert (case.agent, case.env, case.steps) == ("rnd", "rover/Maze-v0", 6)
    assert study.tables["End"].statistic == "median"
    with pytest.raises(ArtefactError, match="missing"):
        load_study(tmp_path / "missing.toml")
    (tmp_path / "own.toml").write_text("title = ")
    with pytest.raises(ConfigurationError, match=r"own\.toml: not a TOML file: Invalid value"):
        load_study(tmp_path / "own.toml")


def test_a_scale_changes_a_study_and_the_files_that_it_extends(tmp_path):
    (tmp_path / "base.toml").write_text(
        'title = "Base"\nrun = { env = "rover/Maze-v0", steps = 5, seeds = [0] }\n'
        'axes.agent = { rover = {}, rnd = { agent = "rnd" } }\nscales.smoke.run.steps = 2\n'
    )
    (tmp_path / "other.toml").write_text("run.steps = 7")
    own = tmp_path / "own.toml"
    own.write_text('extends = ["other.toml", "base.toml"]\nscales.smoke.runs = [{agent = ["rnd"]}]')
    assert [case.steps for case in load_study(own).cases()] == [5, 5]
    assert [(c.agent, c.steps) for c in load_study(own, scale="smoke").cases()] == [("rnd", 2)]
    with pytest.raises(ConfigurationError, match=r"own\.toml: unknown scale 'smok'; did you mean"):
        load_study(own, scale="smok")


TABLE = {"rows": ["agent"], "figures": ["coverage"]}
CORRIDOR = "rover-Corridor-v0-length-9"


def two(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    return {"axes": {"agent": {"a": a, "b": b}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tiltle": "x"}, "tiltle: Extra inputs are not permitted"),
        ({"runs": [{"agent": ["rnd"]}] * 2}, "rnd is there twice"),
        ({"axes": {"a": {"x": {"agent": "rdn"}}}}, "x: unknown agent 'rdn'; did you mean 'rnd'?"),
        ({"tables": {"T": TABLE | {"figures": ["cover"]}}}, "unknown figure 'cover'; did"),
        ({"tables": {"T": TABLE | {"where": {"agent": ["x"]}}}}, "unknown option of agent 'x'"),
        ({"pictures": {"p": {"kind": "visits"}}}, "the picture 'p': needs a `where` that leaves"),
        ({"csv": "../x"}, "csv: Value error, '../x' is no"),
        ({"axes": {"a": {"x": {"seeds": [3, 3]}}}}, "x: seeds: Value error, a seed is there twice"),
        (two({"folder": "same"}, {"folder": "same", "agent": "rnd"}), "a and b are different, and"),
        (two({"folder": "same"}, {"folder": "SAME", "agent": "rnd"}), "both have the folder SAME"),
        (two({"folder": f"{CORRIDOR}/rnd-fast-60", "steps": 3}, {"agent": "rnd"}), "are different"),
    ],
)
def test_wrong_studies_are_refused_in_one_line(changes, message):
    with pytest.raises(ConfigurationError) as refused:
        load_study(small(**changes))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def test_intervals_are_percentiles_of_resampled_runs():
    runs = np.random.default_rng(7).normal(size=9)
    drawn = np.random.default_rng(0).choice(runs, (20_000, 9))
    for name, statistic in STATISTICS.items():
        value, low, high = Aggregate(tuple(runs)).estimate(name)
        assert value == pytest.approx(statistic(runs, axis=-1))
        ends = np.quantile(statistic(drawn, axis=-1), [0.025, 0.975])
        assert (low, high) == pytest.approx(ends, abs=0.05)


@settings(max_examples=15)
@given(st.lists(FINITE, min_size=1, max_size=9))
def test_estimates_lie_in_their_intervals_and_among_the_runs(values):
    found = Aggregate(tuple(values))
    assert (len(found.values), found.n_censored, found.bound) == (len(values), 0, "")
    middle = np.sort(values)[len(values) // 4 : len(values) - len(values) // 4]
    expected = {"mean": np.mean(values), "iqm": np.mean(middle), "median": np.median(values)}
    for name in STATISTICS:
        interval = found.estimate(name)
        assert interval.value == pytest.approx(expected[name], abs=1e-6)
        if len(values) == 1:
            assert math.isnan(interval.low)
        else:
            assert min(values) - 1e-6 <= interval.low <= interval.high <= max(values) + 1e-6


def test_runs_that_did_not_get_there_count_with_the_limit():
    found = Aggregate((100.0, math.inf, 300.0, 200.0, math.inf), limit=1000)
    assert (found.n_censored, found.bound) == (2, "> ")
    estimates = [found.estimate(name).value for name in ("mean", "iqm", "median")]
    assert estimates == pytest.approx([520.0, 500.0, 300.0])
