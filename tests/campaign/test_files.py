"""Altered files of every kind of run: refused in one line, or as good as they were.

Files are altered raw, so that the manifest of their folder no longer fits, or sealed anew, as
somebody would who knows the formats. Beside the run lie files that no command may touch, and a
module that leaves a mark when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load, save

from rover import load_policy
from rover.cli import main
from rover.errors import RoverError

from .processes import ON_LINUX, Attempt, changes, check, fork
from .runs import (
    RUNS,
    SHORT_ADAPT,
    SHORT_FINETUNE,
    SHORT_OFFLINE,
    SHORT_SOLVE,
    SOLVED,
    made,
    snapshot,
)
from .test_kills import Moment, contents, run_until

pytestmark = [pytest.mark.slow, ON_LINUX]

_POLICY, _BUFFER = "policy.safetensors", "buffer.safetensors"
_MARK = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"

_COMMANDS = {
    "plot": ["plot", "RUN"],
    "resume": ["resume", "RUN"],
    "evaluate": ["evaluate", "RUN"],
    "load_policy": [],
    "finetune": ["finetune", "RUN", *SHORT_FINETUNE],
    "offline": ["finetune", "RUN", *SHORT_OFFLINE],
    "adapt": ["adapt", "RUN", *SHORT_ADAPT],
    "solve": ["solve", "RUN", *SHORT_SOLVE],
    "extend": ["resume", "RUN", "--steps", "120"],
    "finetune POLICY": ["finetune", f"RUN/{_POLICY}", *SHORT_FINETUNE],
}
_OF_TASKS = ("plot", "resume", "evaluate", "load_policy")
_NAMES = (
    "pretrain rover, state",
    "pretrain rover, onehot",
    "pretrain rnd, onehot",
    "pretrain cic, state",
    "pretrain mepol, state",
    "pretrain rmax, pixels",
    "finetune ddpg policy of rover, state",
    "finetune sac both of rover, onehot",
    "finetune ddpg policy of rnd, onehot",
    "offline cql on rover, state",
    "offline ddpg on rnd, onehot",
    "adapt rover, state",
    "adapt rnd, vector",
)
_SUBJECTS = [(run, is_whole) for run in RUNS if run.name in _NAMES for is_whole in (True, False)]
_SUBJECTS += [(SOLVED, True)]
NUMBERS = (*range(0, len(_SUBJECTS), 3), len(_SUBJECTS) - 1)


class _Alteration(NamedTuple):
    """What was done to which file, and whether no reader of the file can work with it then."""

    file: str
    what: str
    is_bad: bool = False


def _folder(number: int, shared: Path) -> Path:
    """The folder of a whole run, or of one that was killed halfway."""
    run, is_whole = _SUBJECTS[number % len(_SUBJECTS)]
    whole = made(run, shared)
    halfway = whole.with_name(f"{whole.name}-halfway")
    if not is_whole and not halfway.exists():
        moment = Moment("replace", 7, "after", signal.SIGKILL)
        fork(lambda: run_until(run.command(halfway, shared), moment), shared)
    return whole if is_whole else halfway


def _alter_raw(path: Path, other: Path, rng: random.Random, outside: Path) -> _Alteration:
    """Alter a file so that the manifest of its folder no longer fits."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data)) if data else 0
    ways = ["cut", "flipped", "flipped", "flipped", "random", "zeros", "exchanged", "exchanged"]
    ways = ["extended", "huge", "removed", "a folder", "a link"] + ways * bool(data)
    way = rng.choice(ways)
    # a solved policy is a file by itself: another may replace it, and nothing guards its values
    is_of_a_run = (path.parent / "manifest.json").is_file()
    if way == "exchanged" and not (is_of_a_run and other.is_file() and other.read_bytes() != data):
        way = "flipped"
    if way == "zeros" and not any(data[place : place + 50]):
        way = "random"
    if way in ("removed", "a folder", "a link"):
        path.rename(outside / "original")
        if way == "a folder":
            path.mkdir()
        elif way == "a link":
            path.symlink_to(outside / "original")
        return _Alteration(path.name, way, way != "a link")
    if way == "cut":
        del data[place:]
    elif way == "flipped":
        data[place] ^= 1 << rng.randrange(8)
    elif way == "zeros":
        data[place : place + 50] = bytes(len(data[place : place + 50]))
    elif way == "random":
        data = bytearray(rng.randbytes(len(data)))
    elif way == "exchanged":
        data = bytearray(other.read_bytes())
    elif way == "extended":
        data += rng.randbytes(rng.choice((1, 7, 4000)))
    path.write_bytes(data)
    if way == "huge":
        os.truncate(path, 2**32)  # takes no room on the disk
    is_bad = is_of_a_run or way not in ("flipped", "zeros")
    return _Alteration(path.name, f"{way} at {place}", is_bad)


