"""The board: any agent on a suite of worlds without rewards, and entries that can be checked.

An agent is a class of three methods (:class:`BoardAgent`). It is given an environment that shows
no reward and ends after its budget, and is measured from outside: exactly where the dynamics are
known, by roll-outs elsewhere. An entry is one JSON file with the figures of every seed, what made
them, and a digest; :func:`verify` makes a tenth of them again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import sys
import time
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rover.baselines import agent_class, agent_names, make_agent, preset_of
from rover.data import RunningEpisode
from rover.envs import FiniteMDP, Spaces, finite_dynamics, horizon_of, import_modules, make_env
from rover.errors import ArtefactError, ConfigurationError, RoverWarning, choose
from rover.evaluation import CellNet, FiniteEvaluator
from rover.evaluation.cells import Projection
from rover.storage import fitting, read_json, write_json
from rover.training.environments import discount_of
from rover_bench.executors import EXECUTORS
from rover_bench.measure import provenance
from rover_bench.topogym_envs import ExplorationRecord

FIRST_SEED = 100
"""Seeds of entries begin here; settings are chosen on those below."""

_VISITS = 2000
"""Steps of a policy whose cells are counted together."""

_SETS = 3
"""Sets of such steps, over which cells are averaged."""

_CHECKED_SHARE = 0.1
"""Share of its runs that an entry is verified by."""

_EPISODES = 50
"""Episodes of a returned policy in a world with a goal."""

_MODULES = {
    "board": ("rover_bench.worlds",),
    "arenas": ("rover_bench.arena_envs", "rover_bench.ogbench_envs"),
    "topogym": ("rover_bench.topogym_envs",),
}
"""Modules that register environments, by the namespace of their ids."""

_SUITES = Path(__file__).parent / "suites"


class BoardAgent(Protocol):
    """An agent as the board sees it: made as ``CLASS(env, seed=seed)``, and these three methods.

    ``begin_episode(rng)``, if it is there, is called before the first :meth:`act` of each episode.
    """

    def learn(self, steps: int) -> None:
        """Explore the environment for so many steps; a further one ends the learning."""
        ...

    def policy(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        """Action probabilities (n, A) of what it hands over, at observations (n, *shape).

        (K, n, A) of a mixture, one drawn for each episode.
        """
        ...

    def act(self, observation: Any, rng: np.random.Generator) -> int:
        """The action of what it hands over at one observation (*shape)."""
        ...


class _OurAgent:
    """One of rover's agents, ``NAME`` or ``NAME:PRESET``, as the board sees it."""

    def __init__(self, word: str, env: gym.Env[Any, Any], *, seed: int) -> None:
        name, _, preset = word.partition(":")
        # What the agent would measure of itself costs time, and is measured here in any case.
        self._agent = make_agent(name, env, preset or None, seed=seed, measure_share=0.0)
        self._env = env

    def learn(self, steps: int) -> None:
        self._agent.learn(steps, callback=self)

    def on_step(self, run: Any) -> bool:
        """False after the last step but one of a run that ends before its budget is spent."""
        return not getattr(self._env, "ends_early", False)

    def policy(self, observations: NDArray[Any]) -> NDArray[np.float64]:
        return self._agent.policy.tables(observations)

    def begin_episode(self, rng: np.random.Generator) -> None:
        """Draw the component of a mixture that the episode follows."""
        self._agent.policy.reset()
        self._component = self._agent.policy.draw_component(rng)

    def act(self, observation: Any, rng: np.random.Generator) -> int:
        stored = self._agent.spaces.read(observation, "the environment")
        return self._agent.policy.choose(stored, rng, self._component)


# --- a suite -------------------------------------------------------------------------------------

