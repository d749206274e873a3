"""From finished runs to one page of tables per study, runs.csv and curves.csv."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rover.errors import ArtefactError
from rover.experiments.provenance import describe_sessions
from rover.experiments.transfer.csv_files import curves_csv, runs_csv
from rover.experiments.transfer.figures import (
    NOTHING,
    area_cell,
    best_return,
    event_cell,
    format_best,
    goal_distance,
    goals_in_data_cell,
    missing_note,
    ratio_cell,
    return_cell,
    values_of,
)
from rover.experiments.transfer.finished import FoundRuns
from rover.experiments.transfer.rows import (
    COLUMNS,
    ONLINE_STEPS,
    PAPER_OFFLINE,
    PAPER_ONLINE_SCRATCH,
    SCRATCH,
    TransferRow,
)
from rover.experiments.transfer.texts import (
    EVENT_LEGENDS,
    ONLINE_LEGEND,
    PAGES,
    PAPER_SPREAD,
    RETURN_LEGEND,
    legend_of,
)
from rover.storage import check_writable
from rover.storage.storage import replace_file

Results = Sequence[FoundRuns]
Cell = Callable[[FoundRuns], str]


def write_report(
    results: Results, folder: Path, *, jobs: int, failures: Mapping[str, Sequence[str]]
) -> tuple[Path, ...]:
    """Write a page for each study that has a finished run, runs.csv and curves.csv; their paths.

    Args:
        results: the runs found, by row.
        folder: of the files; made if need be.
        jobs: runs side by side that the pages' commands name.
        failures: study → one sentence for each run that failed.

    Raises:
        ArtefactError: there is no finished run.
        StorageError: the files cannot be written; earlier ones are as they were.
    """
    shown = studies_with_runs(results)
    if not shown:
        raise ArtefactError(
            "there is no finished run to report; run a study first, without --report-only"
        )
    check_writable(folder)
    texts = {
        f"{study}.md": page(study, results, jobs=jobs, failures=failures.get(study, ()))
        for study in shown
    }
    texts |= {"runs.csv": runs_csv(results), "curves.csv": curves_csv(results)}
    for name, text in texts.items():
        replace_file(folder / name, [text.encode()])
    return tuple(folder / name for name in texts)


def studies_with_runs(results: Results) -> tuple[str, ...]:
    """The studies that have a finished run, in the order of `results`."""
    return tuple(dict.fromkeys(found.row.study for found in results if found.runs))


def page(study: str, results: Results, *, jobs: int, failures: Sequence[str] = ()) -> str:
    """The Markdown page of a study.

    Args:
        study: its name.
        results: the runs found; those of other studies are for reference only.
        jobs: runs side by side that the page's command names.
        failures: one sentence for each run that failed.
    """
    title, claim = PAGES[study]
    mine = [found for found in results if found.row.study == study]
    legend = "" if study == "offline" else ONLINE_LEGEND
    parts = [f"# {title}", claim, legend, legend_of(study)]
    parts += ["## Tasks", _tasks(mine)]
    parts += _offline_parts(mine, results) if study == "offline" else _online_parts(study, mine)
    parts += ["## How it was made", _provenance(study, mine, jobs)]
    if failures:
        parts += ["## Runs that failed", "\n".join(f"- {line}" for line in failures)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _online_parts(study: str, mine: Results) -> list[str]:
    parts = ["## Final greedy return", RETURN_LEGEND]
    paper: dict[tuple[str, str], tuple[str, ...]] = {}
    if study == "online":
        paper["ddpg", SCRATCH] = PAPER_ONLINE_SCRATCH
        parts.append(f"{PAPER_SPREAD} The paper's line is of DDPG from scratch, 50,000 steps.")
    parts.append(_table(mine, return_cell, paper=paper))
    for heading, event in (
        ("Steps to the first success", "steps_to_first_success"),
        ("Steps to the best possible return", "steps_to_best_return"),
    ):
        parts += [f"## {heading}", EVENT_LEGENDS[event]]
        by_distance = study == "distance"
        parts.append(_event_table(mine, event, with_ratio=by_distance))
    return [
        *parts,
        "## Area under the learning curve",
        "Greedy return averaged over the steps of training: mean and 95% bootstrap interval.",
        _table(mine, area_cell),
    ]


def _event_table(mine: Results, event: str, *, with_ratio: bool) -> str:
    def cell(found: FoundRuns) -> str:
        return event_cell(found, event)

    if not with_ratio:
        return _table(mine, cell)
    ends = _nearest_and_farthest(mine)
    if ends is None:
        return _table(mine, cell)

    def ratio(group: Mapping[str, FoundRuns]) -> str:
        near, far = (group.get(column) for column in ends)
        return NOTHING if near is None or far is None else ratio_cell(near, far, event)

    return _table(mine, cell, last=(f"{ends[1]} / {ends[0]}", ratio))


def _nearest_and_farthest(mine: Results) -> tuple[str, str] | None:
    distances = {found.row.column: goal_distance(found) for found in mine if found.runs}
    known = {column: d for column, d in distances.items() if d is not None}
    if len(known) < 2:
        return None
    return min(known, key=known.__getitem__), max(known, key=known.__getitem__)


def _offline_parts(mine: Results, results: Results) -> list[str]:
    online = {
        found.row.column: found
        for found in results
        if (found.row.study, found.row.method, found.row.learner) == ("online", SCRATCH, "ddpg")
    }
    reference = ["ddpg online", SCRATCH]
    for column in dict.fromkeys(found.row.column for found in mine):
        seen = online.get(column)
        ours = return_cell(seen) if seen is not None and seen.runs else NOTHING
        reference.append(_above_paper(ours, PAPER_ONLINE_SCRATCH, column))
    best = _best_in_column(mine)

    def cell(found: FoundRuns) -> str:
        row = found.row
        text = return_cell(found, is_best=_place(found) in best)
        return _above_paper(text, PAPER_OFFLINE.get((row.learner, row.method), ()), row.column)

    return [
        "## Final greedy return",
        f"{RETURN_LEGEND} The best of a learner in a column is in bold type, unless all are "
        f"equal; below it stands the paper's figure. {PAPER_SPREAD} The last line learned by "
        f"interacting and without any data, for {ONLINE_STEPS:,} steps (in the paper 50,000).",
        _table(mine, cell, head="data", extra=[reference]),
        "## The goal in the data",
        "Stored transitions that end at the goal: median over seeds, and in brackets how many "
        "runs' data has any. What the data does not show cannot be learned from it.",
        _table(
            [found for found in mine if found.row.learner == mine[0].row.learner],
            goals_in_data_cell,
            head="data",
            shows_learner=False,
        ),
    ]


def _in_column(paper: Sequence[str], column: str) -> str:
    """The paper's figure of a task; nothing where it has none."""
    return dict(zip(COLUMNS, paper, strict=False)).get(column, "")


