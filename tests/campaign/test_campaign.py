"""Half a minute of the campaign: it follows from the seed, and has to find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]


def _campaign(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "campaign", *words],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as Linux does it")
def test_a_short_campaign_finds_nothing() -> None:
    ended = _campaign("--seconds", "25", "--least", "2", "--seed", "0")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for kind in ("kills", "files", "commands", "maps", "misuse"):
        assert f"\n{kind}: " in f"\n{ended.stdout}"
    assert "findings: 0" in ended.stdout
