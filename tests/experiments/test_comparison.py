"""Aggregates against their definitions, and tables from made-up runs to the letter."""

from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rover.baselines.peer import Peer
from rover.envs import finite_dynamics, make_env
from rover.errors import ArtefactError, ConfigurationError, RoverWarning
from rover.experiments.comparison import (
    ComparedMethod,
    ComparisonReport,
    MethodResult,
    aggregate,
    coverage_bars,
    known_problem,
    make_rows,
    measure_run,
    slug_of,
    snapshot_figures,
    write_report,
)
from rover.experiments.comparison.comparing import compare_methods
from rover.experiments.comparison.figures import KnownProblem
from rover.experiments.comparison.report import COLUMNS, cell, markdown, runs_csv, summary_csv
from rover.experiments.results import Measurement
from rover.policies.loading import load_policy

COLUMN = {column.name: column for column in COLUMNS}
FINITE = st.floats(-1e6, 1e6, allow_nan=False)


def row(method: str = "rnd", preset: str = "fast", n_seeds: int = 5) -> ComparedMethod:
    seeds = tuple(range(n_seeds))
    return ComparedMethod("rover/Corridor-v0", {"length": 5}, method, preset, 10_000, seeds)


def result(method: str = "rnd", **columns: tuple[float, ...]) -> MethodResult:
    n_runs = len(next(iter(columns.values())))
    runs = [
        Measurement(seed, {name: values[seed] for name, values in columns.items()})
        for seed in range(n_runs)
    ]
    return MethodResult(row(method), tuple(runs))


def report(*results: MethodResult, **changes: object) -> ComparisonReport:
    settings = {
        "env_id": "rover/Corridor-v0",
        "env_kwargs": {"length": 5},
        "n_states": 5,
        "results": results,
        "sessions": (),
        "failures": (),
        "command": "rover compare rover/Corridor-v0",
        **changes,
    }
    return ComparisonReport(**settings)


@given(st.lists(FINITE, min_size=1, max_size=9))
def test_estimates_lie_in_their_intervals_and_among_the_runs(values: list[float]) -> None:
    found = aggregate(values)
    assert (found.n_runs, found.n_censored) == (len(values), 0)
    assert found.mean.value == pytest.approx(np.mean(values), abs=1e-6)
    middle = np.sort(values)[len(values) // 4 : len(values) - len(values) // 4]
    assert found.iqm.value == pytest.approx(np.mean(middle), abs=1e-6)
    if len(values) == 1:
        assert math.isnan(found.iqm.low)
        return
    for interval in (found.mean, found.iqm):
        assert min(values) - 1e-6 <= interval.low <= interval.high <= max(values) + 1e-6


def test_the_interval_is_the_percentile_bootstrap() -> None:
    values = np.array([3.0, 9.0, 4.0, 4.5, 12.0, 7.0, 6.5])
    found = aggregate(values.tolist())
    for interval, trimmed in ((found.mean, 0.0), (found.iqm, 0.25)):

        def statistic(sample, axis, trimmed=trimmed):
            return stats.trim_mean(sample, trimmed, axis=axis)

        expected = stats.bootstrap(
            (values,), statistic, method="percentile", n_resamples=20_000
        ).confidence_interval
        assert interval.low == pytest.approx(expected.low, abs=0.15)
        assert interval.high == pytest.approx(expected.high, abs=0.15)
    assert aggregate(values.tolist()) == found


def test_runs_that_did_not_get_there_count_with_the_limit() -> None:
    found = aggregate([100.0, math.inf, 300.0, 200.0, math.inf], limit=1000)
    assert found.n_censored == 2
    assert found.mean.value == pytest.approx(520.0)
    assert found.iqm.value == pytest.approx(500.0)
    for values in ([], [1.0, math.nan], [1.0, math.inf]):
        with pytest.raises(ConfigurationError, match="give one finite value per run, or a limit"):
            aggregate(values)


def test_snapshots_have_a_best_a_last_and_a_drop() -> None:
    records = [
        {"optimality_ratio": r, "coverage": c, "renyi2_entropy": e, "shannon_entropy": 2 * e}
        for r, c, e in ((3.0, 0.5, 1.0), (1.5, 1.0, 2.0), (2.0, 0.75, 1.5))
    ]
    figures = snapshot_figures(records)
    assert figures["best_optimality_ratio"] == 1.5
    assert figures["last_optimality_ratio"] == 2.0
    assert figures["drop_optimality_ratio"] == 0.5
    assert (figures["best_coverage"], figures["drop_coverage"]) == (1.0, 0.25)
    assert (figures["best_renyi2_entropy"], figures["drop_shannon_entropy"]) == (2.0, 1.0)
    assert snapshot_figures([]) == {}


def test_rows_have_their_own_folders_and_styles() -> None:
    rows = make_rows(
        "rover/Maze-v0",
        {},
        [("rover", None), ("rover", "paper"), ("rnd", None)],
        steps=5,
        n_seeds=2,
    )
    assert [r.name for r in rows] == ["rover-default", "rover-paper", "rnd-fast"]
    assert [r.style for r in rows] == ["rover", "rover-paper", "rnd"]
    assert rows[0].seeds == (0, 1)
    assert (
        slug_of("module:rover/Maze-v0", {"slip": 0.1, "a": "x y"}) == "rover-Maze-v0-a-x-y-slip-0.1"
    )


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        ([("rnd", None), ("rnd", "fast")], {}, "rnd-fast is there twice"),
        ([], {}, "there is no method"),
        ([("rnd", "default")], {}, "unknown preset 'default' of method 'rnd'"),
        ([("rnd", None)], {"n_seeds": 0}, "at least 1, not 5 and 0"),
    ],
)
def test_rows_that_cannot_be_compared(methods, options, message) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make_rows("rover/Maze-v0", {}, methods, **{"steps": 5, "n_seeds": 1, **options})


