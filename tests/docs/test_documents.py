"""Guides are short, tables can be read, and every decision has a note."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = (
    "arenas",
    "baselines",
    "changing_worlds",
    "deviations",
    "reproduction",
    "solving",
    "transfer",
    "transition_model",
)
WRITTEN = [
    page
    for page in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    if not {"api", "agents", "gallery", "project"} & set(page.relative_to(DOCS.parent).parts)
]
NOTES = sorted(page for page in (DOCS / "design").glob("*.md") if page.stem != "index")


def shown(text: str) -> str:
    """The text that a reader sees: without code blocks, comments and addresses of links."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
    return re.sub(r"\]\([^)]*\)", "]", text)


@pytest.mark.parametrize("name", GUIDES)
def test_a_guide_is_short_and_names_no_seed(name: str) -> None:
    text = shown((DOCS / f"{name}.md").read_text("utf-8"))
    assert len(re.findall(r"[^\W_]\S*", text)) <= 600
    assert not re.search(r"seeds?\s+\d", text)


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_no_cell_of_a_table_has_more_than_25_words(page: Path) -> None:
    rows = [line for line in shown(page.read_text("utf-8")).splitlines() if line.startswith("|")]
    cells = [cell for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell.split()) > 25] == []


@pytest.mark.parametrize("page", NOTES, ids=lambda page: page.stem)
def test_a_note_has_context_decision_and_measurement(page: Path) -> None:
    if page.stem == "published-configurations":
        pytest.skip("a list of what presets cannot say")
    headings = re.findall(r"^## (.*)", page.read_text("utf-8"), flags=re.M)
    assert headings == ["Context", "Decision", "Measurement"]


def test_every_deviation_has_a_number_and_a_note() -> None:
    index = (DOCS / "deviations.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.*\]\(design/((\d\d)-[\w-]+\.md)\) \|$", index, flags=re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    assert all(int(number) == int(prefix) for number, _, prefix in rows)
    assert {name for _, name, _ in rows} == {note.name for note in NOTES if note.stem[:2].isdigit()}