def _nasty(rng: random.Random) -> Any:
    """A value that hardly any place is made for."""
    values: Sequence[Sequence[Any]] = (
        (None, True),
        (-1, 0, 2**31, 10**12, 10**30, 10**400),
        (0.5, -1e-300, 1e308),
        ("", "x" * 10**6, "../../x", "evil:Name-v0", "\x00", "é" * 300),
        ([], [1], {}, {"a": 1}, [[]] * 1000, [30000, 30000], [4] * 200_000),
    )
    return rng.choice(rng.choice(values))


def _alter_value(value: Any, rng: random.Random) -> tuple[Any, str]:
    """JSON with one value replaced, removed or added; and what was done."""
    places: list[tuple[Any, Any, str]] = []

    def walk(inside: Any, where: str) -> None:
        for key in inside if isinstance(inside, dict) else range(min(len(inside), 50)):
            places.append((inside, key, f"{where}.{key}"))
            if isinstance(inside[key], dict | list):
                walk(inside[key], f"{where}.{key}")

    if not isinstance(value, dict | list) or not value or rng.random() < 0.03:
        return _nasty(rng), "another value"
    walk(value, "")
    named = [place for place in places if place[1] == "env_id"]
    if named and rng.random() < 0.3:
        inside, key, where = rng.choice(named)
        inside[key] = rng.choice(("evil:Name-v0", "antigravity:Name-v0", "evil.sub:CartPole-v1"))
        return value, f"{where} = {inside[key]}"
    inside, key, where = rng.choice(places)
    way, new = rng.choice(("replaced", "replaced", "removed", "added to")), _nasty(rng)
    if way == "removed":
        del inside[key]
    elif way == "replaced":
        inside[key] = new
    elif isinstance(inside, dict):
        inside[rng.choice(("unknown", "", "__class__"))] = new
    else:
        inside.append(new)
    return value, f"{where} {way}: {str(new)[:40]}"


def _alter_json(path: Path, rng: random.Random) -> _Alteration:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines:
        return _Alteration(path.name, "nothing")
    number = rng.randrange(len(lines))
    value, what = _alter_value(json.loads(lines[number]), rng)
    text = json.dumps(value)
    strange = {
        "NaN": text.replace("0", "NaN", 1),
        "a key twice": f'{text[:-1]}, "seed": 3, "seed": 4}}',
        "nested 100,000 deep": "[" * 100_000,
        "a byte order mark": f"\ufeff{text}",
    }
    if rng.random() < 0.12:
        what, text = rng.choice(list(strange.items()))
    lines[number] = text
    path.write_text("\n".join(lines) + "\n" * (path.suffix == ".jsonl"))
    return _Alteration(path.name, what)


def _alter_tensor(tensors: dict[str, Any], rng: random.Random) -> tuple[str, bool]:
    """Alter one array; what was done, and whether no reader can work with it."""
    name = rng.choice(sorted(tensors))
    array = np.array(tensors[name])
    is_real = array.dtype.kind == "f"
    way = rng.choice(("flat", "longer", "other type", "missing", "values", "values", "values"))
    if way == "missing":
        del tensors[name]
    elif way == "flat":
        tensors[name] = array[..., None]
    elif way == "longer":
        tensors[name] = np.concatenate([np.atleast_1d(array)] * 2)
    elif way == "other type":
        tensors[name] = array.astype(np.int16 if is_real else np.float16)
    else:
        values = (np.nan, np.inf, -np.inf) if is_real else (-1, 100, 1)
        tensors[name] = np.full_like(array, np.array(rng.choice(values)).astype(array.dtype))
    return f"{name}: {way}", array.size > 0 and (way != "values" or is_real)


