"""Pictures of runs, drawn from result files alone.

:func:`plot_runs` draws everything about one run, or the learning curves of tasks, and
:func:`plot_comparison` agents side by side. The ``draw_...`` functions take arrays and a
matplotlib figure or axes:

    grid = GridMap(cells, free)
    figure = make_figure(*panel_size(grid, columns=2))
    maps = [MapPanel("ROVER", values=ours), MapPanel("RND", values=theirs)]
    draw_panels(figure, maps, grid, columns=2, scale="occupancy")
    figure.savefig("comparison.png", dpi=150)
"""

from rover.plots.curves import (
    TaskPanel,
    draw_learning_curves,
    draw_steps_by_distance,
    make_task_figure,
)
from rover.plots.figures import FIGURES, STATISTICS, Aggregate, Figure, MeanCurve
from rover.plots.maps import (
    PHASE_PLANES,
    MapPanel,
    draw_panels,
    draw_phase_plane,
    make_phase_planes,
    panel_size,
)
from rover.plots.pictures import (
    COMPARISON_PICTURES,
    ComparisonPicture,
    plot_comparison,
    plot_runs,
    write_pictures,
)
from rover.plots.runs import GridMap, RunFiles
from rover.plots.style import AgentStyle, add_colour_bar, make_figure

__all__ = [
    "COMPARISON_PICTURES",
    "FIGURES",
    "PHASE_PLANES",
    "STATISTICS",
    "AgentStyle",
    "Aggregate",
    "ComparisonPicture",
    "Figure",
    "GridMap",
    "MapPanel",
    "MeanCurve",
    "RunFiles",
    "TaskPanel",
    "add_colour_bar",
    "draw_learning_curves",
    "draw_panels",
    "draw_phase_plane",
    "draw_steps_by_distance",
    "make_figure",
    "make_phase_planes",
    "make_task_figure",
    "panel_size",
    "plot_comparison",
    "plot_runs",
    "write_pictures",
]
