"""Each tutorial as a notebook: its text and its code blocks as cells.

    python docs/extensions/notebook.py

writes examples/NAME.ipynb from docs/NAME.md, so that nothing is written twice.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

ROOT = Path(__file__).parents[2]
TUTORIALS = ("first_result", "five_lines", "solving", "transfer", "compare")


def page_of(name: str) -> Path:
    """Markdown of a tutorial."""
    return ROOT / "docs" / f"{name}.md"


def file_of(name: str) -> Path:
    """Notebook of a tutorial."""
    return ROOT / "examples" / f"{name}.ipynb"


def notebook_of(page: str) -> nbformat.NotebookNode:
    """The cells of a page: Python as it is, commands after a `!`, everything else as text."""
    cells = []
    parts = re.split(
        r"^```(\w+)\n(.*?)^```\n", re.sub(r"<!--.*?-->\n*", "", page), flags=re.M | re.S
    )
    for text, language, code in zip(
        parts[::3], [*parts[1::3], ""], [*parts[2::3], ""], strict=True
    ):
        if text.strip():
            links = re.sub(r"\]\((?!https?:|\.\./|#)", "](../docs/", text.strip())
            cells.append(new_markdown_cell(links))
        if language == "python":
            cells.append(new_code_cell(code.rstrip()))
        elif language == "bash":
            cells.append(new_code_cell("\n".join(f"!{line}" for line in code.splitlines())))
        elif language:
            cells.append(new_markdown_cell(f"```{language}\n{code}```"))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # the same notebook every time
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


if __name__ == "__main__":
    for tutorial in TUTORIALS:
        nbformat.write(notebook_of(page_of(tutorial).read_text("utf-8")), file_of(tutorial))
