"""Environments and goals by name: Gymnasium's registry, and environments from their ids.

Importing this module registers every environment of rover with Gymnasium;
``gymnasium.make("rover.envs:rover/TwoRooms-v0")`` does so by itself.
"""

from __future__ import annotations

import importlib
import inspect
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import metadata
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec, register, registry
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, RepeatAction, TimeLimit

from rover.envs.dynamics import _keeps_rewards
from rover.envs.gridworld import GridWorld
from rover.envs.layouts import LAYOUT_FAMILIES
from rover.errors import ConfigurationError, RoverError, shorten, warn

_DEFAULT_HORIZON, _MAX_HORIZON = 200, 10**6
_WRAPPERS = "additional_wrappers"  # among the keywords of an environment, as in its spec

# id → keyword arguments; every id is a GridWorld
ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "rover/TwoRooms-v0": {"layout": "two_rooms"},
        "rover/MultiRooms-v0": {"layout": "multi_rooms"},
        "rover/MiddleRoom-v0": {"layout": "middle_room"},
        "rover/Maze-v0": {"layout": "maze"},
        "rover/FourRooms-v0": {"layout": "four_rooms"},
        "rover/Corridor-v0": {"layout": "corridor"},
        "rover/Grid-v0": {},
    }
)
"""The ids that come with this package, and the keywords that each is registered with."""

Cell = tuple[int, int]
"""(x, y), x to the right and y down."""

GOALS: Mapping[str, Mapping[str, Cell]] = MappingProxyType(
    {
        "rover/TwoRooms-v0": {"room1": (6, 6), "room2": (12, 6), "room2-door": (12, 2)},
        # the second cell of each room's third row
        "rover/MultiRooms-v0": {f"room{room}": (5 * room - 4, 4) for room in range(1, 6)},
        "rover/Maze-v0": {"marked": (7, 13), "centre": (4, 4), "east": (10, 11), "north": (9, 1)},
    }
)
"""Goals by environment and name: from the paper's transfer experiments, and a few more."""


def resolve_goal(env_id: str, goal: str | Cell) -> tuple[str | None, list[int]]:
    """Name, if it has one, and cell [x, y] of a goal, given by its name, as ``"x,y"`` or as (x, y).
    ConfigurationError: no such name, and no cell."""
    named = GOALS.get(env_id.rpartition(":")[2], {})
    if isinstance(goal, str) and goal not in named:
        try:
            # A cell is the only other form that a command line can give.
            x, y = map(int, goal.split(","))
        except ValueError:
            names = f", or one of {', '.join(named)}" if named else ""
            raise ConfigurationError(
                f"unknown goal {goal!r} of {env_id or 'this grid world'}: give a cell as x,y, two "
                f"whole numbers{names}"
            ) from None
    else:
        x, y = named[goal] if isinstance(goal, str) else goal
    return next((name for name, cell in named.items() if cell == (x, y)), None), [x, y]


def horizon_of(env: gym.Env[Any, Any], *, longest: int = 0) -> int:
    """Steps after which episodes are truncated; 200 without a limit, or with one above a million.

    Attributes ``horizon`` and ``max_steps`` are names that an environment may use for something
    else: one that is less than the `longest` episode that was recorded is no limit.
    """
    limits = [env.spec and env.spec.max_episode_steps]
    repeat = 1
    while isinstance(env, gym.Wrapper):  # a TimeLimit around an environment without a spec
        # A limit below a wrapper that repeats actions counts steps, and a horizon counts decisions.
        steps = getattr(env, "_max_episode_steps", None)
        limits.append(steps and math.ceil(steps / repeat))
        repeat *= env.num_repeats if isinstance(env, RepeatAction) else 1
        env = env.env
    named = [getattr(env, name, None) for name in ("horizon", "max_steps")]
    decisions = [math.ceil(steps / repeat) for steps in named if isinstance(steps, int)]
    limits += [steps for steps in decisions if steps >= max(longest, 1)]
    horizon = min([steps for steps in limits if steps], default=_MAX_HORIZON + 1)
    return horizon if horizon <= _MAX_HORIZON else _DEFAULT_HORIZON


def goal_state(goal: str | Cell, env: gym.Env[Any, Any]) -> tuple[str, int]:
    """Name and state of a goal of a grid world, by its name or its cell. ConfigurationError: no
    such name, or the cell is a wall or outside the map."""
    name = goal if isinstance(goal, str) else ",".join(map(str, goal))
    _, (x, y) = resolve_goal("" if env.spec is None else env.spec.id, name)
    world: Any = env.unwrapped
    return name, world.layout.index((x, y), role="goal")


