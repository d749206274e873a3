"""Figures of finished runs."""

import math
from pathlib import Path
from typing import Any

import pytest
from run_folders import write_folder

from rover.baselines import make_agent
from rover.errors import ArtefactError
from rover.policies.loading import load_policy
from rover.storage import append_line, read_json, write_json
from rover_bench import METRICS
from rover_bench.measure import finite_problem, measure
from rover_bench.study import Case, Learning, Run

pytestmark = pytest.mark.slow

CORRIDOR = {"env": "rover/Corridor-v0", "env_kwargs": {"length": 5}}


def pretrained(folder: Path, *, steps: int = 60, **case: Any) -> Run:
    """A finished run of pretraining."""
    made = Case(**{**CORRIDOR, "steps": steps, "seeds": (0,), **case})
    make_agent(
        made.agent, made.env, None, env_kwargs=made.env_kwargs, run_dir=folder, **made.settings
    ).learn(steps)
    return Run(made, 0, folder)


def test_a_mixture_is_resampled_as_a_mixture_and_snapshots_have_a_best(tmp_path):
    settings: dict[str, Any] = {"policy_every": 30, "seed_steps": 10}
    settings["learner"] = {"batch_size": 8, "hidden_sizes": (8, 8)}
    run = pretrained(tmp_path / "run", agent="smm", settings=settings)
    known = finite_problem(run.case.problem)
    problem, horizon = known
    assert horizon == 11
    figures = measure(run)[0]
    tables = load_policy(run.folder / "policy.safetensors").tables(problem.observations)
    assert tables.shape[1:] == (5, 4)
    assert len(tables) > 1
    assert figures["resampling_steps"] > 4
    summary = read_json(run.folder / "summary.json")
    for name in ("mean_coverage", "p_coverage_95", "uniform_coverage", "optimal_coverage"):
        assert figures[name] == summary[name]
    assert figures["last_mean_coverage"] == figures["mean_coverage"]
    assert figures["policy_updates"] == 2.0
    assert figures["states_total"] == 5.0
    assert set(figures) <= set(METRICS)

    (run.folder / "metrics.jsonl").unlink()
    snapshots = ((3.0, 0.5, 1.0), (1.5, 1.0, 2.0), (2.0, 0.96, 1.5))
    for step, (ratio, coverage, entropy) in enumerate(snapshots):
        entropies = {"renyi2_entropy": entropy, "shannon_entropy": 2 * entropy}
        record = {"step": step, "optimality_ratio": ratio, "coverage": coverage}
        record |= {"mean_coverage": coverage} if step < 2 else {}
        append_line(run.folder / "metrics.jsonl", {**record, **entropies})
    write_json(run.folder / "summary.json", summary | {"mean_coverage": 0.96})
    figures = measure(run)[0]
    of_ratio = [figures[f"{which}_optimality_ratio"] for which in ("best", "last", "drop")]
    assert of_ratio == [1.5, 2.0, 0.5]
    assert (figures["best_renyi2_entropy"], figures["drop_shannon_entropy"]) == (2.0, 1.0)
    assert figures["steps_to_keep_95_in_20_episodes"] == 1.0
    write_json(run.folder / "summary.json", {"wall_seconds": 1})
    with pytest.raises(ArtefactError, match=r"lacks a figure .*states_total.*delete that"):
        measure(run)


def task_run(folder: Path, learn: dict[str, Any] | None = None, **summary: Any) -> Run:
    """A made-up run that learned a task."""
    best = {"best_possible_return": -26.0, "greedy_return": -26.0 - 1e-9}
    events = ("steps_to_first_success", "steps_to_best_return", "steps_to_stay_at_best")
    figures = {"steps": 100, "wall_seconds": 2.5, "area_under_curve": -94.5, **best}
    config = {"kind": "finetune", "agent": None, "seed": 0, "total_timesteps": 100, "settings": {}}
    returns = ((0, -300.0), (50, None), (100, -26.0))
    records = [{"step": step, "greedy_return": value} for step, value in returns]
    write_folder(folder, config, records, {**figures, **dict.fromkeys(events), **summary})
    task = Learning(**{"goal": "room5", "steps": 100, **(learn or {})})
    return Run(Case(**CORRIDOR, steps=5, seeds=(0,), learn=task), 0, folder)


def test_figures_of_a_task(tmp_path):
    figures, curve = measure(task_run(tmp_path / "a", steps_to_best_return=70))
    assert figures["steps_to_best_return"] == 70.0
    assert figures["steps_to_first_success"] == math.inf
    assert (figures["at_best"], figures["goal_distance"]) == (1.0, 27.0)
    assert [values.tolist() for values in curve] == [[0.0, 100.0], [-300.0, -26.0]]
    dense = measure(task_run(tmp_path / "b", {"reward": "dense"}, greedy_return=-27.0))[0]
    assert dense["at_best"] == 0.0
    assert "goal_distance" not in dense
