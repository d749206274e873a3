"""The language of docstrings: each begins with a noun or an imperative verb."""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "src"
CLAUSES = frozenset({"What", "Whether", "Where", "How", "Of", "That", "When", "Which"})


def test_docstrings_begin_with_a_noun_or_an_imperative_verb() -> None:
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            # bare strings: docstrings, and those below constants
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                first = re.match(r"\s*(\w+)", str(node.value.value))
                if first and first[1] in CLAUSES:
                    wrong.append(f"{path.relative_to(SOURCES)}:{node.lineno}: {first[1]} …")
    assert not wrong, "\n".join(wrong)
