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


def trees(page: Path) -> dict[str, list[str]]:
    """Entries of the navigation that a page lists, by the caption of each tree."""
    found = re.findall(r"```\{toctree\}(.*?)```", page.read_text("utf-8"), flags=re.S)
    captions = [re.search(r":caption: (.*)", tree) for tree in found]
    return {
        caption[1] if caption else "": re.findall(r"^[\w/]+$", tree, flags=re.M)
        for caption, tree in zip(captions, found, strict=True)
    }


def test_the_navigation_is_short():
    assert sum(map(len, trees(DOCS / "index.md").values())) <= 30


def words(page: Path) -> int:
    """Number of words, without code, formulas and what is not shown."""
    text = re.sub(r"```.*?```|<!--.*?-->|\$\$.*?\$\$", "", page.read_text("utf-8"), flags=re.S)
    return len(text.split())


def guides() -> set[Path]:
    """Tutorials, how-to guides and explanations, with the pages below them."""
    parts = trees(DOCS / "index.md")
    found = [DOCS / f"{name}.md" for part in PARTS for name in parts[part]]
    found = [page for page in found if page.exists()]  # the gallery is made of scripts
    below = [page.parent / f"{n}.md" for page in found for n in trees(page).get("", [])]
    return {*found, *below}


PARTS = ("Tutorials", "How-to", "Explanation")
TABLES = {"results/leaderboard.md", "results/arenas/arenas.md", "results/model.md"}
"""Tables of runs without a file of their origin beside them."""


def is_generated(page: Path) -> bool:
    """Whether a page is written by a study or a benchmark, or by `make docs`."""
    name = page.relative_to(DOCS)
    provenance = (page.with_name(f"{page.stem}-provenance.json"), page.parent / "provenance.json")
    folders = {"api", "agents", "gallery", "project"}
    return (
        any(path.exists() for path in provenance) or str(name) in TABLES or name.parts[0] in folders
    )


def test_pages_are_short():
    pages = [page for page in DOCS.rglob("*.md") if not is_generated(page)]
    long = {str(page.relative_to(ROOT)): words(page) for page in [*pages, ROOT / "README.md"]}
    assert {name: count for name, count in long.items() if count > 900} == {}


def test_guides_are_short():
    counts = {page.name: words(page) for page in guides()}
    assert {name: count for name, count in counts.items() if count > 600} == {}
    assert sum(counts.values()) <= 14_000


def test_guides_have_no_formulas():
    with_formulas = {page.stem for page in guides() if "$$" in page.read_text("utf-8")}
    assert with_formulas <= {"primer"}


def test_every_figure_has_an_alternative_text():
    """Of at least four words, since a name describes nothing."""
    pages = [ROOT / "README.md", *DOCS.rglob("*.md")]
    texts = {
        (page.name, text)
        for page in pages
        for text in re.findall(r"!\[([^]]*)\]", page.read_text("utf-8"))
    }
    assert texts
    assert {(name, text) for name, text in texts if len(text.split()) < 4} == set()


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


ROWS = re.findall(r"^\| `([^`]+)` \|", (DOCS / "messages.md").read_text("utf-8"), flags=re.M)
SAID = messages()


@pytest.mark.parametrize("message", ROWS)
def test_every_message_that_is_explained_exists(message):
    assert any(message in one for one in SAID)


def test_the_table_of_spaces_is_that_of_the_code():
    from spaces_table import PAGE, table

    assert PAGE.read_text("utf-8") == table()
