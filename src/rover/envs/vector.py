"""Thousands of grid worlds at once: every step is a few table look-ups for all copies together."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rover.envs.gridworld import ACTIONS, N_ACTIONS, GridWorld, GridWorldBase
from rover.envs.layouts import Layout, check_whole_number
from rover.errors import ConfigurationError

AUTORESET_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)

VectorStep = tuple[
    NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]


class GridWorldVectorEnv(
    GridWorldBase, gym.vector.VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]
):
    """Copies of one :class:`~rover.envs.gridworld.GridWorld` that step together.

    Equal to ``gymnasium.vector.SyncVectorEnv`` over grid worlds, step for step and ``info``
    included, as long as nothing is random. Random starts and slips are drawn for all copies from
    one rng, so there they agree in distribution; the same seed gives the same batch.

    Args:
        num_envs: Number of copies, n ≥ 1.
        layout: As for ``GridWorld``.
        autoreset_mode: ``NEXT_STEP`` (Gymnasium's default: the step after the end of an episode
            ignores its action and resets) or ``SAME_STEP`` (the observation is that of the new
            episode; the last one is in ``info["final_obs"]``), or their values as strings.
        settings: The other keywords of ``GridWorld``: ``observation``, ``goal``, ``start``,
            ``horizon``, ``reward``, ``slip``, ``render_mode``, and those of a named layout.

    Raises:
        ConfigurationError: A setting is unknown, out of range, or contradicts another.
        LayoutError: A map, goal or start that cannot be used; the message names the cell.
    """

    def __init__(
        self,
        num_envs: int = 1,
        layout: Layout | str | Path | None = None,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **settings: Any,
    ) -> None:
        super().__init__(layout, **settings)
        self.num_envs = check_whole_number("num_envs", num_envs, 1)
        values = [mode.value for mode in AUTORESET_MODES]
        if autoreset_mode not in (*AUTORESET_MODES, *values):
            allowed = " or ".join(map(repr, values))
            raise ConfigurationError(f"autoreset_mode is {autoreset_mode!r}, but must be {allowed}")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**GridWorld.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self.observation_map.space
        self.single_action_space = gym.spaces.Discrete(N_ACTIONS)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._flat_successor = self.layout.successor.ravel()  # (S·A,)
        self._states: NDArray[np.int64] | None = None  # (n,)
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._episode_over = np.zeros(self.num_envs, dtype=np.bool_)

    @cached_property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """Batched observation space; made when asked for: its bounds are as large as a batch."""
        return batch_space(self.single_observation_space, self.num_envs)

    @property
    def states(self) -> NDArray[np.int64]:
        """(n,) int64: the number of every copy's cell.

        Raises:
            ResetNeeded: The environments were never reset.
        """
        if self._states is None:
            raise ResetNeeded("these grid worlds have no states yet; call reset() first")
        return self._states.copy()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode in every copy.

        Args:
            seed: One seed for the whole batch; None keeps the rng as it is.
            options: ``{"start": (x, y)}`` or ``{"start": "random"}`` for these first episodes.

        Returns:
            The observations, and ``{"state": (n,) int64}`` with Gymnasium's mask ``_state``.

        Raises:
            ConfigurationError: The seed is not one number, or an option is unknown or wrong.
            LayoutError: The start is a wall or outside the map.
        """
        if seed is not None and not isinstance(seed, int | np.integer):
            raise ConfigurationError(
                f"seed is {seed!r}; all copies share one rng, so give one whole number or None"
            )
        super().reset(seed=None if seed is None else int(seed))
        starts = self._starts_of_reset(options)
        self._states = self._sample_starts(starts, self.num_envs, self.np_random)
        self._elapsed[:] = 0
        self._episode_over[:] = False
        return self.observation_map.encode_batch(self._states), self._info(self._states)

    def step(self, actions: NDArray[Any]) -> VectorStep:
        """Make one move in every copy.

        Args:
            actions: (n,) integers in [0, 4).

        Returns:
            Observations (n, ...), rewards (n,) float64, terminated (n,) bool, truncated (n,) bool,
            and info as Gymnasium batches it. All arrays are the caller's to keep.

        Raises:
            ConfigurationError: The actions have the wrong shape or type, or one is out of range.
            ResetNeeded: The environments were never reset.
        """
        if self._states is None:
            raise ResetNeeded("step() was called before reset(); call reset() first")
        moves = self._check_actions(actions)
        if self.slip > 0.0:
            slips = self.np_random.random(self.num_envs) < self.slip
            moves = np.where(slips, self.np_random.integers(N_ACTIONS, size=self.num_envs), moves)
        states = np.take(self._flat_successor, self._states * N_ACTIONS + moves)
        self._elapsed += 1
        if self.goal_state is None:
            rewards = np.zeros(self.num_envs)
            terminated = np.zeros(self.num_envs, dtype=np.bool_)
            truncated = self._elapsed >= self.horizon
        else:
            rewards = np.take(self.arrival_reward, states)
            terminated = states == self.goal_state
            truncated = (self._elapsed >= self.horizon) & ~terminated
        final: dict[str, Any] = {}
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            begun = np.flatnonzero(self._episode_over)
            rewards[begun] = 0.0
            terminated[begun] = False
            truncated[begun] = False
            self._episode_over = terminated | truncated
        else:
            begun = np.flatnonzero(terminated | truncated)
            final = self._final_info(states, begun)
        if len(begun):
            states[begun] = self._sample_starts(self.start_states, len(begun), self.np_random)
            self._elapsed[begun] = 0
        self._states = states
        observations = self.observation_map.encode_batch(states)
        return observations, rewards, terminated, truncated, {**final, **self._info(states)}

    def render(self) -> tuple[Any, ...] | None:
        """One frame per copy in the render mode of the constructor; None without a mode.

        Raises:
            ResetNeeded: The environments were never reset.
        """
        pictures = self._pictures(self.states.tolist())
        return None if pictures is None else tuple(pictures)

    def _check_actions(self, actions: NDArray[Any]) -> NDArray[np.integer[Any]]:
        """(n,) integers in [0, 4), or an error."""
        moves = np.asarray(actions)
        if moves.shape != (self.num_envs,) or not np.issubdtype(moves.dtype, np.integer):
            raise ConfigurationError(
                f"actions have shape {moves.shape} and type {moves.dtype}, but must be integers of "
                f"shape ({self.num_envs},)"
            )
        if moves.min() < 0 or moves.max() >= N_ACTIONS:
            wrong = int(np.flatnonzero((moves < 0) | (moves >= N_ACTIONS))[0])
            raise ConfigurationError(
                f"unknown action {moves[wrong]} for copy {wrong}; the actions are {ACTIONS}"
            )
        return moves

    def _info(self, states: NDArray[np.int64]) -> dict[str, Any]:
        """The info of a step, as ``VectorEnv`` batches ``{"state": ...}`` of every copy."""
        return {"state": states.copy(), "_state": np.ones(self.num_envs, dtype=np.bool_)}

    def _final_info(self, states: NDArray[np.int64], over: NDArray[np.intp]) -> dict[str, Any]:
        """The last observations and info of the copies whose episode ended in this step."""
        if len(over) == 0:
            return {}
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        ended[over] = True
        final_obs = np.full(self.num_envs, None, dtype=object)
        for copy in over.tolist():
            final_obs[copy] = self.observation_map.encode(int(states[copy]))
        final_states = np.where(ended, states, 0)
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": {"state": final_states, "_state": ended.copy()},
            "_final_info": ended.copy(),
        }
