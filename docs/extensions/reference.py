"""The reference, written from the program itself when the site is built.

docs/api/ gets a page for each public module, the settings of every configuration and the command
line; docs/agents/ a page for each agent. Nothing in them is written by hand: names come from
`__all__`, texts from docstrings and from `--help`, settings from the configurations' fields.
"""

from __future__ import annotations

import ast
import csv
import importlib
import importlib.util
import inspect
import io
import itertools
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel
from sphinx.application import Sphinx

import rover
import rover_bench

NOT_OF_A_CLASS = "Module,BaseModel,Env,Wrapper,ObservationWrapper,ActionWrapper,VectorEnv,ndarray"
PROSE = ("rover.errors", "rover.training.run_folder", "rover.baselines.bonus")
"""Modules without `__all__` whose classes and functions guides speak of."""


# --- what is public -----------------------------------------------------------------------------


def public_names() -> dict[str, tuple[str, ...]]:
    """The public modules, and what is public in each."""
    packages = (rover, rover_bench)
    found = {package.__name__: tuple(package.__all__) for package in packages}
    inside = (pkgutil.walk_packages(one.__path__, f"{one.__name__}.") for one in packages)
    for info in itertools.chain(*inside):
        if info.name.endswith("__main__") or "._" in info.name:
            continue
        module = importlib.import_module(info.name)
        if hasattr(module, "__all__"):
            found[info.name] = tuple(module.__all__)
        elif info.name in PROSE:
            found[info.name] = tuple(
                name
                for name, value in vars(module).items()
                if getattr(value, "__module__", "") == info.name and is_described(value)
                if name.isidentifier() and not name.startswith("_")
            )
    return found


def homes() -> dict[tuple[str, str], str]:
    """(module, name) → the module whose page describes the object: the shortest that has it."""
    first: dict[Any, str] = {}
    placed = {}
    names = public_names()
    for module in sorted(names, key=lambda known: (known.count("."), known)):
        for name in names[module]:
            value = getattr(importlib.import_module(module), name)
            key = (id(value), name) if is_described(value) else (module, name)
            placed[module, name] = first.setdefault(key, module)
    return placed


def is_described(value: Any) -> bool:
    """Whether a value carries a docstring of its own: classes, functions and modules."""
    return inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value)


def explanation(module: str, name: str) -> str:
    """The docstring of a public name; of a constant the string below it, where it is defined."""
    value = getattr(importlib.import_module(module), name)
    if is_described(value) and not hasattr(value, "__origin__"):
        own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
        return inspect.cleandoc(own or "")
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    for statement in ast.walk(tree):  # also those for the type checker, of a lazy package
        if isinstance(statement, ast.ImportFrom) and name in {one.name for one in statement.names}:
            return explanation(str(statement.module), name)
    body = tree.body
    for statement, below in zip(body, [*body[1:], None], strict=True):
        targets = getattr(statement, "targets", [getattr(statement, "target", None)])
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            text = getattr(getattr(below, "value", None), "value", "")
            return inspect.cleandoc(text) if isinstance(text, str) else ""
    return ""


# --- reStructuredText ---------------------------------------------------------------------------


def tidy(text: str) -> str:
    """A docstring as reStructuredText.

    Indented paragraphs and those in aligned columns are code, `## Heading` is bold, a list needs no
    empty line before it, and `*shape`, |r| and x_ are text.
    """
    lines: list[str] = []
    is_code, last = False, ""
    for line in text.splitlines():
        begins = not (lines and lines[-1])
        is_column = begins and re.match(r"\S+( \S+)?   +\S", line)
        if line and (is_column or (begins and not line.startswith(" "))):
            is_code = False
        if is_column or (line.startswith("    ") and begins and last and not last.startswith(" ")):
            lines += [] if is_code else ["::", ""]
            is_code = True
        if is_code:
            lines.append(f"    {line}" if line else "")
        else:
            if line.startswith("- ") and last and not last.startswith(("- ", "  ")):
                lines.append("")
            lines += [f"**{line[3:]}**", ""] if line.startswith("## ") else [_plain(line)]
        last = line or last
    return "\n".join(lines)


def _plain(line: str) -> str:
    """A line without what means something in reStructuredText and nothing in our docstrings."""
    parts = re.split(r"(``.*?``|:\w+:`[^`]*`|`[^`]*`)", line)
    parts[::2] = (re.sub(r"[*|]|(?<=\w)_(?!\w)", r"\\\g<0>", part) for part in parts[::2])
    return "".join(parts)


