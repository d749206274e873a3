"""Worlds of TopoGym by the names of its benchmark, and a record of how they are explored.

Importing this module registers ``topogym/World-v0``: the registry of TopoGym makes the world, with
the size and the placements of its published splits. A world shows no reward and goes on at its
goal. It needs ``pip install topogym``.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any, Literal

import gymnasium as gym

from rover.errors import ConfigurationError, choose

MILESTONES = 1_000, 10_000, 100_000, 1_000_000
"""Steps after which the share of the cells visited is noted."""

_VIEWS = {
    "vector": {"actions": "fourway", "obs_mode": "vector"},
    "egocentric": {"actions": "egocentric", "obs_mode": "local"},
}


class ExplorationRecord(gym.Wrapper[Any, Any, Any, Any]):
    """A world with cells and a goal, whose exploration is recorded.

    Its information holds ``position`` and ``goal_reached``, and its ``layout.free_cells`` are all
    cells that can be visited.

    Args:
        env: the world.

    Attributes:
        goal_step: steps until the goal was first reached, None before.
        cells: cells visited; positions that a tide opens for a time are none.
        shares: share of the cells that were visited, after each of the :data:`MILESTONES`.
        seconds: CPU seconds that the world itself took.
    """

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.n_steps = 0
        self.goal_step: int | None = None
        self.cells: set[Hashable] = set()
        self._free: frozenset[Hashable] = frozenset()
        self.shares: dict[int, float] = {}
        self.seconds = 0.0

    @property
    def record(self) -> ExplorationRecord:
        """This wrapper, for those around it."""
        return self

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self._free)

    @property
    def share(self) -> float:
        """Share of the cells that were visited."""
        return len(self.cells) / self.n_cells

    @property
    def is_complete(self) -> bool:
        """True if nothing is left to find: the goal was reached, and every cell visited."""
        return self.goal_step is not None and self.share == 1.0

    def figures(self, budget: int) -> dict[str, float | None]:
        """Figures of a run that a budget of steps was given to.

        One that ended before, since nothing was left to find, has its last share at later
        milestones of the budget, too; one that ended at its goal alone has none there.
        """
        shares: dict[str, float | None] = {
            f"share_{steps}": self.shares.get(steps, 1.0 if self.is_complete else None)
            for steps in MILESTONES
            if steps <= budget
        }
        return {
            "goal_reached": float(self.goal_step is not None),
            "goal_step": self.goal_step,
            "steps_made": self.n_steps,
            "n_cells": self.n_cells,
            "share": self.share,
            **shares,
        }

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        began = time.process_time()
        observation, info = self.env.reset(seed=seed, options=options)
        # TopoGym copies the cells of all former episodes at each step, for a share not used here.
        getattr(self.env.unwrapped, "_ever_visited", set()).clear()
        self.seconds += time.process_time() - began
        layout: Any = self.get_wrapper_attr("layout")
        self._free = self._free or frozenset(map(tuple, layout.free_cells))
        self._visit(info["position"])
        return observation, info

    def _visit(self, position: Hashable) -> None:
        if position in self._free:
            self.cells.add(position)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step."""
        began = time.process_time()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seconds += time.process_time() - began
        self.n_steps += 1
        self._visit(info["position"])
        if self.goal_step is None and info["goal_reached"]:
            self.goal_step = self.n_steps
        if self.n_steps in MILESTONES:
            self.shares[self.n_steps] = self.share
        return observation, float(reward), terminated, truncated, info


def _world(
    world: str, seed: int, observation: Literal["vector", "egocentric"] = "vector"
) -> ExplorationRecord:
    """A world of TopoGym by its name, ``KIND-SIZE``, or ``KIND`` if it has one size.

    `seed` draws the layout; 4000 to 4002 are the published test split. `observation` is
    ``"vector"``, (x, y) and the floor's texture, with moves to four sides; or ``"egocentric"``,
    TopoGym's default, a view of 7 by 7 cells with turns and moves ahead. ConfigurationError: there
    is no such world, or TopoGym is not installed.
    """
    try:
        import topogym  # registers its worlds
        from topogym.benchmarks import jitter_for
    except ImportError:
        raise ConfigurationError(
            'worlds of TopoGym need its package: pip install ".[topogym]"'
        ) from None
    view = _VIEWS[choose("observation", observation, _VIEWS)]
    kind, _, size = world.partition("-")
    names = [
        name.removeprefix("TopoGym/").removesuffix("-v0")
        for name in topogym.registry.registry_ids()
    ]
    same_kind = [name for name in names if name.partition("-")[0] == kind]
    # A world of another size is made from the entry of its kind, as in the published splits.
    name = world if world in names else same_kind[0] if size.isdecimal() and same_kind else ""
    if not name:
        choose("world", world, names)
    options: dict[str, Any] = dict(view)
    if name in topogym.registry.REGISTRY:
        options |= {"size": int(size), "placement_jitter": jitter_for(int(size))}
    options |= {"seed": seed, "reward_mode": "none"}
    return ExplorationRecord(gym.make(f"TopoGym/{name}-v0", disable_env_checker=True, **options))


if "topogym/World-v0" not in gym.registry:
    gym.register(
        "topogym/World-v0",
        entry_point=f"{__name__}:_world",
        order_enforce=False,
        disable_env_checker=True,
    )