def test_cells_to_the_letter() -> None:
    steps, ratio = COLUMN["steps_to_full_coverage"], COLUMN["optimality_ratio"]
    one = result(steps_to_full_coverage=(1234.0,), optimality_ratio=(1.5,))
    assert cell(one, steps) == "1,234"
    assert cell(one, ratio) == "1.5000"
    assert cell(one, COLUMN["coverage"]) == ""
    same = result(optimality_ratio=(2.0,) * 5)
    assert cell(same, ratio) == "2.0000 [2.0000, 2.0000]<br>mean 2.0000"
    some = result(steps_to_full_coverage=(100.0, math.inf, 100.0))
    text = cell(some, steps)
    assert text.startswith("> 3,400 [100, 10,000]<br>mean > 3,400")
    assert text.endswith("<br>1 of 3 not by 10,000")
    none = result(steps_to_full_coverage=(math.inf, math.inf))
    assert cell(none, steps) == "not by 10,000"


def test_tables_show_what_there_is_and_say_what_it_means() -> None:
    text = markdown(
        report(
            result("rover", states_seen=(5.0,), coverage=(1.0,)),
            result("mepol", states_seen=(4.0,), coverage=(0.8,)),
            failures=("rnd-fast, seed 0: it broke",),
        )
    )
    assert "# Reward-free methods on rover/Corridor-v0 (length=5)\n" in text
    assert "5 states, so the most entropy is 1.609 nats" in text
    assert "| mepol | fast | 10,000 | 1 of 5 | 4 |\n" in text
    assert "- MEPOL is told where states lie" in text
    assert "- **states seen**: true states in the replay buffer" in text
    assert "wall time" not in text
    assert "**Best**" not in text
    assert "## Runs that failed\n\n- rnd-fast, seed 0: it broke\n" in text


