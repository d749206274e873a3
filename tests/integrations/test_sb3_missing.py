"""Without the extra, a message says which one to install."""

from __future__ import annotations

import importlib
import sys

import pytest

from rover.errors import ConfigurationError


def test_stable_baselines3_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("rover.integrations.sb3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    with pytest.raises(ConfigurationError, match=r'pip install "rover-rl\[sb3\]"'):
        importlib.import_module("rover.integrations.sb3")
