"""A grid-world task as tables: what every environment on a layout shares, single or batched."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, dynamics_from_successor
from rover.envs.layout_families import LAYOUT_FAMILIES, make_layout
from rover.envs.layouts import ACTION_NAMES, MAP_CHARACTERS, Layout, load_layout, parse_layout
from rover.envs.observations import ObservationMap, make_observation_map
from rover.errors import ConfigurationError, LayoutError

DEFAULT_HORIZON = 100
DEFAULT_DISCOUNT = 0.99
REWARDS = ("sparse", "dense")
RENDER_MODES = ("rgb_array", "ansi")
N_ACTIONS = len(ACTION_NAMES)


@dataclass(frozen=True, eq=False)
class GridTask:
    """A layout with everything that makes it a decision problem.

    Attributes:
        layout: The map.
        observation_map: From states to what the agent sees.
        goal_state: Where an episode terminates, or None in the reward-free mode.
        start_states: (n,) int64; an episode begins in one of them, drawn uniformly.
        horizon: Steps after which an episode is truncated.
        suggested_discount: Discount that suits the layout.
        reward: ``"sparse"`` or ``"dense"``.
        slip: Probability that an action is replaced by a uniformly random one.
    """

    layout: Layout
    observation_map: ObservationMap
    goal_state: int | None
    start_states: NDArray[np.int64]
    horizon: int
    suggested_discount: float
    reward: str
    slip: float

    @cached_property
    def arrival_reward(self) -> NDArray[np.float64]:
        """(S,) float64: the reward of a step that ends in each state.

        Sparse: −1, and 0 at the goal. Dense: minus the Manhattan distance to the goal. Without a
        goal: 0.
        """
        if self.goal_state is None:
            return np.zeros(self.layout.n_states)
        if self.reward == "dense":
            cells = self.layout.cells
            # 0 − x and not −x, so that the goal's reward is 0 and not −0
            distances: NDArray[np.int64] = np.abs(cells - cells[self.goal_state]).sum(axis=1)
            return np.asarray(0.0 - distances, dtype=np.float64)
        rewards = np.full(self.layout.n_states, -1.0)
        rewards[self.goal_state] = 0.0
        return rewards

    @cached_property
    def terminal(self) -> NDArray[np.bool_]:
        """(S,) bool, true at the goal."""
        at_goal = np.zeros(self.layout.n_states, dtype=np.bool_)
        if self.goal_state is not None:
            at_goal[self.goal_state] = True
        return at_goal

    @property
    def only_start_state(self) -> int | None:
        """The state that every episode begins in, or None where it is drawn."""
        return int(self.start_states[0]) if len(self.start_states) == 1 else None

    def observations(self) -> NDArray[Any]:
        """(S, *observation shape): the observation of every state."""
        return self.observation_map.encode_batch(np.arange(self.layout.n_states))

    def dynamics(self) -> FiniteDynamics:
        """The exact dynamics; the goal, if there is one, is terminal."""
        start = np.zeros(self.layout.n_states)
        start[self.start_states] = 1.0 / len(self.start_states)
        return dynamics_from_successor(
            self.layout.successor, start=start, terminal=self.terminal, slip=self.slip
        )

    def start_states_from(self, options: Mapping[str, Any] | None) -> NDArray[np.int64]:
        """(n,) int64: start states of one reset, with the options given to it.

        Raises:
            ConfigurationError: An option other than ``start`` is given, or its value is wrong.
            LayoutError: The start is a wall or outside the map.
        """
        for key in options or {}:
            if key != "start":
                raise ConfigurationError(
                    f"unknown reset option {key!r}; the only one is 'start', an (x, y) or 'random'"
                )
        if not options:
            return self.start_states
        return _start_states(self.layout, options["start"], self.goal_state)


def make_grid_task(
    layout: Layout | str | Path | None,
    *,
    observation: str = "state",
    goal: tuple[int, int] | str | None = None,
    start: tuple[int, int] | str | None = None,
    horizon: int | None = None,
    reward: str = "sparse",
    slip: float = 0.0,
    layout_options: Mapping[str, Any] | None = None,
) -> GridTask:
    """Check the settings of a grid world and make its tables.

    Args:
        layout: A layout, the name of one, a map as text, or the path of a map's text file.
        observation: ``"state"``, ``"onehot"`` or ``"pixels"``.
        goal: (x, y), ``"marked"`` for the cell the map marks ``G``, or None: reward-free.
        start: (x, y), ``"random"`` for uniform over the free cells (but the goal), or None for the
            cell that the map marks ``S``.
        horizon: Steps to truncation, ≥ 1; None for that of the named layout, else 100.
        reward: ``"sparse"`` or ``"dense"``.
        slip: Probability in [0, 1] that an action is replaced by a uniformly random one.
        layout_options: Keyword arguments of a named layout.

    Raises:
        ConfigurationError: A setting is unknown, out of range, or contradicts another.
        LayoutError: The map, the goal or the start cannot be used; the message names the cell.
    """
    grid, default_horizon, discount = _resolve_layout(layout, layout_options or {})
    if reward not in REWARDS:
        raise ConfigurationError(
            f"unknown reward {reward!r}; choose one of {', '.join(map(repr, REWARDS))}"
        )
    if reward == "dense" and goal is None:
        raise ConfigurationError(
            "reward='dense' is a distance to the goal, and no goal is given; set goal=(x, y), or "
            "leave reward='sparse' for the reward-free mode"
        )
    goal_state = _goal_state(grid, goal)
    return GridTask(
        layout=grid,
        observation_map=make_observation_map(observation, grid),
        goal_state=goal_state,
        start_states=_start_states(grid, start, goal_state),
        horizon=default_horizon if horizon is None else _check_horizon(horizon),
        suggested_discount=discount,
        reward=reward,
        slip=_check_slip(slip),
    )


def _resolve_layout(
    layout: Layout | str | Path | None, options: Mapping[str, Any]
) -> tuple[Layout, int, float]:
    """The layout with its default horizon and discount."""
    if isinstance(layout, str) and layout in LAYOUT_FAMILIES:
        family = LAYOUT_FAMILIES[layout]
        return make_layout(layout, **options), family.horizon, family.suggested_discount
    if options:
        raise ConfigurationError(
            f"unknown keyword {next(iter(options))!r}; a grid world takes layout, observation, "
            "goal, start, horizon, reward, slip and render_mode, and only named layouts take more"
        )
    return _read_layout(layout), DEFAULT_HORIZON, DEFAULT_DISCOUNT


def _read_layout(layout: Layout | str | Path | None) -> Layout:
    """The layout of a map that has no name: given, in a string, or in a file."""
    if isinstance(layout, Layout):
        return layout
    if isinstance(layout, Path):
        return load_layout(layout)
    names = ", ".join(LAYOUT_FAMILIES)
    if not isinstance(layout, str):
        raise ConfigurationError(
            f"layout is {layout!r}; give a map as text, the path of a text file with one, a "
            f"Layout, or a name: {names}"
        )
    # a string of several lines, or of nothing but map characters, is the map itself
    if "\n" in layout or not set(layout.strip()) - MAP_CHARACTERS:
        return parse_layout(layout)
    if not os.path.isfile(layout):  # false, not an error, for names that no file can have
        raise LayoutError(
            f"layout {layout!r} is neither a map (rows of '#', '.', 'S' and 'G'), nor the path of "
            f"a file, nor a name ({names})"
        )
    return load_layout(layout)


def _as_cell(value: Any, role: str, words: str) -> tuple[int, int]:
    """``value`` as (x, y), or an error that lists what else may be given."""
    try:
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            raise TypeError
        x, y = map(operator.index, value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{role} is {value!r}; give a cell (x, y) of two whole numbers, {words}"
        ) from None
    return x, y


def _goal_state(layout: Layout, goal: tuple[int, int] | str | None) -> int | None:
    """State of the goal, or None without one."""
    if goal is None:
        return None
    if isinstance(goal, str) and goal == "marked":
        if layout.marked_goal is None:
            raise LayoutError("goal is 'marked', but no cell of the map is marked 'G'; mark one")
        return layout.index(layout.marked_goal)
    words = "'marked' for the cell the map marks 'G', or None for the reward-free mode"
    return layout.index(_as_cell(goal, "goal", words), role="goal")


def _start_states(
    layout: Layout, start: tuple[int, int] | str | None, goal_state: int | None
) -> NDArray[np.int64]:
    """(n,) int64: where episodes may begin."""
    if isinstance(start, str) and start == "random":
        states = np.array([s for s in range(layout.n_states) if s != goal_state], dtype=np.int64)
        if len(states) == 0:
            raise ConfigurationError(
                f"the goal {tuple(layout.cells[0].tolist())} is the only free cell of the map; an "
                "episode needs another one to start in"
            )
        return states
    words = "'random' for any free cell, or None for the cell the map marks 'S'"
    cell = layout.start if start is None else _as_cell(start, "start", words)
    state = layout.index(cell, role="start")
    if state == goal_state:
        raise ConfigurationError(
            f"start and goal are both cell {cell}, so there is nothing to do; move one of them"
        )
    return np.array([state], dtype=np.int64)


def _check_horizon(horizon: int) -> int:
    """``horizon`` as an int of at least 1."""
    try:
        if isinstance(horizon, bool):
            raise TypeError
        number = operator.index(horizon)
    except TypeError:
        raise ConfigurationError(f"horizon must be a whole number, not {horizon!r}") from None
    if number < 1:
        raise ConfigurationError(f"horizon is {number}, but an episode needs at least 1 step")
    return number


def _check_slip(slip: float) -> float:
    """``slip`` as a float in [0, 1]."""
    try:
        number = float(slip)
    except (TypeError, ValueError):
        number = math.nan
    if not 0.0 <= number <= 1.0:
        raise ConfigurationError(f"slip is {slip!r}, but must be a probability from 0 to 1")
    return number


def check_render_mode(render_mode: str | None) -> None:
    """Raise ConfigurationError for an unknown render mode."""
    if render_mode is not None and render_mode not in RENDER_MODES:
        raise ConfigurationError(
            f"unknown render_mode {render_mode!r}; choose one of "
            f"{', '.join(map(repr, RENDER_MODES))}, or None"
        )
