"""The grid world: one Gymnasium environment for every layout."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from numpy.typing import NDArray

from rover.envs.base import ACTIONS, N_ACTIONS, RENDER_MODES, GridWorldBase
from rover.envs.layouts import Layout
from rover.errors import ConfigurationError


class GridWorld(GridWorldBase, gym.Env[NDArray[Any] | int, np.int64]):
    """A deterministic grid world with walls, with or without a goal.

    ## Description
    The agent moves between the free cells of a map, one cell per step. A move into a wall, or off
    the map, leaves it where it is. The layouts are those of the ROVER paper (section 4 and its
    appendix) and of the user's own: a map as text.

    ## Action Space
    ``Discrete(4)``: 0 up, 1 down, 2 left, 3 right. With ``slip`` > 0 an action is replaced, with
    that probability, by one drawn uniformly from all four.

    ## Observation Space
    The goal is never part of an observation.
    - ``observation="state"``: ``Discrete(S)``, the number of the agent's cell in row-major order.
    - ``observation="onehot"``: ``Box(0, 1, (S,), float32)``.
    - ``observation="pixels"``: ``Box(0, 255, (84, 84, 3), uint8)``, the agent as a red square.

    ## Rewards
    - ``reward="sparse"``: −1 per step, and 0 on the step that reaches the goal. The best return of
      a goal at distance d is therefore −(d − 1), and that of a failure −horizon.
    - ``reward="dense"``: minus the Manhattan distance to the goal after the step.
    - Without a goal (the reward-free mode): 0.

    ## Starting State
    The cell that the map marks ``S``; or ``start``; or, with ``start="random"``, a cell drawn
    uniformly from the free ones but the goal. ``reset(options={"start": ...})`` sets it for one
    episode.

    ## Episode End
    - Termination: the agent reaches the goal. Never without a goal.
    - Truncation: ``horizon`` steps were made and the goal was not reached.

    ## Information
    ``reset`` and ``step`` return ``{"state": int}``, the number of the agent's cell, whatever the
    observation.

    ## Arguments
    - ``layout``: a name (``"two_rooms"``, ``"multi_rooms"``, ``"middle_room"``, ``"maze"``,
      ``"four_rooms"``, ``"corridor"``), a map as text, the path of a text file, or a ``Layout``.
    - ``observation``: ``"state"`` (default), ``"onehot"`` or ``"pixels"``.
    - ``goal``: None (default: reward-free), (x, y), or ``"marked"`` for the map's ``G``.
    - ``start``: None (default: the map's ``S``), (x, y), or ``"random"``.
    - ``horizon``: steps to truncation; by default that of the named layout, else 100.
    - ``reward``: ``"sparse"`` (default) or ``"dense"``.
    - ``slip``: probability of a random action, 0 by default.
    - ``render_mode``: None, ``"rgb_array"`` or ``"ansi"``.
    - Any other keyword goes to the named layout, such as ``rooms`` and ``room_size`` to
      ``"multi_rooms"``.

    Raises ``ConfigurationError`` for a setting that is unknown, out of range or contradicts
    another, and ``LayoutError`` for a map, goal or start that cannot be used, naming the cell.

    ## Version History
    - v0: Initial version.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": list(RENDER_MODES),
        "render_fps": 8,
    }

    def __init__(self, layout: Layout | str | Path | None = None, **settings: Any) -> None:
        super().__init__(layout, **settings)
        self.observation_space = self.observation_map.space
        self.action_space = gym.spaces.Discrete(N_ACTIONS)
        # plain lists: reading one entry of an array costs more than the rest of a step
        self._successor: list[list[int]] = self.layout.successor.tolist()
        self._arrival_reward: list[float] = self.arrival_reward.tolist()
        self._state: int | None = None
        self._elapsed = 0
        self._episode_over = False

    @property
    def state(self) -> int:
        """Number of the agent's cell, in [0, S).

        Raises:
            ResetNeeded: The environment was never reset.
        """
        if self._state is None:
            raise ResetNeeded("this grid world has no state yet; call reset() first")
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any] | int, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: Seed of the environment's rng; None keeps the rng as it is.
            options: ``{"start": (x, y)}`` or ``{"start": "random"}`` for this episode only.

        Returns:
            The observation, and ``{"state": int}``.

        Raises:
            ConfigurationError: An option is unknown or its value is wrong.
            LayoutError: The start is a wall or outside the map.
        """
        super().reset(seed=seed)
        starts = self._starts_of_reset(options) if options else self.start_states
        drawn = 0 if len(starts) == 1 else self.np_random.integers(len(starts))
        state = self._state = int(starts[drawn])
        self._elapsed = 0
        self._episode_over = False
        return self.observation_map.encode(state), {"state": state}

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[Any] | int, float, bool, bool, dict[str, Any]]:
        """Make one move.

        Args:
            action: 0 up, 1 down, 2 left, 3 right.

        Returns:
            The observation, reward, terminated, truncated, and ``{"state": int}``.

        Raises:
            ConfigurationError: The action is not one of the four.
            ResetNeeded: The episode is over, or none has begun.
        """
        if self._state is None or self._episode_over:
            raise ResetNeeded(
                "step() was called "
                + ("after the end of the episode" if self._episode_over else "before reset()")
                + "; call reset() to begin a new one"
            )
        try:
            move = operator.index(action)
        except TypeError:
            move = -1
        if not 0 <= move < N_ACTIONS:
            raise ConfigurationError(f"unknown action {action!r}; the actions are {ACTIONS}")
        slip = self.slip
        if slip > 0.0 and self.np_random.random() < slip:
            move = int(self.np_random.integers(N_ACTIONS))
        state = self._state = self._successor[self._state][move]
        self._elapsed += 1
        terminated = state == self.goal_state
        truncated = not terminated and self._elapsed >= self.horizon
        self._episode_over = terminated or truncated
        observation = self.observation_map.encode(state)
        return observation, self._arrival_reward[state], terminated, truncated, {"state": state}

    def render(self) -> Any:
        """A picture of the current state, goal included, in the render mode of the constructor.

        Returns:
            (rows, columns, 3) uint8 for ``"rgb_array"``, str for ``"ansi"``, None without a mode.

        Raises:
            ResetNeeded: The environment was never reset.
        """
        pictures = self._pictures([self.state])
        return None if pictures is None else pictures[0]
