"""What is run: one row for each line of the results table."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rover.errors import ConfigurationError


@dataclass(frozen=True)
class ResultRow:
    """One line of the results table: a problem, a configuration, and what was asked of it.

    Attributes:
        name: short name, also that of the folder of its runs.
        title: how the table calls it.
        env_id: id of the environment.
        env_kwargs: its keyword arguments.
        method: name of the method.
        preset: preset of the agent.
        overrides: settings that differ from the preset.
        steps: environment steps of each run.
        seeds: seeds of the runs.
        bars: largest median asked for, by name of the column (see ``measurements.COLUMNS``).
        paper: what the paper reports, by name of the column, as it prints it.
        explorer_steps: steps to full coverage of a directed count-based explorer (R-max), median of
            20 seeds; a figure for comparison that this table quotes and does not measure.
    """

    name: str
    title: str
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    method: str = "rover"
    preset: str = "default"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 3000
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    bars: Mapping[str, float] = field(default_factory=dict)
    paper: Mapping[str, str] = field(default_factory=dict)
    explorer_steps: int | None = None


_ONEHOT = {"observation": "onehot"}


def _bars(steps: float, ratio: float, seconds: float) -> dict[str, float]:
    return {
        "steps_to_95_in_20_episodes": steps,
        "optimality_ratio": ratio,
        "wall_seconds": seconds,
    }


ROWS: tuple[ResultRow, ...] = (
    ResultRow(
        "two-rooms-onehot",
        "Two Rooms, learned from one-hot",
        "rover/TwoRooms-v0",
        _ONEHOT,
        bars=_bars(700, 1.01, 30.0),
        explorer_steps=475,
    ),
    ResultRow(
        "multi-rooms-5-identity",
        "Multi-Rooms 5, identity representation",
        "rover/MultiRooms-v0",
        {"observation": "state"},
        overrides={"representation": "identity"},
        bars=_bars(700, 1.005, 15.0),
        paper={"steps_to_95_in_20_episodes": "7,800 ± 380"},
        explorer_steps=534,
    ),
    ResultRow(
        "multi-rooms-5-onehot",
        "Multi-Rooms 5, learned from one-hot",
        "rover/MultiRooms-v0",
        _ONEHOT,
        bars=_bars(700, 1.01, 30.0),
        paper={"steps_to_95_in_20_episodes": "7,800 ± 380"},
        explorer_steps=534,
    ),
    ResultRow(
        "multi-rooms-5-pixels",
        "Multi-Rooms 5, learned from pixels",
        "rover/MultiRooms-v0",
        {"observation": "pixels"},
        bars=_bars(1100, 1.02, 180.0),
        explorer_steps=534,
    ),
    ResultRow(
        "multi-rooms-7-onehot",
        "Multi-Rooms 7, learned from one-hot",
        "rover/MultiRooms-v0",
        {"observation": "onehot", "rooms": 7},
        bars=_bars(1050, 1.02, 45.0),
        paper={"steps_to_95_in_20_episodes": "10,800 ± 425"},
        explorer_steps=793,
    ),
    ResultRow(
        "maze-onehot",
        "Maze, learned from one-hot",
        "rover/Maze-v0",
        _ONEHOT,
        bars=_bars(900, 1.01, 30.0),
        explorer_steps=706,
    ),
    ResultRow(
        # With H = 15 no policy sees 95% of the states in 20 episodes, hence another column.
        "middle-room-onehot",
        "Middle Room (γ = 0.9, H = 15), learned from one-hot",
        "rover/MiddleRoom-v0",
        _ONEHOT,
        bars={"steps_to_full_coverage": 1200, "optimality_ratio": 1.01, "wall_seconds": 30.0},
        explorer_steps=904,
    ),
    ResultRow(
        "mountain-car",
        "MountainCar-v0, no reward seen",
        "MountainCar-v0",
        bars={"first_arrival": 1000},
    ),
    ResultRow(
        # The paper's figure is for learned one-hot observations with its own settings.
        "multi-rooms-5-onehot-paper",
        "Multi-Rooms 5, learned from one-hot, preset paper",
        "rover/MultiRooms-v0",
        _ONEHOT,
        preset="paper",
        steps=10_000,
        paper={"steps_to_95_in_20_episodes": "7,800 ± 380"},
        explorer_steps=534,
    ),
)
"""The table of the README; the order is that of the report."""


def _ablation(name: str, title: str, **overrides: Any) -> ResultRow:
    return ResultRow(
        name, title, "rover/MultiRooms-v0", _ONEHOT, overrides=overrides, seeds=(0, 1, 2)
    )


def _slippery(name: str, title: str, **overrides: Any) -> ResultRow:
    return ResultRow(
        name,
        title,
        "rover/MultiRooms-v0",
        {"observation": "state", "slip": 0.2},
        overrides=overrides,
        steps=5000,
        seeds=(0, 1, 2),
    )


ABLATIONS: tuple[ResultRow, ...] = (
    _ablation("default", "Multi-Rooms 5, one-hot, preset default"),
    _ablation(
        "linear-kernel",
        "the paper's features: L1, linear kernel, temperature 1, λ = 1e-3",
        kernel="linear",
        normalization="l1",
        temperature=1.0,
        ridge=1e-3,
    ),
    _ablation("wide-kernel", "Gaussian kernel with σ = 0.5", bandwidth=0.5),
    # With ε = 1 the policy avoids what is unknown; to explore, it must not.
    _ablation(
        "collect-policy",
        "collect with the policy itself, planned from the start, ε = 0",
        collect="policy",
        sink_norm=0.0,
    ),
    _ablation("clock-only", "plans renewed on the clock only", novelty_threshold=1.0),
    _ablation("sampled-actions", "plans sampled, not greedy", greedy=False),
    _ablation("sink-0.05", "ε = 0.05", sink_norm=0.05),
    _ablation(
        "constant-steps",
        "250 constant steps of η = 10 from uniform",
        step_rule="constant",
        mirror_steps=250,
        mirror_tolerance=0.0,
        warm_start=False,
    ),
    _ablation("cold-start", "each descent from the uniform policy", warm_start=False),
    _slippery("slip", "Multi-Rooms 5, exact states, one action in five is random"),
    _slippery("slip-no-doubt", "the same, every pair known after one visit", doubt=0.0),
)
"""What each departure from the paper is worth, one at a time (docs/deviations.md)."""


def select_rows(names: Sequence[str], rows: Sequence[ResultRow] = ROWS) -> tuple[ResultRow, ...]:
    """The rows called `names`, in the order of the table; all of them for no name.

    Raises:
        ConfigurationError: there is no such row; the message lists those that there are.
    """
    known = {row.name: row for row in rows}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigurationError(
                f"there is no row {name!r} in the results table; {hint}the rows are "
                f"{', '.join(known)}"
            )
    return tuple(row for row in rows if not names or row.name in names)