_Metric = Literal["optimality_ratio", "states_seen", "cells", "goal_reached"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class World(_Strict):
    """One environment of a suite, with its budget and its metric.

    The keywords of one that is ``seeded`` have its name and the seed of the run among them.
    """

    name: str
    group: str
    env: str
    kwargs: dict[str, Any] = {}
    steps: int = Field(ge=1)
    fixed: bool = False
    seeded: bool = False
    metric: _Metric
    source: str
    scales: tuple[str, ...] = ("small", "medium", "full")


class _Scale(_Strict):
    seeds: int = Field(ge=1)
    steps: int = Field(ge=1)
    ends_at_goal: bool = False


class Suite(_Strict):
    """Worlds and scales, from a file of ``rover_bench/suites``.

    ``each`` has what all its worlds have unless they say otherwise.
    """

    scales: dict[str, _Scale]
    each: dict[str, Any] = {}
    worlds: tuple[World, ...]
    first_seed: int = FIRST_SEED

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, content: dict[str, Any]) -> dict[str, Any]:
        each = content.get("each", {})
        return content | {"worlds": [each | world for world in content["worlds"]]}

    @classmethod
    def read(cls, name: str) -> tuple[Suite, str]:
        """The suite of that name and the digest of its file.

        Raises:
            ConfigurationError: there is none.
        """
        names = tuple(path.stem for path in sorted(_SUITES.glob("*.toml")))
        content = (_SUITES / f"{choose('suite', name, names)}.toml").read_bytes()
        suite = cls.model_validate(tomllib.loads(content.decode("utf-8")))
        return suite, hashlib.sha256(content).hexdigest()

    def runs(self, scale: str) -> list[tuple[World, int, int]]:
        """Every run of a scale: its world, its seed and its budget in steps."""
        chosen = self.scales[choose("scale", scale, self.scales)]
        return [
            (world, seed, world.steps * (1 if world.fixed else chosen.steps))
            for world in self.worlds
            if scale in world.scales
            for seed in range(self.first_seed, self.first_seed + chosen.seeds)
        ]


# --- an entry ------------------------------------------------------------------------------------


class Result(_Strict):
    """The figures of one run, and how long it took; the metric is None where the agent refused.

    ``step_ms`` are CPU milliseconds of a step without the world's own, where they are measured.
    """

    world: str
    seed: int
    steps: int
    figures: dict[str, float | None]
    seconds: float
    step_ms: float | None = None


class Entry(_Strict):
    """An agent's figures on a suite, with all that is needed to make them again.

    ``digest`` is of everything else. It shows a slip and not a forgery, for which :func:`verify`
    runs again.
    """

    format: Literal[1]
    suite: str
    suite_digest: str
    scale: str
    agent: str
    label: str
    provenance: dict[str, Any]
    results: tuple[Result, ...]
    digest: str = ""

    def sealed(self) -> Entry:
        """The entry with its digest."""
        # Sorted keys: the digest is of what the entry says and not of how its file is laid out.
        content = self.model_dump(mode="json", exclude={"digest"}, exclude_defaults=True)
        text = json.dumps(content, sort_keys=True, ensure_ascii=False)
        return self.model_copy(update={"digest": hashlib.sha256(text.encode()).hexdigest()})

    @classmethod
    def read(cls, path: str | Path, *, is_whole: bool = True) -> Entry:
        """An entry of a suite that is known here, as it was written, with every run of its scale,
        or only the first of them if it need not be whole. ArtefactError: it is not.
        """
        with fitting(f"{path} is no entry of the board"):
            entry = cls.model_validate(read_json(path))
        if entry.sealed().digest != entry.digest:
            raise ArtefactError(f"{path} was altered after it was written: its digest differs")
        try:
            suite, digest = Suite.read(entry.suite)
            expected = suite.runs(entry.scale)
        except ConfigurationError as error:
            raise ArtefactError(f"{path}: {error}") from None
        if digest != entry.suite_digest:
            raise ArtefactError(f"{path} was made with another version of suite {entry.suite}")
        # An entry without its bad seeds, or with a budget of its own, is no entry.
        asked = [(world.name, seed, steps) for world, seed, steps in expected]
        made = [(one.world, one.seed, one.steps) for one in entry.results]
        if made != (asked if is_whole else asked[: len(made)]):
            raise ArtefactError(
                f"{path} has not the runs of scale {entry.scale}, each once and in their order"
            )
        for (world, _, _), result in zip(expected, entry.results, strict=False):
            if world.metric not in result.figures:
                raise ArtefactError(f"{path} lacks {world.metric} of {world.name}")
        return entry

    def of(self, world: str) -> list[Result]:
        """The results on a world."""
        return [one for one in self.results if one.world == world]


# --- a run ---------------------------------------------------------------------------------------


