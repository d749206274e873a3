"""Mechanisms of exploring and planning, switched off one at a time.

    python benchmarks/ablation.py ROW [ROW ...] --worlds car maze --seeds 200 201 --csv rows.csv

Each ROW is a mechanism (`--help` lists them), or several joined by "+"; `none` switches nothing off
and is what the others are compared with. One run is one world, one seed and one row, in a process
of its own, one at a time; worlds of goals explore once for all rows, which then differ in planning
alone. The figures:

- explorations: `area`, the mean number of distinct cells over the steps; `cells` at the end;
  `first`, the step of the first end of an episode by a termination (a flag, a fall); `most`, the
  step by which 95% of a maze was seen;
- goals: `area`, mean steps to ten goals, at most 200 each; `cells`, goals arrived at;
- repeating: as explorations, and `most`, the success of a solved policy from starts moved by 0.02;
- contexts: `area`, positions of an episode of the run; `cells`, doors opened in it; `first` and
  `most`, the same of the policy in fresh layouts.

The table that is printed has the mean change of log(area) against `none` over the pairs of world
and seed, with its standard error, and the ratio of processor time. Needs the extra "arenas".
"""

from __future__ import annotations

import csv
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import rover
from rover.contexts import explorer as contexts
from rover.coverage import exploration
from rover.errors import ConfigurationError
from rover.solving import simulation
from rover.world import (
    displacements,
    dynamics_model,
    lookahead,
    model,
    model_selection,
    novelty,
    outcomes,
)
from rover.world.net import FIRST_UNITS, units_due
from rover.world.world import World

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "helpers")]
from common import add_rows, begin, parser

COLUMNS = ("row", "world", "seed", "area", "cells", "first", "most", "cpu")
LIMIT, GOALS = 200, 10

# Mechanisms


def _fine() -> None:
    """Action values of a plan at places of a second, finer spacing."""
    outcomes.FINE_SPACING = outcomes.SPACING


def _passing() -> None:
    """Outcomes that pass a goal between places count as arrivals."""
    outcomes.OutcomeModel.outcomes_that_pass = lambda self, is_goal: np.zeros(
        self.onward.shape[0], np.bool_
    )


def _selection() -> None:
    """Held-out errors decide between exact states and a dynamics model."""

    def is_exact(self: Any) -> bool:
        buffer = self.buffer
        if not model_selection.has_metric(buffer.observations.rows[: 2 * model_selection.DECIDED]):
            return model_selection.repeats(buffer)
        due = units_due(min(len(buffer), model_selection.DECIDED))
        if len(buffer) >= FIRST_UNITS and due != self._decided_on:
            self._decided_on = due
            begins, ends = buffer.inputs[:due], buffer.successors[:due]
            n_states = 1 + int(max(begins.max(), ends.max()))
            n_moves = np.count_nonzero(begins != ends)
            self._is_exact = n_states <= max(
                model_selection._FEW, model_selection.MOST_NEW * n_moves
            )
        return self._is_exact

    World.is_exact = property(is_exact)


def _smooth() -> None:
    """Smoothness of laws of plans chosen by leave-one-out."""
    displacements.Displacements._choose = lambda self, x, u, y, smoothness: smoothness


def _cell() -> None:
    """One action sequence kept for each cell of space."""
    lookahead._best_of_cells = lambda values, points, side: np.argsort(-values, kind="stable")


def _missed() -> None:
    """A sequence searched anew where its first action led elsewhere."""
    exploration.MISSED = math.inf


def _safe() -> None:
    """Single steps where an end of the episode is likely."""
    _setting(safe=-1.0)


def _fit(**changed: float) -> None:
    """Change settings of the regressions that are made every few steps."""
    init, usual = displacements.Displacements.__init__, displacements.Fit()

    def changing(self: Any, *given: Any, fit: Any = usual, **others: Any) -> None:
        init(self, *given, fit=fit._replace(**changed) if fit == usual else fit, **others)

    displacements.Displacements.__init__ = changing


def _clamp() -> None:
    """No change predicted that exceeds those of the data by a third."""
    _fit(most_change=1e9)


def _quadratic() -> None:
    """Quadratic features for each control."""
    plain = displacements.Basis.n_by_control.fget
    displacements.Basis.n_by_control = property(lambda self: min(plain(self), self._sizes[1]))


def _robust() -> None:
    """Rows that are missed by far hardly count in the law."""
    displacements.contact_weights = lambda errors, usual, far: torch.ones(
        len(errors), dtype=torch.float64
    )


