"""Drawn studies: refused in one line, or their pages say what was measured and lie where they may.

No run is made. The figures of a run follow from what it is, so that a page which shows one run's
figures as another's is noticed.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rover_bench import load_study
from rover_bench.files import read_report, write_report
from rover_bench.report import Report, table_of_runs
from rover_bench.study import Case, Study

from .files import snapshot
from .runner import Attempt, Ended, changes, fork, rover

_FIGURES = (
    "optimality_ratio",
    "mean_coverage",
    "coverage",
    "states_seen",
    "steps_to_full_coverage",
)
_MAX_MADE = 60
"""Cases of studies whose pages are written; larger ones are only loaded."""

_TITLES: tuple[str, ...] = (
    "Plain",
    "BODY",
    "TITLE of the BODY",
    "a | b",
    "{episodes}",
    "# x\n\ny",
    "<b>&amp;",
    "",
)
_TITLES += (
    "## How it was made",
    "\\",
    "`",
    "é 🙂",
    "x" * 3000,
    "${BODY}",
    "\\1 \\g<0>",
)
_NAMES: tuple[str, ...] = (
    "plain",
    "../up",
    "/tmp/absolute",
    "a/b",
    "a\\b",
    "..",
    ".",
    ".hidden",
    "",
    " ",
    "a b(c)",
)
_NAMES += (
    "x" * 300,
    "é" * 120,
    "🙂",
    "nul\0",
    "line\nbreak",
    "a%2e%2e",
    "CON",
    "a:b",
    "README",
    "-",
)
_LAYOUTS: tuple[Any, ...] = (
    "a/b.txt",
    "a-b.txt",
    "a b.txt",
    "a--b.txt",
    "-a-b.txt",
    "./a/b.txt",
    "a/b.txt/",
    "é.txt",
)
_LAYOUTS += (
    "x" * 400,
    "x" * 401,
    "#G#\n#S#",
    "A/b.txt",
    "..",
    "",
    True,
    1,
    1.0,
    "1",
    "True",
    [1],
    "[1]",
)
_OPTIONS = ("x", "y", "x, y", "z", "x/y", "X", "1", "é", "a b", "|", "x" * 200, "title")
_AXES = (
    "agent",
    "size",
    "layout",
    "learner",
    "seed",
    "env",
    "coverage",
    "runs",
    "A b",
    "x,y",
    "mean",
)
_KINDS = ("agents", "visits", "profiles", "tasks", "distance")
_NO_FILES = ("nosuch", "a\0b.toml", "/dev/null", "../study", "")
_SPOILT: tuple[str, ...] = (
    "deep arrays",
    "deep tables",
    "deep inline",
    "dotted",
    "many",
    "digits",
    "date",
    "inf",
)
_SPOILT += ("extends itself", "extends 5", "extends nothing", "bytes", "cut", "word", "nul")


class _Texts(HTMLParser):
    """The texts of an HTML page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        self.texts.append(data)


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{json.dumps(k)} = {_toml(v)}' for k, v in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=True)


def _draw(rng: random.Random) -> dict[str, Any]:
    """A study, most of whose parts are as they should be."""

    def usually(value: Any, others: Sequence[Any], share: float = 0.96) -> Any:
        return value if rng.random() < share else rng.choice(others)

    study: dict[str, Any] = {"title": usually("Plain", _TITLES, 0.4)}
    for key, share in {"name": 0.3, "csv": 0.2}.items():
        if rng.random() < share:
            study[key] = usually("other", _NAMES, 0.6)
    run: dict[str, Any] = {
        "env": "rover/TwoRooms-v0",
        "steps": usually(50, (1, 10**6, 10**30, 0, -1, "50")),
        "seeds": [],
    }
    run["seeds"] = usually([0, 1], ([3], [], [0, 0], [-1], [10**30], ["0"], 5, list(range(30))))
    axes = rng.sample(_AXES[:3], rng.randint(1, 3)) if rng.random() < 0.9 else rng.sample(_AXES, 3)
    if "layout" in axes:  # the report of a task makes its environment, and most of these are none
        axes = [axis for axis in axes if axis != "learner"]
    study["axes"] = {}
    for axis in axes:
        n_options = usually(rng.randint(1, 4), (30, 200), 0.93)
        names = [*rng.sample(_OPTIONS, min(n_options, 4)), *map(str, range(10, 6 + n_options))]
        study["axes"][axis] = {name: _option(rng, axis, usually) for name in names}
    study["run"] = run
    if rng.random() < 0.15:
        axis = axes[0]
        study["runs"] = [{axis: [rng.choice(list(study["axes"][axis]))]}, {a: ["x"] for a in axes}]
    figures = rng.sample(_FIGURES, 2)
    table = {
        "rows": usually([axes[0]], (axes, axes * 3, axes * 30, ["nosuch"])),
        "figures": figures,
    }
    table["statistic"] = usually("iqm", ("median", "median and range", "iqm and mean", "nosuch"))
    if rng.random() < 0.2:
        table["bars"] = {rng.choice(list(study["axes"][axes[0]])): {figures[0]: 3.0}}
    if rng.random() < 0.2:
        table |= {"columns": axes[-1], "figures": figures[:1]}
    study["tables"] = {usually("All", _TITLES, 0.7): table}
    if rng.random() < 0.3:
        study["pictures"] = {usually("shown", _NAMES): {"kind": usually("agents", _KINDS)}}
    return study


