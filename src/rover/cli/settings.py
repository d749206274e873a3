"""``rover envs`` and ``settings``: environments, and what --set can set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import gymnasium as gym
from cyclopts import Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rover.baselines import agent_class, agent_names
from rover.cli import words
from rover.cli.tables import NOTHING, say
from rover.envs import ENVIRONMENTS, Spaces, finite_dynamics, horizon_of, make_env
from rover.errors import ConfigurationError, abridge, choose

TASKS = ("adapt", "ddpg", "sac", "offline-cql", "offline-ddpg")


def envs(env_id: words.EnvId | None = None, /, *, env: words.Env = ()) -> None:
    """List environments, or show one.

    ENV is any Gymnasium id. Its spaces and some random steps are checked, as
    rover.check_env does. J* is the least J = Σ d² of any policy's discounted
    occupancy d, 1/states if even.

    examples:

        rover envs
        rover envs rover/MultiRooms-v0 --env rooms=7
        rover envs FrozenLake-v1

    Args:
        env_id: the environment to show
    """
    if env_id is not None:
        from rover.data import check_env

        made = make_env(env_id, dict(env))
        check_env(made)
        spaces = Spaces.of(made)
        shown = {"observations": abridge(spaces.observed), "actions": abridge(spaces.acted)}
        if spaces.actions is not None:
            shown["  as a set of"] = str(spaces.n_actions)
        say(*(f"{name:14}{value}" for name, value in (shown | _figures(made)).items()))
    elif env:
        raise ConfigurationError("--env needs an ENV")
    else:
        say(*ENVIRONMENTS)


def _figures(env: gym.Env[Any, Any]) -> dict[str, str]:
    """States, horizon and J* of an environment, as far as its dynamics are known."""
    from rover.envs.dynamics import MAX_EVALUATED_STATES
    from rover.evaluation import optimal_occupancy
    from rover.training.config import discount_of

    figures = {"states": "unknown", "horizon": f"{horizon_of(env):,}", "J*": NOTHING}
    problem = finite_dynamics(env)
    if problem is not None:
        figures["states"] = f"{problem.dynamics.n_states:,}"
        if problem.dynamics.n_states <= MAX_EVALUATED_STATES:
            discount = discount_of(env)
            optimum = optimal_occupancy(problem.dynamics, discount=discount)
            figures["J*"] = f"{optimum.objective:.4g} at discount {discount:.4g}"
    return figures


def settings(name: Annotated[str | None, Parameter(name="NAME")] = None, /) -> None:
    """List settings with their ranges and values.

    Without NAME the agents are listed. Single settings are given with --set
    NAME=VALUE.

    examples:

        rover settings
        rover settings rover
        rover settings offline-cql

    Args:
        name: an agent of `rover pretrain`; adapt; ddpg or sac of `rover finetune`, offline-cql or
            offline-ddpg with --offline
    """
    if name is None:
        say(*(f"{agent:8} {line}" for agent, line in agent_names().items()))
        return
    for setting, kind, shown, meaning in _setting_rows(name):
        # One value where the presets agree: most settings differ in none of them.
        values = "; ".join(f"{preset}: {value}" for preset, value in shown.items())
        values = values if len(set(shown.values())) > 1 else next(iter(shown.values()))
        say(f"{setting} = {kind}  [{values}]", f"    {meaning}")


def _setting_rows(name: str) -> Iterator[tuple[str, str, dict[str, str], str]]:
    """Dotted name, type and range, value in each preset, and meaning of each setting of an agent,
    a learner or adapt."""
    presets = _presets(choose("name", name, (*agent_names(), *TASKS)))
    for rows in zip(*(_flatten(config) for config in presets.values()), strict=True):
        setting, field, _ = rows[0]
        # As JSON, which --set reads.
        values = (json.dumps(row[2], separators=(",", ":")).strip('"') for row in rows)
        of = field.annotation
        name = of.__name__ if type(of) is type else str(of).replace("typing.", "")
        kind = " ".join([name, *map(str, field.metadata)])
        yield setting, kind, dict(zip(presets, values, strict=True)), field.description or ""


def _presets(name: str) -> dict[str, BaseModel]:
    """The configuration in each preset."""
    if name in agent_names():
        agent = agent_class(name)
        return {preset: agent.config_class(**values) for preset, values in agent.presets.items()}
    from rover.finetuning import AdaptConfig, FinetuneConfig, OfflineConfig

    if name == "adapt":
        return {"fast": AdaptConfig.make("plan", "fast")}
    config = OfflineConfig if name.startswith("offline-") else FinetuneConfig
    algorithm = name.removeprefix("offline-")
    return {preset: config.make(algorithm, preset) for preset in ("fast", "paper")}


def _flatten(config: BaseModel, prefix: str = "") -> Iterator[tuple[str, FieldInfo, Any]]:
    """Dotted name, field and value of every setting."""
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, field, value
