"""A few attempts of each kind: they follow from the seed, and have to find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as Linux does it")
def test_a_short_campaign_finds_nothing() -> None:
    words = ["-m", "tests.campaign", "--seconds", "0", "--least", "3", "--seed", "0"]
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for kind in ("kills", "files", "commands", "maps", "misuse", "studies", "sweeps"):
        assert f"\n{kind}: " in f"\n{ended.stdout}"
    assert "findings: 0" in ended.stdout
