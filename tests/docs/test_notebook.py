"""The notebook of the first guide is that page, and runs."""

import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "extensions"))

from notebook import NOTEBOOK, PAGE, notebook_of  # noqa: E402


def test_the_notebook_is_the_page():
    """Otherwise: python docs/extensions/notebook.py."""
    assert nbformat.read(NOTEBOOK, as_version=4) == notebook_of(PAGE.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    book = notebook_of(PAGE.read_text("utf-8"))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=200, kernel_name="python3", resources=resources).execute()
    outputs = [out for cell in book.cells for out in cell.get("outputs", [])]
    assert "109 of 109" in "".join(out.get("text", "") for out in outputs)
    assert float(outputs[-1]["text"].strip(" []\n")) > 0.5
    assert (tmp_path / "runs" / "rooms" / "pictures").is_dir()
