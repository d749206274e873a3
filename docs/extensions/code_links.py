"""Names in code type lead to the reference, and scripts of the gallery to their pages.

The pages stay plain Markdown, which the repository's own view shows as well: `rover.solve`,
`operators.solve_occupancy` or `rover pretrain` between backticks becomes a link where the reference
has the name, and a relative link to a file outside of docs/ leads to the page made of it.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode

_NAME = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(\(.*\))?", re.S)
_COMMAND = re.compile(r"rover (?P<command>[a-z]+)(\s.*)?", re.S)


def find_object(env: BuildEnvironment, name: str) -> tuple[str, str] | None:
    """Page and anchor of a documented object, named in full or from any of its packages down."""
    objects = env.domains.python_domain.objects
    if name not in objects:
        parts = name.removeprefix("rover.").split(".")
        tails = [".".join(parts[start:]) for start in range(len(parts))]
        # coverage.config.RoverConfig is documented as rover.RoverConfig; one word says too little
        least = 1 if len(parts) > 1 or name.startswith("rover.") else 2
        for tail in tails:
            found = [known for known in objects if known.endswith(f".{tail}")]
            distinct = {known for known in found if objects[known].objtype != "module"} or {*found}
            if distinct and tail.count(".") + 1 >= least and (tail == tails[0] or name[0] != "."):
                name = min(distinct, key=lambda known: (known.count("."), known))
                break
        else:
            return None
    return objects[name].docname, objects[name].node_id


def _link_literals(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if app.builder.format != "html":
        return
    commands = app.env.domains.standard_domain.anonlabels
    for literal in list(doctree.findall(nodes.literal)):
        parent = literal.parent
        if isinstance(parent, nodes.reference | nodes.title | addnodes.download_reference):
            continue
        text, found = literal.astext(), None
        if command := _COMMAND.fullmatch(text):
            label = commands.get(f"command-{command['command']}")
            found = label and label[:2]
        elif (named := _NAME.fullmatch(text)) and "." in named["name"].strip("."):
            found = find_object(app.env, named["name"])
        if found:
            link = make_refnode(app.builder, docname, *found, literal.deepcopy())
            parent.replace(literal, link)


def _missing(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, shown: nodes.TextElement
) -> nodes.reference | None:
    """What a docstring or a type names by the module in which it is defined."""
    if node["reftype"] == "myst" or not str(node["reftarget"]).startswith("rover."):
        return None
    found = find_object(env, node["reftarget"])
    return found and make_refnode(app.builder, node["refdoc"], *found, shown)


def _to_pages(app: Sphinx, docname: str, source: list[str]) -> None:
    """Links out of docs/ lead to the pages that are made of those files."""
    text = re.sub(r"\]\((?:\.\./)+examples/gallery/(\w+)\.py\)", r"](/gallery/\1.rst)", source[0])
    text = re.sub(r"\]\((?:\.\./)+examples/gallery\)", "](/gallery/index.rst)", text)
    text = re.sub(r"\]\(results\)", "](results.md)", text)
    source[0] = re.sub(r"\]\((?:\.\./)+(CHANGELOG|CONTRIBUTING)\.md", r"](/project/\1.md", text)


_COMMANDS = re.compile(r'(<div class="highlight-bash.*?<pre>)(.*?)(</pre>)', re.S)
_FLAG = re.compile(r"(?<=[\s>])--?[a-z][\w-]*")


def _separate_commands(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Make an element of each line of commands, set in where it is wrapped, with whole flags."""

    def lines(block: re.Match[str]) -> str:
        text = _FLAG.sub(r'<span class="flag">\g<0></span>', block[2])
        spans = (f'<span class="line">{line}</span>' for line in text.splitlines(keepends=True))
        return block[1] + "".join(spans) + block[3]

    if "body" in context:
        context["body"] = _COMMANDS.sub(lines, context["body"])


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the events."""
    app.connect("source-read", _to_pages)
    app.connect("doctree-resolved", _link_literals)
    app.connect("missing-reference", _missing)
    app.connect("html-page-context", _separate_commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
