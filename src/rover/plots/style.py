"""Look of every picture: one style per agent, one palette, one set of font sizes.

Colours are set on the objects that are drawn and never through matplotlib's global settings, so
pictures can be drawn from any thread and beside any other use of matplotlib.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

AnyFigure = Figure | SubFigure
_LinePattern = str | tuple[float, tuple[float, ...]]

# Okabe & Ito (2008), "Color Universal Design", told apart with any colour vision. Wine of Tol
# (2021) is in the place of their yellow, which is hard to see on white.
BLUE: Final = "#0072B2"
VERMILLION: Final = "#D55E00"
BLACK: Final = "#000000"
_WINE, _GREEN, _PINK, _ORANGE, _SKY = "#882255", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
_COLOURS: Final = (BLUE, VERMILLION, _GREEN, _PINK, _ORANGE, _SKY, _WINE, BLACK)

GREY: Final = "#7F7F7F"
TEXT_COLOUR: Final = "#202020"

_LABEL_SIZE: Final = 9.5
TICK_SIZE: Final = 8.5

LEGEND: Final[Mapping[str, Any]] = {
    "fontsize": TICK_SIZE,
    "labelcolor": TEXT_COLOUR,
    "framealpha": 0.85,
    "edgecolor": "none",
}
"""Arguments of every legend."""

# Viridis, which is perceptually uniform, without its darkest tenth: that is hard to tell from the
# dark grey of the walls.
SEQUENTIAL: Final = ListedColormap(
    colormaps["viridis"](np.linspace(0.1, 1.0, 256)), name="rover_sequential"
)

LINE_PATTERNS: Final[Mapping[str, _LinePattern]] = {
    "solid": "-",
    "dashed": (0, (5, 2)),
    "dotted": (0, (1, 1.6)),
    "dash-dotted": (0, (6, 2, 1, 2)),
    "dash-dot-dotted": (0, (6, 2, 1, 2, 1, 2)),
}


@dataclass(frozen=True)
class AgentStyle:
    """Look of an agent, alike in every picture.

    Attributes:
        label: the name in legends and titles.
        colour: any colour of matplotlib, such as ``"#0072B2"``.
        dashes: of lines: solid, dashed, dotted, dash-dotted or dash-dot-dotted.
    """

    label: str
    colour: str
    dashes: str = "solid"

    @property
    def line(self) -> dict[str, Any]:
        """Colour and line style as arguments of matplotlib."""
        return {"color": self.colour, "linestyle": LINE_PATTERNS[self.dashes]}


RANDOM: Final = AgentStyle("random actions", "#333333", "dotted")
BEST: Final = AgentStyle("best possible (J*)", BLACK, "dashed")

_LABELS = {"rover": "ROVER", "rnd": "RND", "smm": "SMM", "apt": "APT", "maxent": "MaxEnt"}
_LABELS |= {"cic": "CIC", "mepol": "MEPOL", "e3b": "E3B", "icm": "ICM", "rmax": "R-MAX"}
# A method keeps its colour in all pictures; what comes after the eighth has other dashes, too.
_METHODS = {
    name: AgentStyle(label, _COLOURS[k % 8], [*LINE_PATTERNS][k // 8])
    for k, (name, label) in enumerate(_LABELS.items())
}
_METHODS |= {"random": RANDOM, "scratch": AgentStyle("from scratch", GREY, "dashed")}
_VARIANT_LABELS = {"encoder": "{}'s encoder", "both": "{}'s policy and encoder"}


def assign_styles(names: Iterable[str]) -> dict[str, AgentStyle]:
    """Distinct styles for the names of one figure.

    A method of rover's has the same colour in every figure. NAME-VARIANT, such as ``rnd-paper``,
    has the colour of NAME and other dashes. Any other name is its own label and gets the next
    colour that no other name has.

    Args:
        names: of agents or of what a task was started from, in the order of the figure.
    """
    names, styles = list(dict.fromkeys(names)), dict[str, AgentStyle]()
    used = [_METHODS[name].colour for name in names if name in _METHODS]
    taken: set[tuple[str, str]] = set()
    for name in names:
        base, _, variant = name.partition("-")
        if name in _METHODS:
            style = _METHODS[name]
        elif base in _METHODS:
            label = _VARIANT_LABELS.get(variant, f"{{}} ({variant})").format(_METHODS[base].label)
            style = AgentStyle(label, _METHODS[base].colour)
        else:
            # The first of the colours that are used least.
            style = AgentStyle(name, min(_COLOURS, key=used.count))
        # Other dashes where two would look alike.
        free = (one for one in (style.dashes, *LINE_PATTERNS) if (style.colour, one) not in taken)
        styles[name] = replace(style, dashes=next(free, style.dashes))
        taken.add((style.colour, styles[name].dashes))
        if name not in _METHODS:
            used.append(style.colour)
    return styles


def make_figure(width: float, height: float, title: str | None = None) -> Figure:
    """An empty figure of this size in inches that belongs to no window and no global state."""
    figure = Figure(figsize=(width, height), facecolor="white")
    # Maps have fixed proportions; compressing closes the gaps which these leave between them.
    figure.set_layout_engine(
        ConstrainedLayoutEngine(compress=True, w_pad=0.06, h_pad=0.06, wspace=0.03, hspace=0.03)
    )
    if title is not None:
        figure.suptitle(title, fontsize=11.0, color=TEXT_COLOUR)
    return figure


def label_axes(
    axes: Axes,
    *,
    title: str | None = None,
    x: str | None = None,
    y: str | None = None,
    grid: bool = False,
) -> None:
    """Title and axis labels in the sizes that all pictures share; with `grid` a light grid below
    the data, and no frame at the top and on the right."""
    if title:
        axes.set_title(title, fontsize=10.5, color=TEXT_COLOUR, pad=5)
    if x is not None:
        axes.set_xlabel(x, fontsize=_LABEL_SIZE, color=TEXT_COLOUR)
    if y is not None:
        axes.set_ylabel(y, fontsize=_LABEL_SIZE, color=TEXT_COLOUR)
    if grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(GREY)
        axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(which="major", labelsize=TICK_SIZE, color=GREY, labelcolor=TEXT_COLOUR)
        axes.tick_params(which="minor", color=GREY, labelleft=False, labelbottom=False)


def count_axis(axis: Axis, most: int) -> None:
    """At most so many ticks, at whole numbers: 800, 2.5k, 12k."""
    axis.set_major_locator(MaxNLocator(most, integer=True))
    axis.set_major_formatter(EngFormatter(sep=""))


def add_colour_bar(
    figure: AnyFigure,
    drawn: ScalarMappable,
    axes: Sequence[Axes],
    label: str,
    *,
    location: Literal["right", "bottom"] = "right",
) -> None:
    """One colour bar, opaque even where what was drawn is not, for all `axes`, which share the
    colour scale of `drawn`."""
    inches = (figure.bbox.height if location == "right" else figure.bbox.width) / figure.dpi
    # Of the scale, not of what was drawn: strokes are half transparent.
    opaque = ScalarMappable(norm=drawn.norm, cmap=drawn.get_cmap())
    # bars along large figures are no thicker than along small ones
    options: dict[str, Any] = {"fraction": 0.05, "pad": 0.02, "aspect": max(18.0, 4.5 * inches)}
    bar = figure.colorbar(opaque, ax=list(axes), location=location, **options)
    bar.set_label(label, fontsize=_LABEL_SIZE, color=TEXT_COLOUR)
    bar.ax.tick_params(labelsize=TICK_SIZE, labelcolor=TEXT_COLOUR, color=GREY)
    axis = bar.ax.yaxis if location == "right" else bar.ax.xaxis
    low, high = axis.get_view_interval()
    if high <= 1.0:  # a probability
        axis.set_major_locator(MaxNLocator(5))
    else:
        count_axis(axis, 5)
    if isinstance(drawn.norm, LogNorm):
        subs = (1.0,) if high > 1000.0 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(10.0, subs=subs, numticks=20))
        axis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)
