"""The language of docstrings: each begins with a noun or an imperative verb."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"
CLAUSES = frozenset({"What", "Whether", "Where", "How", "Of", "That", "When", "Which"})


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and text of each bare string of a module: docstrings, and those below constants."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            text = node.value.value
            if isinstance(text, str):
                yield node.lineno, text


def clauses(folder: Path) -> list[str]:
    """Docstrings in `folder` that begin with a clause, as FILE:LINE and their first line."""
    return [
        f"{path.relative_to(folder)}:{line}: {text.split(chr(10))[0]}"
        for path in sorted(folder.rglob("*.py"))
        for line, text in docstrings(ast.parse(path.read_text("utf-8")))
        if (first := re.match(r"\s*(\w+)", text)) and first[1] in CLAUSES
    ]


def test_docstrings_begin_with_a_noun_or_an_imperative_verb() -> None:
    wrong = clauses(SOURCES)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "source",
    [
        '"""How a module looks."""',
        'class Map:\n    """What is drawn."""',
        'def count():\n    """Of states, their number."""',
        'LIMIT = 3\n"""Which, of many, is the most."""',
    ],
)
def test_the_check_sees_every_kind_of_docstring(tmp_path: Path, source: str) -> None:
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "b.py").write_text('"""Ofter than that, the word is another."""\n')
    (line,) = clauses(tmp_path)
    assert line.startswith("a.py:")
