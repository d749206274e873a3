"""Links to the repository follow from one address, and there are none without it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("furo")

EXTENSIONS = Path(__file__).parents[2] / "docs" / "extensions"
ADDRESS = "https://github.com/owner/name"


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_pages_link_to_their_source_if_there_is_an_address(address, tmp_path):
    pages, site = tmp_path / "docs", tmp_path / "site"
    (pages / "api").mkdir(parents=True)
    (pages / "index.rst").write_text("Home\n====\n\n.. toctree::\n\n   api/one\n")
    (pages / "api" / "one.rst").write_text("Generated\n=========\n")
    (pages / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXTENSIONS)!r})\n"
        "extensions = ['repository']\nhtml_theme = 'furo'\n"
    )
    words = [sys.executable, "-m", "sphinx", "-q", "-D", f"repository={address}"]
    subprocess.run([*words, str(pages), str(site)], check=True)
    home, generated = ((site / name).read_text() for name in ("index.html", "api/one.html"))
    assert (f'href="{ADDRESS}"' in home) == bool(address)
    assert (f"{ADDRESS}/edit/main/docs/index.rst" in home) == bool(address)
    assert "/edit/main/" not in generated
