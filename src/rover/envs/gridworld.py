"""The grid world: one Gymnasium environment for every layout."""

from __future__ import annotations

import operator
import reprlib
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.layouts import ACTION_MOVES, LAYOUT_FAMILIES, Layout, make_layout
from rover.errors import ConfigurationError, choose, whole_number

_DEFAULT_HORIZON = 100
DEFAULT_DISCOUNT = 0.99
_REWARDS = ("sparse", "dense")
_N_ACTIONS = len(ACTION_MOVES)
_PIXELS_SIDE = 84
_WALL_COLOUR = (64, 64, 70)
_FLOOR_COLOUR = (238, 236, 230)
_AGENT_COLOUR = (224, 26, 34)
# Bluish green of the Okabe–Ito palette: distinct from the red agent with any colour vision.
_GOAL_COLOUR = (0, 158, 115)

# Marks and moves on maps.
_GOAL, _HOLE = "★", "●"
_UP, _DOWN, _LEFT, _RIGHT = (0, -1), (0, 1), (-1, 0), (1, 0)


class _ObservationMap(NamedTuple):
    """From the states of a layout to observations: their space, and a fresh array for a state."""

    space: gym.Space[Any]
    encode: Callable[[int], Any]


def _numbers(layout: Layout) -> _ObservationMap:
    """The state's number in [0, S): a ``Discrete`` space."""
    return _ObservationMap(gym.spaces.Discrete(layout.n_states), int)


def _one_hot(layout: Layout) -> _ObservationMap:
    """A float32 vector of length S with a one at the state."""
    n_states = layout.n_states
    space = gym.spaces.Box(0.0, 1.0, (n_states,), np.float32)
    return _ObservationMap(space, lambda state: np.eye(1, n_states, state, dtype=np.float32)[0])


def _pixels(layout: Layout) -> _ObservationMap:
    """An 84×84 RGB image, uint8: the map centred on wall colour, 84 // max(height, width) pixels to
    a cell's side, the agent as a red square."""
    height, width = layout.free.shape
    cell = _PIXELS_SIDE // max(height, width)
    if cell == 0:
        raise ConfigurationError(
            f"the map has {height} rows and {width} columns, too many for pixel "
            f"observations of {_PIXELS_SIDE}×{_PIXELS_SIDE}; use observation='state' or "
            f"'onehot', or a map of at most {_PIXELS_SIDE} cells a side"
        )
    shape = (_PIXELS_SIDE, _PIXELS_SIDE, 3)
    # Centred, so that maps of any shape fill the same 84 × 84 pixels.
    top = (_PIXELS_SIDE - cell * height) // 2
    left = (_PIXELS_SIDE - cell * width) // 2
    background = np.full(shape, _WALL_COLOUR, np.uint8)
    floor = background[top:, left:][: cell * height, : cell * width]
    floor[np.kron(layout.free, np.ones((cell, cell), np.bool_))] = _FLOOR_COLOUR
    corners = (layout.cells * cell + (left, top)).tolist()

    def image(state: int) -> NDArray[np.uint8]:
        # The background is copied, not drawn: a step costs what copying an image does.
        drawn, (x, y) = background.copy(), corners[state]
        drawn[y : y + cell, x : x + cell] = _AGENT_COLOUR
        return drawn

    return _ObservationMap(gym.spaces.Box(0, 255, shape, np.uint8), image)


OBSERVATIONS: Mapping[str, Callable[[Layout], _ObservationMap]] = MappingProxyType(
    {"state": _numbers, "onehot": _one_hot, "pixels": _pixels}
)
"""Makes the observation map of a layout, by kind."""


