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

from rover.envs.dynamics import FiniteDynamics
from rover.envs.gridworld import GridWorld
from rover.envs.layouts import ACTION_NAMES, Layout
from rover.envs.rendering import render_ansi, render_rgb
from rover.envs.task import N_ACTIONS, check_render_mode, make_grid_task
from rover.errors import ConfigurationError

AUTORESET_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)

VectorStep = tuple[
    NDArray[Any], NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]
]


class GridWorldVectorEnv(gym.vector.VectorEnv[NDArray[Any], NDArray[Any], NDArray[Any]]):
    """Copies of one :class:`~rover.envs.gridworld.GridWorld` that step together.

    Equal to ``gymnasium.vector.SyncVectorEnv`` over grid worlds, step for step and ``info``
    included, as long as nothing is random. Random starts and slips are drawn for all copies from
    one rng, so there they agree in distribution; the same seed gives the same batch.

    Args:
        num_envs: Number of copies, n ≥ 1.
        layout: As for ``GridWorld``, like the other settings up to ``render_mode`` and
            ``layout_options``.
        observation: ``"state"``, ``"onehot"`` or ``"pixels"``.
        goal: None, (x, y) or ``"marked"``.
        start: None, (x, y) or ``"random"``.
        horizon: Steps to truncation.
        reward: ``"sparse"`` or ``"dense"``.
        slip: Probability of a random action.
        render_mode: None, ``"rgb_array"`` or ``"ansi"``; ``render`` gives one frame per copy.
        autoreset_mode: ``NEXT_STEP`` (Gymnasium's default: the step after the end of an episode
            ignores its action and resets) or ``SAME_STEP`` (the observation is that of the new
            episode; the last one is in ``info["final_obs"]``), or their values as strings.
        layout_options: Keyword arguments of a named layout.

    Raises:
        ConfigurationError: A setting is unknown, out of range, or contradicts another.
        LayoutError: A map, goal or start that cannot be used; the message names the cell.
    """

    def __init__(
        self,
        num_envs: int = 1,
        layout: Layout | str | Path | None = None,
        *,
        observation: str = "state",
        goal: tuple[int, int] | str | None = None,
        start: tuple[int, int] | str | None = None,
        horizon: int | None = None,
        reward: str = "sparse",
        slip: float = 0.0,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        **layout_options: Any,
    ) -> None:
        check_render_mode(render_mode)
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ConfigurationError(
                f"num_envs is {num_envs!r}, but must be a whole number of at least 1"
            )
        self.num_envs = int(num_envs)
        self.task = make_grid_task(
            layout,
            observation=observation,
            goal=goal,
            start=start,
            horizon=horizon,
            reward=reward,
            slip=slip,
            layout_options=layout_options,
        )
        self.autoreset_mode = _check_autoreset_mode(autoreset_mode)
        self.metadata = {**GridWorld.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = render_mode
        self.single_observation_space = self.task.observation_map.space
        self.single_action_space = gym.spaces.Discrete(N_ACTIONS)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._flat_successor = self.task.layout.successor.ravel()  # (S·A,)
        self._states: NDArray[np.int64] | None = None  # (n,)
        self._elapsed = np.zeros(self.num_envs, dtype=np.int64)
        self._episode_over = np.zeros(self.num_envs, dtype=np.bool_)

    @cached_property
    def observation_space(self) -> gym.Space[Any]:  # type: ignore[override]
        """Batched observation space; made when asked for: its bounds are as large as a batch."""
        return batch_space(self.single_observation_space, self.num_envs)

    @property
    def layout(self) -> Layout:
        """The map."""
        return self.task.layout

    @property
    def horizon(self) -> int:
        """Steps after which an episode is truncated."""
        return self.task.horizon

    @property
    def suggested_discount(self) -> float:
        """A discount that suits the layout: the paper's, 0.99 for other maps."""
        return self.task.suggested_discount

    @property
    def states(self) -> NDArray[np.int64]:
        """(n,) int64: the number of every copy's cell.

        Raises:
            ResetNeeded: The environments were never reset.
        """
        if self._states is None:
            raise ResetNeeded("these grid worlds have no states yet; call reset() first")
        return self._states.copy()

    def observations(self) -> NDArray[Any]:
        """(S, *observation shape): the observation of every state."""
        return self.task.observations()

    def dynamics(self) -> FiniteDynamics:
        """The exact dynamics of one copy; the goal, if there is one, is terminal."""
        return self.task.dynamics()

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
        starts = self.task.start_states_from(options)
        self._states = self._sample_starts(starts, self.num_envs)
        self._elapsed[:] = 0
        self._episode_over[:] = False
        return self.task.observation_map.encode_batch(self._states), self._info(self._states)

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
        moves = self._slipped(self._check_actions(actions))
        states = np.take(self._flat_successor, self._states * N_ACTIONS + moves)
        self._elapsed += 1
        if self.task.goal_state is None:
            rewards = np.zeros(self.num_envs)
            terminated = np.zeros(self.num_envs, dtype=np.bool_)
            truncated = self._elapsed >= self.task.horizon
        else:
            rewards = np.take(self.task.arrival_reward, states)
            terminated = states == self.task.goal_state
            truncated = (self._elapsed >= self.task.horizon) & ~terminated
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
            states[begun] = self._sample_starts(self.task.start_states, len(begun))
            self._elapsed[begun] = 0
        self._states = states
        observations = self.task.observation_map.encode_batch(states)
        return observations, rewards, terminated, truncated, {**final, **self._info(states)}

    def render(self) -> tuple[Any, ...] | None:
        """One frame per copy in the render mode of the constructor; None without a mode.

        Raises:
            ResetNeeded: The environments were never reset.
        """
        if self.render_mode is None:
            gym.logger.warn(
                "render() was called without a render mode; make the environments with "
                'render_mode="rgb_array" or "ansi"'
            )
            return None
        draw = render_rgb if self.render_mode == "rgb_array" else render_ansi
        goal_state, start_state = self.task.goal_state, self.task.only_start_state
        return tuple(
            draw(self.layout, state, goal_state=goal_state, start_state=start_state)
            for state in self.states.tolist()
        )

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
            names = ", ".join(f"{number} {name}" for number, name in enumerate(ACTION_NAMES))
            raise ConfigurationError(
                f"unknown action {moves[wrong]} for copy {wrong}; the actions are {names}"
            )
        return moves

    def _slipped(self, moves: NDArray[np.integer[Any]]) -> NDArray[np.integer[Any]]:
        """(n,) the moves, some replaced by random ones where the floor is slippery."""
        if self.task.slip == 0.0:
            return moves
        slips = self.np_random.random(self.num_envs) < self.task.slip
        return np.where(slips, self.np_random.integers(N_ACTIONS, size=self.num_envs), moves)

    def _sample_starts(self, starts: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """(count,) int64 first states, uniform over ``starts``."""
        if len(starts) == 1:
            return np.full(count, starts[0])
        return starts[self.np_random.integers(len(starts), size=count)]

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
            final_obs[copy] = self.task.observation_map.encode(int(states[copy]))
        final_states = np.where(ended, states, 0)
        return {
            "final_obs": final_obs,
            "_final_obs": ended,
            "final_info": {"state": final_states, "_state": ended.copy()},
            "_final_info": ended.copy(),
        }


def _check_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """One of :data:`AUTORESET_MODES`."""
    for allowed in AUTORESET_MODES:
        if mode in (allowed, allowed.value):
            return allowed
    values = " or ".join(repr(allowed.value) for allowed in AUTORESET_MODES)
    raise ConfigurationError(f"autoreset_mode is {mode!r}, but must be {values}")
