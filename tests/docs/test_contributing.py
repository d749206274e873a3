"""The checklist of CONTRIBUTING.md against the registries: every member is in its row's files."""

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from rover.baselines import agent_class, agent_names
from rover.baselines.shared.bonus import BonusAgent
from rover.cli.program import command_modules
from rover.coverage.config import RoverConfig
from rover.envs import LAYOUT_FAMILIES
from rover.features.config import EncoderKind
from rover_bench import EXECUTORS

ROOT = Path(__file__).resolve().parents[2]


def choices(setting: str) -> set[str]:
    """Names that a setting of ROVER takes, but for an object of one's own."""
    literal, _ = get_args(RoverConfig.model_fields[setting].annotation)
    return {*get_args(literal)} - {"custom"}


def stems(pattern: str) -> set[str]:
    return {path.stem for path in ROOT.glob(pattern)}


def tables(file: str) -> set[str]:
    return {*tomllib.loads((ROOT / file).read_text(encoding="utf-8"))}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
AGENTS = {*agent_names()} - {"rover"}
MEMBERS = {
    "baseline": AGENTS,
    "intrinsic reward": {name for name in AGENTS if issubclass(agent_class(name), BonusAgent)},
    "map": set(LAYOUT_FAMILIES),
    "kernel": choices("kernel"),
    "encoder": set(get_args(EncoderKind)),
    "representation": choices("representation"),
    "learning curve": tables("src/rover/plots/panels.toml"),
    "command": {*command_modules()},
    "integration": stems("src/rover/integrations/[a-z]*"),
    "extra": {*PROJECT["optional-dependencies"]} - {"dev"},
    "executor": {*EXECUTORS},
    "study": stems("experiments/*.toml"),
    "gallery example": stems("examples/gallery/*.py"),
    "deviation": stems("docs/design/[0-9]*.md"),
}
ROWS = {
    kind: [re.findall(r"`([^`]+)`", cell) for cell in cells]
    for kind, *cells in re.findall(
        r"^\| ([\w -]+) \| (`.*`) \| (`.*`) \|$",
        (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
        re.M,
    )
}


def names(path: Path, member: str) -> bool:
    """Search a file for a name as a word; in Markdown, in code, links and first cells."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"```.*?```|`[^`]+`|\(.*?\)|^\| [^|]+ \|", text, re.S | re.M))
    text, member = (words.lower().replace("-", "") for words in (text, member))
    return re.search(rf"(?<!\w){re.escape(member)}(?!\w)", text) is not None


def test_every_registry_has_a_row_and_every_row_a_registry():
    assert [*ROWS] == [*MEMBERS]


@pytest.mark.parametrize("kind", MEMBERS)
def test_every_member_is_where_its_row_says(kind):
    files, tests = ROWS[kind]
    assert MEMBERS[kind]
    assert all((ROOT / folder).exists() for folder in tests)
    missing = []
    for file in files:
        for member in MEMBERS[kind]:
            found = [*ROOT.glob(file.replace("NAME", member))]
            if not found or ("NAME" not in file and not any(names(p, member) for p in found)):
                missing.append((file, member))
    assert missing == []
