"""Rooms whose doors are elsewhere in every episode: a finite family of contexts, known exactly."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.layouts import ACTION_MOVES, FREE, START, WALL, Layout, make_layout

_VIEW = 2  # cells that are seen in each direction
_OPEN, _AGENT, _WALL = 0, 1, 2


class RandomRooms(gym.Env[NDArray[np.uint8], np.int64]):
    """A row of rooms with one door between two; every episode draws the doors and the start anew.

    A context is where they are; all are equally likely. The states of all contexts make one finite
    problem, with a separate part for each, so that its ‖μ‖² is J / contexts, and J* of `mdp` is
    exact. ``observation="map"`` shows all cells, and so the context; ``"view"`` the 5 × 5 around
    the agent, so that states look alike.
    """

    suggested_discount = 0.99

    def __init__(
        self,
        *,
        rooms: int = 4,
        room_size: int = 4,
        contexts: int = 16,
        family: int = 0,
        horizon: int = 100,
        observation: str = "map",
    ) -> None:
        self.horizon = horizon
        self._observation = observation
        rng = np.random.default_rng(family)
        # Drawn again where it is there already; the start is drawn once the doors are new.
        drawn: dict[tuple[int, ...], Layout] = {}
        while len(drawn) < contexts:
            doors = rng.integers(room_size, size=rooms - 1)
            if (key := tuple(doors.tolist())) not in drawn:
                drawn[key] = _rooms(doors, room_size, rng)
        self.layouts = tuple(drawn.values())
        self.context_of = np.repeat(
            np.arange(contexts), [layout.n_states for layout in self.layouts]
        )
        self._first = np.searchsorted(self.context_of, np.arange(contexts)).tolist()
        # The states of context c are numbered from its first one on.
        each = zip(self.layouts, self._first, strict=True)
        successor = np.concatenate([layout.successor + first for layout, first in each])
        self._successor = successor.tolist()
        self.mdp = self._problem(successor)
        shape = self.mdp.observations.shape[1:]
        self.observation_space = gym.spaces.Box(0, 255, shape, np.uint8)
        self.action_space = gym.spaces.Discrete(len(ACTION_MOVES))
        self._state = 0
        self._elapsed = 0

    @property
    def finite_mdp(self) -> FiniteMDP | None:
        """The problem, where observations tell its states apart."""
        return self.mdp if self._observation == "map" else None

    def _problem(self, successor: NDArray[np.int64]) -> FiniteMDP:
        start = np.zeros(len(self.context_of))
        rows = []
        for number, layout in enumerate(self.layouts):
            start[self._first[number] + layout.index(layout.start)] = 1.0 / len(self.layouts)
            grid = np.where(layout.free, _OPEN, _WALL).astype(np.uint8)
            for x, y in layout.cells:
                if self._observation == "view":
                    around = np.pad(grid, _VIEW, constant_values=_WALL)  # beyond the map
                    seen = around[y : y + 2 * _VIEW + 1, x : x + 2 * _VIEW + 1]
                else:
                    seen = grid.copy()
                    seen[y, x] = _AGENT
                rows.append(seen.ravel())
        dynamics = FiniteDynamics.from_table(successor, start, np.zeros(len(start), np.bool_))
        return FiniteMDP(dynamics, np.stack(rows), np.zeros(len(start)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Begin an episode in a context that is drawn."""
        super().reset(seed=seed)
        context = int(self.np_random.integers(len(self.layouts)))
        layout = self.layouts[context]
        self._state = self._first[context] + layout.index(layout.start)
        self._elapsed = 0
        return self._seen(), {}

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Make one move."""
        self._state = self._successor[self._state][int(action)]
        self._elapsed += 1
        return self._seen(), 0.0, False, self._elapsed == self.horizon, {}

    def _seen(self) -> NDArray[np.uint8]:
        return self.mdp.observations[self._state].copy()


def _rooms(doors: NDArray[np.int64], size: int, rng: np.random.Generator) -> Layout:
    """Rooms in a row with their doors in these rows, and a start that is drawn."""
    # One wall between two rooms, and none beyond the last.
    room = FREE * size
    rows = [
        "".join(room + (FREE if door == y else WALL) for door in doors) + room for y in range(size)
    ]
    text = "\n".join(rows)
    free = [place for place, sign in enumerate(text) if sign == FREE]
    start = free[int(rng.integers(len(free)))]
    return make_layout(text[:start] + START + text[start + 1 :])
