"""Tables, CSV files and pictures of transfer: from hand-made runs, to the letter."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rover.errors import ArtefactError
from rover.experiments.processes import Failure
from rover.experiments.provenance import Session, append_session
from rover.experiments.transfer import __main__ as command
from rover.experiments.transfer.csv_files import CURVES_HEAD, RUNS_HEAD, curves_csv, runs_csv
from rover.experiments.transfer.figures import (
    area_cell,
    event_cell,
    format_best,
    format_return,
    goal_distance,
    goals_in_data_cell,
    is_at_best,
    ratio_cell,
    return_cell,
)
from rover.experiments.transfer.finished import (
    FinishedRun,
    FoundRuns,
    find_runs,
    read_run,
    run_folder,
)
from rover.experiments.transfer.pictures import draw_pictures, steps_by_distance, task_panels
from rover.experiments.transfer.report import page, write_report
from rover.experiments.transfer.rows import (
    COLUMNS,
    MULTI_ROOMS,
    PAPER_OFFLINE,
    PAPER_ONLINE_SCRATCH,
    STUDIES,
    TUNED,
    TWO_ROOMS,
    TransferRow,
)
from rover.finetuning.config import make_finetune_config
from rover.storage import JsonLines, write_json

SESSION = Session(
    began="2026-01-02T03:04:05+00:00",
    commit="0123456789ab",
    cpu="A CPU",
    cores=2,
    jobs=2,
    versions={"python": "3.11.7", "rover": "0.1.0"},
)
ROW = TransferRow("online", MULTI_ROOMS, "room5", "rover", "ddpg", (0, 1, 2, 3, 4), 50_000)
OFFLINE = TransferRow("offline", MULTI_ROOMS, "room5", "cic", "cql", tuple(range(7)), 15_000)


def run(seed: int = 0, **changes: Any) -> FinishedRun:
    summary = {
        "steps": 1000,
        "best_possible_return": -26.0,
        "greedy_return": -26.0,
        "best_greedy_return": -26.0,
        "steps_to_first_success": 300,
        "steps_to_best_return": 500,
        "steps_to_stay_at_best": 1000,
        "area_under_curve": -94.5,
        "wall_seconds": 12.25,
        **changes,
    }
    return FinishedRun(seed, summary, (0, 500, 1000), (-300.0, -26.0, -26.0), (SESSION,), (21, 4))


def found(row: TransferRow = ROW, **columns: tuple[Any, ...]) -> FoundRuns:
    n_runs = len(next(iter(columns.values())))
    runs = [
        run(seed, **{name: values[seed] for name, values in columns.items()})
        for seed in range(n_runs)
    ]
    return FoundRuns(row, tuple(runs))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((-11.0,) * 5, "−11"),
        ((-11.5,) * 2, "−11.5"),
        ((-26.0,), "−26"),
        ((0.0, 0.0), "0"),
        # s = 274 √(12 / 42) = 146.459, which the paper prints; over √7 it is 55.356
        ((-26.0,) * 4 + (-300.0,) * 3, "−143.4±55.4"),
        ((-1.0, 1.0), "0.0±1.0"),
        ((-1.0, 0.96), "0.0±1.0"),
    ],
)
def test_returns_are_means_with_standard_errors(values: tuple[float, ...], text: str) -> None:
    assert format_return(values) == text


def test_the_best_return_gives_the_distance_under_the_sparse_reward_only() -> None:
    assert goal_distance(found(greedy_return=(-26.0,))) == 27
    assert goal_distance(found(best_possible_return=(None,))) is None
    assert goal_distance(found(replace(ROW, reward="dense"), greedy_return=(-26.0,))) is None
    assert goal_distance(FoundRuns(ROW, ())) is None
    assert format_best(None) == "–"


def test_final_returns_count_the_runs_at_the_best_and_say_what_is_missing() -> None:
    assert return_cell(found(greedy_return=(-26.0,) * 5)) == "−26 (5/5)"
    three = found(greedy_return=(-26.0, -300.0, -26.0 - 1e-9))
    # s = 274 / √3 = 158.194, over √3
    assert return_cell(three) == "−117.3±91.3 (2/3)<br>3 of 5 runs"
    assert return_cell(three, is_best=True) == "**−117.3±91.3** (2/3)<br>3 of 5 runs"
    assert return_cell(FoundRuns(ROW, ())) == "0 of 5 runs"
    assert return_cell(found(best_possible_return=(None,) * 5)) == "−26"
    assert not is_at_best(run(best_possible_return=None))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((523, 523, 523), "523 [523, 523]"),
        ((1234,), "1,234"),
        ((None, None), "not by 50,000"),
        ((100, 100, None), "> 16,733 [100, 50,000]<br>1 of 3 not by 50,000"),
    ],
)
def test_events_are_interquartile_means_and_lower_bounds(
    values: tuple[int | None, ...], text: str
) -> None:
    assert event_cell(found(steps_to_best_return=values), "steps_to_best_return") == text


def test_events_that_cannot_be_seen_have_no_figure() -> None:
    assert event_cell(FoundRuns(ROW, ()), "steps_to_best_return") == "–"
    unknown = found(best_possible_return=(None,), steps_to_best_return=(None,))
    assert event_cell(unknown, "steps_to_best_return") == "–"
    offline = found(OFFLINE, steps_to_first_success=(None,), steps_to_best_return=(None,))
    assert event_cell(offline, "steps_to_first_success") == "–"
    assert event_cell(offline, "steps_to_best_return") == "not by 15,000"


def test_areas_and_goals_in_the_data() -> None:
    assert area_cell(found(area_under_curve=(-94.54,) * 3)) == "−94.5 [−94.5, −94.5]"
    assert area_cell(found(area_under_curve=(-94.56,))) == "−94.6"
    assert area_cell(FoundRuns(ROW, ())) == "–"
    assert goals_in_data_cell(found(OFFLINE, labelled_goals=(0, 1200, 3000))) == "1,200 (2/3)"
    assert goals_in_data_cell(found(greedy_return=(-26.0,))) == "–"


def test_ratios_of_far_and_near_goals() -> None:
    near = found(steps_to_best_return=(400, 400))
    far = found(steps_to_best_return=(1000, 1000))
    bound = found(steps_to_best_return=(None, None))
    event = "steps_to_best_return"
    assert ratio_cell(near, far, event) == "2.5"
    assert ratio_cell(near, bound, event) == "> 125.0"
    assert ratio_cell(bound, far, event) == "–"
    assert ratio_cell(found(steps_to_best_return=(0, 0)), far, event) == "–"
    assert ratio_cell(near, FoundRuns(ROW, ()), event) == "–"


def table_below(text: str, heading: str) -> list[str]:
    """The lines of the first table after a heading."""
    lines = text.split(f"## {heading}\n", 1)[1].splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next((i for i in range(start, len(lines)) if not lines[i].startswith("|")), len(lines))
    return lines[start:end]


def test_the_online_page_to_the_letter() -> None:
    scratch = replace(ROW, method="scratch")
    near = {"env_id": TWO_ROOMS, "goal": "room1"}
    results = [
        found(
            replace(scratch, **near), greedy_return=(-11.0,) * 5, best_possible_return=(-11.0,) * 5
        ),
        FoundRuns(replace(ROW, **near), ()),
        found(scratch, steps_to_first_success=(None,) * 5, greedy_return=(-300.0,) * 5),
        found(greedy_return=(-26.0, -26.0)),
    ]
    text = page("online", results, jobs=3, failures=("online, rover, seed 2: it broke",))
    assert table_below(text, "Tasks")[2:] == [
        "| TR1 | rover/TwoRooms-v0 | onehot | sparse | room1 (21, 4) | 12 | −11 |",
        "| MR5 | rover/MultiRooms-v0 | onehot | sparse | room5 (21, 4) | 27 | −26 |",
    ]
    assert table_below(text, "Final greedy return")[2:] == [
        "| ddpg | scratch | −11 (5/5) | −300 (0/5) |",
        "| ddpg | scratch, the paper | −11.0 | −221.3±133.7 |",
        "| ddpg | rover | 0 of 5 runs | −26 (2/2)<br>2 of 5 runs |",
    ]
    assert table_below(text, "Steps to the first success") == [
        "| learner | start | TR1 | MR5 |",
        "| --- | --- | ---: | ---: |",
        "| ddpg | scratch | 300 [300, 300] | not by 50,000 |",
        "| ddpg | rover | – | 300 [300, 300] |",
    ]
    assert "    python -m rover.experiments.transfer --studies online --jobs 3\n" in text
    assert "- Seeds: 0 to 4; each run starts from the policy of the pretrained run" in text
    assert "- Budget: 50,000 environment steps a run, after 10,000 reward-free steps" in text
    assert "- Machine: A CPU, 2 cores.\n" in text
    assert "- Dates (UTC): 2026-01-02.\n" in text
    assert "- Commit: 0123456789ab.\n" in text
    assert (
        "- Missing: ddpg from rover, TR1: 0 of 5 runs; ddpg from rover, MR5: 2 of 5 runs.\n" in text
    )
    assert text.endswith("## Runs that failed\n\n- online, rover, seed 2: it broke\n")


def every_result(study: str, **changes: Any) -> list[FoundRuns]:
    return [
        found(row, **{name: (value,) * len(row.seeds) for name, value in changes.items()})
        for row in STUDIES[study]
    ]


def test_the_papers_line_stands_below_ddpg_from_scratch() -> None:
    text = page("online", every_result("online", greedy_return=-26.0), jobs=2)
    lines = table_below(text, "Final greedy return")
    assert lines[0] == f"| learner | start | {' | '.join(COLUMNS)} |"
    assert lines[2] == f"| ddpg | scratch | {' | '.join(['−26 (5/5)'] * 5)} |"
    assert lines[3] == f"| ddpg | scratch, the paper | {' | '.join(PAPER_ONLINE_SCRATCH)} |"
    assert lines[4].startswith("| ddpg | scratch-entropy | −26 (5/5) |")
    assert lines[5].startswith("| ddpg | rover | −26 (5/5) |")
    assert "scratch-entropy: from scratch with an entropy bonus" in text
    assert "Missing" not in text
    assert "failed" not in text


def test_the_distance_page_compares_the_farthest_with_the_nearest_goal() -> None:
    best = {"room1": -4.0, "room4": -21.0, "room5": -26.0}
    steps = {"scratch": {"room1": 1000, "room4": 9000, "room5": None}}
    results = [
        found(
            row,
            best_possible_return=(best[row.goal],) * 5,
            steps_to_first_success=(steps.get(row.method, {}).get(row.goal, 400),) * 5,
        )
        for row in STUDIES["distance"]
    ]
    text = page("distance", results, jobs=2)
    assert table_below(text, "Steps to the first success") == [
        "| learner | start | MR1 | MR4 | MR5 | MR5 / MR1 |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| ddpg | scratch | 1,000 [1,000, 1,000] | 9,000 [9,000, 9,000] | not by 20,000 | > 20.0 |",
        "| ddpg | scratch-entropy | 400 [400, 400] | 400 [400, 400] | 400 [400, 400] | 1.0 |",
        "| ddpg | rover | 400 [400, 400] | 400 [400, 400] | 400 [400, 400] | 1.0 |",
    ]
    near_only = [result for result in results if result.row.goal == "room1"]
    assert table_below(page("distance", near_only, jobs=2), "Steps to the first success")[0] == (
        "| learner | start | MR1 |"
    )


def test_the_offline_page_has_the_papers_cell_below_ours() -> None:
    results = [
        found(
            row,
            greedy_return=((-300.0 if row.method == "random" else -26.0),) * 7,
            labelled_goals=(0, 0, 0, 1, 2, 3, 4),
        )
        for row in STUDIES["offline"]
    ]
    online = replace(ROW, method="scratch")
    text = page("offline", [*results, found(online, greedy_return=(-26.0,) * 5)], jobs=2)
    lines = table_below(text, "Final greedy return")
    assert len(lines) == 2 + 12 + 1
    assert lines[2].startswith("| cql | random | −300 (0/7)<br>paper: −11.0±0.0 | −300 (0/7)<br>")
    assert "DDPG has an entropy bonus in the actor's objective (coefficient 0.3), for all" in text
    assert lines[-2].endswith("| **−26** (7/7)<br>paper: −221.7±133.7 |")
    assert lines[-1] == (
        "| ddpg online | scratch | –<br>paper: −11.0 | –<br>paper: −17.0±30.1 | –<br>paper: −11.0 "
        "| –<br>paper: −160.5±152.8 | −26 (5/5)<br>paper: −221.3±133.7 |"
    )
    for row in PAPER_OFFLINE.values():
        assert all(f"paper: {cell}" in text for cell in row)
    goals = table_below(text, "The goal in the data")
    assert goals[0] == f"| data | {' | '.join(COLUMNS)} |"
    assert goals[2] == f"| random | {' | '.join(['1 (4/7)'] * 5)} |"
    assert "- Budget: 15,000 updates on the 10,000 transitions of pretraining" in text
    assert "- Seeds: 0 to 6; each run learns from the data of the pretrained run" in text


def test_equal_returns_have_no_best() -> None:
    text = page("offline", every_result("offline", greedy_return=-26.0), jobs=2)
    assert "**" not in text


def test_csv_files_keep_every_digit_of_runs_and_six_of_curves() -> None:
    third = found(steps_to_best_return=(500, None), area_under_curve=(-100 / 3, -94.5))
    offline = found(OFFLINE, steps_to_first_success=(None,), steps_to_best_return=(None,))
    lines = list(csv.DictReader(io.StringIO(runs_csv([third, FoundRuns(ROW, ()), offline]))))
    assert tuple(lines[0]) == RUNS_HEAD
    assert lines[0] == {
        "study": "online",
        "task": "MR5",
        "env_id": "rover/MultiRooms-v0",
        "goal": "room5",
        "goal_distance": "27",
        "method": "rover",
        "learner": "ddpg",
        "seed": "0",
        "observation": "onehot",
        "reward": "sparse",
        "steps": "1000",
        "greedy_return": "-26.0",
        "best_greedy_return": "-26.0",
        "best_possible_return": "-26.0",
        "steps_to_first_success": "300",
        "steps_to_best_return": "500",
        "steps_to_stay_at_best": "1000",
        "area_under_curve": repr(-100 / 3),
        "wall_seconds": "12.25",
    }
    assert lines[1]["steps_to_best_return"] == "inf"
    assert lines[2]["steps_to_first_success"] == ""
    assert lines[2]["steps_to_best_return"] == "inf"
    unlike = FoundRuns(ROW, (run(0), replace(run(1), returns=(-299.0, -26.0, -1 / 3))))
    assert curves_csv([unlike, FoundRuns(ROW, ())]).splitlines() == [
        ",".join(CURVES_HEAD),
        "online,MR5,rover,ddpg,0,2,-299.5,-300,-299",
        "online,MR5,rover,ddpg,500,2,-26,-26,-26",
        "online,MR5,rover,ddpg,1000,2,-13.1667,-26,-0.333333",
    ]


def write_run(root: Path, row: TransferRow, seed: int, /, **changes: Any) -> Path:
    """A finished run as rover.finetuning leaves it, with the figures of :func:`run`."""
    folder = run_folder(root, row, seed)
    folder.mkdir(parents=True)
    made = run(seed)
    described = {
        "format": 1,
        "version": "0.1.0",
        "kind": "offline" if row.study == "offline" else "online",
        "algorithm": row.algorithm,
        "transfer": None if "scratch" in row.method or row.study == "offline" else row.transfer,
        "seed": seed,
        "task": {"goal": [21, 4]},
        "amount": row.amount,
        "settings": {"learner": {"entropy_coefficient": 0.3 if row.overrides else 0.0}},
    }
    write_json(folder / "transfer.json", {**described, **changes})
    with JsonLines(folder / "metrics.jsonl") as lines:
        for step, value in zip(made.steps, made.returns, strict=True):
            lines.append({"step": step, "greedy_return": value})
    append_session(folder, SESSION)
    write_json(folder / "summary.json", made.summary)
    return folder


def test_a_run_is_read_back(tmp_path: Path) -> None:
    folder = write_run(tmp_path, ROW, 3)
    assert read_run(folder, ROW, 3) == run(3)
    assert folder == tmp_path / "online" / (
        "rover-MultiRooms-v0-observation-onehot-room5/ddpg-rover/seed-3"
    )


def test_runs_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="is not finished; run its study again"):
        read_run(tmp_path, ROW, 0)
    other = write_run(tmp_path, ROW, 0, amount=20_000, algorithm="sac")
    with pytest.raises(
        ArtefactError, match=r"algorithm 'sac', not 'ddpg'; amount 20000, not 50000\); delete"
    ):
        read_run(other, ROW, 0)
    entropic = replace(ROW, overrides=(("learner.entropy_coefficient", 0.5),))
    with pytest.raises(ArtefactError, match=r"learner\.entropy_coefficient 0\.0, not 0\.5\)"):
        read_run(write_run(tmp_path / "plain", ROW, 0), entropic, 0)
    lacking = write_run(tmp_path, ROW, 1)
    write_json(lacking / "summary.json", {"steps": 1})
    with pytest.raises(ArtefactError, match="lacks best_possible_return, greedy_return"):
        read_run(lacking, ROW, 1)
    damaged = write_run(tmp_path, ROW, 2)
    (damaged / "metrics.jsonl").write_text('{"step":5,"greedy_return":"much"}\n')
    with pytest.raises(ArtefactError, match=r"metrics\.jsonl is damaged: record 1 .* not a number"):
        read_run(damaged, ROW, 2)
    (damaged / "metrics.jsonl").write_text('{"step":5}\n')
    with pytest.raises(ArtefactError, match="holds no greedy return; delete that folder"):
        read_run(damaged, ROW, 2)
    write_run(tmp_path, ROW, 4)
    (results,) = find_runs([ROW], tmp_path)
    assert [made.seed for made in results.runs] == [4]
    assert [line.split(": ")[0] for line in results.failures] == [
        f"{ROW.name}, seed {seed}" for seed in (0, 1, 2)
    ]


SCRATCH_ROW = replace(ROW, method="scratch")
SMALL = {
    "online": (SCRATCH_ROW, ROW),
    "distance": (replace(ROW, study="distance"), replace(ROW, study="distance", goal="room1")),
    "offline": (OFFLINE,),
}


def arguments(folder: Path, *more: str) -> list[str]:
    return ["--runs-dir", str(folder / "runs"), "--out", str(folder / "out"), *more]


def test_a_report_of_finished_runs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(2):
        write_run(tmp_path / "runs", SCRATCH_ROW, seed)
        write_run(tmp_path / "runs", ROW, seed)
    assert command.main(arguments(tmp_path, "--report-only"), studies=SMALL) == 0
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} == {
        "online.md",
        "distance.md",
        "runs.csv",
        "curves.csv",
        "pictures",
    }
    assert {path.name for path in (out / "pictures").iterdir()} == {
        "online.png",
        "distance.png",
        "steps_by_distance.png",
    }
    # both studies show the runs that they share
    assert "0 of 5 runs" in (out / "distance.md").read_text()
    assert str(tmp_path) not in (out / "online.md").read_text()
    assert capsys.readouterr().err == ""
    first = {path.name: path.read_bytes() for path in (out / "pictures").iterdir()}
    for path in (out / "pictures").iterdir():
        path.unlink()
    assert command.main(["--pictures-only", "--out", str(out)], studies=SMALL) == 0
    assert {path.name: path.read_bytes() for path in (out / "pictures").iterdir()} == first
    assert all(picture.startswith(b"\x89PNG") for picture in first.values())


def test_nothing_to_report_and_wrong_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments(tmp_path, "--report-only"), studies=SMALL) == 1
    assert "error: there is no finished run to report; run a study" in capsys.readouterr().err
    with pytest.raises(ArtefactError, match="there is no finished run to report"):
        write_report([FoundRuns(ROW, ())], tmp_path, jobs=2, failures={})
    assert command.main(arguments(tmp_path, "--seeds", "9"), studies=SMALL) == 1
    assert "no row of online, distance, offline has a seed among [9]" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        command.main(["--studies", "nowhere"], studies=SMALL)
    assert "invalid choice: 'nowhere'" in capsys.readouterr().err


def test_failures_end_the_command_and_stand_on_their_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Job:
        folder = tmp_path

        def __init__(self, name: str) -> None:
            self.name = name

    failures = (
        Failure(Job("rover-default, seed 3"), "no memory"),
        Failure(Job("online, rover, seed 4"), "it broke"),
    )
    monkeypatch.setattr(command, "run_missing", lambda options, studies: failures)
    write_run(tmp_path / "runs", ROW, 0)
    write_run(tmp_path / "runs", ROW, 1, seed=7)
    write_run(tmp_path / "runs", OFFLINE, 0)
    options = arguments(tmp_path, "--studies", "online", "distance")
    assert command.main(options, studies=SMALL) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "failed: rover-default, seed 3: no memory",
        "failed: online, rover, seed 4: it broke",
    ]
    assert len(lines) == 3
    assert "ddpg-rover, seed 1: ArtefactError: " in lines[2]
    assert "seed 7, not 1" in lines[2]
    online, distance, offline = (
        (tmp_path / "out" / f"{name}.md").read_text() for name in ("online", "distance", "offline")
    )
    assert "- rover-default, seed 3: no memory\n- online, rover, seed 4: it broke\n" in online
    assert "no memory" in distance
    assert "it broke" not in distance
    assert "Runs that failed" not in offline


def test_the_command_learns_what_is_missing_and_shared_runs_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = TransferRow(
        "online",
        TWO_ROOMS,
        "room1",
        "scratch",
        "ddpg",
        (0,),
        100,
        overrides=(("evaluate_every", 50),),
    )
    wrong = replace(row, goal="room2", overrides=(("no_such_setting", 1),))
    studies = {"online": (row, wrong), "distance": (replace(row, study="distance"),)}
    code = command.main(
        arguments(tmp_path, "--jobs", "1", "--pretrained", str(tmp_path)), studies=studies
    )
    said = capsys.readouterr()
    assert code == 1
    assert "no_such_setting" in said.err
    # one job for both rows, and none for the run that the other study shares
    assert "scratch, seed 0: starts, 2 of 2 runs" in said.out
    assert "[1/1] online, " in said.out
    lines = as_lines((tmp_path / "out" / "runs.csv").read_text())
    assert [(line["study"], line["steps"], line["goal_distance"]) for line in lines] == [
        ("online", "100", "12"),
        ("distance", "100", "12"),
    ]
    curve = as_lines((tmp_path / "out" / "curves.csv").read_text())
    assert [line["step"] for line in curve if line["study"] == "online"][-2:] == ["50", "100"]
    assert "room1 (6, 6) | 12 | −11 |" in (tmp_path / "out" / "online.md").read_text()


def as_lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_panels_come_from_the_csv_files() -> None:
    results = [
        found(SCRATCH_ROW, greedy_return=(-300.0,) * 5),
        found(greedy_return=(-26.0,)),
        found(replace(ROW, study="dense", reward="dense"), greedy_return=(-26.0,)),
    ]
    runs, curves = as_lines(runs_csv(results)), as_lines(curves_csv(results))
    (panel,) = task_panels("online", runs, curves)
    assert panel.title == "Multi-Rooms, goal in room 5 (27 steps away)"
    assert panel.best == -26.0
    assert [(c.method, c.learner, c.curve.n_runs) for c in panel.curves] == [
        ("scratch", "ddpg", 5),
        ("rover", "ddpg", 1),
    ]
    # the windows of the online picture: step 0, and the mean of steps 500 and 1000
    assert panel.curves[0].curve.steps.tolist() == [0.0, 750.0]
    assert panel.curves[0].curve.mean.tolist() == [-300.0, -26.0]
    (dense,) = task_panels("dense", runs, curves)
    assert dense.title == "Multi-Rooms, room 5, dense reward"
    assert dense.curves[0].curve.steps.tolist() == [0.0, 500.0, 1000.0]
    assert task_panels("pixels", runs, curves) == ()


def test_steps_by_distance_count_shared_runs_once_and_bounds_with_the_budget() -> None:
    near = replace(ROW, goal="room1")
    results = [
        found(steps_to_first_success=(200, 400)),
        found(replace(ROW, study="distance"), steps_to_first_success=(200, 400)),
        found(near, steps_to_first_success=(None, 600), best_possible_return=(-4.0, -4.0)),
        found(replace(ROW, reward="dense", study="dense"), steps_to_first_success=(1,)),
        found(replace(ROW, observation="pixels", study="pixels"), steps_to_first_success=(1,)),
        found(replace(ROW, env_id=TWO_ROOMS), steps_to_first_success=(1,)),
        found(OFFLINE, steps_to_first_success=(None,)),
    ]
    points = steps_by_distance(as_lines(runs_csv(results)))
    assert list(points) == ["rover"]
    assert set(points["rover"]) == {27, 5}
    far, bound = points["rover"][27], points["rover"][5]
    assert (far.value, far.points, far.n_censored) == (300.0, (200.0, 400.0), 0)
    assert (bound.value, bound.points, bound.n_censored) == (800.0, (1000.0, 600.0), 1)


def test_pictures_of_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"runs\.csv does not exist"):
        draw_pictures(tmp_path)
    (tmp_path / "runs.csv").write_text("a,b\n")
    with pytest.raises(
        ArtefactError, match=r"does not have the columns study, task.*--report-only"
    ):
        draw_pictures(tmp_path)
    results = [found(greedy_return=(-26.0,))]
    (tmp_path / "runs.csv").write_text(runs_csv(()))
    (tmp_path / "curves.csv").write_text(curves_csv(results))
    with pytest.raises(ArtefactError, match=r"do not fit together \('MR5'\); write them anew"):
        draw_pictures(tmp_path)
    (tmp_path / "runs.csv").write_text(runs_csv(results))
    (tmp_path / "curves.csv").write_text(curves_csv(results).replace("-26", "much"))
    with pytest.raises(ArtefactError, match="do not fit together"):
        draw_pictures(tmp_path)


def test_the_page_of_the_fastest_settings_says_them() -> None:
    text = page("tuned", every_result("tuned", greedy_return=-26.0), jobs=2)
    lines = table_below(text, "Final greedy return")
    assert lines[0] == f"| learner | start | {' | '.join(COLUMNS)} |"
    assert lines[2] == f"| ddpg-tuned | scratch | {' | '.join(['−26 (5/5)'] * 5)} |"
    assert lines[4] == "| ddpg-tuned | rnd | – | – | – | −26 (5/5) | −26 (5/5) |"
    assert len(lines) == 2 + 6
    assert "targets that follow at a rate of 0.05, a warm-up of 500 steps, and, with DDPG," in text
    tuned = [row for rows in STUDIES.values() for row in rows if row.variant == TUNED]
    assert {row.algorithm for row in tuned} == {"ddpg", "sac"}
    for row in tuned:
        defaults = make_finetune_config(row.algorithm)
        assert make_finetune_config(row.algorithm, overrides=dict(row.overrides)) == defaults


def test_what_is_taken_over_tells_lines_apart() -> None:
    results = every_result("parts", greedy_return=-26.0)
    lines = table_below(page("parts", results, jobs=2), "Final greedy return")
    starts = ["scratch", "rover-encoder", "rover", "rover-both"]
    assert lines[0] == "| learner | start | MR5 | MR4 |"
    assert lines[2:] == [f"| ddpg-tuned | {start} | −26 (3/3) | −26 (3/3) |" for start in starts]
    panels = task_panels("parts", as_lines(runs_csv(results)), as_lines(curves_csv(results)))
    assert [[curve.method for curve in panel.curves] for panel in panels] == [starts] * 2
    assert panels[1].title == "Multi-Rooms, room 4, dense reward"
    shared = {row.name for row in STUDIES["tuned-pixels"]} & {row.name for row in STUDIES["parts"]}
    assert len(shared) == 2