class GridWorld(gym.Env[NDArray[Any] | int, np.int64]):
    """A deterministic grid world with walls, with or without a goal.

    ## Description
    The agent moves between the free cells of a map, one cell per step. A move into a wall, or off
    the map, leaves it where it is. Layouts are the ROVER paper's (section 4 and its appendix) or
    your own: a map as text.

    ## Action Space
    ``Discrete(4)``: 0 up, 1 down, 2 left, 3 right. With ``slip`` > 0 an action is replaced, with
    that probability, by one drawn uniformly from all four.

    ## Rewards and Episode End
    - ``reward="sparse"``: −1 per step, and 0 on the step that reaches the goal. The best return of
      a goal at distance d is therefore −(d − 1); a failure's is −horizon.
    - ``reward="dense"``: minus the Manhattan distance to the goal after the step.
    - Without a goal (the reward-free mode): 0.

    The goal terminates the episode; ``horizon`` steps truncate it.

    ## Arguments
    - ``layout``: a name (``"two_rooms"``, ``"multi_rooms"``, ``"middle_room"``, ``"maze"``,
      ``"four_rooms"``, ``"corridor"``), a map as text, or the path of a text file.
    - ``observation``: ``"state"`` (default), the number of the agent's cell in row-major order;
      ``"onehot"``, float32; or ``"pixels"``, (84, 84, 3) uint8. None shows the goal.
    - ``goal``: None (default: reward-free), (x, y), or ``"marked"`` for the map's ``G``.
    - ``start``: None (default: the map's ``S``), (x, y), or ``"random"``, drawn uniformly from the
      free cells but the goal.
    - ``horizon``: steps to truncation; by default the named layout's, else 100.
    - ``reward``: ``"sparse"`` (default) or ``"dense"``.
    - ``slip``: probability of a random action, 0 by default.
    - ``render_mode``: None or ``"rgb_array"``.
    - Any other keyword goes to the named layout, such as ``rooms`` and ``room_size`` to
      ``"multi_rooms"``.

    ``ConfigurationError``, which names the cell: a setting is unknown, out of range or contradicts
    another; or the map, goal or start cannot be used.

    ## Attributes
    - ``layout``, ``observation_map``: the map, and from its states to what the agent sees.
    - ``state``: number of the agent's cell, which is every ``info["state"]``.
    - ``goal_state``: where an episode terminates, or None in the reward-free mode.
    - ``start_states``: (n,) int64; an episode begins in one of them, drawn uniformly.
    - ``suggested_discount``: that suits the layout: the paper's, 0.99 for other maps.
    - ``arrival_reward``: (S,) float64, the reward of a step that ends in each state.
    - ``terminal``: (S,) bool, true at the goal.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": ["rgb_array"],
        "render_fps": 8,
    }

    def __init__(
        self,
        layout: str | Path | None = None,
        *,
        observation: str = "state",
        goal: tuple[int, int] | str | None = None,
        start: tuple[int, int] | str | None = None,
        horizon: int | None = None,
        reward: str = "sparse",
        slip: float = 0.0,
        render_mode: str | None = None,
        **layout_options: Any,
    ) -> None:
        choose("reward", reward, _REWARDS)
        choose("observation", observation, OBSERVATIONS)
        if reward == "dense" and goal is None:
            raise ConfigurationError(
                "reward='dense' is a distance to the goal, and no goal is given; set goal=(x, y), "
                "or leave reward='sparse' for the reward-free mode"
            )
        self.layout = make_layout(layout, **layout_options)
        # A named layout brings the horizon and the discount that the paper pairs it with.
        family = LAYOUT_FAMILIES.get(str(layout))
        default_horizon = family.horizon if family else _DEFAULT_HORIZON
        self.suggested_discount = family.suggested_discount if family else DEFAULT_DISCOUNT
        # The goal is no part of what is seen: one policy serves every goal.
        self.observation_map = OBSERVATIONS[observation](self.layout)
        self.goal_state = _goal_state(self.layout, goal)
        self.start_states = _start_states(self.layout, start, self.goal_state)
        horizon = default_horizon if horizon is None else horizon
        self.horizon = whole_number("horizon", horizon)
        self.reward = reward
        if not (isinstance(slip, int | float) and 0.0 <= slip <= 1.0):
            raise ConfigurationError(
                f"slip is {reprlib.repr(slip)}, but must be a probability from 0 to 1"
            )
        self.slip = float(slip)
        self.render_mode = render_mode
        # Without a goal nothing equals None, so no state is terminal.
        self.terminal = np.arange(self.layout.n_states) == self.goal_state
        self.arrival_reward = np.zeros(self.layout.n_states)
        if self.goal_state is not None:
            away = np.abs(self.layout.cells - self.layout.cells[self.goal_state]).sum(axis=1)
            # −1 a step, and not +1 at the end: undiscounted returns then prefer short ways. 0 − x
            # and not −x, so that the goal's reward is 0 and not −0.
            self.arrival_reward = 0.0 - (away if reward == "dense" else np.minimum(away, 1))
        self.observation_space = self.observation_map.space
        self.action_space = gym.spaces.Discrete(_N_ACTIONS)
        # plain lists: reading one entry of an array costs more than the rest of a step
        self._successor: list[list[int]] = self.layout.successor.tolist()
        self._arrival_reward: list[float] = self.arrival_reward.tolist()
        # the number of the agent's cell, from the first reset on
        self.state = int(self.start_states[0])
        self._elapsed = 0

    @property
    def goal(self) -> tuple[int, int] | None:
        """(x, y) of the goal, or None in the reward-free mode."""
        if self.goal_state is None:
            return None
        x, y = self.layout.cells[self.goal_state].tolist()
        return x, y

    @cached_property
    def finite_mdp(self) -> FiniteMDP | None:
        """The exact problem; the goal, if there is one, is terminal and has self-loops. None of a
        subclass, which may step differently."""
        if type(self) is not GridWorld:
            return None
        # Alike for all starts, as reset draws them.
        start = np.zeros(len(self.terminal))
        start[self.start_states] = 1.0 / len(self.start_states)
        dynamics = FiniteDynamics.from_table(self.layout.successor, start, self.terminal)
        if self.slip > 0.0:
            # A slip draws from all four actions, the one that was asked for included.
            exact = dynamics.transition
            mean: Any = sum(exact[1:], start=exact[0]) / _N_ACTIONS
            moves = ((1.0 - self.slip) * move + self.slip * mean for move in exact)
            slipping = tuple(map(scipy.sparse.csr_array, moves))
            dynamics = FiniteDynamics(slipping, start, self.terminal)
        observations = np.array(list(map(self.observation_map.encode, range(len(start)))))
        earned = None if self.goal_state is None else self.arrival_reward
        return FiniteMDP(dynamics, observations, earned)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any] | int, dict[str, Any]]:
        """Begin an episode; there are no options."""
        super().reset(seed=seed)
        starts = self.start_states
        # A fixed start draws nothing and leaves the generator to the slips.
        drawn = 0 if len(starts) == 1 else self.np_random.integers(len(starts))
        self.state = int(starts[drawn])
        self._elapsed = 0
        return self.observation_map.encode(self.state), {"state": self.state}

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[Any] | int, float, bool, bool, dict[str, Any]]:
        """Make one move: 0 up, 1 down, 2 left, 3 right."""
        # Nothing is checked here, at every step: gymnasium.make wraps the environment in checks of
        # its order of calls, and an agent draws its actions from the space.
        move = int(action)
        # Nothing is drawn without slip: a deterministic grid leaves the generator alone.
        if self.slip > 0.0 and self.np_random.random() < self.slip:
            move = int(self.np_random.integers(_N_ACTIONS))
        state = self.state = self._successor[self.state][move]
        self._elapsed += 1
        terminated = state == self.goal_state
        # The step that reaches the goal ends the task, even if it is the last one allowed.
        truncated = not terminated and self._elapsed >= self.horizon
        observation = self.observation_map.encode(state)
        return observation, self._arrival_reward[state], terminated, truncated, {"state": state}

    def render(self) -> Any:
        """A picture (rows, columns, 3) uint8 of the agent in red and the goal in green, with 5 to
        48 pixels a cell; None without a mode."""
        if self.render_mode is None:
            return None
        free = self.layout.free
        image = np.where(free[..., None], _FLOOR_COLOUR, _WALL_COLOUR).astype(np.uint8)
        for drawn, colour in ((self.goal_state, _GOAL_COLOUR), (self.state, _AGENT_COLOUR)):
            if drawn is not None:
                x, y = self.layout.cells[drawn]
                image[y, x] = colour
        # A whole number of pixels for each cell, so that edges are sharp.
        side = min(max(640 // max(free.shape), 5), 48)
        return image.repeat(side, axis=0).repeat(side, axis=1)


def _state_of(layout: Layout, cell: Any, role: str, words: str) -> int:
    """State of a free cell (x, y), or an error that lists what else may be given."""
    try:
        x, y = map(operator.index, cell)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"{role} is {reprlib.repr(cell)}; give a cell (x, y) of two whole numbers, {words}"
        ) from None
    return layout.index((x, y), role=role)


def _goal_state(layout: Layout, goal: tuple[int, int] | str | None) -> int | None:
    """State of the goal, or None without one."""
    if goal is None:
        return None
    if isinstance(goal, str) and goal == "marked":
        goal = layout.marked_goal
        if goal is None:
            raise ConfigurationError(
                "goal is 'marked', but no cell of the map is marked 'G'; mark one"
            )
    words = "'marked' for the cell the map marks 'G', or None for the reward-free mode"
    return _state_of(layout, goal, "goal", words)


def _start_states(
    layout: Layout, start: tuple[int, int] | str | None, goal_state: int | None
) -> NDArray[np.int64]:
    """(n,) int64: where episodes may begin."""
    if isinstance(start, str) and start == "random":
        return np.flatnonzero(np.arange(layout.n_states) != goal_state)
    words = "'random' for any free cell, or None for the cell the map marks 'S'"
    cell = layout.start if start is None else start
    state = _state_of(layout, cell, "start", words)
    if state == goal_state:
        raise ConfigurationError(
            f"start and goal are both cell {cell}, so there is nothing to do; move one of them"
        )
    return np.array([state], dtype=np.int64)


def map_arrays(env: gym.Env[Any, Any], observations: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """The map on which each state of a finite environment has a cell, as arrays; empty without one.

    Args:
        env: the environment; wrappers are looked through.
        observations: (S, *shape), one for each state.

    Returns:
        cells (S, 2), the (x, y) of each state, y down the map; free (height, width), True where a
        state is; moves (A, 2), where each action leads if nothing is in its way; marks (n, 3), the
        (x, y) and the character of what stands there, ``"★"`` for a goal and ``"●"`` for a hole.
    """
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    world = env.unwrapped
    marks: list[tuple[int, int, str]] = []
    moves: tuple[tuple[int, int], ...]
    if isinstance(world, GridWorld):
        cells, moves = world.layout.cells, (_UP, _DOWN, _LEFT, _RIGHT)
        height, width = world.layout.free.shape
        if world.goal_state is not None:
            x, y = cells[world.goal_state]
            marks = [(x, y, _GOAL)]
    elif isinstance(world, FrozenLakeEnv):
        desc, moves = np.asarray(world.desc).astype(str), (_LEFT, _DOWN, _RIGHT, _UP)
        height, width = desc.shape
        cells = np.stack([observations % width, observations // width], axis=1)
        signs = {"G": _GOAL, "H": _HOLE}
        marks = [(x, y, signs[sign]) for (y, x), sign in np.ndenumerate(desc) if sign in signs]
    elif isinstance(world, CliffWalkingEnv):
        (height, width), moves = world.shape, (_UP, _RIGHT, _DOWN, _LEFT)
        cells = np.stack([observations % width, observations // width], axis=1)
        marks = [(width - 1, height - 1, _GOAL)]
    else:
        return {}
    # Free is where a state is, whatever the map of the environment calls the rest.
    free = np.zeros((height, width), np.bool_)
    free[cells[:, 1], cells[:, 0]] = True
    return {
        "cells": cells,
        "free": free,
        "moves": np.array(moves, np.int64),
        "marks": np.array([(x, y, ord(sign)) for x, y, sign in marks], np.int64).reshape(-1, 3),
    }
