"""The gallery has enough examples, and each is short and draws something; `make docs` runs them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples" / "gallery").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_draws(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") < 60
    name, line, blank, *_ = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    assert line == "=" * len(name)
    assert not blank
    assert text.endswith("plt.show()\n")


def test_every_example_has_a_committed_picture_with_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise: an entry in gallery_pictures.toml, `make docs`, and run gallery_pictures.py."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(ROOT / "docs" / "extensions")
    from gallery_pictures import COMMITTED, PICTURES

    names = {path.stem for path in EXAMPLES}
    assert names == set(PICTURES) == {path.stem for path in COMMITTED.glob("*.png")}
    assert all(len(picture.shows.split()) > 5 for picture in PICTURES.values())
