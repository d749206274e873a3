"""Pictures of runs, drawn from result files alone.

:func:`plot_run` draws everything about one run. The ``draw_...`` functions take arrays and a
matplotlib figure or axes, so that runs and methods can be put beside each other:

    figure = make_figure(*panel_size(free, columns=2))
    draw_occupancy(figure, {"ROVER": ours, "RND": theirs}, cells, free, columns=2)
    figure.savefig("comparison.png", dpi=150)
"""

from rover.plots.curves import (
    MeanCurve,
    draw_curve,
    draw_learning_curves,
    draw_sink_mass,
    mean_curve,
    read_series,
)
from rover.plots.heatmaps import (
    draw_occupancy,
    draw_sink_diagnostic,
    draw_visits,
    sampled_occupancy,
)
from rover.plots.learning_curves import (
    TaskCurve,
    TaskPanel,
    average_over_windows,
    draw_steps_by_distance,
    draw_task_curves,
    make_task_figure,
    task_layout,
)
from rover.plots.maps import (
    draw_map,
    draw_policy_arrows,
    draw_trajectories,
    draw_values,
    panel_layout,
    panel_size,
    place_on_grid,
)
from rover.plots.method_pictures import plot_comparison
from rover.plots.methods import (
    BarValue,
    Behaviour,
    SnapshotEpisodes,
    draw_behaviour,
    draw_coverage_bars,
    draw_snapshots,
)
from rover.plots.phase_plane import draw_phase_plane
from rover.plots.run_files import RunFiles, read_run_files
from rover.plots.run_pictures import plot_run
from rover.plots.states import draw_state_bars
from rover.plots.style import (
    METHOD_STYLES,
    MethodStyle,
    image_bytes,
    label_axes,
    make_figure,
    method_style,
)
from rover.plots.task_pictures import is_task_run, plot_task_runs

__all__ = [
    "METHOD_STYLES",
    "BarValue",
    "Behaviour",
    "MeanCurve",
    "MethodStyle",
    "RunFiles",
    "SnapshotEpisodes",
    "TaskCurve",
    "TaskPanel",
    "average_over_windows",
    "draw_behaviour",
    "draw_coverage_bars",
    "draw_curve",
    "draw_learning_curves",
    "draw_map",
    "draw_occupancy",
    "draw_phase_plane",
    "draw_policy_arrows",
    "draw_sink_diagnostic",
    "draw_sink_mass",
    "draw_snapshots",
    "draw_state_bars",
    "draw_steps_by_distance",
    "draw_task_curves",
    "draw_trajectories",
    "draw_values",
    "draw_visits",
    "image_bytes",
    "is_task_run",
    "label_axes",
    "make_figure",
    "make_task_figure",
    "mean_curve",
    "method_style",
    "panel_layout",
    "panel_size",
    "place_on_grid",
    "plot_comparison",
    "plot_run",
    "plot_task_runs",
    "read_run_files",
    "read_series",
    "sampled_occupancy",
    "task_layout",
]