def _option(rng: random.Random, axis: str, usually: Any) -> dict[str, Any]:
    option: dict[str, Any] = {}
    if axis == "agent":
        option["agent"] = usually(rng.choice(("rover", "rnd", "random", "apt")), ("nosuch", ""))
    elif axis == "layout":
        option |= {"env": "rover/Grid-v0", "env_kwargs": {"layout": rng.choice(_LAYOUTS)}}
    elif axis == "learner":
        goal = usually("room1", _NAMES, 0.6)
        option["learn"] = {"goal": goal, "steps": 9, "reward": rng.choice(("sparse", "dense"))}
        option["learn"]["algorithm"] = usually("ddpg", ("sac", "../ddpg", "plan"))
    elif rng.random() < 0.7:
        option["settings"] = {rng.choice(("discount", "a/b")): rng.choice((0.9, 1, True, "1"))}
    if rng.random() < 0.3:
        option["title"] = rng.choice(_TITLES)
    if rng.random() < 0.1:
        option["folder"] = usually("same", (*_NAMES, "same/seed-0", "SAME"), 0.7)
    if rng.random() < 0.03:
        option["env"] = rng.choice(("", "/", "..", "a:b", "rover-Grid-v0", "rover/Grid-v0", "a b"))
    return option


def _spoil(text: str, how: str, rng: random.Random) -> bytes:
    """The text of a study with something that no study has."""
    n = rng.choice((40, 200, 330, 1000, 5000, 50_000))
    words = rng.choice(("true", "run", '"', "[[", "=", "\\u0000", "1e999", "-0", "'''", "\x00"))
    place = rng.randrange(len(text))
    added = {
        "deep arrays": f"\nremarks = {'[' * n}{']' * n}\n",
        "deep tables": f"\n[{'.'.join('a' * n)}]\nb = 1\n",
        "deep inline": f"\nextra = {'{a=' * n}1{'}' * n}\n",
        "dotted": f"\nrun2.{'.'.join('a' * n)} = 1\n",
        "many": "".join(
            f"\n[axes.many{i}]\n" + "".join(f"o{i}x{j} = {{}}\n" for j in range(22))
            for i in range(5)
        ),
        "digits": f"\nextra = {'9' * n}\n",
        "date": "\n[run.settings]\nday = 1979-05-27\n",
        "inf": f"\n[run.settings]\nday = {rng.choice(('inf', '-inf', 'nan'))}\n",
        "extends itself": '\nextends = "study.toml"\n',
        "extends 5": f"\nextends = {rng.choice(('5', '[5]', '{a = 1}', 'true'))}\n",
        "extends nothing": f"\nextends = {json.dumps(rng.choice(_NO_FILES))}\n",
    }
    if how in added:
        is_first = how.startswith("extends")  # else it would belong to the last table
        return (added[how] + text if is_first else text + added[how]).encode()
    if how == "bytes":
        return text[:place].encode() + rng.randbytes(3) + text[place:].encode()
    if how == "cut":
        return text[:place].encode()
    return (text[:place] + (words if how == "word" else "\0") + text[place:]).encode()


def _figures(case: Case, seed: int) -> dict[str, float]:
    """Figures that no other run has."""
    digest = hashlib.sha256(f"{case.identity} {seed}".encode()).digest()
    values = [1.0 + int.from_bytes(digest[4 * i : 4 * i + 4]) / 2**32 for i in range(len(_FIGURES))]
    return dict(zip(_FIGURES, values, strict=True))


def _write(file: Path, out: Path) -> int:
    """Write the page of a study as if its runs had been made."""
    study = load_study(file)
    cases = study.cases()
    by_folder = {run.folder: _figures(c, run.seed) for c in cases for run in c.runs(Path("runs"))}
    runs = table_of_runs(
        study,
        (
            (case, run.seed, by_folder[run.folder])
            for case in cases
            for run in case.runs(Path("runs"))
        ),
    )
    write_report(Report(study, cases, runs, facts=("Made up.",), command="rover sweep"), out)
    return 0


