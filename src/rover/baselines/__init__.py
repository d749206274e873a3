"""The agents that ROVER is compared with, one file each, and all agents by name.

An agent is a class with a name, a label, its settings and its presets. Agents of your
own, defined anywhere, are there as soon as their module has been imported. Importing this package
imports no agent and no torch.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rover.errors import ArtefactError, choose

if TYPE_CHECKING:
    from rover.envs import GivenEnv
    from rover.training.agent import Agent

# Of each agent the module that defines it, imported when it is first asked for, and a summary.
_AGENTS = {
    "rover": ("rover.coverage.agent", "occupancy coverage, planned on a learned transition model"),
    "apt": ("rover.baselines.apt", "distance to nearest neighbours in learned features"),
    "cic": ("rover.baselines.cic", "skills told apart by their transitions"),
    "e3b": ("rover.baselines.e3b", "elliptical bonuses for what is new to the episode"),
    "icm": ("rover.baselines.icm", "error at predicting inverse-dynamics features"),
    "maxent": ("rover.baselines.maxent", "mixture of policies, by kernel density of states"),
    "mepol": ("rover.baselines.mepol", "k-NN state entropy by on-policy search"),
    "random": ("rover.baselines.random", "uniformly random actions"),
    "rmax": ("rover.baselines.rmax", "count-based planning to untried actions; finite states"),
    "rnd": ("rover.baselines.rnd", "error at predicting fixed random features"),
    "smm": ("rover.baselines.smm", "skills that match a density of states"),
}

__all__ = ["agent_class", "agent_names", "make_agent", "preset_of", "resume_agent"]


def agent_names() -> dict[str, str]:
    """Names of all agents, ROVER, the baselines, and your own that were imported: each with one
    line on it."""
    own = {name: cls for name, cls in _defined().items() if name not in _AGENTS}
    lines = {name: (inspect.getdoc(cls) or "").partition("\n")[0] for name, cls in own.items()}
    return {name: summary for name, (_, summary) in _AGENTS.items()} | lines


def agent_class(name: str) -> type[Agent[Any]]:
    """The class of an agent, one of :func:`agent_names`. ConfigurationError: there is none."""
    # Before anything is imported: the name may come from a file.
    choose("agent", name, agent_names())
    if name in _AGENTS:
        importlib.import_module(_AGENTS[name][0])
    return _defined()[name]


def preset_of(name: str, preset: str | None = None) -> str:
    """`preset` if the agent `name` has it; its first one for None. ConfigurationError: it has no
    such preset."""
    presets = tuple(agent_class(name).presets)
    return choose(f"preset of {name}", preset or presets[0], presets)


def make_agent(name: str, env: GivenEnv, preset: str | None = None, **options: Any) -> Agent[Any]:
    """An agent on an environment.

    Args:
        name: one of :func:`agent_names`.
        env: an environment's id, a function that makes it, or an instance.
        preset: of the agent; None: its first one.
        options: options of :class:`~rover.training.agent.Agent`, and single settings.

    Raises:
        ConfigurationError: unknown agent, preset or setting.
        UnsupportedSpaceError: an observation or action space that cannot be handled.
    """
    return agent_class(name)(env, preset, **options)


def resume_agent(run_dir: str | Path, *, env: GivenEnv | None = None, **objects: Any) -> Agent[Any]:
    """The agent of a run folder, whichever it is, as its latest checkpoint left it; arguments and
    errors as of :meth:`rover.Agent.resume`, with an ArtefactError for an agent unknown here."""
    from rover.storage import read_run_config

    # The name comes from a file: it is looked up, and nothing is imported for it.
    name = read_run_config(run_dir, kind="pretrain").agent
    if name not in agent_names():
        raise ArtefactError(
            f"{run_dir} holds a run of {name!r}, which is none of {', '.join(agent_names())}; "
            "import the module that defines this agent first, with --import MODULE"
        )
    return agent_class(name).resume(run_dir, env=env, **objects)


def _defined() -> dict[str, type[Agent[Any]]]:
    """Agents whose modules have been imported."""
    # Where the base class is not imported no agent can have been defined.
    module = sys.modules.get("rover.training.agent")
    return {} if module is None else module.AGENTS
