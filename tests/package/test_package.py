"""What a release says of itself, what it packs, the language of docstrings, scripts beside it."""

import ast
import io
import re
import runpy
import shutil
import subprocess
import sys
import tokenize
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


def test_the_long_description_links_nothing_that_is_not_packaged():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    text = (ROOT / project["readme"]).read_text("utf-8")
    assert not re.findall(r"\]\((?!https://)", text)


def test_the_files_that_the_readme_links_are_there():
    text = (ROOT / "README.md").read_text("utf-8")
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
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


SOURCES = ROOT / "src"
CLAUSES = frozenset({"What", "Whether", "Where", "How", "Of", "That", "When", "Which"})


def test_docstrings_begin_with_a_noun_or_an_imperative_verb():
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            # bare strings: docstrings, and those below constants
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                first = re.match(r"\s*(\w+)", str(node.value.value))
                if first and first[1] in CLAUSES:
                    wrong.append(f"{path.relative_to(SOURCES)}:{node.lineno}: {first[1]} …")
    assert not wrong, "\n".join(wrong)


# A relative clause in place of a noun, and words for people said of programs.
PHRASES = re.compile(
    r"\b(that of|those of|of which|(?:is|are|was|were) told|what moves|says? nothing|handed over"
    r"|at (?:first|their first) sight|rehears(?:e|es|ed|al|als|ing))\b"
)


def test_docstrings_comments_and_messages_are_plain():
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text("utf-8")
        parts = [
            (token.start[0], token.string)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT
        ]
        parts += [
            (node.lineno, " ".join(node.value.split()))
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        wrong += [
            f"{path.relative_to(SOURCES)}:{line}: {found[0]}"
            for line, part in parts
            for found in PHRASES.finditer(part)
        ]
    assert not wrong, "\n".join(wrong)


GENERATED = {"api", "agents", "gallery", "project"}  # folders of docs/ that `make docs` writes
WRITTEN = sorted(
    path
    for pattern in (
        "*.md",
        "docs/**/*.md",
        "docs/**/*.toml",
        "examples/**/*.py",
        "experiments/*.toml",
        "src/**/studies/**/*.toml",
    )
    for path in ROOT.glob(pattern)
    if not GENERATED & {*path.relative_to(ROOT).parts[1:-1]} or path.suffix != ".md"
)


def test_documents_are_plain():
    """Search pages, examples and studies, except the names in code, such as former ones."""
    wrong = []
    for path in WRITTEN:
        text = path.read_text("utf-8")
        if path.suffix == ".md":
            text = re.sub(r"^```.*?^```|`[^`\n]+`", "", text, flags=re.M | re.S)
        words = re.sub(r"(?:\\\n|\n#|\s)+", " ", text).lower()
        wrong += [
            f"{path.relative_to(ROOT)}: …{words[found.start() - 40 : found.end() + 20]}…"
            for found in PHRASES.finditer(words)
        ]
    assert not wrong, "\n".join(wrong)


# Each of these ideas has one name, the field's (CHANGELOG, "Renamed").
FORMER_WORDS = frozenset(
    (
        "rehearse",
        "rehearsed",
        "rehearsal",
        "ending",
        "endings",
        "evidence",
        "foresight",
        "way",
        "ways",
        "price",
        "prices",
        "priced",
        "law",
        "laws",
    )
)


def test_public_names_are_the_fields_words():
    wrong = []
    for path in sorted(SOURCES.rglob("*.py")):
        names = [path.stem] + [
            node.name
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_")
        ]
        for name in names:
            words = {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+", name)}
            if words & FORMER_WORDS:
                wrong.append(f"{path.relative_to(SOURCES)}: {name}")
    assert not wrong, "\n".join(wrong)


SCRIPTS = [
    path
    for folder in ("benchmarks", "experiments")
    for path in sorted((ROOT / folder).glob("*.py"))
    if path.stem != "arena_envs"  # registers environments; other tests use them
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_can_be_imported(script, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(script.parent), str(ROOT), *sys.path])
    runpy.run_path(str(script), run_name="read_by_a_test")


def test_the_lazy_names_of_the_package():
    assert set(rover.__all__) <= set(dir(rover))
    with pytest.raises(AttributeError, match=r"module 'rover' has no attribute 'Peer'"):
        _ = rover.Peer
