"""Figures of a row over its seeds, and how the cells of tables say them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from rover.experiments.comparison.aggregates import Aggregate, aggregate
from rover.experiments.results.report import format_figure
from rover.experiments.transfer.finished import FinishedRun, FoundRuns

EVENTS: Final = ("steps_to_first_success", "steps_to_best_return", "steps_to_stay_at_best")
"""Figures that are the step of an event, which may not come."""

NOTHING: Final = "–"
_TOLERANCE = 1e-6


def best_return(found: FoundRuns) -> float | None:
    """The best possible return of the row's task; None where it is unknown or there is no run."""
    if not found.runs:
        return None
    best = found.runs[0].summary["best_possible_return"]
    return None if best is None else float(best)


def goal_distance(found: FoundRuns) -> int | None:
    """Fewest steps from the start to the goal; None where it is unknown.

    Under the sparse reward, −1 per step and 0 at the goal, the best return is 1 − distance.
    """
    best = best_return(found)
    return None if best is None or found.row.reward != "sparse" else round(1.0 - best)


def is_at_best(run: FinishedRun) -> bool:
    """Whether the final greedy return is the best possible one."""
    best = run.summary["best_possible_return"]
    return best is not None and run.summary["greedy_return"] >= best - _TOLERANCE


def event_applies(found: FoundRuns, event: str) -> bool:
    """Whether the row's runs could have seen an event.

    None could without a best return; and learning from stored transitions has no first success.
    """
    offline = found.row.study == "offline" and event == "steps_to_first_success"
    return best_return(found) is not None and not offline


def values_of(found: FoundRuns, figure: str) -> tuple[float, ...]:
    """The values of `figure` over the runs: infinite where an event did not come.

    Empty where the figure does not apply, or there is no run.
    """
    if figure in EVENTS and not event_applies(found, figure):
        return ()
    values = [run.summary[figure] for run in found.runs]
    return tuple(math.inf if value is None else float(value) for value in values)


def aggregate_of(found: FoundRuns, figure: str) -> Aggregate | None:
    """Mean, interquartile mean and intervals; runs without the event count with the budget."""
    values = values_of(found, figure)
    return aggregate(values, limit=found.row.amount) if values else None


def format_return(values: Sequence[float]) -> str:
    """Mean and standard error of returns, such as ``−160.5±57.7``; ``−11`` where all are equal.

    The standard error of n runs is √(Σ (r − r̄)² / (n (n − 1))).
    """
    runs = np.array(values, np.float64)
    mean = float(runs.mean())
    if len(runs) == 1 or (runs == runs[0]).all():
        return _signed(f"{runs[0]:.0f}" if float(runs[0]).is_integer() else f"{runs[0]:.1f}")
    error = float(runs.std(ddof=1)) / math.sqrt(len(runs))
    return f"{_signed(f'{mean:.1f}')}±{error:.1f}"


def return_cell(found: FoundRuns, *, is_best: bool = False) -> str:
    """The final greedy return and how many runs end at the best one: ``−26 (5/5)``.

    Args:
        found: the row's runs.
        is_best: whether no other row of the column is better, which is shown in bold type.
    """
    if not found.runs:
        return missing_note(found)
    text = format_return(values_of(found, "greedy_return"))
    if is_best:
        text = f"**{text}**"
    if best_return(found) is not None:
        text += f" ({sum(map(is_at_best, found.runs))}/{len(found.runs)})"
    note = missing_note(found)
    return f"{text}<br>{note}" if note else text


def missing_note(found: FoundRuns) -> str:
    """``3 of 5 runs`` where some are missing, else nothing."""
    done, asked = len(found.runs), len(found.row.seeds)
    return "" if done == asked else f"{done} of {asked} runs"


def event_cell(found: FoundRuns, event: str) -> str:
    """Interquartile mean and interval of the step of an event, such as ``523 [471, 561]``."""
    aggregated = aggregate_of(found, event)
    if aggregated is None:
        return NOTHING
    limit = found.row.amount
    if aggregated.n_censored == aggregated.n_runs:
        return f"not by {limit:,}"
    value, low, high = (
        format_figure(number, "steps", limit)
        for number in (aggregated.iqm.value, aggregated.iqm.low, aggregated.iqm.high)
    )
    text = f"{'> ' if aggregated.n_censored else ''}{value}"
    if aggregated.n_runs > 1:
        text += f" [{low}, {high}]"
    if aggregated.n_censored:
        text += f"<br>{aggregated.n_censored} of {aggregated.n_runs} not by {limit:,}"
    return text


def area_cell(found: FoundRuns) -> str:
    """Mean and interval of the area under the curve, such as ``−57.3 [−60.1, −54.0]``."""
    aggregated = aggregate_of(found, "area_under_curve")
    if aggregated is None:
        return NOTHING
    mean = aggregated.mean
    text = _signed(f"{mean.value:.1f}")
    if aggregated.n_runs > 1:
        text += f" [{_signed(f'{mean.low:.1f}')}, {_signed(f'{mean.high:.1f}')}]"
    return text


def ratio_cell(nearest: FoundRuns, farthest: FoundRuns, event: str) -> str:
    """How many times later an event comes for the farthest goal than for the nearest one.

    A lower bound where runs of the farthest goal did not get there; nothing can be said where runs
    of the nearest one did not.
    """
    near, far = aggregate_of(nearest, event), aggregate_of(farthest, event)
    if near is None or far is None or near.n_censored or near.iqm.value == 0.0:
        return NOTHING
    return f"{'> ' if far.n_censored else ''}{far.iqm.value / near.iqm.value:.1f}"


def goals_in_data_cell(found: FoundRuns) -> str:
    """Stored transitions into the goal, the median over runs: ``12 (7/7)``.

    In brackets, how many runs' data has any.
    """
    counts = [run.summary.get("labelled_goals") for run in found.runs]
    known = [count for count in counts if count is not None]
    if not known:
        return NOTHING
    return f"{np.median(known):,.0f} ({sum(count > 0 for count in known)}/{len(known)})"


def format_best(best: float | None) -> str:
    """A best return as text, such as ``−26``."""
    return NOTHING if best is None else format_return([best])


def _signed(text: str) -> str:
    """With the minus sign that the paper's figures have, and none before a zero."""
    return text.lstrip("-") if float(text) == 0.0 else text.replace("-", "−")