def _refuted() -> None:
    """A prediction that was missed counts as visited."""
    dynamics_model.DynamicsModel._refute = lambda self, *_: None


def _waves() -> None:
    """Random Fourier features in an exploration's law."""
    features = displacements.Basis.features
    _fit(n_waves=0)
    displacements.Basis.features = lambda self, points, length: features(
        self, points, length if len(self.phases) else None
    )


def _passed() -> None:
    """States that a sequence has passed count as visited."""
    call = novelty.PairNovelty.__call__
    novelty.PairNovelty.__call__ = lambda self, points, passed=None, times=1.0: call(self, points)


def _plan() -> None:
    """Values of landmarks at the end of a sequence, where sequences are searched."""
    plain = model.LandmarkModel.most_novel_sequence
    model.LandmarkModel.most_novel_sequence = lambda self, observation, values, discount: plain(
        self, observation, np.zeros_like(values), discount
    )


def _setting(**changed: float) -> None:
    """Change settings of exploration on landmarks."""
    explorer = exploration.LandmarkExplorer
    explorer.settings = explorer.settings._replace(**changed)


def _width(value: float) -> Callable[[], None]:
    def off() -> None:
        """Widths of the novelty's density that are sharpened as the space fills."""
        made = dynamics_model.DynamicsModel
        made.width = made.width._replace(first=value, most=1)

    return off


def _corrected() -> None:
    """Predictions corrected by the means of cells near by."""
    made = dynamics_model.DynamicsModel
    made.correction = made.correction._replace(prior=1e12)


def _lifelong() -> None:
    """Novelty to the whole run, beside that to the episode."""

    def arrival(self: Any, memory: Any, node: int, *, ends: bool) -> tuple[float, float]:
        within = 1.0 - 1.0 / contexts.fold_in(self._episode, memory.features(node))[1]
        onward = 0.0 if ends else float(memory.exploration_values(node).max())
        return within, within + self.settings.onward * onward

    contexts.ContextExplorer._arrival = arrival
    contexts.leverage = lambda inverse, features: np.zeros(len(features), np.float32)
    plain = contexts.ContextExplorer._regression

    def regression(self: Any, *arguments: Any) -> Any:
        *tries, within, ends = arguments
        return plain(self, *tries, 2.0 * within, ends)

    contexts.ContextExplorer._regression = regression


def _relevant() -> None:
    """Joint values of the numbers that decide on effects."""
    contexts.relevant_numbers = lambda *_, **__: np.zeros(0, np.int64)


def _first_plan() -> None:
    """Simulated plans go on after one that is level with the best."""
    simulation.REFINEMENT = simulation.REFINEMENT._replace(rounds=1)


def _often() -> None:
    """Plans between landmarks are iterated to a finer tolerance, in fewer sweeps."""
    _setting(tolerance=1e-4, sweeps=1000)


def _renewed() -> None:
    """A plan made anew at half the share of new transitions at which its rows are."""
    _setting(renewed=0.02)


def _still() -> None:
    """No action is repeated that has just changed nothing."""
    model.LandmarkModel._idle = lambda self, observation: []


MECHANISMS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "fine": _fine,
    "passing": _passing,
    "evidence": _selection,
    "smooth": _smooth,
    "cell": _cell,
    "missed": _missed,
    "safe": _safe,
    "clamp": _clamp,
    "quadratic": _quadratic,
    "robust": _robust,
    "refuted": _refuted,
    "waves": _waves,
    "passed": _passed,
    "plan": _plan,
    "width35": _width(0.35),
    "width25": _width(0.25),
    "width17": _width(0.17),
    "often": _often,
    "renewed": _renewed,
    "still": _still,
    "corrected": _corrected,
    "lifelong": _lifelong,
    "relevant": _relevant,
    "first-plan": _first_plan,
}

# Worlds


