"""How every picture looks: one colour per method, one palette, one set of font sizes.

Colours are set on the objects that are drawn and never through matplotlib's global settings, so
pictures can be drawn from any thread and beside any other use of matplotlib.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from rover.errors import ConfigurationError

AnyFigure = Figure | SubFigure

# Okabe & Ito (2008), "Color Universal Design": told apart with any colour vision.
BLACK: Final = "#000000"
ORANGE: Final = "#E69F00"
SKY_BLUE: Final = "#56B4E9"
BLUISH_GREEN: Final = "#009E73"
BLUE: Final = "#0072B2"
VERMILLION: Final = "#D55E00"
REDDISH_PURPLE: Final = "#CC79A7"
GREY: Final = "#7F7F7F"

# The walls and the floor of the environments' own pictures.
WALL_COLOUR: Final = "#404046"
FLOOR_COLOUR: Final = "#EEECE6"
CELL_LINE_COLOUR: Final = "#D6D3CB"
TEXT_COLOUR: Final = "#202020"
GRID_COLOUR: Final = "#DDDDDD"

TITLE_SIZE: Final = 10.5
LABEL_SIZE: Final = 9.5
TICK_SIZE: Final = 8.5
RUN_TITLE_SIZE: Final = 11.0

FORMATS: Final = ("png", "svg", "pdf")
MIN_DPI, MAX_DPI = 30, 1200

SOLID: Final = "-"
DASHED: Final = (0, (5, 2))
DOTTED: Final = (0, (1, 1.6))
DASH_DOTTED: Final = (0, (6, 2, 1, 2))
DASH_DOT_DOTTED: Final = (0, (6, 2, 1, 2, 1, 2))

_MANY_DECADES = 1000.0
_BAR_ASPECT_PER_INCH = 4.5
_MAX_PROBABILITY = 1.0

Dashes = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True)
class MethodStyle:
    """How the line of a method is drawn.

    Attributes:
        colour: hexadecimal.
        dashes: a matplotlib line style; two methods of one colour differ in it.
        label: the name in legends and titles.
    """

    colour: str
    dashes: Dashes
    label: str


METHOD_STYLES: Final[dict[str, MethodStyle]] = {
    "rover": MethodStyle(BLUE, SOLID, "ROVER"),
    "rover-paper": MethodStyle(SKY_BLUE, DASHED, "ROVER (paper)"),
    "rover-encoder": MethodStyle(SKY_BLUE, DOTTED, "ROVER's encoder"),
    "rover-both": MethodStyle(BLUE, DASHED, "ROVER's policy and encoder"),
    "random": MethodStyle(GREY, SOLID, "random actions"),
    "uniform": MethodStyle(GREY, DOTTED, "uniform policy"),
    "optimal": MethodStyle(BLACK, SOLID, "optimum"),
    "rnd": MethodStyle(VERMILLION, SOLID, "RND"),
    "smm": MethodStyle(BLUISH_GREEN, SOLID, "SMM"),
    "apt": MethodStyle(REDDISH_PURPLE, SOLID, "APT"),
    "maxent": MethodStyle(ORANGE, SOLID, "MaxEnt"),
    "cic": MethodStyle(VERMILLION, DASHED, "CIC"),
    "mepol": MethodStyle(BLUISH_GREEN, DASHED, "MEPOL"),
    "rmax": MethodStyle(REDDISH_PURPLE, DASHED, "R-MAX"),
    "icm": MethodStyle(ORANGE, DASHED, "ICM"),
    "count": MethodStyle(BLACK, DASHED, "count bonus"),
    "scratch": MethodStyle(GREY, DASHED, "from scratch"),
}
"""Fixed styles: a method looks the same in every picture, whatever else is drawn beside it."""

_OTHER_COLOURS = (VERMILLION, BLUISH_GREEN, REDDISH_PURPLE, ORANGE, BLACK)


_OTHER_DASHES: Final[dict[Dashes, Dashes]] = {SOLID: DOTTED, DASHED: DASH_DOT_DOTTED}


def method_style(method: str) -> MethodStyle:
    """The style of a method by its name in config.json, or of METHOD-PRESET.

    Another preset has the method's colour and other dashes. A name without a style of its own gets
    a dash-dotted line whose colour depends on nothing but the name.
    """
    if method in METHOD_STYLES:
        return METHOD_STYLES[method]
    base, dash, preset = method.rpartition("-")
    if dash and base in METHOD_STYLES:
        style = METHOD_STYLES[base]
        dashes = _OTHER_DASHES.get(style.dashes, DASH_DOTTED)
        return MethodStyle(style.colour, dashes, f"{style.label} ({preset})")
    colour = _OTHER_COLOURS[zlib.crc32(method.encode()) % len(_OTHER_COLOURS)]
    return MethodStyle(colour, DASH_DOTTED, method)


def make_sequential_colormap() -> ListedColormap:
    """Viridis, which is perceptually uniform, without its darkest tenth.

    That tenth is hard to tell from the dark grey of the walls. Masked values show the floor.
    """
    colours = colormaps["viridis"](np.linspace(0.1, 1.0, 256))
    return ListedColormap(colours, name="rover_sequential")


def make_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches that belongs to no window and no global state."""
    figure = Figure(figsize=(width, height), facecolor="white")
    # Maps have fixed proportions; compressing closes the gaps which these leave between them.
    figure.set_layout_engine(
        ConstrainedLayoutEngine(compress=True, w_pad=0.06, h_pad=0.06, wspace=0.03, hspace=0.03)
    )
    return figure


