"""The reference has every public name and every setting, and each says something."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

EXTENSIONS = Path(__file__).parents[2] / "docs" / "extensions"
sys.path.insert(0, str(EXTENSIONS))

from reference import (  # noqa: E402
    agent_page,
    command_page,
    configurations,
    explanation,
    public_names,
    settings_page,
)

from rover.cli.program import command_modules  # noqa: E402
from rover.cli.values import setting_rows  # noqa: E402

NAMES = public_names()


@pytest.mark.parametrize("module", NAMES)
def test_every_public_name_says_something(module: str) -> None:
    assert inspect.getdoc(importlib.import_module(module))
    for name in NAMES[module]:
        first = explanation(module, name).partition("\n\n")[0]
        assert len(first.split()) >= 3, f"{module}.{name} has no sentence of its own"


def test_every_setting_has_an_effect_and_is_listed() -> None:
    page = settings_page()
    for _, words, presets in configurations():
        assert f"``{words}``" in page
        for name, kind, values, effect in setting_rows(presets):
            assert f"``{name}``" in page
            assert kind, name
            assert effect, name
            assert {*values} == {*presets}


def test_every_command_and_agent_has_its_page() -> None:
    from rover.baselines import agent_class, agent_names

    page = command_page()
    assert {*re.findall(r"^usage: rover ([a-z]+)", page.replace("   usage", "usage"), re.M)} >= {
        *command_modules()
    }
    own = [name for name in agent_names() if agent_class(name).__module__.startswith("rover.")]
    for name in own:  # and not those that other tests have added
        assert f"--agent {name}" in agent_page(name, EXTENSIONS.parent)
