"""Wrong command lines, from the flags that ``--help`` lists: one line, exit code 2, no harm."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

import pytest

from .processes import ON_LINUX, Attempt, changes, check, rover
from .runs import (
    PRETRAINED,
    SHORT_ADAPT,
    SHORT_FINETUNE,
    SHORT_OFFLINE,
    SHORT_SOLVE,
    made,
    snapshot,
)

pytestmark = [pytest.mark.slow, ON_LINUX]

NUMBERS = range(12)

_TINY = ["rover/Corridor-v0", "--env", "length=5", "--steps", "20"]
_LINES = (
    ["pretrain", *_TINY, "--set", "policy_every=10", "--run-dir", "new"],
    ["pretrain", *_TINY, "--method", "rnd", "--set", "learner.batch_size=8", "--run-dir", "new"],
    ["pretrain", "FrozenLake-v1", "--env", "is_slippery=false", "--steps", "20", "--seed", "1"],
    ["resume", "RUN"],
    ["evaluate", "RUN"],
    ["plot", "RUN"],
    ["finetune", "RUN", *SHORT_FINETUNE],
    ["offline", "RUN", *SHORT_OFFLINE],
    ["adapt", "RUN", *SHORT_ADAPT],
    ["solve", "RUN", *SHORT_SOLVE],
    ["solve", "RUN", "--goals", "all", "--run-dir", "new"],
    ["export", "RUN", "some/data-v0"],
    ["compare", *_TINY, "--methods", "random", "--seeds", "1", "--jobs", "1", "--out", "new"],
    ["envs", "rover/Maze-v0", "--env", "slip=0.1"],
    ["demo", "--steps", "20", "--run-dir", "new"],
)
_NO_NUMBERS: tuple[str, ...] = ("", " ", "9" * 400, "1" * 5000, "１.５", "²", "--", "[3]", "1e400")
_NO_NUMBERS += ("abc", "-1", "-0.5", "1.5", "nan", "inf", "0x10", "1/2", "None", "1e")
_NO_PATHS = ("", "x" * 300, "new/" + "é" * 200, "/dev/null", "file.txt", "file.txt/sub", "/proc/x")
_NO_WORDS = ("", "nosuch", "x" * 300, "NONE", "ünï", "a,b", "-", "None", "0", "🙂" * 70)
_NO_PAIRS = ("", "=", "x", "=3", "nosuch=3", "x" * 300 + "=1", "a=b=c", "ünï=1", "__init__=1")
_NO_PLACES: tuple[str, ...] = (*_NO_PATHS, ".", "/", "empty", "RUN/config.json", "a:b:c", "-v0")
_NO_PLACES += (
    "rover/Maze-v99",
    "Pendulum-v1",
    "os:path",
    "🙂-v0",
    "no.such.module:Name-v0",
    "nosuch",
)
_NO_VALUES = ("", "abc", "nan", "inf", "-inf", "1e400", "-1e400", "[1,", "{}", "é")
_OTHER_FLAGS = ("--help", "--help-settings", "--traceback")
_HUGE = "1" + "0" * 18


class _Line(NamedTuple):
    """A command line: whether it must be refused, how it was made, what a suggestion must name."""

    words: list[str]
    is_wrong: bool
    way: str
    meant: str = ""


def _listed(words: Sequence[str], pattern: str, shared: Path) -> dict[str, str]:
    """What a help text lists: the two groups of a pattern, read once."""
    kept = shared / f"help-{'-'.join(words)}".replace("/", "")
    if not kept.exists():
        kept.write_text(rover(words, shared).out)
    return dict(re.findall(pattern, kept.read_text(), re.M))


def _flags(command: str, shared: Path) -> dict[str, str]:
    """The flags of a command, and what their values are: N, DIR, {a,b}, NAME=VALUE or nothing."""
    found = _listed([command, "--help"], r"^  (--[a-z][\w-]*)(?: (\S+))?", shared)
    return {flag: kind for flag, kind in found.items() if flag not in _OTHER_FLAGS}


def _settings(words: Sequence[str], shared: Path) -> list[str]:
    method = ["--method", "rnd"] if "rnd" in words else []
    chosen = [words[0], *method, "--help-settings"]
    return sorted(_listed(chosen, r"^([\w.]+) = (.*)  \[", shared))


def _misspell(word: str, rng: random.Random) -> str:
    place = rng.randrange(2 if word.startswith("--") else 0, len(word) - 1)
    ways: tuple[Callable[[], str], ...] = (
        lambda: word[:place] + word[place + 1 :],
        lambda: word[:place] + word[place + 1] + word[place] + word[place + 2 :],
        lambda: word[:place] + word[place] + word[place:],
    )
    return rng.choice(ways)()


def _wrong_value(kind: str, rng: random.Random) -> tuple[str, bool]:
    """A value that a flag of this kind does not take, and whether it must be refused."""
    if kind == "N":
        return (_HUGE, False) if rng.random() < 0.15 else (rng.choice(_NO_NUMBERS), True)
    if kind == "DIR":
        return rng.choice(_NO_PATHS), True
    if kind == "NAME=VALUE":
        return rng.choice(_NO_PAIRS), True
    if kind.startswith("{"):
        return rng.choice((*_NO_WORDS, kind[1:-1].partition(",")[0].upper())), True
    return rng.choice(_NO_WORDS), False


def _draw(rng: random.Random, shared: Path) -> _Line:
    words = list(rng.choice(_LINES))
    flags = _flags(words[0], shared)
    way = rng.choice(("command", "flag", "unknown", "cut", "place"))
    way = rng.choice((way, way, "value", "value", "setting"))
    if way == "command":
        wrong = _misspell(words[0], rng)
        return _Line([wrong, *words[1:]], wrong != words[0], way, words[0])
    if way == "flag":
        meant = rng.choice(sorted(flags))
        wrong = _misspell(meant, rng)
        return _Line([*words, wrong, "3"], wrong not in flags, way, meant)
    if way == "unknown":
        return _Line([*words, rng.choice(("--nosuch", "-z", "---", "--é", "--no such"))], True, way)
    if way == "cut":
        with_value = sorted(flag for flag, kind in flags.items() if kind)
        return _Line([*words, rng.choice(with_value)], True, way)
    if way == "place":
        place = rng.choice(_NO_PLACES)
        if words[0] == "demo" or rng.random() < 0.2:
            return _Line([*words, "extra"], words[0] != "plot", way)
        is_wrong = (words[0], place) != ("envs", "Pendulum-v1")
        return _Line([words[0], place, *words[2:]], is_wrong, way)
    settings = _settings(words, shared) if way == "setting" and "--set" in flags else []
    if settings:
        name = rng.choice(settings)
        value = rng.choice((*_NO_VALUES, "-1", "0", "9" * 400, _HUGE, "1e300", "none"))
        return _Line([*words, "--set", f"{name}={value}"], value in _NO_VALUES, way)
    flag = rng.choice(sorted(flag for flag, kind in flags.items() if kind))
    value, is_wrong = _wrong_value(flags[flag], rng)
    if (
        value == _HUGE
        and words[0] in ("finetune", "offline", "adapt")
        and flag in ("--steps", "--updates")
    ):
        value, is_wrong = "0", True  # as many would be made
    return _Line([*words, flag, value], is_wrong, "value")


def test_a_wrong_command_line_is_refused_in_one_line(attempt: Attempt) -> None:
    line = _draw(attempt.rng, attempt.shared)
    work = attempt.folder
    shutil.copytree(made(PRETRAINED[0], attempt.shared), work / "RUN")
    (work / "file.txt").write_text("of somebody else\n")
    (work / "empty").mkdir()
    before = snapshot(work)
    ended = rover(line.words, work)
    did = f"{line.way}: rover {[word[:60] for word in line.words]}"
    check(did, ended)
    assert not (ended.code == 0 and line.is_wrong), f"{did}: accepted"
    if ended.code == 0:
        return
    suggested = re.search(r"did you mean '?([\w-]+)", ended.err)
    if line.meant and suggested:
        typed = line.words[0] if line.way == "command" else line.words[-2]
        near, meant = (
            SequenceMatcher(None, word, typed).ratio() for word in (suggested[1], line.meant)
        )
        assert near >= meant, f"{did}: suggests {suggested[1]}"  # of two as near, either may be
    assert suggested or line.way != "command", f"{did}: does not suggest {line.meant}"
    changed = [x for x in changes(before, snapshot(work)) if x in before or line.is_wrong]
    assert not changed, f"{did}: refused, but wrote {changed}"
