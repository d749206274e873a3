"""``rover envs``: environments, and whether ROVER can work with them."""

from __future__ import annotations

import inspect
from typing import Any, cast

import gymnasium as gym

from rover.cli.commands import command
from rover.cli.tables import NOTHING, make_table, say
from rover.cli.values import read_env_kwargs
from rover.envs import (
    ENVIRONMENTS,
    GOALS,
    LAYOUT_FAMILIES,
    Enumerated,
    GridWorld,
    finite_dynamics,
    make_env,
)
from rover.envs.dynamics import MAX_EVALUATED_STATES
from rover.errors import ConfigurationError, NonFiniteError, UnsupportedSpaceError
from rover.evaluation import optimal_occupancy
from rover.training.config import DEFAULT_DISCOUNT


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
    Gymnasium id: then it is said whether ROVER can work with it and whether its states are known.
    Some random steps are checked, as rover.check_env does.

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
    describe = _describe_grid if isinstance(made.unwrapped, GridWorld) else _describe
    say(*(_describe(env_id, Enumerated(made, limit)) if enumerate else describe(env_id, made)))


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


def _describe(env_id: str, env: gym.Env[Any, Any]) -> list[str]:
    """Lines on an environment that is no grid world."""
    from rover.data import check_env

    problem = finite_dynamics(env)
    verdict = "can work with it; its states are unknown: coverage and J/J* cannot be reported"
    if problem is not None:
        dynamics, discount = problem.dynamics, DEFAULT_DISCOUNT
        farthest = dynamics.steps_to_states().max()
        verdict = (
            f"can work with it; {dynamics.n_states} states with known dynamics: coverage and J/J* "
            f"exact; {int(dynamics.terminal.sum())} of them end an episode, the farthest takes "
            f"{farthest} steps"
        )
        if dynamics.n_states <= MAX_EVALUATED_STATES:
            optimum = optimal_occupancy(dynamics, discount=discount)
            verdict += f"; J* {optimum.objective:.4g} with discount {discount:g}"
    # The spaces may be right and the observations not: only steps show that.
    try:
        check_env(env)
    except (UnsupportedSpaceError, ConfigurationError, NonFiniteError) as error:
        verdict = f"cannot work with it: {error}"
    else:
        verdict += "; random steps checked"
    spaces = [f"actions:      {env.action_space}", f"observations: {env.observation_space}"]
    return [env_id, *spaces, f"ROVER:        {verdict}"]