def check_rewarded(env: gym.Env[Any, Any]) -> None:
    """Refuse a grid world without a goal, which no wrapper gives a reward: ConfigurationError."""
    grid = env.unwrapped
    if isinstance(grid, GridWorld) and grid.goal_state is None and _keeps_rewards(env):
        env_id = "" if env.spec is None else env.spec.id
        goals = ", ".join([*GOALS.get(env_id, {}), "any cell as X,Y"])
        raise ConfigurationError(
            f"{env_id or 'this grid world'} has no reward until it has a goal, so there is no task "
            f"to learn: give --task goal=..., in Python goal=(x, y) to gymnasium.make ({goals})"
        )


IMPORTED: dict[str, None] = {}
"""Modules that the user asked for, in order; processes that work for this one import them too."""


def import_modules(names: Iterable[str]) -> None:
    """Import modules that register environments or agents, installed or in the current folder:
    their dotted names are what the user asked for, and never what a file names."""
    for name in names:
        # Programs begun by their name, unlike `python -m`, do not look into the current folder.
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever a module may raise
            raise ConfigurationError(
                f"module {shorten(name)} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        IMPORTED[name] = None


class Environment(NamedTuple):
    """An environment as it is given: by its id, by a factory, or as an instance.

    Attributes:
        env: the instance that is learned in.
        make: makes another instance, which policies are evaluated in; None: there is none, and
            they are evaluated in `env` itself.
        env_id, env_kwargs: what files name it by, as of :func:`id_and_kwargs`; None and nothing of
            a factory, which may do more than :func:`make_env` would.
    """

    env: gym.Env[Any, Any]
    make: Callable[[], gym.Env[Any, Any]] | None = None
    env_id: str | None = None
    env_kwargs: Mapping[str, Any] = MappingProxyType({})

    def another(self) -> gym.Env[Any, Any] | None:
        """Another instance; None where there is none: a factory may return the first again."""
        other = self.make() if self.make is not None else self.env
        return None if other.unwrapped is self.env.unwrapped else other

    @classmethod
    def of(cls, given: GivenEnv, env_kwargs: Mapping[str, Any] | None = None) -> Environment:
        """Open what was given; `env_kwargs` are the keyword arguments of an id.

        ConfigurationError: no such id, or keyword arguments of something else.
        """
        if isinstance(given, Environment):
            return given
        if env_kwargs and not isinstance(given, str):
            raise ConfigurationError("env_kwargs are of an environment given by its id")
        if isinstance(given, str):
            env, options = make_env(given, env_kwargs), dict(env_kwargs or {})
            make = partial(make_env, given, options)
            env_id, kwargs = id_and_kwargs(env) or (None, {})
            if env_id is not None and ":" in given:
                # An environment's spec forgets the module that registers it: "module:Name-v0".
                env_id = f"{given.rpartition(':')[0]}:{env_id}"
            return cls(env, make, env_id, kwargs)
        one: Any = given
        if callable(one) and (inspect.isclass(one) or not hasattr(one, "step")):
            return cls(one(), one)
        return cls(one, None, *(id_and_kwargs(one) or (None, {})))


GivenEnv = Environment | gym.Env[Any, Any] | str | Callable[[], gym.Env[Any, Any]]
"""An environment's id, a factory of it, or an instance."""


def known_id(env_id: str | None, where: object = "that file") -> str:
    """The id of an environment that a file names, without its module; nothing is imported.

    ConfigurationError: nothing that has been imported registers it, or there is no id; the message
    says `where` it was read.
    """
    if env_id is None:
        raise ConfigurationError(
            f"the environment of {where} cannot be made from an id: give it in Python as env=..., "
            "or register it as it is wrapped in a module of yours, and begin a run with --import "
            "MODULE and its id"
        )
    module, _, name = env_id.rpartition(":")
    # Making an environment runs code, so only what the user has already imported is made.
    if name not in registry or name.startswith("GymV2"):  # these import what a keyword names
        module = module if module.replace(".", "").isidentifier() else "MODULE"
        raise _unknown("environment", env_id, module)
    return name


def _unknown(what: str, name: str, module: str = "MODULE") -> ConfigurationError:
    return ConfigurationError(
        f"the {what} {shorten(name)} is not known, and no file can have a module imported: if you "
        f"trust its module, name it with --import {module} (in Python: import it first)"
    )


def make_env(env_id: str, env_kwargs: Mapping[str, Any] | None = None) -> gym.Env[Any, Any]:
    """Make a registered environment; an id ``"module:Name-v0"`` imports the module that registers
    it first.

    ConfigurationError: no such id, or the environment refuses its keyword arguments.
    """
    kwargs = dict(env_kwargs or {})
    # Whatever a constructor raises becomes one line that names the environment and its keywords.
    try:
        wrappers = [WrapperSpec(**each) for each in kwargs.pop(_WRAPPERS, ())]
        env = gym.make(env_id, **kwargs)
        for wrapper in wrappers:
            # Nothing is imported for a wrapper that a file names, nor called that is none.
            module, _, name = wrapper.entry_point.partition(":")
            found = getattr(sys.modules.get(module), name, None)
            if not (inspect.isclass(found) and issubclass(found, gym.Wrapper)):
                raise _unknown("wrapper", wrapper.entry_point)
            env = found(env, **(wrapper.kwargs or {}))
        return env
    except RoverError:
        raise
    except Exception as error:  # whatever a constructor may raise; the cause stays attached
        options = f" with {kwargs}" if kwargs else ""
        raise ConfigurationError(
            f"environment {shorten(env_id)} cannot be made{options}: "
            f"{type(error).__name__}: {error}"
        ) from error


def id_and_kwargs(env: gym.Env[Any, Any]) -> tuple[str, dict[str, Any]] | None:
    """Id and keyword arguments with which :func:`make_env` makes an environment again.

    A map of a grid world is among them as text, a time limit that is not the registered one as
    `max_episode_steps`, and wrappers as `additional_wrappers`, in the form of an ``EnvSpec``. None
    for an environment that was not made from its id, or with arguments that JSON cannot hold.
    """
    spec = getattr(env, "spec", None)
    if spec is None or spec.id not in registry:
        return None
    kwargs, registered, world = dict(spec.kwargs), registry[spec.id], env.unwrapped
    # A file that only this machine has is replaced by its content.
    if isinstance(world, GridWorld) and kwargs.get("layout") not in (None, *LAYOUT_FAMILIES):
        kwargs["layout"] = world.layout.text
    # gymnasium.make orders the steps of what an entry point makes, and limits them outside of that.
    n_added, limit = 0, None
    while isinstance(env, gym.Wrapper) and not isinstance(env, OrderEnforcing):
        if isinstance(env, TimeLimit):
            limit = min(env._max_episode_steps, limit or env._max_episode_steps)
        else:
            n_added += not isinstance(env, PassiveEnvChecker)
        env = env.env
    if limit != registered.max_episode_steps:
        kwargs["max_episode_steps"] = limit or -1  # gymnasium.make's word for no limit
    first = len(spec.additional_wrappers) - n_added
    added = spec.additional_wrappers[first:]
    if (brought := registered.additional_wrappers) and added[: len(brought)] == brought:
        added = added[len(brought) :]  # gymnasium.make adds them again
    if added:
        if not registered.order_enforce or any(each.kwargs is None for each in added):
            return None
        kwargs[_WRAPPERS] = list(map(asdict, added))
    try:
        return spec.id, json.loads(json.dumps(kwargs, allow_nan=False, sort_keys=True))
    except (TypeError, ValueError):
        return None


_SIMULATORS = "mujoco", "ale_py", "Box2D", "pygame"


def versions_of(env: gym.Env[Any, Any]) -> dict[str, str]:
    """Versions of Python, of NumPy and Gymnasium, of the simulators that the modules of an
    environment's classes import, and of the package that it is from, as files store them."""
    versions = {"python": ".".join(platform.python_version_tuple()[:2])}
    classes = type(env.unwrapped).__mro__
    # Not all that this process has imported: files of one seed are the same in every process.
    known = {name for one in classes for name in vars(sys.modules[one.__module__])}
    package = classes[0].__module__.partition(".")[0]
    for name in ("numpy", "gymnasium", *(one for one in _SIMULATORS if one in known), package):
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def warn_of_versions(stored: Mapping[str, str], env: gym.Env[Any, Any]) -> None:
    """Warn where versions are others than those that were stored (:func:`versions_of`)."""
    now = versions_of(env)
    others = [f"{k} {old}, not {now[k]}" for k, old in stored.items() if now.get(k, old) != old]
    if others:
        warn(
            f"this was trained with other versions ({'; '.join(others)}): the environment may "
            "behave otherwise, and a run may not go on in the same bits",
            stacklevel=3,
        )


for _id, _kwargs in ENVIRONMENTS.items():
    register(_id, "rover.envs.gridworld:GridWorld", kwargs=dict(_kwargs))