class BudgetSpentError(Exception):
    """The step that an agent asked for is beyond its budget."""


class RewardFree(gym.Wrapper[Any, Any, Any, Any]):
    """An environment without rewards that ends after a budget, and remembers what was seen.

    Args:
        env: the environment.
        budget: steps; where exploration is recorded (``env.record``), one more after the last
            cell was visited and the goal reached is the last.
        ends_at_goal: whether one more step after the goal is the last.
    """

    finite_mdp = property(lambda self: finite_dynamics(self.env))
    """The environment's dynamics: steps and observations pass unchanged."""

    def __init__(self, env: gym.Env[Any, Any], budget: int, *, ends_at_goal: bool = False) -> None:
        super().__init__(env)
        self.n_steps, self.budget = 0, budget
        self.record: ExplorationRecord | None = (
            env.get_wrapper_attr("record") if env.has_wrapper_attr("record") else None
        )
        self.ends_early, self._ends_at_goal = False, ends_at_goal
        self.first_reward: int | None = None
        self.seen: set[bytes] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> gym.Env[Any, Any]:
        """The environment alone: what an agent looks at in a copy is not of this run."""
        copied: gym.Env[Any, Any] = copy.deepcopy(self.env, memo)
        return copied

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.seen.add(np.asarray(observation).tobytes())
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step, whose reward is 0.

        Raises:
            BudgetSpentError: the budget was spent before.
        """
        # An exception and not a truncation: no agent can overrun its budget by mistake.
        if self.n_steps == self.budget:
            raise BudgetSpentError(f"{self.budget} steps were made")
        self.n_steps += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.seen.add(np.asarray(observation).tobytes())
        if float(reward) > 0.0 and self.first_reward is None:
            self.first_reward = self.n_steps
        record = self.record
        if record is not None and not self.ends_early and record.goal_step is not None:
            # Agents make one more step, which they know to be the last of a run.
            self.ends_early = self._ends_at_goal or record.is_complete
            if self.ends_early:
                self.budget = min(self.budget, self.n_steps + 1)
        return observation, 0.0, bool(terminated), bool(truncated), info


def _agent_maker(word: str) -> Callable[[gym.Env[Any, Any], int], BoardAgent]:
    """Maker of one of our agents, ``NAME[:PRESET]``, or of a class ``MODULE:CLASS`` of a user's."""
    name, colon, rest = word.partition(":")
    if name in agent_names():
        preset_of(name, rest or None)
        return lambda env, seed: _OurAgent(word, env, seed=seed)
    if not colon:
        choose("agent", name, (*agent_names(), "MODULE:CLASS"))
    import_modules([name])
    made = getattr(sys.modules[name], rest, None)
    missing = [one for one in ("learn", "policy", "act") if not hasattr(made, one)]
    if made is None or missing:
        raise ConfigurationError(
            f"{word} is no agent of the board: a class with the methods learn, policy and act is "
            f"needed, and it lacks {', '.join(missing)}"
        )
    return lambda env, seed: made(env, seed=seed)


def _run_world(word: str, world: World, seed: int, steps: int, *, ends_at_goal: bool) -> Result:
    """One run of an agent on a world, measured."""
    # More threads would add in another order, and change the bits.
    torch.set_num_threads(1)
    begin = time.process_time()
    # The agent sees this environment alone; figures are taken from what lies below it.
    env = RewardFree(_make(world, seed), steps, ends_at_goal=ends_at_goal)
    agent = _agent_maker(word)(env, seed)
    step_ms, began = None, time.process_time()
    refusal: ConfigurationError | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoverWarning)  # after so few steps there is always one
        try:
            with suppress(BudgetSpentError):
                agent.learn(steps)
        except ConfigurationError as error:  # a world that an agent is not for costs it no other
            refusal = error
        if env.record is not None and env.n_steps:
            own = time.process_time() - began - env.record.seconds
            step_ms = round(1000.0 * own / env.n_steps, 4)
        figures: dict[str, float | None] = {world.metric: None}
        if refusal is None:
            if env.record is None:
                figures = _figures(world, agent, env, seed)
            else:
                figures = env.record.figures(steps)
                if not ends_at_goal:
                    figures |= _followed(agent, _make(world, seed), np.random.default_rng(seed))
    if refusal is not None:
        warnings.warn(f"{world.name}, seed {seed}: {refusal}", RoverWarning, stacklevel=2)
    seconds = round(time.process_time() - begin, 2)
    return Result(
        world=world.name,
        seed=seed,
        steps=steps,
        figures=figures,
        seconds=seconds,
        step_ms=step_ms,
    )


