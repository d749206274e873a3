"""Advice for an extra that is not installed."""

import importlib
import sys

import pytest

from rover.errors import ConfigurationError
from rover.integrations import minari


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("minari", "minari", lambda: minari.load_minari("maze-v0")),
        (
            "stable_baselines3.common.base_class",
            "sb3",
            lambda: importlib.import_module("rover.integrations.sb3"),
        ),
    ],
)
def test_an_extra_that_is_not_installed_is_named(package, extra, call, monkeypatch):
    monkeypatch.delitem(sys.modules, "rover.integrations.sb3", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf'pip install "\.\[{extra}\]"'):
        call()
