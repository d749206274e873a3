"""Occupancy of finite problems without a map: one bar per state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from rover.errors import ConfigurationError
from rover.plots.style import BLUE, ORANGE, SKY_BLUE, VERMILLION, add_legend, label_axes, style_axes

_MARKERS = (("o", ORANGE), ("D", VERMILLION), ("s", SKY_BLUE))


def draw_state_bars(axes: Axes, occupancies: Mapping[str, NDArray[np.float64]]) -> None:
    """The first occupancy as bars over the numbers of the states, further ones as marks on them.

    Args:
        axes: drawn on.
        occupancies: name → (S,) probabilities; one to four of them.

    Raises:
        ConfigurationError: none or too many, shapes that disagree, negative or non-finite values.
    """
    if not 1 <= len(occupancies) <= 1 + len(_MARKERS):
        raise ConfigurationError(
            f"there are {len(occupancies)} occupancies; 1 to {1 + len(_MARKERS)} can be told apart"
        )
    shapes = {values.shape for values in occupancies.values()}
    if len(shapes) > 1 or len(next(iter(shapes))) != 1 or 0 in next(iter(shapes)):
        raise ConfigurationError(
            f"occupancies have the shapes {sorted(shapes)}; all must be the same (S,), S >= 1"
        )
    for name, values in occupancies.items():
        if not np.isfinite(values).all() or (values < 0).any():
            raise ConfigurationError(f"occupancy {name!r} holds a negative or non-finite value")
    (bars_name, bars), *others = occupancies.items()
    states = np.arange(len(bars))
    drawn: list[Any] = []
    drawn.append(axes.bar(states, bars, width=0.8, color=BLUE, label=bars_name, zorder=2))
    size = 6.0 if len(bars) <= 60 else 2.5
    for (name, values), (marker, colour) in zip(others, _MARKERS, strict=False):
        drawn += axes.plot(
            states,
            values,
            linestyle="none",
            marker=marker,
            markersize=size,
            color=colour,
            markeredgecolor="white",
            markeredgewidth=0.7 if size > 3 else 0.0,
            label=name,
            zorder=3,
        )
    style_axes(axes)
    axes.grid(visible=False, axis="x")
    axes.set_ylim(bottom=0.0)
    axes.set_xlim(-0.7, len(bars) - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
    label_axes(axes, x="state", y="discounted occupancy (probability)")
    add_legend(
        axes, handles=drawn, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(occupancies)
    )
