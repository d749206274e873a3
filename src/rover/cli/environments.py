"""``rover envs``: environments, and whether ROVER can work with them."""

from __future__ import annotations

import inspect
import time
import warnings
from typing import Any, cast

import gymnasium as gym
from rich.table import Table

from rover.cli.commands import command, read_env_kwargs
from rover.cli.tables import NOTHING, make_table, say
from rover.envs import (
    ENVIRONMENTS,
    GOALS,
    LAYOUT_FAMILIES,
    Enumerated,
    GridWorld,
    Spaces,
    finite_dynamics,
    make_env,
)
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.errors import (
    ConfigurationError,
    NonFiniteError,
    RoverWarning,
    UnsupportedSpaceError,
    abridge,
)
from rover.evaluation import optimal_occupancy
from rover.training.config import DEFAULT_DISCOUNT

_TIMED_STEPS = 200


@command()
def _envs(
    env_id: str | None = None,
    *,
    observation: str | None = None,
    env: list[str],
    enumerate: bool = False,
    limit: int = MAX_EVALUATED_STATES,
) -> None:
    """List environments, or show one.

    With ENV, one of rover's environments is shown, its map and its keywords. ENV may be any
    Gymnasium id: then a table shows how its observations and actions are taken and stored, whether
    its states are known, what is reported, and the time of a step in a short run. Some random steps
    are checked, as rover.check_env does.

    Args:
        env_id (ENV): the environment to show
        enumerate: find its states by trying every action in copies of it, if it is deterministic
        limit: the most states that --enumerate finds

    Examples:
        rover envs
        rover envs rover/Maze-v0
        rover envs rover/MultiRooms-v0 --env rooms=7
        rover envs rover/Grid-v0 --env layout=my_map.txt
        rover envs FrozenLake-v1
        rover envs FrozenLake-v1 --env is_slippery=false --enumerate
    """
    if env_id is None:
        if env or observation or enumerate:
            raise ConfigurationError("--env, --observation and --enumerate need an ENV")
        _print_list()
        return
    # Enumerated copies the environment for every action of every state that it finds.
    made = make_env(env_id, read_env_kwargs(env_id, env, observation))
    is_grid = isinstance(made.unwrapped, GridWorld)
    if is_grid and not enumerate:
        say(*_describe_grid(env_id, made))
    else:
        say(*_describe(env_id, Enumerated(made, limit) if enumerate else made))


def _print_list() -> None:
    columns = ("id", "states", "horizon", "farthest", "start", "γ", "J*")
    table = make_table("rover's environments", columns)
    meanings = []
    for env_id, settings in ENVIRONMENTS.items():
        family = LAYOUT_FAMILIES.get(str(settings.get("layout")))
        if family is None:  # rover/Grid-v0 has no map of its own
            table.add_row(env_id, *[NOTHING] * (len(columns) - 1))
            meanings.append(f"{env_id:22} A map of your own: --env layout=FILE or its text.")
            continue
        world = make_env(env_id).unwrapped
        assert isinstance(world, GridWorld)
        table.add_row(env_id, *_figures(world))
        meanings.append(f"{env_id:22} {(inspect.getdoc(family.make) or '').splitlines()[0]}")
    say(table)
    say(
        "\n".join(meanings),
        "\nfarthest: steps from the start to the farthest state. γ: discount that suits the map.\n"
        "J*: the least chance, over all policies, that two draws of the discounted occupancy meet\n"
        "(1/states would be uniform). More on one: rover envs rover/Maze-v0",
    )


def _figures(world: GridWorld) -> tuple[str, ...]:
    """States, horizon, farthest state, start, discount and J* of a grid world."""
    optimum = optimal_occupancy(world.dynamics(), discount=world.suggested_discount)
    start, place, farthest = world.only_start_state, NOTHING, NOTHING
    if start is not None:
        x, y = world.layout.cells[start].tolist()
        place, farthest = f"({x}, {y})", f"{world.layout.distances(start).max():,}"
    sizes = (f"{world.layout.n_states:,}", f"{world.horizon:,}", farthest, place)
    return (*sizes, f"{world.suggested_discount:.4g}", f"{optimum.objective:.4g}")


