"""Curves over environment steps: one run, or the mean and interval of several, per method."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.style import (
    BLACK,
    DOTTED,
    METHOD_STYLES,
    TEXT_COLOUR,
    TICK_SIZE,
    AnyFigure,
    add_legend,
    label_axes,
    make_count_formatter,
    method_style,
    style_axes,
)

FloatArray = NDArray[np.float64]
Records = Sequence[Mapping[str, Any]]
"""The lines of one metrics.jsonl."""

Runs = Mapping[str, Sequence[Records]]
"""Method → its runs."""

Interval = Literal["student", "bootstrap"]
"""Ways to the 95% interval of a mean over runs."""

_N_RESAMPLES = 2000
_FEW_METHODS = 4
_T_QUANTILES = (12.7062, 4.3027, 3.1824, 2.7764)  # two-sided 95%, 1 to 4 degrees of freedom
_NORMAL_QUANTILE = 1.959964
_LEGEND_COLUMNS = 6


@dataclass(frozen=True)
class MeanCurve:
    """The mean of several runs, with a 95% interval of that mean.

    Attributes:
        steps: (T,) environment steps.
        mean: (T,).
        low, high: (T,) ends of the interval; equal to the mean for a single run.
        n_runs: number of runs.
    """

    steps: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray
    n_runs: int


def read_series(records: Records, key: str) -> tuple[FloatArray, FloatArray]:
    """Steps (T,) and values (T,) of the records in which `key` has a value.

    Raises:
        ConfigurationError: a step or value that is not a number, or steps that do not increase.
    """
    pairs: list[tuple[float, float]] = []
    for number, record in enumerate(records, start=1):
        if record.get(key) is None:
            continue
        pair = (record.get("step"), record[key])
        for name, value in zip(("step", key), pair, strict=True):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigurationError(f"record {number} has the {name} {value!r}, not a number")
        if pairs and pair[0] <= pairs[-1][0]:  # type: ignore[operator]
            raise ConfigurationError(
                f"record {number} is of step {pair[0]}, not after step {pairs[-1][0]:g} before it"
            )
        pairs.append(pair)  # type: ignore[arg-type]
    table = np.array(pairs, np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def mean_curve(
    series: Sequence[tuple[FloatArray, FloatArray]], *, interval: Interval = "student"
) -> MeanCurve:
    """Mean and 95% interval of runs, on the steps that all of them cover.

    Runs measured at different steps are interpolated linearly between their own measurements;
    nothing is extrapolated.

    Args:
        series: steps (T_i,) and values (T_i,) of each run.
        interval: Student's, or the percentile bootstrap over runs, which stays among the runs.

    Raises:
        ConfigurationError: no run, an empty one, or runs that have no step in common.
    """
    if not series or any(len(steps) == 0 for steps, _ in series):
        raise ConfigurationError("there are no measurements to draw")
    first = max(steps[0] for steps, _ in series)
    last = min(steps[-1] for steps, _ in series)
    if first > last:
        raise ConfigurationError(
            f"the runs have no steps in common: one begins at step {first:g}, another ends at "
            f"step {last:g}"
        )
    every = np.unique(np.concatenate([steps for steps, _ in series]))
    grid = every[(every >= first) & (every <= last)]  # (T,)
    values = np.stack([np.interp(grid, steps, run) for steps, run in series])  # (runs, T)
    mean = values.mean(axis=0)
    n_runs = len(series)
    if interval == "bootstrap" and n_runs > 1:
        drawn = np.random.default_rng(0).multinomial(n_runs, [1.0 / n_runs] * n_runs, _N_RESAMPLES)
        low, high = np.quantile(drawn @ values / n_runs, (0.025, 0.975), axis=0)
        return MeanCurve(grid, mean, low, high, n_runs)
    half = np.zeros_like(mean)
    if n_runs > 1:
        half = t_quantile(n_runs - 1) * values.std(axis=0, ddof=1) / np.sqrt(n_runs)
    return MeanCurve(grid, mean, mean - half, mean + half, n_runs)


def t_quantile(degrees_of_freedom: int) -> float:
    """Two-sided 95% quantile of Student's t distribution.

    Tabulated up to 4 degrees of freedom, from there Cornish and Fisher's expansion around the
    normal quantile (Abramowitz & Stegun 26.7.5), which is good to three digits.
    """
    if degrees_of_freedom <= len(_T_QUANTILES):
        return _T_QUANTILES[degrees_of_freedom - 1]
    z, n = _NORMAL_QUANTILE, float(degrees_of_freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


def has_values(runs: Runs, key: str) -> bool:
    """Whether any record of any run has a value for `key`."""
    return any(
        record.get(key) is not None
        for records in runs.values()
        for run in records
        for record in run
    )


def draw_curve(axes: Axes, runs: Runs, key: str, *, interval: Interval = "student") -> None:
    """One line per method over environment steps, with a band for the interval of several runs.

    Args:
        axes: drawn on.
        runs: method → its runs; methods without a value for `key` are left out.
        key: of the records.
        interval: see :func:`mean_curve`.

    Raises:
        ConfigurationError: no method has a value for `key`.
    """
    if not has_values(runs, key):
        raise ConfigurationError(f"no run has a value of {key!r}: there is nothing to draw")
    opacity = 0.18 if len(runs) <= _FEW_METHODS else 0.1
    for method, records in runs.items():
        series = [read_series(run, key) for run in records]
        series = [pair for pair in series if len(pair[0])]
        if not series:
            continue
        curve, style = mean_curve(series, interval=interval), method_style(method)
        count = f" ({curve.n_runs} runs)" if curve.n_runs > 1 else ""
        axes.plot(
            curve.steps,
            curve.mean,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.8,
            marker="o" if len(curve.steps) == 1 else None,
            label=f"{style.label}{count}",
        )
        if curve.n_runs > 1:
            axes.fill_between(
                curve.steps, curve.low, curve.high, color=style.colour, alpha=opacity, linewidth=0
            )
    style_axes(axes)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.xaxis.set_major_formatter(make_count_formatter())
    label_axes(axes, x="environment steps")


def draw_sink_mass(axes: Axes, runs: Runs) -> None:
    """Occupancy that the model sends to the sink, on a log scale: what it does not know yet.

    Args:
        axes: drawn on.
        runs: method → its runs.

    Raises:
        ConfigurationError: no run has a sink.
    """
    draw_curve(axes, runs, "sink_mass")
    _use_log_scale(axes)
    axes.set_ylim(top=1.2)
    label_axes(axes, title="Sink mass", y="share of the occupancy in the sink")
    if _needs_legend(runs):
        add_legend(axes, loc="best")


def draw_learning_curves(
    figure: AnyFigure,
    runs: Runs,
    *,
    n_states: int | None = None,
    uniform_ratio: float | None = None,
    interval: Interval = "student",
) -> list[Axes]:
    """Coverage, states seen and J/J* over environment steps, as far as they are known.

    Where the true states are unknown, the distinct observations in the buffer are drawn instead.
    Several runs of a method become their mean and its 95% interval.

    Args:
        figure: empty.
        runs: method → its runs, each the records of metrics.jsonl.
        n_states: number of true states, a reference line for the states seen.
        uniform_ratio: J/J* of the uniform policy, a reference line.
        interval: see :func:`mean_curve`.

    Returns:
        The axes, from left to right.

    Raises:
        ConfigurationError: no run has any of these values.
    """
    panels: dict[str, Callable[[Axes], None]] = {
        "coverage": _finish_coverage,
        "states_seen": lambda axes: _finish_states_seen(axes, n_states),
        "optimality_ratio": lambda axes: _finish_ratio(axes, uniform_ratio),
    }
    shown = [key for key in panels if has_values(runs, key)]
    if "states_seen" not in shown and has_values(runs, "observations"):
        panels["observations"] = _finish_observations
        shown.append("observations")
    if not shown:
        raise ConfigurationError(
            "no run has a coverage, states seen, ratio or observations: there is nothing to draw"
        )
    all_axes: list[Axes] = list(figure.subplots(1, len(shown), squeeze=False).ravel())
    for axes, key in zip(all_axes, shown, strict=True):
        draw_curve(axes, runs, key, interval=interval)
        panels[key](axes)
    if _needs_legend(runs):
        # Below the panels: beside this many lines there is no free corner in them.
        handles, labels = _legend_entries(all_axes)
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), _LEGEND_COLUMNS),
            fontsize=TICK_SIZE,
            labelcolor=TEXT_COLOUR,
            frameon=False,
        )
    return all_axes


def _finish_coverage(axes: Axes) -> None:
    axes.set_ylim(0.0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    label_axes(axes, title="Coverage by the policy", y="states visited by its episodes")


def _finish_states_seen(axes: Axes, n_states: int | None) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(make_count_formatter())
    if n_states is not None:
        axes.set_ylim(0, 1.03 * n_states)
        _add_reference(axes, n_states, f"all {n_states:,}", below=True)
    label_axes(axes, title="States in the buffer", y="distinct states seen")


def _finish_observations(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_formatter(make_count_formatter())
    label_axes(axes, title="Observations in the buffer", y="distinct observations seen")


def _finish_ratio(axes: Axes, uniform_ratio: float | None) -> None:
    _use_log_scale(axes)
    low, high = axes.get_ylim()
    _add_reference(axes, 1.0, METHOD_STYLES["optimal"].label, method="optimal", below=True)
    if uniform_ratio is not None:
        high = max(high, 1.15 * uniform_ratio)
        _add_reference(axes, uniform_ratio, METHOD_STYLES["uniform"].label, method="uniform")
    axes.set_ylim(min(low, 0.8), max(high, 1.3))
    axes.yaxis.set_major_locator(LogLocator(10.0, subs=(1.0, 1.5, 2.0, 3.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    label_axes(axes, title="Objective over optimum", y="J / J* (log scale)")


def _use_log_scale(axes: Axes) -> None:
    """A logarithmic axis on which a zero, or an interval that reaches below it, goes to the edge.

    The interval does not set the limits: its lower end may be arbitrarily close to zero.
    """
    values = np.concatenate([np.asarray(line.get_ydata(), np.float64) for line in axes.lines])
    positive = values[values > 0.0]
    axes.set_yscale("log", nonpositive="clip")
    if len(positive):
        axes.set_ylim(0.8 * positive.min(), 1.25 * positive.max())


def _add_reference(
    axes: Axes, value: float, text: str, *, method: str | None = None, below: bool = False
) -> None:
    """A thin horizontal line with its name written on it at the right end."""
    style = None if method is None else method_style(method)
    colour = BLACK if style is None else style.colour
    axes.axhline(
        value,
        color=colour,
        linestyle=DOTTED if style is None else style.dashes,
        linewidth=1.0,
        zorder=1.5,
    )
    axes.annotate(
        text,
        (1.0, value),
        xycoords=("axes fraction", "data"),
        xytext=(-2, -3 if below else 3),
        textcoords="offset points",
        ha="right",
        va="top" if below else "bottom",
        fontsize=TICK_SIZE,
        color=colour,
    )


def _needs_legend(runs: Runs) -> bool:
    return len(runs) > 1 or any(len(records) > 1 for records in runs.values())


def _legend_entries(all_axes: Sequence[Axes]) -> tuple[list[Artist], list[str]]:
    """Each label once, with the first line that has it: a method may miss from some panels."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)
