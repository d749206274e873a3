"""``rover envs``: environments, and whether ROVER can work with them."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, cast

import gymnasium as gym
from cyclopts import Parameter
from rich.table import Table

from rover.cli import words
from rover.cli.tables import NOTHING, make_table, say
from rover.envs import ENVIRONMENTS, GOALS, LAYOUT_FAMILIES, GridWorld, make_env
from rover.errors import (
    ConfigurationError,
    NonFiniteError,
    UnsupportedSpaceError,
    abridge,
)


def envs(
    env_id: Annotated[str | None, Parameter(name="ENV")] = None,
    /,
    *,
    observation: words.Observation | None = None,
    env: words.Env = (),
) -> None:
    """List environments, or show one.

    With ENV, one of rover's environments is shown, its map and its keywords. ENV
    may be any Gymnasium id: then a table shows how its observations and actions
    are taken and stored, whether its states are known, and what is reported.
    Some random steps are checked, as rover.check_env does.

    examples:

        rover envs
        rover envs rover/Maze-v0
        rover envs rover/MultiRooms-v0 --env rooms=7
        rover envs rover/Grid-v0 --env layout=my_map.txt
        rover envs FrozenLake-v1

    Args:
        env_id: the environment to show
    """
    if env_id is None:
        if env or observation:
            raise ConfigurationError("--env and --observation need an ENV")
        _print_list()
        return
    made = make_env(env_id, words.read_env_kwargs(env_id, env, observation))
    is_grid = isinstance(made.unwrapped, GridWorld)
    say(*(_describe_grid(env_id, made) if is_grid else _describe(env_id, made)))


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
    from rover.evaluation import optimal_occupancy

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
    from rover.envs import Spaces, finite_dynamics

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
    problem = finite_dynamics(env)
    verdict = "can work with it; its states are unknown"
    reported = "visited cells or distinct observations, beside random actions"
    if problem is not None:
        dynamics = problem.dynamics
        verdict = (
            f"can work with it; {dynamics.n_states} states with known dynamics, "
            f"{int(dynamics.terminal.sum())} of them end an episode, the farthest takes "
            f"{dynamics.steps_to_states().max()} steps"
        )
        reported = "coverage and J/J*, exact, beside random actions"
    return [table, f"ROVER:      {verdict}; random steps checked", f"reported:   {reported}"]
