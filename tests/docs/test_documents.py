"""Documents beside the code: deviations, the gallery, the figures of a run, and the reference."""

import importlib
import inspect
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from grid_runs import make_grid

import rover
from rover.baselines import agent_names, make_agent
from rover.cli import available
from rover.cli.settings import setting_rows
from rover.errors import RoverWarning
from rover.storage import JsonLines

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXTENSIONS = DOCS / "extensions"
sys.path.insert(0, str(EXTENSIONS))

from reference import (  # noqa: E402
    agent_page,
    command_page,
    configurations,
    explanation,
    public_names,
    settings_page,
)

NAMES = public_names()


def test_every_deviation_has_a_number_and_a_paragraph():
    index = (DOCS / "deviations.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| \[.*\]\(decisions/(\w+\.md)#d(\d+)\) \|$", index, flags=re.M)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    for number, page, anchor in rows:
        assert number == anchor
        assert f"\n## D{number}\n" in (DOCS / "decisions" / page).read_text("utf-8")


@pytest.mark.parametrize("known", [True, False])
def test_every_figure_of_a_run_is_explained(known, tmp_path):
    folder = tmp_path / "run"
    settings = {"run_dir": folder, "seed": 0, "evaluation_episodes": 2}
    if known:
        rover.Rover(make_grid(), policy_every=25, mirror_steps=5, **settings).learn(50)
    else:
        make_agent(
            "random", "MountainCar-v0", policy_every=25, measure_share=1000, **settings
        ).learn(50)
    explained = set(re.findall(r"`([a-z0-9_]+)`", (DOCS / "measures.md").read_text("utf-8")))
    summary = json.loads((folder / "summary.json").read_text())
    assert {*summary} <= explained
    for line in JsonLines.read(folder / "metrics.jsonl"):
        assert {*line} <= explained


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_says_something(module):
    assert inspect.getdoc(importlib.import_module(module))
    for name in NAMES[module]:
        first = explanation(module, name).partition("\n\n")[0]
        assert len(first.split()) >= 3, f"{module}.{name} has no sentence of its own"


def test_every_setting_has_an_effect_and_is_listed():
    page = settings_page()
    for _, words, presets in configurations():
        assert f"``{words}``" in page
        for name, kind, values, effect in setting_rows(presets):
            assert f"``{name}``" in page
            assert kind, name
            assert effect, name
            assert {*values} == {*presets}


def test_every_command_and_agent_has_its_page():
    page = command_page()
    assert {*re.findall(r"^ +Usage: rover ([a-z]+)", page, re.M)} == {*available()}
    for name in agent_names():
        assert f"--agent {name}" in agent_page(name, DOCS)


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