def _make(world: World, seed: int) -> gym.Env[Any, Any]:
    kwargs = world.kwargs | ({"world": world.name, "seed": seed} if world.seeded else {})
    folder = world.env.partition("/")[0]
    try:
        for module in _MODULES.get(folder, ()):
            import_modules([module])
        return make_env(world.env, kwargs)
    except (ConfigurationError, ImportError) as error:
        raise ConfigurationError(
            f"the world {world.name!r} cannot be made ({error}): "
            "pip install '.[arenas,ogbench,topogym]'"
        ) from error


def _figures(
    world: World, agent: BoardAgent, env: RewardFree, seed: int
) -> dict[str, float | None]:
    """Figures of what an agent has learned; those that do not apply are left out."""
    problem = finite_dynamics(env)
    figures: dict[str, float | None] = {"first_reward": env.first_reward}
    if problem is not None:
        # Of the states that can be reached at all: nobody is charged with walls.
        reachable = int((problem.dynamics.steps_to_states() >= 0).sum())
        figures["states_seen"] = len(env.seen) / reachable
    if world.metric == "optimality_ratio" and problem is not None:
        evaluator = FiniteEvaluator(
            problem, discount=discount_of(env), horizon=horizon_of(env), n_episodes=1
        )
        exact = evaluator.exact_figures(_table(agent, problem))
        figures |= {name: exact[name] for name in ("objective", "optimality_ratio")}
    if world.metric == "cells":
        figures |= _cells(agent, _make(world, seed), np.random.default_rng([seed, 8]))
    return figures


def _table(agent: BoardAgent, problem: FiniteMDP) -> NDArray[np.float64]:
    """Policy of an agent on all states, whose rows sum to one in float64 too."""
    # Networks answer in float32, whose rows sum to one only roughly.
    probs = np.asarray(agent.policy(problem.observations), np.float64)
    if not (np.isfinite(probs).all() and (probs >= 0.0).all() and (probs.sum(axis=-1) > 0).all()):
        raise ConfigurationError("policy() returned numbers that are no probabilities")
    return np.asarray(probs / probs.sum(axis=-1, keepdims=True))


def _cells(
    agent: BoardAgent, env: gym.Env[Any, Any], rng: np.random.Generator
) -> dict[str, float | None]:
    """Cells that the policy visits, relative to uniformly random actions on the same net."""
    own = Spaces.of(env)
    shape, n_actions = own.shape, own.n_actions
    project = Projection(shape, np.random.default_rng(0))
    # The net and the reference are the suite's: one seed for every entry.
    fixed = np.random.default_rng(FIRST_SEED)
    random_acts = (lambda _: None, lambda _: int(fixed.integers(n_actions)))
    net = CellNet(project(_visits(env, *random_acts, fixed)), fixed)

    def count(begin: Any, act: Any, draws: np.random.Generator) -> float:
        sets = (project(_visits(env, begin, act, draws)) for _ in range(_SETS))
        return float(np.mean([len(np.unique(net.cells_of(one, draws))) for one in sets]))

    uniform = count(*random_acts, fixed)
    begin_episode = getattr(agent, "begin_episode", lambda _: None)
    cells = count(begin_episode, lambda x: int(agent.act(x, rng)), rng)
    return {"cells": cells / uniform, "uniform_cells": uniform}