def _check_folders(attempt: Attempt, did: str, study: Study) -> None:
    """Whether runs have folders below that of all runs, and different ones different folders."""
    places: dict[Path, tuple[str, int]] = {}
    for case in study.cases():
        for run in case.runs(Path("/runs")):
            for one in filter(None, (run, run.source)):
                what = one.case.identity, one.seed
                if places.setdefault(one.folder, what) != what:
                    attempt.find(did, f"different runs share {one.folder}")
                parts = one.folder.parts
                if parts[:2] != ("/", "runs") or ".." in parts or max(map(len, parts)) > 250:
                    attempt.find(did, f"a run in {one.folder}")


def _check_page(attempt: Attempt, did: str, study: Study, out: Path) -> None:
    """Whether the files say of every run what was measured of it."""
    report = read_report(study, out)
    by_name = {case.name: case for case in report.cases}
    for name, run in report.runs.iterrows():
        figures = _figures(by_name[name], run["seed"])
        if run[list(figures)].to_dict() != figures:
            attempt.find(did, f"{name}, seed {run['seed']} has other figures")
    shown = " ".join(_Texts((out / f"{study.name}.html").read_text()).texts)
    for part in ("How it was made", "Made up.", "Configuration", "All tasks together"):
        if part not in shown:
            attempt.find(did, f"the HTML page lacks {part!r}")
    lines = [x for x in (out / f"{study.name}.md").read_text().splitlines() if x.startswith("| ")]
    signs = [len(re.findall(r"(?<!\\)\|", line)) for line in lines]
    if len(set(signs)) > 1:
        attempt.find(did, f"lines of one table have {sorted(set(signs))} signs of a cell")


def attack(attempt: Attempt) -> None:
    """Give rover a drawn study; if it loads, write its page, read it back, and cut its files."""
    rng, work = attempt.rng, attempt.folder
    how = rng.choice(_SPOILT) if rng.random() < 0.3 else ""
    text = "\n".join(f"{key} = {_toml(value)}" for key, value in _draw(rng).items()) + "\n"
    file = work / "study.toml"
    file.write_bytes(_spoil(text, how, rng) if how else text.encode())
    did = f"{how or 'drawn'}: {text}"
    before = snapshot(work)
    ended = rover(["sweep", "study.toml", "--report-only"], work)
    if not attempt.check(f"{did} --report-only", ended, codes=(2,)):
        return
    if changed := changes(before, snapshot(work)):
        attempt.find(did, f"nothing was to be run, but it wrote {changed}")
    if "no run of it is finished" not in ended.err and "no run came to its end" not in ended.err:
        attempt.count(f"refused: {how or 'drawn'}")
        return
    study = load_study(file)
    _check_folders(attempt, did, study)
    if len(study.cases()) > _MAX_MADE:
        attempt.count("accepted, many cases")
        return
    attempt.count(f"accepted: {how or 'drawn'}")
    pages = work / "pages"
    if not attempt.check(f"{did} is written", fork(lambda: _write(file, pages), work), codes=(0,)):
        return
    page = (pages / f"{study.name}.md").read_bytes()
    for words in (["sweep", "study.toml", "--out", "pages", "--redraw"], ["report", "pages"]):
        if not attempt.check(f"{did} {words[0]}", rover(words, work), codes=(0,)):
            return
    if (pages / f"{study.name}.md").read_bytes() != page:
        attempt.find(did, "--redraw gives another page")
    _check_page(attempt, did, study, pages)
    if outside := [x for x in changes(before, snapshot(work)) if x.split("/")[0] != "pages"]:
        attempt.find(did, f"wrote {outside} beside the folder of the page")
    _cut(attempt, did, pages / f"{study.csv}runs.csv")


def _cut(attempt: Attempt, did: str, file: Path) -> None:
    """Cut the file of all runs somewhere: nothing may be made of it."""
    size = attempt.rng.randrange(file.stat().st_size)
    file.write_bytes(file.read_bytes()[:size])
    before = snapshot(attempt.folder)
    for words in (["sweep", "study.toml", "--out", "pages", "--redraw"], ["report", "pages"]):
        ended: Ended = rover(words, attempt.folder)
        attempt.check(f"{did} {words[0]} of {size} bytes of {file.name}", ended, codes=(2,))
        if changed := changes(before, snapshot(attempt.folder)):
            attempt.find(did, f"{words[0]} of {size} bytes of {file.name} wrote {changed}")
