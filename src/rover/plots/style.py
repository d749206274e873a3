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
from matplotlib.colors import ListedColormap, LogNorm, to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, LogLocator, MaxNLocator, NullLocator

from rover.errors import ConfigurationError

AnyFigure = Figure | SubFigure
_LinePattern = str | tuple[float, tuple[float, ...]]

# Okabe & Ito (2008), "Color Universal Design": told apart with any colour vision.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
_SKY_BLUE: Final = "#56B4E9"
_BLUISH_GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILLION: Final = "#D55E00"
_REDDISH_PURPLE: Final = "#CC79A7"
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
_PALETTE = (BLUE, VERMILLION, _BLUISH_GREEN, _REDDISH_PURPLE, ORANGE, _SKY_BLUE, GREY, BLACK)

_ALIKE_BRIGHTNESS, _ALIKE_HUE = 0.25, 0.15
"""Differences of red, green and blue in [0, 1] below which lines of two colours look alike: of
their mean, and of what is left without it."""


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

Styles = Mapping[str, AgentStyle]
_VARIANT_LABELS = {"encoder": "{}'s encoder", "both": "{}'s policy and encoder"}


def assign_styles(
    names: Iterable[str], declared: Mapping[str, AgentStyle] | None = None
) -> dict[str, AgentStyle]:
    """Distinct styles for the names of one figure.

    A declared style keeps its colour, and its dashes unless they are taken. NAME-VARIANT, such as
    ``rnd-paper``, has the colour of NAME and other dashes. Any other name is its own label and gets
    the next colour of the palette that is free.

    Args:
        names: of agents or of what a task was started from, in the order of the picture.
        declared: styles by name, such as those that agents declare.

    Raises:
        ConfigurationError: more names of one colour than there are dashes.
    """
    fixed = {"scratch": AgentStyle("from scratch", GREY, "dashed"), **(declared or {})}
    names = list(dict.fromkeys(names))
    styles: dict[str, AgentStyle] = {}
    n_shared = 0
    for name in sorted(names, key=lambda name: name not in fixed):  # declared looks come first
        base, _, variant = name.rpartition("-")
        if name in fixed:
            style = fixed[name]
        elif base in fixed:
            label = _VARIANT_LABELS.get(variant, f"{{}} ({variant})").format(fixed[base].label)
            style = AgentStyle(label, fixed[base].colour, "dotted")
        else:
            used = {style.colour for style in styles.values()}
            free = [colour for colour in _PALETTE if not _is_taken(colour, used)]
            # Dashes distinguish lines of one colour, but not of similar colours. The same name gets
            # the same colour in figures with other declared styles.
            shared = [colour for colour in reversed(_PALETTE) if colour in used]
            style = AgentStyle(name, free[0] if free else shared[n_shared % len(shared)])
            n_shared += not free
        # Two lines of one colour differ in their dashes.
        taken = {other.dashes for other in styles.values() if other.colour == style.colour}
        dashes = [dashes for dashes in (style.dashes, *LINE_PATTERNS) if dashes not in taken]
        if not dashes:
            raise ConfigurationError(
                f"{style.label} is one of more than {len(LINE_PATTERNS)} lines of the colour "
                f"{style.colour}, too many to tell apart: draw fewer in one picture"
            )
        styles[name] = replace(style, dashes=dashes[0])
    return {name: styles[name] for name in names}


def _is_taken(colour: str, used: Iterable[str]) -> bool:
    """True if a colour of the palette is used, or one outside it of nearly its hue and light."""
    others = [other for other in used if other == colour or other not in _PALETTE]
    differences = np.array(to_rgb(colour)) - np.array([*map(to_rgb, others)]).reshape(-1, 3)
    brightness = differences.mean(axis=1, keepdims=True)
    hue = np.linalg.norm(differences - brightness, axis=1)
    return bool(((np.abs(brightness[:, 0]) < _ALIKE_BRIGHTNESS) & (hue < _ALIKE_HUE)).any())


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
    low, high = bar.ax.get_ylim() if location == "right" else bar.ax.get_xlim()
    if high <= 1.0:  # a probability
        bar.long_axis.set_major_locator(MaxNLocator(5))
    else:
        count_axis(bar.long_axis, 5)
    if isinstance(drawn.norm, LogNorm):
        subs = (1.0,) if high > 1000.0 * low else (1.0, 2.0, 5.0)
        bar.long_axis.set_major_locator(LogLocator(10.0, subs=subs, numticks=20))
        bar.long_axis.set_minor_locator(NullLocator())
    bar.outline.set_visible(False)