def _followed(
    agent: BoardAgent, env: gym.Env[Any, Any], rng: np.random.Generator
) -> dict[str, float | None]:
    """Figures of episodes of the returned policy in a world with cells and a goal.

    J is estimated by pairs of episodes: with the discounted visits μ of an episode, normalised, the
    mean of ⟨μ, μ'⟩ over pairs of different episodes is ‖E μ‖² without bias.
    """
    record: ExplorationRecord = env.get_wrapper_attr("record")
    begin_episode = getattr(agent, "begin_episode", lambda _: None)
    discount, n_goals = discount_of(env), 0
    total: defaultdict[Hashable, float] = defaultdict(float)
    squares = 0.0
    for _ in range(_EPISODES):
        record.goal_step, weight, ended = None, 1.0, False
        begin_episode(rng)
        observation, info = env.reset(seed=int(rng.integers(2**31)))
        visits: defaultdict[Hashable, float] = defaultdict(float, {info["position"]: 1.0})
        while not ended:
            observation, _, terminated, truncated, info = env.step(agent.act(observation, rng))
            ended, weight = terminated or truncated, discount * weight
            visits[info["position"]] += weight
        mass = sum(visits.values())
        for cell, visited in visits.items():
            total[cell] += visited / mass
            squares += (visited / mass) ** 2
        n_goals += record.goal_step is not None
    pairs = _EPISODES * (_EPISODES - 1)
    return {
        "episodes_share": record.share,
        "episodes_goal": n_goals / _EPISODES,
        "objective": (sum(x * x for x in total.values()) - squares) / pairs,
        "horizon": record.n_steps / _EPISODES,
    }


def _visits(
    env: gym.Env[Any, Any],
    begin_episode: Callable[[np.random.Generator], object],
    act: Callable[[NDArray[Any]], int],
    rng: np.random.Generator,
) -> NDArray[Any]:
    """Observations of :data:`VISITS` steps."""
    visited: list[NDArray[Any]] = []
    horizon = horizon_of(env)
    while len(visited) < _VISITS:
        episode, ended, age = RunningEpisode(env, seed=int(rng.integers(2**31))), False, 0
        begin_episode(rng)
        observation = episode.observation
        while not ended and age < horizon and len(visited) < _VISITS:
            observation, _, terminated, truncated = episode.step(act(observation))
            visited.append(observation)
            ended, age = terminated or truncated, age + 1
    return np.array(visited)