def test_csv_files_have_every_digit(tmp_path) -> None:
    made = report(result("rnd", optimality_ratio=(1 / 3, 2 / 3), resampling_steps=(7.0, math.inf)))
    write_report(made, tmp_path)
    runs = list(csv.DictReader(io.StringIO(runs_csv(made))))
    assert [float(run["optimality_ratio"]) for run in runs] == [1 / 3, 2 / 3]
    assert runs[1]["resampling_steps"] == "inf"
    assert runs[0]["coverage"] == ""
    lines = {line["figure"]: line for line in csv.DictReader(io.StringIO(summary_csv(made)))}
    assert float(lines["optimality_ratio"]["mean"]) == pytest.approx(0.5)
    assert lines["optimality_ratio"]["limit"] == ""
    resampled = lines["resampling_steps"]
    assert (resampled["not_reached"], resampled["limit"]) == ("1", "10000")
    assert (tmp_path / "summary.csv").read_text() == summary_csv(made)


def test_bars_are_interquartile_means_with_censored_points_at_the_limit() -> None:
    bars = coverage_bars(
        [result("rnd", steps_to_full_coverage=(50.0, math.inf), resampling_steps=(9.0, 9.0))]
    )
    pretraining = bars["while pretraining"]["rnd"]
    assert pretraining.points == (50.0, 10_000.0)
    assert (pretraining.value, pretraining.n_censored) == (5025.0, 1)
    assert bars["resampling from the final policy"]["rnd"].n_censored == 0
    assert coverage_bars([result("rnd", observations=(3.0,))]) == {}


def test_a_mixture_is_resampled_as_a_mixture(tmp_path) -> None:
    settings = {"policy_every": 30, "seed_steps": 10}
    Peer(
        "rover/Corridor-v0",
        "smm",
        env_kwargs={"length": 5},
        run_dir=tmp_path / "run",
        learner={"batch_size": 8, "hidden_sizes": (8, 8)},
        **settings,
    ).learn(60)
    known = known_problem("rover/Corridor-v0", {"length": 5})
    assert isinstance(known, KnownProblem)
    assert known.horizon == 11
    values = measure_run(tmp_path / "run", 0, known).values
    tables = load_policy(tmp_path / "run" / "policy.safetensors").tables(known.problem.observations)
    assert tables.shape[1:] == (5, 4)
    assert len(tables) > 1
    assert values["resampling_steps"] > 4
    assert values["last_coverage"] == values["coverage"]
    assert set(values) <= set(COLUMN)
    (tmp_path / "run" / "summary.json").write_text('{"wall_seconds": 1}')
    with pytest.raises(ArtefactError, match=r"lacks a figure of the comparison .*states_total"):
        measure_run(tmp_path / "run", 0, known)


def test_a_policy_that_was_never_updated_has_no_snapshots(tmp_path) -> None:
    with pytest.warns(RoverWarning, match="too few for a policy update"):
        Peer(
            "rover/Corridor-v0", "random", env_kwargs={"length": 5}, run_dir=tmp_path / "run"
        ).learn(9)
    values = measure_run(
        tmp_path / "run", 0, known_problem("rover/Corridor-v0", {"length": 5})
    ).values
    assert set(values) == {
        "wall_seconds",
        "states_seen",
        "steps_to_full_coverage",
        "steps_to_95_in_20_episodes",
        "resampling_steps",
    }


def test_unknown_states_have_no_exact_figures() -> None:
    assert known_problem("MountainCar-v0", {}) is None
    assert finite_dynamics(make_env("MountainCar-v0", {})) is None


def test_nothing_to_compare_says_why(tmp_path) -> None:
    broken = ComparedMethod("rover/Corridor-v0", {}, "rnd", "fast", 10, (0,), {"n_steps": 0})
    (tmp_path / "rnd-fast" / "seed-0").mkdir(parents=True)
    (tmp_path / "rnd-fast" / "seed-0" / "config.json").write_text("[]")
    with pytest.raises(ArtefactError, match=r"no run came to its end.*rnd-fast, seed 0: Artefact"):
        compare_methods([broken], tmp_path, jobs=1, command="", say=lambda line: None)
