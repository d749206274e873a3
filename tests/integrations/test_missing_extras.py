"""What is said where an extra is not installed."""

import importlib
import sys

import pytest

from rover.errors import ConfigurationError
from rover.integrations.minari import export_minari, load_minari


def test_without_minari_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    for call in (lambda: export_minari("run", "maze-v0"), lambda: load_minari("maze-v0")):
        with pytest.raises(ConfigurationError, match=r'pip install "\.\[minari\]"'):
            call()


def test_without_stable_baselines3_the_extra_is_named(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rover.integrations.sb3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ConfigurationError, match=r'pip install "\.\[sb3\]"'):
        importlib.import_module("rover.integrations.sb3")
