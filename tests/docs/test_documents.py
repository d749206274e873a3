"""Documents beside the code: deviations, the gallery, the figures of a run, and the reference."""

import importlib
import inspect
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from small_envs import make_grid

from rover.baselines import make_agent
from rover.errors import RoverWarning
from rover.storage import read_json, read_lines

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTENSIONS = DOCS / "extensions"
sys.path.insert(0, str(EXTENSIONS))
pytest.importorskip("pandas")  # the reference describes the laboratory, too

from reference import public_names  # noqa: E402

NAMES = public_names()


def test_every_deviation_has_a_number_and_a_paragraph():
    index = (DOCS / "deviations.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.*\]\(decisions/(\w+\.md)#d(\d+)\) \|$", index, flags=re.M)
    numbers = [int(number) for number, _, _ in rows]
    assert numbers == sorted(set(numbers))  # a number that was withdrawn is not given again
    assert len(numbers) > 40
    assert all(number == anchor for number, _, anchor in rows)
    pages = {page.name: page.read_text("utf-8") for page in (DOCS / "decisions").glob("*.md")}
    given = {(n, page) for page in pages for n in re.findall(r"^## D(\d+)$", pages[page], re.M)}
    assert given == {(number, page) for number, page, _ in rows}
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8").partition("\n## 0.2.0")[0]
    assert {*re.findall(r"\bD(\d+)\b", changes)} <= {*map(str, numbers)}


@pytest.mark.parametrize("known", [True, False])
def test_every_figure_of_a_run_is_explained(known, tmp_path):
    """Where states are known, and where they are not."""
    agent, env = ("rover", make_grid()) if known else ("random", "MountainCar-v0")
    settings = {"measure_share": 1000, "seed": 0, "evaluation_episodes": 2, "policy_every": 25}
    make_agent(agent, env, run_dir=tmp_path, **settings).learn(50)
    explained = set(re.findall(r"`([a-z0-9_]+)`", (DOCS / "measures.md").read_text("utf-8")))
    for line in (read_json(tmp_path / "summary.json"), *read_lines(tmp_path / "metrics.jsonl")):
        assert {*line} <= explained


@pytest.mark.parametrize("module", NAMES)
def test_every_public_class_and_function_has_a_docstring(module):
    for name in NAMES[module]:
        value = getattr(importlib.import_module(module), name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert len((inspect.getdoc(value) or "").split()) >= 3, f"{module}.{name}"


@pytest.mark.slow
def test_the_readmes_ten_lines_succeed_and_do_not_warn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", text, flags=re.S)
    names: dict[str, Any] = {}
    with warnings.catch_warnings(action="error", category=RoverWarning):
        exec(block, names)
    for result in (names["found"], names["tuned"]):
        assert result.summary["best_greedy_return"] == result.summary["best_possible_return"]
