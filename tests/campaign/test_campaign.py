"""A few attempts of each kind: they follow from the seed, and have to find nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .misuse import MISUSES
from .runs import RUNS

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]


# Every way to observe and every way to learn, agents with networks of their own, and the paper's
# preset.
_KILLED = (
    "pretrain rover, state",
    "pretrain rover, onehot",
    "pretrain rover:paper, onehot",
    "pretrain rover, pixels",
    "pretrain rover, vector",
    "pretrain rnd, pixels",
    "pretrain mepol, vector",
    "finetune ddpg policy of rnd, onehot",
    "offline cql on rover, state",
    "adapt rover, state",
)
_KILLS = tuple(str([run.name for run in RUNS].index(name)) for name in _KILLED)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are bounded as Linux does it")
@pytest.mark.parametrize(
    ("kinds", "limits"),
    [
        ("kills", ("--numbers", *_KILLS)),
        ("misuse", ("--numbers", *map(str, range(len(MISUSES))))),
        ("files,commands", ("--seconds", "0", "--least", "3")),
    ],
)
def test_a_short_campaign_finds_nothing(kinds: str, limits: tuple[str, ...]) -> None:
    words = ["-m", "tests.campaign", "--kinds", kinds, *limits, "--seed", "0"]
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    for kind in kinds.split(","):
        assert f"\n{kind}: " in f"\n{ended.stdout}"
    assert "findings: 0" in ended.stdout
