"""Pictures of runs, drawn from result files alone.

:func:`plot_runs` draws everything about one run, or the curves of several. The ``draw_...``
functions take arrays and a matplotlib figure or axes:

    grid = GridMap(cells, free)
    figure = make_figure(*panel_size(grid, columns=2))
    maps = [MapPanel("ROVER", values=ours), MapPanel("RND", values=theirs)]
    draw_panels(figure, maps, grid, columns=2, scale="occupancy")
    figure.savefig("comparison.png", dpi=150)
"""

from rover.plots.curves import (
    MeanCurve,
    TaskPanel,
    draw_learning_curves,
    make_task_figure,
)
from rover.plots.maps import MapPanel, draw_panels, panel_size
from rover.plots.pictures import plot_runs, plot_visits, write_pictures
from rover.plots.runs import GridMap, RunFiles
from rover.plots.style import AgentStyle, add_colour_bar, make_figure
from rover.plots.visits import PHASE_PLANES, draw_phase_plane, make_planes, planes_of

__all__ = [
    "PHASE_PLANES",
    "AgentStyle",
    "GridMap",
    "MapPanel",
    "MeanCurve",
    "RunFiles",
    "TaskPanel",
    "add_colour_bar",
    "draw_learning_curves",
    "draw_panels",
    "draw_phase_plane",
    "make_figure",
    "make_planes",
    "make_task_figure",
    "panel_size",
    "planes_of",
    "plot_runs",
    "plot_visits",
    "write_pictures",
]
