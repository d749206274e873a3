"""``rover envs``: what can be explored, and with which keywords."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

import gymnasium as gym

from rover.cli import exit_codes
from rover.cli.arguments import (
    Commands,
    add_command,
    add_env_options,
    read_env_kwargs,
)
from rover.cli.tables import NOTHING, command, count, make_console, make_table, number
from rover.envs import ENVIRONMENTS, GOALS, LAYOUT_FAMILIES, GridWorld, finite_dynamics, make_env
from rover.errors import UnsupportedSpaceError
from rover.evaluation import optimal_occupancy

_DESCRIPTION = """\
List rover's environments; with ENV, show one of them, its map and its keywords. ENV may be any
Gymnasium id: then it is said whether ROVER can work with it and whether its states are known.
"""

_EXAMPLES = """\
  rover envs
  rover envs rover/Maze-v0
  rover envs rover/MultiRooms-v0 --env rooms=7
  rover envs rover/Grid-v0 --env layout=my_map.txt
  rover envs FrozenLake-v1
"""


def add_parser(commands: Commands) -> None:
    """Add the command to the command line."""
    parser = add_command(
        commands,
        "envs",
        summary="list environments, or show one",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    parser.add_argument("env_id", metavar="ENV", nargs="?", help="the environment to show")
    add_env_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the list, or one environment."""
    if options.env_id is None:
        if options.env or options.env_kwargs or options.observation:
            options.parser.error("--env, --env-kwargs and --observation need an ENV")
        _print_list()
        return exit_codes.DONE
    env = make_env(options.env_id, read_env_kwargs(options, options.env_id))
    if isinstance(env.unwrapped, GridWorld):
        _print_grid(options.env_id, env.unwrapped)
    else:
        _print_other(options.env_id, env)
    return exit_codes.DONE


def _print_list() -> None:
    columns = ("id", "states", "horizon", "farthest", "start", "γ", "J*")
    table = make_table("rover's environments", columns)
    about = []
    for env_id, settings in ENVIRONMENTS.items():
        family = LAYOUT_FAMILIES.get(str(settings.get("layout")))
        if family is None:
            table.add_row(env_id, *[NOTHING] * (len(columns) - 1))
            about.append((env_id, "A map of your own: --env layout=FILE or its text."))
            continue
        world = make_env(env_id).unwrapped
        assert isinstance(world, GridWorld)
        table.add_row(env_id, *_figures(world))
        about.append((env_id, _first_sentence(family.make)))
    console = make_console()
    console.print(table)
    for env_id, sentence in about:
        console.print(f"{env_id:22} {sentence}", soft_wrap=True)
    console.print(
        "\nfarthest: steps from the start to the farthest state. γ: discount that suits the map.\n"
        "J*: the least chance, over all policies, that two draws of the discounted occupancy meet\n"
        f"(1/states would be uniform). More on one: {command('rover', 'envs', 'rover/Maze-v0')}",
        soft_wrap=True,
    )


def _figures(world: GridWorld) -> tuple[str, ...]:
    """States, horizon, farthest state, start, discount and J* of a grid world."""
    dynamics = world.dynamics()
    optimum = optimal_occupancy(
        dynamics.transition,
        dynamics.start,
        discount=world.suggested_discount,
        terminal=dynamics.terminal,
    )
    start = world.task.only_start_state
    if start is None:
        place = distance = NOTHING
    else:
        x, y = world.layout.cells[start].tolist()
        place = f"({x}, {y})"
        distance = count(float(world.layout.distances(start).max()))
    return (
        count(world.layout.n_states),
        count(world.horizon),
        distance,
        place,
        number(world.suggested_discount),
        number(optimum.objective),
    )


def _print_grid(env_id: str, world: GridWorld) -> None:
    console = make_console()
    states, horizon, farthest, start, discount, optimum = _figures(world)
    console.print(
        f"{env_id}: {states} states, 4 actions (up, down, left, right), horizon {horizon}, "
        f"the farthest state {farthest} steps from the start {start}, "
        f"discount {discount}, J* {optimum}",
        soft_wrap=True,
    )
    console.print(f"observations: {world.observation_space}\n", soft_wrap=True)
    console.print(world.layout.text, soft_wrap=True)
    console.print("\nS start, G a marked goal, # wall, . free\n")
    named = GOALS.get(env_id.rpartition(":")[2], {})
    if named:
        goals = ", ".join(f"{name} {cell}" for name, cell in named.items())
        console.print(f"goals (--task goal=NAME of `rover finetune`): {goals}\n", soft_wrap=True)
    family = LAYOUT_FAMILIES.get(str(ENVIRONMENTS.get(env_id, {}).get("layout")))
    console.print("keywords (--env KEY=VALUE):")
    for name, default in _own_options(family):
        console.print(f"- ``{name}``: of this map, {default} by default.".replace("``", ""))
    console.print(_argument_section(GridWorld).replace("``", ""), soft_wrap=True)


def _own_options(family: Any) -> list[tuple[str, Any]]:
    """Keywords of a named map with their defaults."""
    if family is None:
        return []
    return [(p.name, p.default) for p in inspect.signature(family.make).parameters.values()]


def _argument_section(documented: type) -> str:
    """The section "Arguments" of an environment's docstring."""
    text = inspect.getdoc(documented) or ""
    return text.partition("## Arguments\n")[2].partition("\n\n")[0]


def _first_sentence(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]


def _print_other(env_id: str, env: gym.Env[Any, Any]) -> None:
    from rover.data import check_spaces

    console = make_console()
    console.print(f"{env_id}", style="bold")
    console.print(f"actions:      {env.action_space}", soft_wrap=True)
    console.print(f"observations: {env.observation_space}", soft_wrap=True)
    try:
        check_spaces(env)
    except UnsupportedSpaceError as error:
        console.print(f"ROVER:        cannot work with it: {error}", soft_wrap=True)
        return
    problem = finite_dynamics(env)
    if problem is None:
        known = "its states are unknown: coverage and J/J* cannot be reported"
    else:
        known = f"{problem.dynamics.n_states} states with known dynamics: coverage and J/J* exact"
    console.print(f"ROVER:        can work with it; {known}", soft_wrap=True)
