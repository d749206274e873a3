"""The notebook of each tutorial is its page, and runs."""

import re
import sys
from pathlib import Path

import pytest
from test_pages import SHORTER

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "extensions"))

from notebook import TUTORIALS, file_of, notebook_of, page_of  # noqa: E402

COMMANDS_IN_THE_KERNEL = """
import glob
import shlex
from rover.cli import main

def run(line):
    name, *words = shlex.split(line, comments=True)
    found = [sorted(glob.glob(word)) if "*" in word else [word] for word in words]
    assert name == "rover" and main(sum(found, [])) == 0, line

get_ipython().system = run
"""
"""A command is a process of its own for a reader, whose imports take most of the time."""


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_notebook_is_the_page(name):
    """Otherwise: python docs/extensions/notebook.py."""
    written = notebook_of(page_of(name).read_text("utf-8"))
    assert nbformat.read(file_of(name), as_version=4) == written
    assert f"(../examples/{name}.ipynb)" in written.cells[-1].source


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("name", TUTORIALS)
def test_the_notebook_runs(name, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")
    text = page_of(name).read_text("utf-8")
    for long, short in SHORTER.items():
        text = re.sub(long, short, text)
    book = notebook_of(text)
    if name != "first_result":
        book.cells.insert(0, nbformat.v4.new_code_cell(COMMANDS_IN_THE_KERNEL))
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(book, timeout=200, kernel_name="python3", resources=resources).execute()
    if name == "first_result":
        outputs = [out for cell in book.cells for out in cell.get("outputs", [])]
        assert "109 of 109" in "".join(out.get("text", "") for out in outputs)
        assert float(outputs[-1]["text"].strip(" []\n")) > 0.5
        assert (tmp_path / "runs" / "rooms" / "pictures").is_dir()