class Walls(gym.Env[Any, Any]):
    """A point in the unit square, with three walls that have a gap each, drawn for the map.

    Args:
        speeds: actions are forces, and speeds are seen, too; else actions are steps.
        number: of the map.
    """

    def __init__(self, speeds: bool, number: int) -> None:
        self._gaps = np.random.default_rng(number).uniform(0.1, 0.9, 3)
        self._speeds = speeds
        self.observation_space = spaces.Box(-1.0, 1.0, (4 if speeds else 2,), np.float64)
        self.action_space = spaces.Discrete(9 if speeds else 8)

    def _seen(self) -> Any:
        return np.concatenate([self._at, self._speed]) if self._speeds else self._at.copy()

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin near a corner, at rest."""
        super().reset(seed=seed)
        self._at = np.array([0.1, 0.1]) + self.np_random.uniform(-0.02, 0.02, 2)
        self._speed, self._age = np.zeros(2), 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Move along each axis, unless a wall is met."""
        action = int(action)
        if self._speeds:
            force = np.array([action // 3 - 1, action % 3 - 1]) * 0.012
            change = self._speed = 0.85 * self._speed + force
        else:
            angle = action * math.pi / 4.0
            change = 0.045 * np.array([math.cos(angle), math.sin(angle)])
        for axis in (0, 1):
            to = self._at.copy()
            to[axis] += change[axis]
            is_met = not 0.0 <= to[axis] <= 1.0
            for wall, gap in zip((0.25, 0.5, 0.75), self._gaps, strict=True):
                crosses = axis == 0 and (self._at[0] < wall) != (to[0] < wall)
                is_met |= crosses and abs(self._at[1] - gap) > 0.08
            if is_met:
                self._speed[axis] = 0.0
            else:
                self._at = to
        self._age += 1
        return self._seen(), 0.0, False, self._age >= LIMIT, {}


def _squares(low: Any, high: Any, n: int, of: Callable[[Any], Any] = lambda seen: seen) -> Any:
    low, high = np.array(low), np.array(high)

    def cell(seen: Any) -> tuple[int, ...]:
        place = (np.array(of(seen)) - low) / (high - low)
        return tuple(np.clip(place * n, 0, n - 1).astype(int).tolist())

    return cell


def _swing(cosine: int, sine: int, speed: int, fastest: float) -> Any:
    return _squares(
        [-math.pi, -fastest],
        [math.pi, fastest],
        20,
        lambda seen: (math.atan2(seen[sine], seen[cosine]), seen[speed]),
    )


def _maze(size: str) -> Callable[[int], gym.Env[Any, Any]]:
    def make(_: int) -> gym.Env[Any, Any]:
        from rover_bench.arena_envs import point_maze

        return point_maze(size)

    return make


def _coarse(size: int) -> Callable[[int], gym.Env[Any, Any]]:
    def make(seed: int) -> gym.Env[Any, Any]:
        import coarse_steps

        env = coarse_steps.CoarsePoint(seed)
        env.free = coarse_steps.maze(seed, size)
        env.observation_space = spaces.Box(0.0, float(len(env.free)), (2,), np.float32)
        return env

    return make


def _pendulum(_: int) -> gym.Env[Any, Any]:
    return rover.wrappers.DiscreteActions(gym.make("Pendulum-v1"), levels=3)


_UNIT = _squares([0, 0], [1, 1], 16, lambda seen: seen[:2])
_FALLS = _squares([-2.4, -3, -0.21, -3], [2.4, 3, 0.21, 3], 8)
EXPLORED: dict[str, tuple[Callable[[int], gym.Env[Any, Any]], Any, int]] = {
    "car": (
        lambda _: gym.make("MountainCar-v0"),
        _squares([-1.2, -0.07], [0.6, 0.07], 20),
        1000,
    ),
    "pendulum": (_pendulum, _swing(0, 1, 2, 8.0), 700),
    "maze": (_maze("Medium"), None, 400),
    "cartpole": (lambda _: gym.make("CartPole-v1"), _FALLS, 1000),
    "acrobot": (lambda _: gym.make("Acrobot-v1"), _swing(0, 1, 4, 4 * math.pi), 700),
    "walls2": (lambda seed: Walls(False, seed), _UNIT, 800),
    "walls4": (lambda seed: Walls(True, seed), _UNIT, 700),
}
TASKS: dict[str, tuple[Callable[[int], gym.Env[Any, Any]], int]] = {
    "goals-walls2": (EXPLORED["walls2"][0], 800),
    "goals-walls4": (EXPLORED["walls4"][0], 1500),
    "goals-maze": (EXPLORED["maze"][0], 700),
    "goals-large": (_maze("Large"), 1200),
    "goals-coarse": (_coarse(4), 1500),
    "goals-coarse-large": (_coarse(7), 3000),
    "reward-car": (EXPLORED["car"][0], 1000),
    "reward-pendulum": (EXPLORED["pendulum"][0], 1000),
    "reward-acrobot": (EXPLORED["acrobot"][0], 1000),
    "reward-cartpole": (EXPLORED["cartpole"][0], 1500),
}
REPEATING = ("arena", "walled point")
CONTEXTS = {"doorkey": ("DoorKey-6x6", 4000), "multiroom": ("MultiRoom-N4-S5", 5000)}


class Watched(gym.Wrapper[Any, Any, Any, Any]):
    """Counts the cells that are seen, by a function of observations; None: those of a maze."""

    def __init__(self, env: gym.Env[Any, Any], cell: Any) -> None:
        super().__init__(env)
        self._seen: set[tuple[int, ...]] = set()
        self._free: set[tuple[int, ...]] | None = None
        self._area = self._n = 0
        self._first: int | None = None
        self._most: int | None = None
        if cell is None:
            maze = env.unwrapped.maze  # type: ignore[attr-defined]
            self._free = set(map(tuple, np.argwhere(np.array(maze.maze_map) != 1).tolist()))

            def cell(seen: Any) -> tuple[int, ...]:
                return tuple(maze.cell_xy_to_rowcol(seen[:2]).tolist())

        self._cell = cell

    def _note(self, seen: Any) -> None:
        cell = self._cell(seen)
        if self._free is None or cell in self._free:
            self._seen.add(cell)
        if self._free and self._most is None and len(self._seen) >= 0.95 * len(self._free):
            self._most = self._n

    def reset(self, **options: Any) -> Any:
        returned = self.env.reset(**options)
        self._note(returned[0])
        return returned

    def step(self, action: Any) -> Any:
        returned = self.env.step(action)
        self._n += 1
        self._note(returned[0])
        self._area += len(self._seen)
        if returned[2] and self._first is None:
            self._first = self._n
        return returned

    def figures(self) -> dict[str, Any]:
        area = round(self._area / self._n, 2)
        return {
            "area": area,
            "cells": len(self._seen),
            "first": self._first,
            "most": self._most,
        }


def explored(world: str, seed: int) -> dict[str, Any]:
    make, cell, steps = EXPLORED[world]
    env = Watched(make(seed), cell)
    rover.Rover(env, seed=seed).learn(steps)
    return env.figures()


def repeating(world: str, seed: int) -> dict[str, Any]:
    from walled_points import ARENAS, success

    env = Watched(ARENAS[world](), _UNIT)
    buffer = rover.Rover(env, seed=seed).learn(3000).buffer
    most = None
    if buffer.terminated.any():
        policy = rover.solve(buffer, buffer.terminated.astype(float))
        most = success(ARENAS[world](perturbation=0.02), policy, 40)
    return env.figures() | {"most": most}


def in_contexts(world: str, seed: int) -> dict[str, Any]:
    from contexts import Facts, _follow, passes

    arena, steps = CONTEXTS[world]
    import minigrid

    gym.register_envs(minigrid)
    env = Facts(arena)
    agent = rover.Rover(env, seed=seed, contexts=True)
    agent.learn(steps)
    acting = _follow(agent.policy, np.random.default_rng(seed))
    run, fresh = env.means(), passes(*acting, arena, 30).means()
    return {
        "area": run["positions"],
        "cells": run["doors"],
        "first": fresh["positions"],
        "most": fresh["doors"],
    }


def _goals(env: gym.Env[Any, Any], world: str, seed: int) -> list[Callable[[Any], Any]]:
    """Functions of observations (n, d) that are true (n,) at each of ten goals."""
    rng = np.random.default_rng(seed)
    if world.startswith("goals-walls"):
        centres, radius = rng.uniform(0.05, 0.95, (GOALS, 2)), 0.04
    elif world.startswith("goals-coarse"):
        cells = rng.permutation(np.argwhere(env.free))[:GOALS]  # type: ignore[attr-defined]
        return [lambda seen, c=cell: (seen.astype(int) == c).all(axis=1) for cell in cells]
    else:
        maze = env.unwrapped.maze  # type: ignore[attr-defined]
        free = rng.permutation(np.argwhere(np.array(maze.maze_map) != 1))[:GOALS]
        centres, radius = np.array([maze.cell_rowcol_to_xy(cell) for cell in free]), 0.3

    def is_near(centre: Any) -> Callable[[Any], Any]:
        return lambda seen: np.linalg.norm(seen[:, :2] - centre, axis=1) <= radius

    return [is_near(centre) for centre in centres]


def to_goals(agent: Any, world: str, seed: int) -> dict[str, Any]:
    env, rng, steps, arrived = TASKS[world][0](seed), np.random.default_rng(seed), [], 0
    for number, is_goal in enumerate(_goals(env, world, seed)):
        try:
            policy = rover.solve(agent, goal=is_goal)
        except ConfigurationError:  # never seen
            steps.append(LIMIT)
            continue
        seen, _ = env.reset(seed=1000 * seed + number)
        n, is_over, is_there = 0, False, bool(is_goal(seen[None])[0])
        while not (is_over or is_there) and n < LIMIT:
            seen, _, terminated, truncated, _ = env.step(policy.act(seen, rng))
            n += 1
            is_over, is_there = terminated or truncated, bool(is_goal(seen[None])[0])
        arrived += is_there
        steps.append(n if is_there else LIMIT)
    return {"area": float(np.mean(steps)), "cells": arrived, "first": None, "most": None}


def rewarded(agent: Any, world: str, seed: int) -> dict[str, Any]:
    """The mean return of ten episodes by a plan for the environment's own reward."""
    env, rng, returns = TASKS[world][0](seed), np.random.default_rng(seed), []
    policy = rover.solve(agent, env)
    for number in range(10):
        seen, _ = env.reset(seed=1000 * seed + number)
        earned, is_over = 0.0, False
        while not is_over:
            seen, reward, terminated, truncated, _ = env.step(policy.act(seen, rng))
            earned, is_over = earned + float(reward), terminated or truncated
        returns.append(earned)
    return {"area": round(float(np.mean(returns)), 2), "cells": None, "first": None, "most": None}


# Runs


def in_child(run: Callable[[], Any]) -> Any:
    """The result of a function that is called in a process of its own."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(run()))
    child.start()
    there.close()
    result = here.recv()
    child.join()
    return result


def runs(world: str, seed: int, rows: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row of figures for each of `rows`."""

    def timed(row: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        def switched_off() -> dict[str, Any]:
            for part in row.split("+"):
                MECHANISMS[part]()
            began = time.process_time()
            figures = measure()
            return figures | {"cpu": round(time.process_time() - began, 2)}

        return {"row": row, "world": world, "seed": seed} | in_child(switched_off)

    def solved() -> list[dict[str, Any]]:
        make, steps = TASKS[world]
        agent = rover.Rover(make(seed), seed=seed).learn(steps)
        measure = to_goals if world.startswith("goals") else rewarded
        return [timed(row, lambda: measure(agent, world, seed)) for row in rows]

    if world in TASKS:
        yield from in_child(solved)
        return
    measure = explored if world in EXPLORED else in_contexts if world in CONTEXTS else repeating
    for row in rows:
        yield timed(row, lambda: measure(world, seed))


def show(found: Sequence[dict[str, Any]]) -> None:
    """Print what each row changes in each world."""
    plain = {(one["world"], one["seed"]): one for one in found if one["row"] == "none"}
    print(f"{'row':28} {'world':18} {'pairs':>5} {'log area, %':>13} {'none':>8} {'row':>8}   cpu")
    for key in dict.fromkeys((one["row"], one["world"]) for one in found):
        pairs = [
            (one, plain[one["world"], one["seed"]])
            for one in found
            if (one["row"], one["world"]) == key and (one["world"], one["seed"]) in plain
        ]
        if key[0] == "none" or not pairs:
            continue
        area = np.array([[float(one["area"]) for one in pair] for pair in pairs])
        cpu = np.array([[float(one["cpu"]) for one in pair] for pair in pairs])
        change = 100.0 * (np.log(area[:, 0] / area[:, 1]) if (area > 0).all() else 0.0 * area[:, 0])
        error = float(np.std(change, ddof=1)) / math.sqrt(len(pairs)) if len(pairs) > 1 else 0.0
        means = area.mean(axis=0)
        print(
            f"{key[0]:28} {key[1]:18} {len(pairs):5} {change.mean():6.1f} ± {error:4.1f}"
            f" {means[1]:8.1f} {means[0]:8.1f}  {cpu[:, 0].sum() / cpu[:, 1].sum():4.2f}"
        )


def main() -> None:
    arguments = parser(__doc__, worlds=["car", "maze"], seeds=list(range(200, 206)))
    arguments.add_argument("rows", nargs="*", metavar="ROW", help=" ".join(MECHANISMS))
    arguments.add_argument("--csv", type=Path, help="rows are added to this file as they are made")
    asked = arguments.parse_args()
    begin()
    done: list[dict[str, Any]] = []
    if asked.csv is not None and asked.csv.exists():
        with asked.csv.open(encoding="utf-8") as file:
            done = list(csv.DictReader(file))
    for one in done:
        one["seed"] = int(one["seed"])
    known = {(one["row"], one["world"], one["seed"]) for one in done}
    for seed in asked.seeds:
        for world in asked.worlds:
            rows = [row for row in ("none", *asked.rows) if (row, world, seed) not in known]
            for one in runs(world, seed, rows) if rows else ():
                done.append(one)
                add_rows(asked.csv, COLUMNS, [one])
    show(done)


if __name__ == "__main__":
    main()
