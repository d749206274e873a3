"""The agents that ROVER is compared with: one file each, found by its name.

A file of this folder is an agent: it declares a class with a name, a label and a colour, its
settings and its presets. Nothing else knows of it. Agents of your own, defined anywhere, are there
as soon as their module has been imported. Importing this package imports no agent and no torch.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rover.errors import ArtefactError, choose

if TYPE_CHECKING:
    import gymnasium as gym

    from rover.training.agent import Agent

_ROVER = "rover"

__all__ = [
    "agent_class",
    "agent_names",
    "agent_summaries",
    "make_agent",
    "preset_of",
    "resume_agent",
]


def agent_names() -> tuple[str, ...]:
    """Names of all agents: ROVER, this folder's, and your own that were imported."""
    return tuple(dict.fromkeys([*_modules(), *_registered()]))


def agent_summaries() -> dict[str, str]:
    """One line on each agent, by its name, without importing it: the first of its docstring."""
    lines = {}
    for name, cls in _registered().items():
        lines[name] = (inspect.getdoc(cls) or "").partition("\n")[0]
    for name, module in _modules().items():
        spec = importlib.util.find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        # Parsed and not imported: torch takes a second, and --help asks for these lines.
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        lines[name] = (ast.get_docstring(tree) or "").partition("\n")[0]
    return {name: lines[name] for name in agent_names()}


def agent_class(name: str) -> type[Agent[Any]]:
    """The class of an agent; its ``presets`` and ``config_class`` say how it can be set up.

    Args:
        name: one of :func:`agent_names`; nothing else is ever imported.

    Raises:
        ConfigurationError: there is no such agent; the message names the nearest one.
    """
    # Before anything is imported: the name may come from a file.
    choose("agent", name, agent_names())
    modules = _modules()
    if name in modules:
        importlib.import_module(modules[name])
    return _registered()[name]


def preset_of(name: str, preset: str | None = None) -> str:
    """`preset` if the agent `name` has it; its first one for None.

    Raises:
        ConfigurationError: unknown agent or preset.
    """
    presets = tuple(agent_class(name).presets)
    return choose(f"preset of {name}", preset or presets[0], presets)


def make_agent(
    name: str, env: gym.Env[Any, Any] | str, preset: str | None = None, **options: Any
) -> Agent[Any]:
    """An agent on an environment.

    Args:
        name: one of :func:`agent_names`.
        env: environment or id.
        preset: of the agent; None: its first one.
        options: options of :class:`~rover.training.agent.Agent`, and single settings.

    Raises:
        ConfigurationError: unknown agent, preset or setting.
        UnsupportedSpaceError: an observation or action space that cannot be handled.
    """
    return agent_class(name)(env, preset, **options)


def resume_agent(
    run_dir: str | Path, *, env: gym.Env[Any, Any] | None = None, **objects: Any
) -> Agent[Any]:
    """The agent of a run folder, whichever it is, as its latest checkpoint left it.

    Args:
        run_dir: the run folder.
        env: the environment, where it cannot be made again from its id.
        objects: settings that were objects of your own, such as ROVER's kernel.

    Raises:
        ArtefactError: no run there, a damaged one, or one of an agent that is not known here.
        ConfigurationError: `env` or an object is missing, or differs from the run's.
        ReplayMismatchError: the environment is not deterministic given its seed.
    """
    from rover.storage import read_run_config

    # The name comes from a file: it is looked up, and nothing is imported for it.
    name = read_run_config(run_dir, kind="pretrain").agent
    if name not in agent_names():
        raise ArtefactError(
            f"{run_dir} holds a run of {name!r}, which is none of {', '.join(agent_names())}; "
            "import the module that defines this agent first, with --import MODULE"
        )
    return agent_class(name).resume(run_dir, env=env, **objects)


def _modules() -> dict[str, str]:
    """The module that defines each agent of rover, by the agent's name."""
    files = [module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg]
    return {_ROVER: "rover.coverage.agent"} | {name: f"{__name__}.{name}" for name in files}


def _registered() -> dict[str, type[Agent[Any]]]:
    """Agents whose modules have been imported."""
    # Where the base class is not imported no agent can have been defined.
    module = sys.modules.get("rover.training.agent")
    return {} if module is None else module.AGENTS
