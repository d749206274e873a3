"""The page of a study as one HTML file: no network, no script, no other file is needed."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from markdown_it import MarkdownIt

from rover.baselines import preset_of
from rover.errors import ArtefactError
from rover.storage import flatten, read_json, replace_file
from rover.storage.files import read_file
from rover.sweeps.files import read_report
from rover.sweeps.report import MADE, NOTHING, Report, markdown_table
from rover.sweeps.scores import across_tasks
from rover.sweeps.study import SCRATCH, Study
from rover.version import __version__

_PICTURES: Final = {".png": "image/png", ".svg": "image/svg+xml"}
_NOT_SETTINGS: Final = {"title", "caption", "seeds"}
_BOXES: Final = {
    "<table>": '<div class="wide" tabindex="0"><table>',
    "</table>": "</table></div>",
    "<p><img ": '<p class="wide picture" tabindex="0"><img ',
    "&lt;br&gt;": "<br>",
}
"""Boxes of their own for what may be wider than a phone; and the line breaks of tables' cells."""

_DOCUMENT: Final = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write_html(study: Study, folder: Path) -> Path:
    """Write NAME.html beside the page of a study, from that page, its CSV files and its pictures.

    Beside what the page says it has statistics over all tasks and the configuration.

    Args:
        study: whose page it is.
        folder: of the page.

    Returns:
        The file.

    Raises:
        ArtefactError: a file is missing, or is not of this study.
        StorageError: the file cannot be written.
    """
    report, path = read_report(study, folder), folder / f"{study.name}.md"
    shown, heading, made = read_file(path).decode(errors="replace").partition(MADE)
    scores, pictures = across_tasks(report, np.random.default_rng(0))
    parts = [shown, scores, _configuration(report), heading + made]
    text = "\n\n".join([*parts, f"Written by rover {__version__}."])
    document = render(text, title=study.title, folder=folder, pictures=pictures)
    file = path.with_suffix(".html")
    replace_file(file, [document.encode()])
    return file


def study_in(folder: Path) -> Study:
    """The study whose page is in `folder`, as it was when the page was written.

    Raises:
        ArtefactError: there is none, or more than one.
        ConfigurationError: it is damaged.
    """
    files = sorted(folder.glob("*provenance.json"))
    studies = [read_json(path).get("study") for path in files]
    if len(studies) != 1 or studies[0] is None:
        found = ", ".join(path.name for path in files) or "nothing"
        raise ArtefactError(
            f"{folder} does not say of which one study it has the page (found: {found}); give the "
            f"study's file, and the folder as --out {folder}"
        )
    study = Study.make(studies[0])
    study.check()
    return study


def render(
    text: str, *, title: str, folder: Path, pictures: Mapping[str, bytes] = MappingProxyType({})
) -> str:
    """A Markdown page as one HTML document; every character of it is shown as it is.

    Args:
        text: the page. HTML in it is shown as text, but for line breaks.
        title: of the document.
        folder: where its pictures are.
        pictures: others, by name.

    Raises:
        ArtefactError: a picture that is not there, or lies elsewhere.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens, contents = reader.parse(text), []
    for number, token in enumerate(tokens):
        for image in (child for child in token.children or () if child.type == "image"):
            source = unquote(str(image.attrs["src"]))
            content = pictures.get(source) or _read_picture(folder, source)
            kind, data = _PICTURES[Path(source).suffix], base64.b64encode(content).decode()
            image.attrs["src"] = f"data:{kind};base64,{data}"
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = f"part-{number}"
            name = html.escape(tokens[number + 1].content)
            contents.append(f'<a href="#part-{number}">{name}</a>')
    body = reader.renderer.render(tokens, reader.options, {})
    for before, after in _BOXES.items():
        body = body.replace(before, after)
    first, end, rest = body.partition("</h1>\n")
    style = Path(__file__).with_name("report.css").read_text("utf-8")
    navigation = f"<nav>{''.join(contents)}</nav>\n"
    body = f"{first}{end}{navigation}{rest}"
    return _DOCUMENT.format(title=html.escape(title), style=style, body=body)


def _read_picture(folder: Path, name: str) -> bytes:
    """A picture of a page."""
    path = (folder / name).resolve()
    if path.suffix not in _PICTURES or not path.is_relative_to(folder.resolve()):
        raise ArtefactError(
            f"the page in {folder} shows {name}, which is no png or svg file in that folder; write "
            "the page anew with `rover sweep STUDY.toml --redraw`"
        )
    return read_file(path)


def _configuration(report: Report) -> str:
    """What was run, as the study says it, in Markdown."""
    cases, axes = report.cases, report.study.axes
    agents = dict.fromkeys((case.agent, case.preset) for case in cases if case.agent != SCRATCH)
    presets = dict.fromkeys(f"{agent} {preset_of(agent, preset)}" for agent, preset in agents)
    parts = ["## Configuration", f"What is not listed is as in the presets: {', '.join(presets)}."]
    parts.append(markdown_table(["every run"], ([text] for text in _settings(report.study.run))))
    for axis, options in axes.items():
        used = dict.fromkeys(case.labels[axis] for case in cases if axis in case.labels)
        lines = ([name, "<br>".join(_settings(options[name])) or NOTHING] for name in used)
        parts.append(markdown_table([axis, "settings"], lines, left=2))
    return "\n\n".join(parts)


def _settings(values: Mapping[str, Any]) -> list[str]:
    """Settings by dotted names; seeds are those of the runs, which the page names."""
    shown = {name: value for name, value in flatten(values).items() if name not in _NOT_SETTINGS}
    texts = [f"{name} = {json.dumps(shown[name], ensure_ascii=False)}" for name in shown]
    return [f"`{text}`".replace("|", "\\|") for text in texts]
