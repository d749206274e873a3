"""The page of a study as one HTML file: no network, no script, no other file is needed."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import numpy as np
from markdown_it import MarkdownIt

from rover.baselines import preset_of
from rover.errors import ArtefactError
from rover.storage import flatten, read_json, replace_file
from rover.storage.files import read_file
from rover.sweeps.files import read_report
from rover.sweeps.load import load_study
from rover.sweeps.report import NOTHING, Report, markdown_table
from rover.sweeps.scores import across_tasks
from rover.sweeps.study import SCRATCH, Study

_PICTURES: Final = {".png": "image/png", ".svg": "image/svg+xml"}
_BOXES: Final = {
    "<table>": '<div class="wide" tabindex="0"><table>',
    "</table>": "</table></div>",
    "<p><img ": '<p class="wide picture" tabindex="0"><img ',
    "&lt;br&gt;": "<br>",
}
"""Boxes of their own for what may be wider than a phone; and the line breaks of tables' cells."""


def write_html(study: Study, folder: Path) -> Path:
    """Write NAME.html beside the page of a study, from that page, its CSV files and its pictures.

    It has what the page says, and statistics over all tasks and the configuration.

    Raises:
        ArtefactError: a file is missing, or is not of this study.
        StorageError: the file cannot be written.
    """
    report, path = read_report(study, folder), folder / f"{study.name}.md"
    shown, heading, made = read_file(path).decode(errors="replace").partition("## How it was made")
    scores, pictures = across_tasks(report, np.random.default_rng(0))
    text = "\n\n".join([shown, scores, _configuration(report), heading + made])
    file = path.with_suffix(".html")
    replace_file(file, [render(text, study.title, folder, pictures).encode()])
    return file


def study_in(folder: Path) -> Study:
    """The study whose page is in `folder`, as it was when the page was written.

    Raises:
        ArtefactError: there is none, or more than one.
    """
    files = [*folder.glob("*provenance.json")]
    study = read_json(files[0]).get("study") if len(files) == 1 else None
    if study is None:
        raise ArtefactError(
            f"{folder} does not say of which one study it has the page; give the study's file, and "
            f"--out {folder}"
        )
    return load_study(study)


def render(text: str, title: str, folder: Path, pictures: Mapping[str, bytes]) -> str:
    """A Markdown page as one HTML document; HTML in it is shown as text, but for line breaks.

    Args:
        text: the page.
        title: of the document.
        folder: where its pictures are.
        pictures: others, by name.

    Raises:
        ArtefactError: a picture that is not there, or lies elsewhere.
    """
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens, contents = reader.parse(text), ""
    for number, token in enumerate(tokens):
        for image in (child for child in token.children or () if child.type == "image"):
            path = (folder / unquote(source := str(image.attrs["src"]))).resolve()
            if path.suffix not in _PICTURES or not path.is_relative_to(folder.resolve()):
                raise ArtefactError(
                    f"the page in {folder} shows {source}, which is no png or svg file in it: "
                    "write the page anew with `rover sweep STUDY.toml --redraw`"
                )
            content = base64.b64encode(pictures.get(path.name) or read_file(path)).decode()
            image.attrs["src"] = f"data:{_PICTURES[path.suffix]};base64,{content}"
        if token.type == "heading_open" and token.tag == "h2":
            token.attrs["id"] = f"part-{number}"
            name = html.escape(tokens[number + 1].content)
            contents += f'<a href="#part-{number}">{name}</a>'
    body = reader.renderer.render(tokens, reader.options, {})
    for before, after in _BOXES.items():
        body = body.replace(before, after)
    body = body.replace("</h1>\n", f"</h1>\n<nav>{contents}</nav>\n", 1)
    document = Path(__file__).with_name("report.html").read_text("utf-8")
    return document.replace("TITLE", html.escape(title), 1).replace("BODY", body, 1)


def _configuration(report: Report) -> str:
    """What was run, as the study says it, in Markdown; seeds are with the runs."""
    agents = dict.fromkeys((c.agent, c.preset) for c in report.cases if c.agent != SCRATCH)
    presets = dict.fromkeys(f"{agent} {preset_of(agent, preset)}" for agent, preset in agents)
    lines = [["all runs", "", _settings(report.study.run)]]
    for axis, options in report.study.axes.items():
        used = dict.fromkeys(case.labels[axis] for case in report.cases if axis in case.labels)
        lines += [[axis, option, _settings(options[option])] for option in used]
    said = f"What is not listed is as in the presets: {', '.join(presets)}."
    table = markdown_table(["axis", "option", "settings"], lines, left=3)
    return "\n\n".join(["## Configuration", said, table])


def _settings(values: Mapping[str, Any]) -> str:
    """Settings by dotted names."""
    shown = {k: v for k, v in flatten(values).items() if k not in ("title", "caption", "seeds")}
    texts = (f"`{name} = {json.dumps(value, ensure_ascii=False)}`" for name, value in shown.items())
    return "<br>".join(texts).replace("|", "\\|") or NOTHING
