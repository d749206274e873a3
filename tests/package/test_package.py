"""What a release says of itself, what it packs, and scripts beside it."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import rover

ROOT = Path(__file__).parents[2]


def test_version_changelog_and_citation_agree():
    headings = re.findall(r"^## (\S+) — (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    cited = dict(re.findall(r"^(version|date-released): \"?([^\"\n]+)\"?$", citation, re.M))
    assert headings[0] == (cited["version"], cited["date-released"])
    assert cited["version"] == rover.__version__
    versions = [tuple(map(int, version.split("."))) for version, _ in headings]
    assert versions == sorted(versions, reverse=True)


def test_links_of_the_readme_lead_somewhere_and_the_long_description_has_none_to_files():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text("utf-8")
    assert not re.findall(r"\]\((?!https://)", text)
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert [path for path in linked if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_the_packages_pass_their_check(tmp_path):
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    pytest.importorskip("twine")
    run = [sys.executable, "-m"]
    make = [*run, "build", "--no-isolation", "--outdir", tmp_path, ROOT]
    subprocess.run(make, check=True, capture_output=True)
    made = sorted(tmp_path.iterdir())
    assert [path.suffix for path in made] == [".whl", ".gz"]
    checked = subprocess.run([*run, "twine", "check", "--strict", *made], capture_output=True)
    assert checked.returncode == 0, checked.stdout.decode()


@pytest.mark.slow
def test_the_image_gets_all_that_its_install_needs(tmp_path):
    """What the Dockerfile copies, past what .dockerignore leaves out, makes a wheel."""
    pytest.importorskip("build")
    pytest.importorskip("hatchling")
    lines = (ROOT / "Dockerfile").read_text("utf-8").splitlines()
    copied = [words.split()[1:] for words in lines if words.startswith("COPY")]
    let_in = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    for *sources, target in copied:
        for source in sources:
            assert f"!{source}" in let_in
            place = tmp_path / (Path(source).name if target == "./" else target)
            place.parent.mkdir(exist_ok=True)
            copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
            copy(ROOT / source, place)
    made = [sys.executable, "-m", "build", "--wheel", "--no-isolation", str(tmp_path)]
    subprocess.run(made, check=True, capture_output=True)
    assert len([*(tmp_path / "dist").glob("*.whl")]) == 1


def test_the_lazy_names_of_the_package():
    assert set(rover.__all__) <= set(dir(rover))
    with pytest.raises(AttributeError, match=r"module 'rover' has no attribute 'Peer'"):
        _ = rover.Peer
