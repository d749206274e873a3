"""The reference, written from the program itself when the site is built.

docs/api/ gets a page for each package, the settings of every agent and task, and the help of every
command. Names come from `__all__` or from imports that repeat a name (`x as x`), texts from
docstrings, settings from configurations.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import rover
import rover_bench

NOT_OF_A_CLASS = "Module,BaseModel,Env,Wrapper,ObservationWrapper,ActionWrapper,VectorEnv,ndarray"


def public_names() -> dict[str, tuple[str, ...]]:
    """The modules that declare public names, and these; each name at the shortest module."""
    found: dict[str, tuple[str, ...]] = {}
    seen: set[int] = set()
    names = ["rover", "rover_bench"]
    for package in (rover, rover_bench):
        names += [
            info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        ]
    for name in sorted(names, key=lambda known: (known.count("."), known)):
        if name.endswith("__main__") or "._" in name:
            continue
        module = importlib.import_module(name)
        own = [one for one in _listed(module) if id(getattr(module, one)) not in seen]
        seen |= {id(getattr(module, one)) for one in own}
        if own:
            found[name] = tuple(sorted(own, key=str.lower))
    return found


def _listed(module: Any) -> list[str]:
    tree = ast.parse(inspect.getsource(module))
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    again = [one.name for node in imports for one in node.names if one.asname == one.name]
    return list(getattr(module, "__all__", again))


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


def _title(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def module_page(name: str, names: tuple[str, ...]) -> str:
    """The page of a module with public names."""
    module = importlib.import_module(name)
    parts = [_title(name), f".. automodule:: {name}\n   :no-members:\n"]
    for one in names:
        value, options = getattr(module, one), []
        if inspect.isclass(value) and not hasattr(value, "__origin__"):
            kind, options = "autoclass", ["members:", "show-inheritance:"]
            options += ["exclude-members: model_config, model_post_init"]
            if any(base.__module__.startswith("rover") for base in value.__mro__[1:]):
                options.append(f"inherited-members: {NOT_OF_A_CLASS}")
        elif inspect.isroutine(value):
            kind = "autofunction"
        elif inspect.ismodule(value):
            continue
        else:  # a constant: its text is in the source
            parts.append(f".. py:data:: {one}\n   :module: {name}\n")
            continue
        lines = [f".. {kind}:: {name}.{one}", *(f"   :{option}" for option in options)]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :class: described", ""]
    for row in (head, *rows):
        cells = [" ".join(cell.split()) for cell in row]
        lines += [f"   * - {cells[0]}", *(f"     - {cell}".rstrip() for cell in cells[1:])]
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Every setting of every agent and task."""
    from rover.baselines import agent_names
    from rover.cli.settings import TASKS, _setting_rows

    parts = [
        _title("Settings"),
        "On the command line ``--set NAME=VALUE``; in Python keyword arguments of the same name. "
        "``rover settings NAME`` prints the same lists.\n",
    ]
    for name in (*agent_names(), *TASKS):
        rows = [*_setting_rows(name)]
        cells = (
            (f"``{one}``", tidy(kind), *(f"``{v}``" for v in shown.values()), tidy(text))
            for one, kind, shown, text in rows
        )
        heads = ("Setting", "Type and range", *rows[0][2], "Effect")
        parts += [_title(name, "-"), _table(heads, cells)]
    return "\n".join(parts)


def command_page() -> str:
    """The help of every command."""
    from rover.cli import COMMANDS, main

    parts = [_title("The command line")]
    for words in ([], *([name] for name in COMMANDS)):
        out = io.StringIO()
        with redirect_stdout(out), suppress(SystemExit):
            main([*words, "--help"])
        text = textwrap.indent(out.getvalue().rstrip(), "   ")
        parts += [_title(" ".join(["rover", *words]), "-"), f".. code-block:: text\n\n{text}\n"]
    return "\n".join(parts)


def write_pages(docs: Path) -> None:
    """Write docs/api anew; files that did not change keep their time."""
    pages = {name: module_page(name, names) for name, names in public_names().items()}
    pages |= {"settings": settings_page(), "command_line": command_page()}
    (docs / "api").mkdir(exist_ok=True)
    for stale in (docs / "api").glob("*.rst"):
        if stale.stem not in pages:
            stale.unlink()
    for name, text in pages.items():
        path = docs / "api" / f"{name}.rst"
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