def label_axes(
    axes: Axes, *, title: str | None = None, x: str | None = None, y: str | None = None
) -> None:
    """Title and axis labels in the sizes that all pictures share."""
    if title is not None:
        axes.set_title(title, fontsize=TITLE_SIZE, color=TEXT_COLOUR, pad=5)
    if x is not None:
        axes.set_xlabel(x, fontsize=LABEL_SIZE, color=TEXT_COLOUR)
    if y is not None:
        axes.set_ylabel(y, fontsize=LABEL_SIZE, color=TEXT_COLOUR)


def style_axes(axes: Axes) -> None:
    """Light grid below the data, no frame at the top and on the right."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(GREY)
    axes.grid(visible=True, color=GRID_COLOUR, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(which="major", labelsize=TICK_SIZE, color=GREY, labelcolor=TEXT_COLOUR)
    axes.tick_params(which="minor", color=GREY, labelleft=False, labelbottom=False)


def add_legend(axes: Axes, **placement: Any) -> None:
    """A legend without a frame of its own colour, in the size of the tick labels."""
    axes.legend(
        fontsize=TICK_SIZE,
        labelcolor=TEXT_COLOUR,
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        **placement,
    )


def make_count_formatter() -> FuncFormatter:
    """Tick labels such as 800 and 12,000."""
    return FuncFormatter(lambda value, _: f"{value:,.0f}")


def add_colour_bar(
    figure: AnyFigure,
    drawn: ScalarMappable,
    axes: Sequence[Axes],
    label: str,
    *,
    location: Literal["right", "bottom"] = "right",
) -> None:
    """One colour bar for all `axes`, which share the colour scale of `drawn`.

    The bar is opaque even where what was drawn is not.
    """
    scale = ScalarMappable(norm=drawn.norm, cmap=drawn.get_cmap())
    inches = figure.bbox.height if location == "right" else figure.bbox.width
    inches /= figure.dpi
    bar = figure.colorbar(
        scale,
        ax=list(axes),
        location=location,
        fraction=0.05,
        pad=0.02,
        # bars along large figures are no thicker than those of small ones
        aspect=max(18.0, _BAR_ASPECT_PER_INCH * inches),
    )
    bar.set_label(label, fontsize=LABEL_SIZE, color=TEXT_COLOUR)
    bar.ax.tick_params(labelsize=TICK_SIZE, labelcolor=TEXT_COLOUR, color=GREY)
    axis = bar.ax.yaxis if location == "right" else bar.ax.xaxis
    low, high = bar.ax.get_ylim() if location == "right" else bar.ax.get_xlim()
    if isinstance(drawn.norm, LogNorm):
        axis.set_major_locator(LogLocator(10.0, subs=(1.0, 2.0, 5.0), numticks=20))
        if high > _MANY_DECADES * low:
            axis.set_major_locator(LogLocator(10.0, numticks=20))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(5, integer=high > _MAX_PROBABILITY))
    if high > _MAX_PROBABILITY:
        axis.set_major_formatter(make_count_formatter())
    bar.outline.set_visible(False)


def image_bytes(figure: Figure, image_format: str, *, dpi: int) -> bytes:
    """The figure as a file's content; equal figures give equal bytes for png.

    Args:
        figure: is laid out and drawn.
        image_format: png, svg or pdf.
        dpi: pixels per inch of png, and of the parts of svg and pdf that are pixels.

    Raises:
        ConfigurationError: unknown format, or dpi out of [30, 1200].
    """
    if image_format not in FORMATS:
        raise ConfigurationError(
            f"there is no picture format {image_format!r}; use one of {', '.join(FORMATS)}"
        )
    if not MIN_DPI <= dpi <= MAX_DPI:
        raise ConfigurationError(f"dpi is {dpi}; use {MIN_DPI} to {MAX_DPI}")
    undated: dict[str, dict[str, Any]] = {
        "png": {},
        "svg": {"Date": None},
        "pdf": {"CreationDate": None},
    }
    stream = io.BytesIO()
    figure.savefig(stream, format=image_format, dpi=dpi, metadata=undated[image_format])
    return stream.getvalue()