def run_entry(
    word: str,
    scale: str,
    *,
    suite: str = "reward-free-1",
    path: Path | None = None,
    jobs: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> Entry:
    """Run one of our agents, ``NAME[:PRESET]``, or a class of a user's, ``MODULE:CLASS``, which is
    imported, on a suite at a scale, with `jobs` processes side by side.

    With a path the entry is written after every run, and an unfinished one there is continued;
    `say` receives a line for each run.

    Raises:
        ConfigurationError: unknown agent, suite or scale, a world that cannot be made here, or an
            unfinished entry of something else.
        ArtefactError: another file lies at the path.
    """
    chosen, digest = Suite.read(suite)
    runs = chosen.runs(scale)
    # A typing error or a missing package is named before the first run, which may take minutes.
    _agent_maker(word)
    asked = [world for world in chosen.worlds if scale in world.scales]
    # Of worlds that one maker makes, the first: the largest takes minutes.
    for world in {one.env if one.seeded else one.name: one for one in reversed(asked)}.values():
        _make(world, chosen.first_seed).close()
    name = word.partition(":")[0]
    label = agent_class(name).label if name in agent_names() else word.rpartition(":")[2]
    entry = Entry(
        format=1,
        suite=suite,
        suite_digest=digest,
        scale=scale,
        agent=word,
        label=label,
        provenance=provenance(jobs=jobs),
        results=(),
    ).sealed()
    if path is not None and path.exists():
        entry = _continued(entry, path, len(runs))
    is_short = chosen.scales[scale].ends_at_goal
    for result in _run_all(word, runs[len(entry.results) :], jobs, say, is_short):
        entry = entry.model_copy(update={"results": (*entry.results, result)}).sealed()
        if path is not None:
            write_json(path, entry)
    return entry


def _continued(entry: Entry, path: Path, n_runs: int) -> Entry:
    """The unfinished entry at a path, or the new one in place of one that is finished."""
    begun = Entry.read(path, is_whole=False)
    alike = ("suite", "scale", "agent")
    is_alike = all(getattr(begun, name) == getattr(entry, name) for name in alike)
    if is_alike and len(begun.results) == n_runs:
        return entry
    if not (is_alike and _is_same_place(begun.provenance, entry.provenance)):
        raise ConfigurationError(
            f"{path} is of {begun.agent} at scale {begun.scale}, begun at commit "
            f"{begun.provenance.get('commit')}, and cannot be continued here: remove it, or give "
            "another --out"
        )
    return begun


def _is_same_place(here: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    """True if the same run must give the same bits: the same code on the same processor."""
    return all(here[name] == there.get(name) for name in ("versions", "cpu", "commit"))


def _run_all(
    word: str,
    runs: Sequence[tuple[World, int, int]],
    jobs: int,
    say: Callable[[str], None],
    ends_at_goal: bool,
) -> Iterator[Result]:
    """The results of runs, in their order, whatever runs beside them."""
    with ExitStack() as stack:
        # A process for each run, whose bits do not depend on what was done before in this one.
        each: Any = map
        run = partial(_run_world, ends_at_goal=ends_at_goal)
        if jobs > 1:
            each = stack.enter_context(EXECUTORS["local"].open(jobs)).map
        for (world, seed, _), result in zip(
            runs, each(run, [word] * len(runs), *zip(*runs, strict=True)), strict=True
        ):
            figure = result.figures[world.metric]
            told = "refused by the agent" if figure is None else f"{world.metric} {figure:.4g}"
            say(f"{world.name}, seed {seed}: {told}, {result.seconds} s")
            yield result


# --- verification --------------------------------------------------------------------------------


def verify(
    path: str | Path,
    *,
    agent: str | None = None,
    seed: int | None = None,
    jobs: int = 2,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[int, int]:
    """Run a drawn tenth of an entry's runs again, and hold their figures against it.

    At the commit, with the versions and on the processor of the entry they must be the same to the
    bit; elsewhere each may differ by 1%, or by three times the spread of the entry's other seeds of
    that world.

    Args:
        path: the entry.
        agent: ``MODULE:CLASS`` of an entry that is not of one of rover's agents: nothing that a
            file names is imported.
        seed: draws the runs; None: fresh.
        jobs: processes side by side.
        say: receives a line for each run.

    Returns:
        Numbers of runs that were repeated, and that came out the same to the bit.

    Raises:
        ArtefactError: the entry was altered, is not complete, or its agent has other figures.
        ConfigurationError: the agent is not one of rover's, and none was given.
    """
    entry = Entry.read(path)
    if entry.agent.partition(":")[0] not in agent_names() and agent != entry.agent:
        raise ConfigurationError(
            f"{path} is of {entry.agent!r}, and nothing that a file names is imported: give "
            f"--agent {entry.agent} if you trust that module"
        )
    suite, _ = Suite.read(entry.suite)
    runs = suite.runs(entry.scale)
    # Drawn afresh: who forges an entry cannot know which of its runs will be made again.
    drawn = np.random.default_rng(seed).choice(
        len(runs), math.ceil(_CHECKED_SHARE * len(runs)), replace=False
    )
    chosen = sorted(drawn.tolist())
    here, there = provenance(jobs=jobs), entry.provenance
    is_same_place = _is_same_place(here, there)
    n_same = 0
    is_short = suite.scales[entry.scale].ends_at_goal
    again = _run_all(entry.agent, [runs[index] for index in chosen], jobs, say, is_short)
    for index, result in zip(chosen, again, strict=True):
        claimed, metric = entry.results[index], runs[index][0].metric
        if result.figures == claimed.figures:
            n_same += 1
        elif is_same_place or not _is_near(result, claimed, entry.of(result.world), metric):
            raise ArtefactError(
                f"{path} is not verified: on {result.world!r} with seed {result.seed} it claims "
                f"{claimed.figures}, and the same run has {result.figures}; it was made at commit "
                f"{there.get('commit')}, and this is {here['commit']}"
            )
    return len(chosen), n_same


def _is_near(result: Result, claimed: Result, others: Sequence[Result], metric: str) -> bool:
    """True if a figure made on another machine could be the one that was claimed there."""
    figure, claim = result.figures[metric], claimed.figures[metric]
    if figure is None or claim is None:
        return False
    # Other seeds of the world show how far a figure may lie from another.
    by_seed = {one.seed: one.figures[metric] for one in others if one.seed != claimed.seed}
    spread = np.ptp([value for value in by_seed.values() if value is not None] or [0.0])
    return abs(figure - claim) <= max(3.0 * float(spread), 0.01 * abs(figure))