def title(text: str, line: str = "=") -> str:
    """A heading."""
    return f"{text}\n{line * len(text)}\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; its cells are reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", "   :class: described", ""]
    for row in [head, *rows]:
        for number, cell in enumerate(row):
            bullet = "* -" if number == 0 else "  -"
            lines.append(f"   {bullet} {' '.join(cell.split())}".rstrip())
    return "\n".join(lines) + "\n"


def code(text: str) -> str:
    """A block that is shown as it is."""
    return ".. code-block:: text\n\n" + textwrap.indent(text.rstrip(), "   ") + "\n"


# --- pages --------------------------------------------------------------------------------------


def module_page(module: str, names: Sequence[str], placed: Mapping[tuple[str, str], str]) -> str:
    """The page of a public module."""
    described, parts = [], [title(module), f".. automodule:: {module}\n   :no-members:\n"]
    for name in sorted(names, key=str.lower):
        value, home = getattr(importlib.import_module(module), name), placed[module, name]
        first = explanation(module, name).partition("\n\n")[0]
        described.append([f":py:obj:`~{home}.{name}`", tidy(first)])
        if home != module:
            continue
        full = f"{module}.{name}"
        parts.append(title(name, "-"))
        if inspect.isclass(value) and not hasattr(value, "__origin__"):
            # what a library's own base classes have is not repeated
            inherits = any(base.__module__.startswith("rover") for base in value.__mro__[1:])
            options = ["members:", "show-inheritance:"]
            if issubclass(value, BaseModel):
                options.append("exclude-members: model_config, model_post_init")
            elif inherits:
                options.append(f"inherited-members: {NOT_OF_A_CLASS}")
            lines = [f".. autoclass:: {full}", *(f"   :{option}" for option in options)]
            parts.append("\n".join(lines) + "\n")
        elif inspect.isroutine(value):
            parts.append(f".. autofunction:: {full}\n")
        else:
            text = textwrap.indent(tidy(explanation(module, name)), "   ")
            parts.append(f".. py:data:: {name}\n   :module: {module}\n\n{text}\n")
    parts.insert(2, table(["Name", ""], described))
    return "\n".join(parts)


class Configured(Protocol):
    """A class that makes its configuration of a preset."""

    def make(self, algorithm: str, preset: str) -> BaseModel:
        """The configuration."""


def configurations() -> Iterator[tuple[str, str, dict[str, BaseModel]]]:
    """Every configuration: a heading, the words that set it, and its presets."""
    from rover.baselines import agent_class, agent_names
    from rover.finetuning import AdaptConfig, FinetuneConfig, OfflineConfig
    from rover.training.config import merge_settings, validate_settings

    for name in agent_names():
        agent = agent_class(name)
        presets = {
            preset: validate_settings(agent.config_class, merge_settings(changes, {}))
            for preset, changes in agent.presets.items()
        }
        yield agent.label, f"rover pretrain ENV --agent {name}", presets
    kinds: dict[str, tuple[str, Any]] = {
        "finetune": ("finetune RUN --algorithm", FinetuneConfig),
        "offline": ("finetune RUN --offline --algorithm", OfflineConfig),
        "adapt": ("adapt RUN", AdaptConfig),
    }
    for command, (words, config) in kinds.items():
        for learner in config.learners:
            presets = {name: config.make(learner, name) for name in config.presets}
            heading = f"{command}, {learner if command == 'adapt' else learner.upper()}"
            yield heading, f"rover {words} {learner}".removesuffix(" plan"), presets


def settings_table(presets: Mapping[str, BaseModel]) -> str:
    """Name, range, default and effect of every setting, and its value in presets that differ."""
    from rover.cli.settings import setting_rows

    first, *others = presets
    rows = []
    for name, kind, values, meaning in setting_rows(presets):
        shown = {preset: f"``{value}``" if value else "" for preset, value in values.items()}
        default = shown[first]
        changed = [f"{preset} {shown[preset]}" for preset in others if shown[preset] != default]
        cells = [f"``{name}``", tidy(kind.replace("|", " | ")), default]
        rows.append([*cells, *([", ".join(changed)] if others else []), tidy(meaning)])
    head = ["Setting", "Type and range", first, *(["Other presets"] if others else []), "Effect"]
    return table(head, rows)


def settings_page() -> str:
    """Every setting of every configuration."""
    parts = [
        title("Settings"),
        "On the command line ``--set NAME=VALUE``; in Python keyword arguments of the same name. "
        "``rover settings`` prints the same lists. A preset that is not named has the default.\n",
    ]
    for heading, words, presets in configurations():
        parts += [title(heading, "-"), f"``{words}``\n", settings_table(presets)]
    return "\n".join(parts)