def _above_paper(text: str, paper: Sequence[str], column: str) -> str:
    figure = _in_column(paper, column)
    return f"{text}<br>paper: {figure}" if figure else text


def _place(found: FoundRuns) -> tuple[str, str, str]:
    return found.row.learner, found.row.column, found.row.start


def _best_in_column(mine: Results) -> set[tuple[str, str, str]]:
    """Places of the rows whose mean return is the best of their learner and column."""
    groups: dict[tuple[str, str], dict[tuple[str, str, str], float]] = {}
    for found in mine:
        values = values_of(found, "greedy_return")
        if values:
            group = groups.setdefault((found.row.learner, found.row.column), {})
            group[_place(found)] = sum(values) / len(values)
    best: set[tuple[str, str, str]] = set()
    for means in groups.values():
        top = max(means.values())
        if top > min(means.values()):
            best |= {place for place, mean in means.items() if mean == top}
    return best


def _table(
    mine: Results,
    cell: Cell,
    *,
    head: str = "start",
    shows_learner: bool = True,
    paper: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
    extra: Sequence[Sequence[str]] = (),
    last: tuple[str, Callable[[Mapping[str, FoundRuns]], str]] | None = None,
) -> str:
    """Rows by learner and method, columns by task.

    Args:
        mine: what is shown.
        cell: the text of a cell.
        head: heading of the methods.
        shows_learner: whether the first column names the learner.
        paper: lines of the paper, below those of the same learner and method.
        extra: further lines.
        last: heading and cells of a last column, from all cells of a line.
    """
    columns = list(dict.fromkeys(found.row.column for found in mine))
    groups: dict[tuple[str, str], dict[str, FoundRuns]] = {}
    for found in mine:
        groups.setdefault((found.row.learner, found.row.start), {})[found.row.column] = found
    heads = ["learner", head, *columns, *([last[0]] if last else [])]
    lines = [heads, ["---", "---", *["---:"] * (len(heads) - 2)]]
    for key, group in groups.items():
        cells = [cell(group[column]) if column in group else "" for column in columns]
        cells += [last[1](group)] if last else []
        lines.append([*key, *(text or NOTHING for text in cells)])
        if paper and key in paper:
            figures = [_in_column(paper[key], column) or NOTHING for column in columns]
            lines.append([key[0], f"{key[1]}, the paper", *figures])
    lines += [list(line) for line in extra]
    return markdown_table(lines if shows_learner else [line[1:] for line in lines])


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """Lines of cells as a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _tasks(mine: Results) -> str:
    lines = [
        [
            "task",
            "environment",
            "observations",
            "reward",
            "goal (x, y)",
            "steps away",
            "best return",
        ],
        ["---", "---", "---", "---", "---:", "---:", "---:"],
    ]
    tasks: dict[str, FoundRuns] = {}
    for found in mine:
        if found.runs:
            tasks.setdefault(found.row.column, found)
    for column, found in tasks.items():
        row, goal, distance = found.row, found.runs[0].goal, goal_distance(found)
        cell = NOTHING if goal is None else f"({goal[0]}, {goal[1]})"
        away = NOTHING if distance is None else str(distance)
        where = [column, row.env_id, row.observation, row.reward, f"{row.goal} {cell}", away]
        lines.append([*where, format_best(best_return(found))])
    return markdown_table(lines)


def _provenance(study: str, mine: Results, jobs: int) -> str:
    rows = [found.row for found in mine]
    source = "learns from the data" if study == "offline" else "starts from the policy"
    facts = [f"Seeds: {_seeds(rows)}; each run {source} of the pretrained run of its own seed."]
    facts.append(_budget(study, rows))
    facts += describe_sessions(
        session for found in mine for run in found.runs for session in run.sessions
    )
    missing = [
        f"{found.row.learner} from {found.row.start}, {found.row.column}: {missing_note(found)}"
        for found in mine
        if missing_note(found)
    ]
    if missing:
        facts.append(f"Missing: {'; '.join(missing)}.")
    command = f"    python -m rover.experiments.transfer --studies {study} --jobs {jobs}"
    return "\n\n".join([command, "\n".join(f"- {fact}" for fact in facts)])


def _seeds(rows: Sequence[TransferRow]) -> str:
    words = dict.fromkeys(f"{min(row.seeds)} to {max(row.seeds)}" for row in rows)
    return " or ".join(words)


def _budget(study: str, rows: Sequence[TransferRow]) -> str:
    amounts = " or ".join(dict.fromkeys(f"{row.amount:,}" for row in rows))
    starts = dict.fromkeys(f"{row.pretraining_steps:,}" for row in rows if not row.is_from_scratch)
    pretraining = " or ".join(starts)
    if study == "offline":
        return (
            f"Budget: {amounts} updates on the {pretraining} transitions of pretraining, which saw "
            "no reward; the task's reward labels them afterwards."
        )
    return (
        f"Budget: {amounts} environment steps a run, after {pretraining} reward-free steps of "
        "pretraining, which are not counted; from scratch there is no pretraining."
    )
