"""The table of CONTRIBUTING.md names the files that an addition really touches."""

import re
from pathlib import Path
from typing import get_args

import pytest

from rover.baselines import agent_names
from rover.coverage.config import RoverConfig
from rover.envs import LAYOUT_FAMILIES
from rover.features.config import EncoderKind

ROOT = Path(__file__).resolve().parents[2]


def choices(setting: str) -> set[str]:
    """Names that a setting of ROVER takes, but for an object of one's own."""
    literal, _ = get_args(RoverConfig.model_fields[setting].annotation)
    return {*get_args(literal)} - {"custom"}


def stems(pattern: str) -> set[str]:
    return {path.stem for path in ROOT.glob(pattern)}


MEMBERS = {
    "baseline": {*agent_names()} - {"rover"},
    "map": set(LAYOUT_FAMILIES),
    "kernel": choices("kernel"),
    "encoder": set(get_args(EncoderKind)),
    "representation": choices("representation"),
    "gallery example": stems("examples/gallery/*.py"),
    "deviation": stems("docs/design/[0-9]*.md"),
}
ROWS = {
    kind: re.findall(r"`([^`]+)`", files)
    for kind, files in re.findall(
        r"^\| ([\w ]+) \| (`.*`) \|$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M
    )
    if kind in MEMBERS
}


def test_every_kind_of_addition_has_a_row():
    assert set(ROWS) == set(MEMBERS)


@pytest.mark.parametrize("kind", MEMBERS)
def test_every_member_is_where_its_row_says(kind):
    assert MEMBERS[kind]
    for name in MEMBERS[kind]:
        for file in ROWS[kind]:
            path = ROOT / file.replace("NAME", name)
            assert path.is_file(), path
            if "NAME" not in file:
                assert name in path.read_text(encoding="utf-8"), (name, file)
