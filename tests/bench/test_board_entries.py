"""Kept entries: as they were written, of the suite as it is, and what the page shows."""

from pathlib import Path

from rover_bench.board import Entry
from rover_bench.board_page import board_page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_shows_the_entries_that_are_kept():
    entries = [Entry.read(path) for path in sorted((DOCS / "results" / "board").glob("*.json"))]
    small = [entry for entry in entries if entry.scale == "small"]
    assert {"rover", "random"} <= {entry.agent for entry in small}
    assert board_page(small, "pictures/board-small.png") in (DOCS / "board.md").read_text("utf-8")