def command_page() -> str:
    """The help of every command."""
    from rover.cli import available, main

    def said(*words: str) -> str:
        out = io.StringIO()
        with redirect_stdout(out):
            main([*words, "--help"])
        return out.getvalue()

    parts = [title("The command line"), "What the program says itself.\n", code(said())]
    for name in available():
        parts += [f".. _command-{name}:\n", title(f"rover {name}", "-"), code(said(name))]
    return "\n".join(parts)


# --- agents -------------------------------------------------------------------------------------

_FIGURES = {
    "states_seen": "states seen",
    "steps_to_full_coverage": "steps to see every state",
    "optimality_ratio": "J/J* of the policy",
    "coverage": "coverage of 20 episodes",
}
_GRIDS = {
    "two-rooms": "Two Rooms",
    "multi-rooms-5": "Multi-Rooms 5",
    "middle-room": "Middle Room",
    "maze": "Maze",
}


def _figure(row: Mapping[str, str]) -> str:
    if not row["iqm"]:
        return "not reached"
    value, sign = float(row["iqm"]), ">\\ " if int(row["not_reached"]) else ""
    return f"{sign}{value:,.2f}" if value < 10 else f"{sign}{value:,.0f}"


def _results(name: str, docs: Path) -> str:
    """The agent's rows of the committed comparisons."""
    rows = []
    for folder, grid in _GRIDS.items():
        path = docs / "results" / "comparison" / folder / "summary.csv"
        found: dict[str, dict[str, str]] = {}
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                if row["agent"].split("-")[0] == name and row["figure"] in _FIGURES:
                    found.setdefault(row["agent"], {})[row["figure"]] = _figure(row)
        page = f":doc:`{grid} </results/comparison/{folder}/comparison>`"
        rows += [
            [page, agent, *(cells.get(figure, "") for figure in _FIGURES)]
            for agent, cells in found.items()
        ]
    return table(["Grid", "Agent", *_FIGURES.values()], rows) if rows else ""


def agent_page(name: str, docs: Path) -> str:
    """What an agent is, its settings, and how it did."""
    from rover.baselines import agent_class

    cls = agent_class(name)
    module = inspect.getmodule(cls)
    assert module is not None
    texts = [module.__doc__ or "", cls.__doc__ or ""]
    reward = getattr(cls, "reward_class", None)
    texts += [reward.__doc__] if reward is not None and reward.__doc__ else []
    presets = next(
        presets for _, words, presets in configurations() if words.endswith(f"--agent {name}")
    )
    parts = [title(f"{cls.label} ({name})")]
    parts += [tidy(inspect.cleandoc(re.split(r"\n\s*Args:\n", text)[0])) + "\n" for text in texts]
    parts += [
        code(f"rover pretrain rover/MultiRooms-v0 --observation onehot --agent {name}"),
        title("Settings", "-"),
        settings_table(presets),
    ]
    results = _results(name, docs)
    if results:
        parts += [
            title("Results", "-"),
            "Interquartile means after 10,000 steps from one-hot observations, seven seeds on the "
            "first two grids and five on the others; the page of each grid has intervals, single "
            'runs and the command that makes it. ">": some runs did not get there.\n',
            results,
            ".. figure:: /results/comparison/multi-rooms-5/pictures/learning_curves.png\n"
            "   :alt: learning curves of all agents on Multi-Rooms 5\n\n"
            "   All agents: ``rover sweep experiments/compare-multi-rooms-5.toml``\n",
        ]
    return "\n".join(parts)


def write_pages(docs: Path) -> None:
    """Write docs/api and docs/agents anew; files that did not change keep their time."""
    from rover.baselines import agent_names

    names, placed = public_names(), homes()
    pages = {f"api/{module}": module_page(module, names[module], placed) for module in names}
    pages |= {"api/settings": settings_page(), "api/command_line": command_page()}
    pages |= {f"agents/{name}": agent_page(name, docs) for name in agent_names()}
    files = {f"{page}.rst": text for page, text in pages.items()}
    for folder in ("api", "agents"):
        (docs / folder).mkdir(exist_ok=True)
        for stale in (docs / folder).iterdir():
            if f"{folder}/{stale.name}" not in files:
                stale.unlink()
    for name, text in files.items():
        path = docs / name
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def _tidy_docstring(*arguments: Any) -> None:
    lines = arguments[-1]
    lines[:] = [*tidy("\n".join(lines)).splitlines(), ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before they are read; tidy docstrings before napoleon reads them."""
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir)), priority=100)
    app.connect("autodoc-process-docstring", _tidy_docstring, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
