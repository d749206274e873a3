"""Pictures of runs, drawn from result files alone.

:func:`plot_runs` draws everything about one run, or the curves of several. The ``draw_...``
functions take arrays and a matplotlib figure or axes:

    grid = GridMap(**rover.envs.map_arrays(env, observations))
    maps = [MapPanel("ROVER", values=ours), MapPanel("RND", values=theirs)]
    map_figure(grid, maps, columns=2, scale="occupancy").savefig("comparison.png", dpi=150)
"""

from rover.plots.curves import MeanCurve, TaskPanel, learning_curves, make_task_figure
from rover.plots.maps import MapPanel, map_figure
from rover.plots.pictures import draw_phase_plane, plot_runs, write_pictures
from rover.plots.runs import GridMap, RunFiles
from rover.plots.style import AgentStyle, add_colour_bar, make_figure

__all__ = [
    "AgentStyle",
    "GridMap",
    "MapPanel",
    "MeanCurve",
    "RunFiles",
    "TaskPanel",
    "add_colour_bar",
    "draw_phase_plane",
    "learning_curves",
    "make_figure",
    "make_task_figure",
    "map_figure",
    "plot_runs",
    "write_pictures",
]