def _alter_sealed(path: Path, rng: random.Random) -> _Alteration:
    """Alter what a file of tensors holds."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + length]), load(data)
    text = json.loads(header["__metadata__"]["rover"])
    way, is_bad = rng.random(), False
    if way < 0.5 and tensors:
        what, is_bad = _alter_tensor(tensors, rng)
    elif way < 0.6 and tensors:
        claimed = rng.choice(([2**40], [2**31, 2**31], [0], [-1], [1] * 5000, ["a"]))
        header[rng.choice(sorted(tensors))]["shape"] = claimed
        what, is_bad = f"a tensor claims the shape {str(claimed)[:30]}", True
    else:
        text["content"], what = _alter_value(text["content"], rng)
    header["__metadata__"]["rover"] = json.dumps(text, separators=(",", ":"))
    if "claims" in what:
        raw = json.dumps(header, separators=(",", ":")).encode()
        data = len(raw).to_bytes(8, "little") + raw + data[8 + length :]
    else:
        data = save(tensors, metadata=header["__metadata__"])
    path.write_bytes(data)
    return _Alteration(path.name, what, is_bad)


def _seal_run(run: Path) -> None:
    """Make the manifests of a run fit its files."""
    for manifest in run.rglob("manifest.json"):
        stored = json.loads(manifest.read_text())
        for name in stored["files"]:
            data = (manifest.parent / name).read_bytes()
            stored["files"][name] = hashlib.sha256(data).hexdigest()
        manifest.write_text(json.dumps(stored))


def _run_command(words: Sequence[str], outside: Path) -> int:
    """Run a command, or load_policy, where the module that leaves a mark can be imported."""
    sys.path.insert(0, str(outside))
    os.environ["MINARI_DATASETS_PATH"] = str(Path.cwd() / "minari")
    if words:
        return main(words)
    try:
        load_policy(f"RUN/{_POLICY}").save("again.safetensors")
    except RoverError as error:
        sys.stderr.write(f"rover: error: {' '.join(str(error).split())}\n")
        return 2
    return 0


def _must_refuse(command: str, file: str, sealed: Sequence[str]) -> bool:
    """Whether a command has to notice that nobody can work with a file."""
    if "policy" in command.lower():
        return file == _POLICY
    reads = {
        _POLICY: ("evaluate", "finetune", "adapt", "solve"),
        _BUFFER: ("offline", "adapt", "solve"),
    }
    return file in sealed or command in reads.get(file, ())


def test_an_altered_file_is_refused_or_does_no_harm(attempt: Attempt) -> None:
    rng, shared = attempt.rng, attempt.shared
    run, is_whole = _SUBJECTS[attempt.number % len(_SUBJECTS)]
    work, outside = attempt.folder / "work", attempt.folder / "outside"
    shutil.copytree(_folder(attempt.number, shared), work / "RUN")
    outside.mkdir()
    (outside / "evil.py").write_text(_MARK)
    path = rng.choice(
        sorted(
            p for p in (work / "RUN").rglob("*") if p.suffix in (".json", ".jsonl", ".safetensors")
        )
    )
    kind = rng.choice((*["raw"] * 4, *["sealed anew"] * 5))
    if kind == "raw":
        other = _folder(rng.randrange(len(_SUBJECTS)), shared) / path.relative_to(work / "RUN")
        altered = _alter_raw(path, other, rng, outside)
    else:
        alter = _alter_sealed if path.suffix == ".safetensors" else _alter_json
        altered = alter(path, rng)
        if path.name != "manifest.json":
            _seal_run(work / "RUN")
    command = rng.choice(sorted(_COMMANDS) if run.words[0] == "pretrain" else _OF_TASKS)
    manifest = work / "RUN" / "manifest.json"  # which a run that is resumed gets at its end
    has_seal = kind == "raw" and path.name != "manifest.json" and manifest.exists()
    sealed = json.loads(manifest.read_text())["files"] if has_seal else ()
    before, untouched = snapshot(work), snapshot(outside)
    ended = fork(lambda: _run_command(_COMMANDS[command], outside), work)
    state = "whole" if is_whole else "unfinished"
    did = f"{kind}, {state} {run.name}: {altered.file}: {altered.what}; then {command}"
    if "total_timesteps" in altered.what and ended.code is None:
        return  # a run may be long
    check(did, ended)
    assert "not enough memory" not in ended.err, f"{did}: allocates what a file claims"
    if "cannot be made with" not in ended.err:  # which quotes the environment
        assert not re.search(r"[A-Z]\w+(Error|Exception)\b", ended.err), f"{did}: {ended.err}"
    assert not changes(untouched, snapshot(outside)), f"{did}: changed outside of the run"
    if ended.code == 2:
        changed = [x for x in changes(before, snapshot(work)) if x in before]
        assert not changed, f"{did}: refused, but changed {changed}"
        return
    assert not (altered.is_bad and _must_refuse(command, altered.file, sealed)), f"{did}: accepted"
    if command == "resume" and kind == "raw" and path.name != "config.json" and not is_whole:
        changed = changes(contents(made(run, shared)), contents(work / "RUN"))
        if path.parent.name == "checkpoints":  # an earlier one, which nothing goes on from
            own = ("checkpoints", str(path.relative_to(work / "RUN")))
            changed = [x for x in changed if x not in own]
        assert not changed, f"{did}: accepted, and ends in other bits"
