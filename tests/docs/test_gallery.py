"""The gallery has enough examples, and each is short and draws something; `make docs` runs them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "gallery").glob("*.py"))


def test_there_are_enough_examples() -> None:
    assert len(EXAMPLES) >= 12


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_draws(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") < 60
    name, line, blank, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert line == "=" * len(name)
    assert not blank
    assert text.endswith("plt.show()\n")
