"""Every decision has a note, and every deviation a number."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
NOTES = sorted(page for page in (DOCS / "design").glob("*.md") if page.stem != "index")


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
