"""Rooms whose doors are elsewhere in every episode: a finite family of contexts, known exactly."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs.dynamics import FiniteDynamics, FiniteMDP
from rover.envs.layouts import ACTION_MOVES, FREE, START, WALL, Layout, make_layout
from rover.errors import ConfigurationError, choose, whole_number

_OBSERVATIONS = ("map", "view")
_VIEW = 2  # cells that are seen in each direction
_OPEN, _AGENT, _WALL = 0, 1, 2


class RandomRooms(gym.Env[NDArray[np.uint8], np.int64]):
    """A row of rooms with one door between two, which every episode draws anew, with the start.

    ## Description
    A context is where the doors are and where the episode begins; all are equally likely. The
    objective is the coverage of an episode, J = E_c ‖μ_c(π)‖². The states of all contexts make one
    finite problem, with a separate part for each, so that its ‖μ‖² is J / contexts.

    ## Action Space
    ``Discrete(4)``: 0 up, 1 down, 2 left, 3 right; into a wall it stays.

    ## Observation Space
    ``Box(0, 255, uint8)``, a vector of cells in row-major order: 0 open, 1 the agent, 2 walls.
    - ``observation="map"``: all cells, which tell the context. J* is over all policies.
    - ``observation="view"``: the 5 × 5 cells around the agent, which stands in their middle and is
      not shown. States look alike, and no exact figures are given: J* of :attr:`mdp` is a bound,
      reached by a policy that observes its context.

    ## Rewards
    0.

    ## Episode End
    Truncation after ``horizon`` steps.

    ## Arguments
    - ``rooms`` ≥ 1, ``room_size`` ≥ 1: of the map; 4 and 4 by default.
    - ``contexts``: how many, at most as many as there are places of the doors; 16 by default.
    - ``family``: seed of what is drawn for the contexts, 0 by default.
    - ``horizon``: steps of an episode, 100 by default.
    - ``observation``: as above.

    ## Attributes
    - ``mdp``: the dynamics of all contexts together, and the observation of every state; states are
      the open cells of context 0, then of context 1, and so on.
    - ``context_of``: (S,) int64, the context of every state.
    - ``layouts``: the map of every context, with its start.
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
        choose("observation", observation, _OBSERVATIONS)
        n_rooms = whole_number("rooms", rooms)
        size = whole_number("room_size", room_size)
        n_contexts = whole_number("contexts", contexts)
        most = size ** (n_rooms - 1)  # each context differs from all others in its doors
        if n_contexts > most:
            raise ConfigurationError(
                f"contexts={n_contexts}, but there are {most} places of the doors; ask for fewer, "
                "or for more rooms"
            )
        self.horizon = whole_number("horizon", horizon)
        self._observation = observation
        rng = np.random.default_rng(whole_number("family", family, least=0))
        # Drawn again where it is there already; the start is drawn once the doors are new.
        drawn: dict[tuple[int, ...], Layout] = {}
        while len(drawn) < n_contexts:
            doors = rng.integers(size, size=n_rooms - 1)
            if (key := tuple(doors.tolist())) not in drawn:
                drawn[key] = _rooms(doors, size, rng)
        self.layouts = tuple(drawn.values())
        self.context_of = np.repeat(
            np.arange(n_contexts), [layout.n_states for layout in self.layouts]
        )
        self._first = np.searchsorted(self.context_of, np.arange(n_contexts)).tolist()
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
        return self._seen()

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Make one move."""
        self._state = self._successor[self._state][int(action)]
        self._elapsed += 1
        observation, info = self._seen()
        return observation, 0.0, False, self._elapsed == self.horizon, info

    def _seen(self) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        # For measurements; whether the agent sees the context depends on the observation.
        info = {"state": self._state, "context": int(self.context_of[self._state])}
        return self.mdp.observations[self._state].copy(), info


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
