"""What a newcomer asks is answered within two clicks, and messages that pages explain exist."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "extensions"))

QUESTIONS = {
    "what does J/J* mean": "smallest that any policy has",
    "when not": "dense reward that shows the way",
    "how long do 100,000 steps take": "| 100,000",
    "GPU": "runs on one CPU core",
    "cluster": "--executor slurm",
    "cite": "@article",
    "where is the data": "Nothing is downloaded",
    "my spaces": "| `MultiDiscrete([3, 4])` |",
    "worse than random": "Why is the policy worse than random actions?",
    "resume": "rover resume",
    "SB3": "rover_policy(",
    "a figure for a paper": "How do I make a figure for a paper?",
}


def linked(page: Path) -> set[Path]:
    """Pages that a page links to, or lists in its navigation."""
    text = page.read_text("utf-8")
    links = re.findall(r"\]\(([\w./-]+\.md)", text)
    for tree in re.findall(r"```\{toctree\}(.*?)```", text, flags=re.S):
        links += [f"{line}.md" for line in tree.split() if re.fullmatch(r"[\w/]+", line)]
    return {path for link in links if (path := (page.parent / link).resolve()).is_file()}


def test_twelve_questions_are_answered_within_two_clicks():
    home = DOCS / "index.md"
    near = linked(home)
    pages = {home, *near, *(page for one in near for page in linked(one))}
    texts = " ".join(" ".join(page.read_text("utf-8").split()) for page in pages)
    assert len(QUESTIONS) == 12
    for question, answer in QUESTIONS.items():
        assert answer in texts, question


def test_the_navigation_is_short():
    trees = re.findall(
        r"```\{toctree\}(.*?)```", (DOCS / "index.md").read_text("utf-8"), flags=re.S
    )
    entries = [line for tree in trees for line in tree.split("\n") if re.fullmatch(r"[\w/]+", line)]
    assert len(entries) <= 30


def messages() -> list[str]:
    """All strings of the sources, with … for what is filled in."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


ROWS = re.findall(r"^\| `([^`]+)` \|", (DOCS / "faq.md").read_text("utf-8"), flags=re.M)
SAID = messages()


@pytest.mark.parametrize("message", ROWS)
def test_every_message_that_is_explained_exists(message):
    assert any(message in one for one in SAID)


def test_the_table_of_spaces_is_that_of_the_code():
    from spaces_table import PAGE, table

    assert PAGE.read_text("utf-8") == table()
