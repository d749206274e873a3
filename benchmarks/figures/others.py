"""Environments of other people's packages: what ``check_env`` says of each, and a short run.

    python -m benchmarks.figures.others --packages minigrid popgym --csv docs/results/others.csv
    python -m benchmarks.figures.others --page docs/results/others.csv

Each package of ``others.toml`` is installed, pinned, into a virtual environment of its own in
--folder, which sees the packages of this one behind its own, since some exclude each other. Each id
is looked at in a process of its own: its spaces, what is said of 300 random steps, how these ended,
and the observations seen in a run of 300 steps beside three of random actions.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import importlib
import json
import re
import signal
import subprocess
import sys
import sysconfig
import time
import tomllib
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from benchmarks.common import parser, report
from rover import Rover, check_env
from rover.errors import RoverError, RoverWarning, abridge

_STEPS, _SECONDS = 300, 60  # seconds of processor time


def ids_of(modules: list[str], patterns: list[str], most: int) -> list[str]:
    """Ids that modules register (some by a function, named behind a colon), of these patterns,
    evenly spaced where there are more."""
    for name in modules:
        module, _, call = name.partition(":")
        found = importlib.import_module(module)
        if call:
            getattr(found, call)()
    roots = {re.split(r"[.:]", name)[0] for name in modules} or {"gymnasium"}
    made = {x: getattr(y.entry_point, "func", y.entry_point) for x, y in gym.registry.items()}
    homes = {x: re.split(r"[.:]", getattr(y, "__module__", str(y)))[0] for x, y in made.items()}
    own = (x for x, home in homes.items() if home in roots)
    ids = sorted(x for x in own if any(fnmatch.fnmatch(x, one) for one in patterns))
    chosen = np.linspace(0, len(ids) - 1, min(most, len(ids))).round().astype(int)
    return [ids[k] for k in chosen]


def look(modules: list[str], name: str) -> dict[str, Any]:
    """The figures of one id."""
    ids_of(modules, [], 0)
    env, said, figures = gym.make(name), list[str](), dict[str, Any]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(lambda: gym.make(name), n_steps=_STEPS)
            with warnings.catch_warnings(action="ignore"):
                figures = Rover(lambda: gym.make(name), seed=0).learn(_STEPS).summary()
        except RoverError as error:
            said = [f"{type(error).__name__}: {error}"]
    said += [str(one.message) for one in caught if issubclass(one.category, RoverWarning)]
    warnings.simplefilter("ignore")
    env.action_space.seed(0)
    env.reset(seed=0)
    ends, begun = Counter[str](), time.process_time()
    for _ in range(_STEPS):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        ends += Counter({"terminated": int(terminated), "truncated": int(truncated)})
        if terminated or truncated:
            env.reset()
    ms = 1e3 * (time.process_time() - begun) / _STEPS
    return {
        "gymnasium": gym.__version__,
        "observations": abridge(env.observation_space),
        "actions": abridge(env.action_space),
        "taken": bool(figures),
        "terminated": ends["terminated"],
        "truncated": ends["truncated"],
        "ms": round(ms, 2),
        "seen": figures.get("observations", ""),
        "by_chance": figures.get("uniform_observations") or "",
        "says": " | ".join(said),
    }


def rows_of(package: dict[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a package's ids, in a virtual environment that has it."""
    home = (folder / package["name"]).resolve()
    python = home / "bin" / "python"

    def asked(*what: Any) -> Any:
        words = ["prlimit", f"--cpu={_SECONDS}", python, "-m", "benchmarks.figures.others"]
        words += ["--asked", json.dumps(what)]
        done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=3600)
        return json.loads(done.stdout.splitlines()[-1])

    modules, version = package["modules"], package["install"][0].partition("==")[2]
    try:
        if not (home / "base.txt").exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            base = next(home.glob("lib/*/site-packages")) / "base.pth"
            base.write_text(sysconfig.get_path("purelib"))
            install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*install, *package["install"]], check=True, capture_output=True)
            (home / "base.txt").write_text(sys.executable)
        ids = asked("ids_of", modules, package["ids"], package["most"])
    except subprocess.SubprocessError as error:
        print(package["name"], "is not installed or imported:", error, flush=True)
        return
    for name in ids:
        row = dict.fromkeys(_COLUMNS, "") | {"package": package["name"], "version": version}
        row["id"] = name
        try:
            row |= asked("look", modules, name)
        except subprocess.CalledProcessError as error:
            lines = re.findall(r"^[A-Za-z_][\w.]*(?:: .*)?$", error.stderr, re.M)  # but for notes
            is_over, last = error.returncode == -signal.SIGXCPU, (lines or ["?"])[-1]
            row["says"] = f"not done in {_SECONDS} s" if is_over else f"fails: {last}"
        # No folder of this machine, and no address in its memory.
        yield {k: re.sub(r"(/[\w.+-]+){2,}|0x[0-9a-f]{8,}", "…", str(x)) for k, x in row.items()}


_COLUMNS = (
    *("package", "version", "id", "gymnasium", "observations", "actions", "taken", "terminated"),
    *("truncated", "ms", "seen", "by_chance", "says"),
)
_COUNTED = "says", "terminated", "truncated"


def page(path: Path) -> None:
    """Print the tables of the page: a row for each package, and what was said, of how many ids."""
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    packages: dict[str, list[dict[str, str]]] = {}
    said: dict[str, list[str]] = {}
    for row in rows:
        packages.setdefault(f"{row['package']} {row['version']}", []).append(row)
        for one in {re.sub(r"\d[\d.,]*", "…", x.split(":")[0]) for x in row["says"].split(" | ")}:
            said.setdefault(one, []).append(row["id"])
    print("| package | ids | taken | something said | end by themselves | by a limit | ms a step |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name, own in packages.items():
        some = (sum(x[k] not in ("", "0", "0.0") for x in own) for k in _COUNTED)
        counts = len(own), sum(x["taken"] == "True" for x in own), *some
        ms = np.median([float(x["ms"]) for x in own if x["ms"]] or [np.nan])
        print(f"| {name} | {' | '.join(map(str, counts))} | {ms:.2f} |")
    print("\n| said | ids | for example |\n|---|---:|---|")
    for one, ids in sorted(said.items(), key=lambda each: -len(each[1])):
        print(f"| {one or 'nothing'} | {len(ids)} | `{ids[0]}` |")


def main() -> None:
    words = parser(__doc__, packages=[""])
    words.add_argument("--folder", type=Path, default=Path("runs/others"))
    words.add_argument("--page", type=Path)
    words.add_argument("--asked", help=argparse.SUPPRESS)
    given = words.parse_args()
    if given.asked:
        what, *values = json.loads(given.asked)
        print(json.dumps({"ids_of": ids_of, "look": look}[what](*values)))
    elif given.page:
        page(given.page)
    else:
        listed = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["package"]
        chosen = (x for x in listed if given.packages == [""] or x["name"] in given.packages)
        report((row for one in chosen for row in rows_of(one, given.folder)), given.csv)


if __name__ == "__main__":
    main()
