"""Pictures of runs, drawn from result files alone.

:func:`plot_runs` draws everything about one run, or the curves of several. The ``draw_...``
functions take arrays and a matplotlib figure or axes:

    grid = GridMap(**rover.envs.map_arrays(env, observations))
    maps = [MapPanel("ROVER", values=ours), MapPanel("RND", values=theirs)]
    map_figure(grid, maps, columns=2, scale="occupancy").savefig("comparison.png", dpi=150)
"""

from rover.plots.curves import MeanCurve as MeanCurve
from rover.plots.curves import TaskPanel as TaskPanel
from rover.plots.curves import learning_curves as learning_curves
from rover.plots.curves import make_task_figure as make_task_figure
from rover.plots.maps import MapPanel as MapPanel
from rover.plots.maps import map_figure as map_figure
from rover.plots.pictures import draw_phase_plane as draw_phase_plane
from rover.plots.pictures import plot_runs as plot_runs
from rover.plots.pictures import write_pictures as write_pictures
from rover.plots.runs import GridMap as GridMap
from rover.plots.runs import RunFiles as RunFiles
from rover.plots.style import AgentStyle as AgentStyle
from rover.plots.style import add_colour_bar as add_colour_bar
from rover.plots.style import make_figure as make_figure
