"""The 63 kinds of worlds of TopoGym-v1 and layouts of MiniGrid, with a record of how each is
explored. ``make`` has the sizes and placements of TopoGym's published splits, shows no reward and
goes on at the goal. It needs the extra ``arenas``."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any

import gymnasium as gym

_SIZES = {
    50: "Maze Decoys8 Decoys4 Nested3 Nested2 Decoys2 TopCylinder TopKlein TopMobius TopPlane"
    " TopRP2 TopTorus Decoys1 Nested1 Chambers2 ShapeSt ShapeTr GiveUp4 GiveUp2 ShapeCi GiveUp1"
    " Dilution Decoys0",
    100: "Bottleneck3 Bottleneck6 Maze Decoys8 Decoys4 Nested3 ChamberCount8 Nested2 Decoys2"
    " ChamberCount4 Decoys1 Nested1 ChamberCount2 Chambers2 ShapeSt ShapeTr GiveUp4 GiveUp2 ShapeCi"
    " GiveUp1 ChamberCount1 Decoys0 ShapeSq",
    200: "Bottleneck3 Bottleneck6 ChamberCount8 ChamberCount4 ChamberCount2 Chambers2 ChamberCount1"
    " Dilution",
    400: "Chambers2",
}
# Their cells change by themselves, or look alike: doors, guards, tides, teleports.
_TEXTURES = (
    "Ladders IceShip EnvironmentalIceShip BankRobber SpaceWarp SearchRescue ClownChase DontFall"
)

WORLDS = tuple(
    [f"{kind}-{size}" for size, kinds in _SIZES.items() for kind in kinds.split()]
    + _TEXTURES.split()
)
"""Names of the 63 kinds, ``KIND-SIZE``, or ``KIND`` where there is one size."""

SMALL = (  # thirteen of them
    *("Maze-50", "Decoys8-50", "Nested3-50", "TopKlein-50", "TopTorus-50", "Chambers2-50"),
    *("ShapeSt-50", "GiveUp4-50", "Dilution-50", "Bottleneck3-100"),
    *("Ladders", "IceShip", "SpaceWarp"),
)

MILESTONES = 1_000, 10_000, 100_000
"""Steps after which the share of the cells visited is recorded."""

_VIEWS = {
    "vector": {"actions": "fourway", "obs_mode": "vector"},
    "egocentric": {"actions": "egocentric", "obs_mode": "local"},
}


class Found(Exception):
    """Nothing is left to be found."""


class ExplorationRecord(gym.Wrapper[Any, Any, Any, Any]):
    """A world with cells and a goal, whose exploration is recorded.

    Attributes:
        n_steps: steps made.
        goal_step: steps until the goal was first reached, None before.
        cells: cells visited; positions that a tide opens for a time are none.
        positions: where each step led.
        shares: share of the cells that were visited, by milestone.
        seconds: CPU seconds that the world itself took.
        to_goal: whether `Found` is raised at the goal, or once every cell was visited, too."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.n_steps = 0
        self.goal_step: int | None = None
        self.cells: set[Hashable] = set()
        self.positions: list[Hashable] = []
        self.shares: dict[int, float] = {}
        self.seconds, self.to_goal = 0.0, False
        self._free: frozenset[Hashable] = frozenset()

    @property
    def n_cells(self) -> int:
        """Number of cells that can be visited."""
        return len(self._free)

    @property
    def share(self) -> float:
        """Share of the cells that were visited."""
        return len(self.cells) / self.n_cells

    @property
    def is_complete(self) -> bool:
        """True if the goal was reached and every cell visited."""
        return self.goal_step is not None and self.share == 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        began = time.process_time()
        observation, info = self.env.reset(seed=seed, options=options)
        # TopoGym copies the cells of all former episodes at each step, for a share not used here.
        getattr(self.env.unwrapped, "_ever_visited", set()).clear()
        self.seconds += time.process_time() - began
        self._free = self._free or _cells(self.env.unwrapped)
        self._visit(info)
        return observation, info

    def _position(self, info: dict[str, Any]) -> Hashable:
        return info.get("position") or tuple(map(int, self.get_wrapper_attr("agent_pos")))

    def _visit(self, info: dict[str, Any]) -> None:
        position = self._position(info)
        if position in self._free:
            self.cells.add(position)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        began = time.process_time()
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seconds += time.process_time() - began
        self.n_steps += 1
        self._visit(info)
        self.positions.append(self._position(info))
        if self.goal_step is None and info.get("goal_reached", reward > 0):
            self.goal_step = self.n_steps
        if self.n_steps in MILESTONES:
            self.shares[self.n_steps] = self.share
        if self.goal_step is not None if self.to_goal else self.is_complete:
            raise Found
        return observation, float(reward), terminated, truncated, info


def _cells(env: Any) -> frozenset[Hashable]:
    """Cells that can be visited; in MiniGrid none beyond a goal, and not the ball, as both end."""
    if not hasattr(env, "grid"):
        return frozenset(map(tuple, env.layout.free_cells))
    found, new = set[Any](), {tuple(map(int, env.agent_pos))}
    while new:
        found |= new
        kinds = {cell: getattr(env.grid.get(*cell), "type", "floor") for cell in new}
        near = [(x, y) for (x, y), kind in kinds.items() if kind != "goal"]
        new = {
            (x + i, y + j) for x, y in near for i, j in ((0, 1), (1, 0), (0, -1), (-1, 0))
        } - found
        new = {
            c for c in new if getattr(env.grid.get(*c), "type", "") not in ("wall", "lava", "ball")
        }
    return frozenset(found)


def make(
    world: str, seed: int, observation: str = "vector", *, slip: float = 0.0
) -> ExplorationRecord:
    """One of :data:`WORLDS`, whose layout `seed` draws, 4000 to 4002 are the published test split;
    or an id of MiniGrid, whose layout `seed` fixes, with a view of 7 by 7 cells.

    `observation` is "vector", (x, y) and the floor's texture, with moves to four sides; or
    "egocentric", TopoGym's default, a view of 7 by 7 cells with turns and moves ahead. A share
    `slip` of TopoGym's actions is another, drawn one."""
    if world.startswith("MiniGrid"):
        from minigrid.wrappers import ImgObsWrapper, ReseedWrapper

        return ExplorationRecord(ImgObsWrapper(ReseedWrapper(gym.make(world), seeds=[seed])))
    import topogym  # registers its worlds
    from topogym.benchmarks import jitter_for

    kind, _, size = world.partition("-")
    ids = topogym.registry.registry_ids()
    names = [name.removeprefix("TopoGym/").removesuffix("-v0") for name in ids]
    # A world of another size is made from an entry of its kind, as in the published splits.
    same_kind = (name for name in names if name.partition("-")[0] == kind)
    name = world if world in names else next(same_kind)
    options: dict[str, Any] = {**_VIEWS[observation], "seed": seed, "reward_mode": "none"}
    options |= {"p_slip": slip} if slip else {}
    if name in topogym.registry.REGISTRY:
        options |= {"size": int(size), "placement_jitter": jitter_for(int(size))}
    return ExplorationRecord(gym.make(f"TopoGym/{name}-v0", disable_env_checker=True, **options))
