"""Several maps beside each other on one colour scale: occupancies, visits, the sink diagnostic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize, PowerNorm
from matplotlib.image import AxesImage
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.maps import draw_values, panel_layout
from rover.plots.style import AnyFigure, add_colour_bar, label_axes

ENDED = -1
"""Marks the steps of a trajectory after its episode has ended."""


def sampled_occupancy(
    trajectories: NDArray[np.int64], *, n_states: int, discount: float
) -> NDArray[np.float64]:
    """The discounted occupancy that sampled episodes estimate, (S,), summing to 1.

    Each visit at time t counts γ^t, and the total is normalised: the estimate of the occupancy of
    the process that starts anew at the end of an episode, up to the episodes' truncation.

    Args:
        trajectories: (E, H + 1) states, −1 after the end of an episode.
        n_states: S.
        discount: γ in [0, 1).

    Raises:
        ConfigurationError: discount out of range, or states that do not exist.
    """
    if not 0.0 <= discount < 1.0:
        raise ConfigurationError(f"discount is {discount}; it must be in [0, 1)")
    if trajectories.ndim != 2 or not (trajectories >= 0).any() or trajectories.max() >= n_states:
        raise ConfigurationError(
            f"trajectories (shape {trajectories.shape}) hold no states, or some beyond the "
            f"{n_states} that there are"
        )
    weights = np.broadcast_to(discount ** np.arange(trajectories.shape[1]), trajectories.shape)
    alive = trajectories != ENDED
    counts = np.bincount(trajectories[alive], weights=weights[alive], minlength=n_states)
    return np.asarray(counts / counts.sum(), np.float64)


def draw_occupancy(
    figure: AnyFigure,
    occupancies: Mapping[str, NDArray[np.float64]],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
    *,
    columns: int | None = None,
) -> list[AxesImage]:
    """Occupancies on maps that share one colour scale from zero.

    The scale is that of the square root: a start state that is occupied a hundred times more than
    the others does not make these look alike.

    Args:
        figure: empty; see :func:`rover.plots.panel_size` for its size.
        occupancies: title of each map → (S,) probabilities; for one policy such as exact, sampled
            and optimal, or one entry per method.
        cells: (S, 2) as (x, y).
        free: (height, width).
        columns: maps in a row; by default wide maps are put below each other.

    Returns:
        The images, in order.

    Raises:
        ConfigurationError: nothing to draw, negative or non-finite values, shapes that disagree.
    """
    _check_panels("occupancies", occupancies)
    norm = PowerNorm(0.5, 0.0, max(float(values.max()) for values in occupancies.values()))
    return _draw_panels(
        figure, occupancies, cells, free, norm, columns, "discounted occupancy\n(√ scale; bare: 0)"
    )


def draw_visits(
    figure: AnyFigure,
    visits: Mapping[str, NDArray[Any]],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
    *,
    columns: int | None = None,
) -> list[AxesImage]:
    """Visit counts on maps that share one logarithmic colour scale; unvisited cells stay bare.

    Args:
        figure: empty.
        visits: title of each map → (S,) counts, of a buffer or one entry per method.
        cells: (S, 2) as (x, y).
        free: (height, width).
        columns: maps in a row; by default wide maps are put below each other.

    Returns:
        The images, in order.

    Raises:
        ConfigurationError: nothing to draw, negative or non-finite values, shapes that disagree.
    """
    _check_panels("visits", visits)
    norm = log_norm(list(visits.values()))
    return _draw_panels(
        figure, visits, cells, free, norm, columns, "visits\n(log scale; bare: none)"
    )


def log_norm(counts: Sequence[NDArray[Any]]) -> LogNorm:
    """Logarithmic colour scale from 1 to the largest count, or to 10 if that is more."""
    return LogNorm(1.0, max(10.0, max(float(values.max()) for values in counts)))


def draw_sink_diagnostic(
    figure: AnyFigure,
    visits_with: NDArray[Any],
    visits_without: NDArray[Any],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
    *,
    rounds: Sequence[int] | None = None,
) -> list[AxesImage]:
    """Where the policy of each round went, without the sink above and with it below.

    The picture of the paper's sink diagnostic (Fig. sink_multiroom): the model is fitted to the
    latest batch only, visits are on one logarithmic scale.

    Args:
        figure: empty.
        visits_with: (R, S) visit counts of each round with the sink.
        visits_without: (R, S) without it.
        cells: (S, 2) as (x, y).
        free: (height, width).
        rounds: (R,) numbers of the rounds; by default 1 to R.

    Returns:
        The 2R images: first those without the sink, then those with it.

    Raises:
        ConfigurationError: no rounds, shapes that disagree, or counts that are no counts.
    """
    if visits_with.ndim != 2 or visits_with.shape != visits_without.shape:
        raise ConfigurationError(
            f"visits have shapes {visits_with.shape} with and {visits_without.shape} without the "
            "sink; both must be (rounds, states)"
        )
    n_rounds, n_states = visits_with.shape
    numbers = list(range(1, n_rounds + 1)) if rounds is None else list(rounds)
    if len(numbers) != n_rounds:
        raise ConfigurationError(f"there are {len(numbers)} round numbers for {n_rounds} rounds")
    rows = {"without sink": visits_without, "with sink": visits_with}
    _check_panels("rounds", {f"{name}, round": counts for name, counts in rows.items()})
    norm = log_norm(list(rows.values()))
    axes = figure.subplots(2, n_rounds, squeeze=False)
    images = []
    for row, (name, counts) in enumerate(rows.items()):
        for column, number in enumerate(numbers):
            panel: Axes = axes[row, column]
            images.append(draw_values(panel, counts[column], cells, free, norm=norm))
            seen = np.count_nonzero(counts[column])
            label_axes(
                panel,
                title=f"round {number}" if row == 0 else None,
                x=f"{seen} of {n_states} states",
            )
        label_axes(axes[row, 0], y=name)
        axes[row, 0].yaxis.label.set(rotation=0, ha="right", va="center")
    add_colour_bar(figure, images[0], axes.ravel().tolist(), "visits\n(log scale; bare: none)")
    return images


def _check_panels(what: str, panels: Mapping[str, NDArray[Any]]) -> None:
    if not panels or any(values.size == 0 for values in panels.values()):
        raise ConfigurationError(f"there are no {what} to draw")
    for title, values in panels.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise ConfigurationError(
                f"{what}: {title!r} holds a value that is negative or not finite; give counts or "
                "probabilities"
            )
    if not any((values > 0).any() for values in panels.values()):
        raise ConfigurationError(f"{what} are all zero: there is nothing to draw")


def _draw_panels(
    figure: AnyFigure,
    panels: Mapping[str, NDArray[Any]],
    cells: NDArray[np.int64],
    free: NDArray[np.bool_],
    norm: Normalize,
    columns: int | None,
    scale_label: str,
) -> list[AxesImage]:
    if columns is not None and columns < 1:
        raise ConfigurationError(f"columns is {columns}; use at least 1")
    rows, across = panel_layout(free, len(panels))
    if columns is not None:
        rows, across = -(-len(panels) // columns), columns
    axes: list[Axes] = list(figure.subplots(rows, across, squeeze=False).ravel())
    images = []
    for panel, (title, values) in zip(axes, panels.items(), strict=False):
        images.append(draw_values(panel, values, cells, free, norm=norm))
        label_axes(panel, title=title)
    for unused in axes[len(panels) :]:
        unused.remove()
    add_colour_bar(figure, images[0], axes[: len(panels)], scale_label)
    return images