def _describe_grid(env_id: str, env: gym.Env[Any, Any]) -> list[str]:
    """Lines on a grid world."""
    world = cast(GridWorld, env.unwrapped)
    states, horizon, farthest, start, discount, optimum = _figures(world)
    lines = [
        f"{env_id}: {states} states, 4 actions (up, down, left, right), horizon {horizon}, the "
        f"farthest state {farthest} steps from the start {start}, discount {discount}, "
        f"J* {optimum}",
        f"observations: {world.observation_space}\n",
        f"{world.layout.text}\n\nS start, G a marked goal, # wall, . free\n",
    ]
    named = GOALS.get(env_id.rpartition(":")[2], {})
    if named:
        goals = ", ".join(f"{name} {cell}" for name, cell in named.items())
        lines.append(f"goals (--task goal=NAME of `rover finetune`): {goals}\n")
    family = LAYOUT_FAMILIES.get(str(ENVIRONMENTS.get(env_id, {}).get("layout")))
    keywords = {} if family is None else inspect.signature(family.make).parameters
    lines.append("keywords (--env NAME=VALUE):")
    lines += [f"- {name}: of this map, {p.default} by default." for name, p in keywords.items()]
    documented = (inspect.getdoc(GridWorld) or "").partition("## Arguments\n")[2]
    return [*lines, documented.partition("\n\n")[0].replace("``", "")]


def _describe(env_id: str, env: gym.Env[Any, Any]) -> list[str | Table]:
    """A table on an environment that is no grid world, and what is wrong with it."""
    from rover.data import check_env

    problem = finite_dynamics(env)
    verdict = "can work with it; its states are unknown"
    reported = "visited cells or distinct observations, beside random actions"
    if problem is not None:
        dynamics, discount = problem.dynamics, DEFAULT_DISCOUNT
        farthest = dynamics.steps_to_states().max()
        verdict = (
            f"can work with it; {dynamics.n_states} states with known dynamics, "
            f"{int(dynamics.terminal.sum())} of them end an episode, the farthest takes "
            f"{farthest} steps"
        )
        reported = "coverage and J/J*, exact, beside random actions"
        if dynamics.n_states <= MAX_EVALUATED_STATES:
            optimum = optimal_occupancy(dynamics, discount=discount)
            reported += f"; J* {optimum.objective:.4g} with discount {discount:g}"
    table = make_table(env_id, ("", "taken", "stored as"))
    table.columns[1].justify = table.columns[2].justify = "left"
    # The spaces may be right and the observations not: only steps show that.
    try:
        check_env(env)
        own = Spaces.of(env)
    except (UnsupportedSpaceError, ConfigurationError, NonFiniteError) as error:
        table.add_row("observations", abridge(env.observation_space), NOTHING)
        table.add_row("actions", abridge(env.action_space), NOTHING)
        return [table, f"ROVER cannot work with it: {error}"]
    is_same = own.observation is own.observed
    stored = "they are" if is_same else abridge(own.observation)
    table.add_row("observations", abridge(own.observed), stored)
    acts = "they are" if own.actions is None else f"a set of {own.n_actions}"
    table.add_row("actions", abridge(own.acted), acts)
    milliseconds, simulated = _step_times(env)
    return [
        table,
        f"ROVER:      {verdict}; random steps checked",
        f"reported:   {reported}",
        f"time:       {milliseconds:.1f} ms a step in the first {_TIMED_STEPS} steps, "
        f"{simulated:.2f} of them in the environment",
    ]


def _step_times(env: gym.Env[Any, Any]) -> tuple[float, float]:
    """Milliseconds of a step of ROVER in a short run, and milliseconds of the environment alone."""
    from rover.baselines import make_agent
    from rover.data import RunningEpisode

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RoverWarning)  # a short run has reasons for many
        agent = make_agent("rover", env, measure_share=0.0).learn(_TIMED_STEPS)
    each = 1000.0 / _TIMED_STEPS
    total = sum(spent for phase, spent in agent.seconds.items() if phase != "evaluate")
    began = time.perf_counter()
    episode = RunningEpisode(env, seed=0)
    for number in range(_TIMED_STEPS):
        _, _, terminated, truncated = episode.step(number % agent.buffer.n_actions)
        if terminated or truncated:
            episode = RunningEpisode(env, seed=number)
    return total * each, (time.perf_counter() - began) * each
