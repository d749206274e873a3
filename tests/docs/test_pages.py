"""Every code block of the README and of the documentation runs as it stands, fine-tuning shorter.

The Python blocks of a page share one namespace; commands run in the page's own empty folder, those
of `rover` without a process of their own. A block that cannot run is marked by a comment that no
reader sees, `<!-- skip: next "reason" -->`, with one of the reasons below.
"""

import glob
import io
import re
import runpy
import shlex
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import SkipTest

import matplotlib.pyplot as plt
import pytest
from sybil import Example
from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser

from rover.cli import main
from rover.errors import RoverWarning
from rover.training.agent import AGENTS

ROOT = Path(__file__).parents[2]
REASONS = {
    "it installs packages",
    "it takes minutes",
    "it takes hours",
    "it needs a cluster",
    "it needs a GPU",
    "its environment is the reader's own",
    "it is a part of a file, shown to explain it",
}
GENERATED = {"api", "gallery"}
"""Folders of docs/ that `make docs` writes."""
SHORTER = {
    r"\b1[12]00\b": "200",
    r"\.learn\(1500\)": ".learn(500)",
    r"env\)\.learn\(2048\)": "env, n_steps=64).learn(64)",
}
PAGES = [ROOT / "README.md"] + [
    page
    for page in sorted((ROOT / "docs").rglob("*.md"))
    if page.relative_to(ROOT / "docs").parts[0] not in GENERATED
]


def run_commands(example: Example) -> None:
    """Run the lines of a block: `rover …` here, all others in a shell."""
    shell: list[str] = []

    def run_shell() -> None:
        if shell:
            subprocess.run(["bash", "-euc", "\n".join(shell)], check=True, cwd=".")
            shell.clear()

    for line in str(example.parsed).replace("\\\n", " ").splitlines():
        if not line.startswith("rover "):
            shell.append(line)
            continue
        run_shell()
        words: list[str] = []
        for word in shlex.split(line, comments=True)[1:]:
            words += sorted(glob.glob(word)) if "*" in word else [word]
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(words)
        assert code == 0, f"{line}\n{err.getvalue()}"
    run_shell()


PARSERS = [
    SkipParser(),
    PythonCodeBlockParser(),
    *(CodeBlockParser(language, run_commands) for language in ("bash", "console", "sh")),
]


def blocks_of(page: Path, folder: Path) -> Iterator[Example]:
    """The blocks of a page; fine-tuning makes fewer steps than a reader's."""
    text = page.read_text("utf-8")
    for written, shorter in SHORTER.items():
        text = re.sub(written, shorter, text)
    copy = folder / page.name
    copy.write_text(text, "utf-8")
    return Document.parse(str(copy), *PARSERS).examples()


def evaluate(example: Example) -> str | None:
    """Run a block; the reason why not if it is skipped."""
    try:
        example.evaluate()
    except SkipTest as skipped:
        return str(skipped)
    return None


WITH_BLOCKS = [page for page in PAGES if "```" in page.read_text("utf-8")]


@pytest.fixture
def no_agents_left():
    """Forget the agents that a page defines, which later tests must not find."""
    yield
    for name, agent in [*AGENTS.items()]:
        if not agent.__module__.startswith("rover."):
            del AGENTS[name]


@pytest.mark.slow
@pytest.mark.usefixtures("no_agents_left")
@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    (tmp_path / "reader").mkdir()
    monkeypatch.chdir(tmp_path / "reader")
    monkeypatch.setenv("MPLBACKEND", "agg")
    for example in blocks_of(page, tmp_path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RoverWarning)
            reason = evaluate(example)
            assert reason is None or reason in REASONS, f"{page.name}: {reason}"
    plt.close("all")


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_block_of_a_page_is_of_an_unknown_kind(page):
    """None is left out by its name: text is shown only, a toctree lists pages."""
    opened = [line for line in page.read_text("utf-8").splitlines() if line.startswith("```")]
    assert len(opened) % 2 == 0
    kinds = {line.removeprefix("```").split(" ")[0] for line in opened[::2]}
    assert kinds <= {"python", "bash", "text", "bibtex", "{toctree}", "{include}"}


def test_a_newcomer_types_few_lines_and_needs_no_gpu():
    newcomer = runpy.run_path(str(ROOT / ".ci" / "newcomer.py"))
    assert newcomer["typed_lines"]() <= newcomer["MOST_LINES"]
    codes = [code for page in newcomer["PAGES"] for _, code in newcomer["blocks"](page)]
    assert not any("cuda" in code for code in codes)
