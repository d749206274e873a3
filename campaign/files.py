"""Altered files of every kind of run: refused in one line, or as good as they were.

Files are altered raw, so that their seals no longer fit, or sealed anew, as somebody would who
knows the formats. Beside the run lie files that no command may touch, and a module that leaves a
mark when it is imported.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from campaign.kills import Moment, contents, run_until
from campaign.runner import Attempt, fork
from campaign.runs import RUNS, SHORT_FINETUNE, SHORT_OFFLINE, Run, made
from rover import load_policy
from rover.cli import main
from rover.errors import RoverError

_POLICY = "policy.safetensors"
_MARK = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
_DIGEST_BEGINS = b'{"__metadata__":{"rover":"{\\"sha256\\":\\"'

_FROM_RUN = {
    "evaluate": ["evaluate", "RUN"],
    "plot": ["plot", "RUN"],
    "finetune": ["finetune", "RUN", *SHORT_FINETUNE],
    "offline": ["offline", "RUN", *SHORT_OFFLINE],
    "export": ["export", "RUN", "some/data-v0"],
    "resume": ["resume", "RUN"],
    "extend": ["resume", "RUN", "--steps", "120"],
}
_FROM_POLICY = {
    "evaluate POLICY": ["evaluate", f"RUN/{_POLICY}"],
    "finetune POLICY": ["finetune", f"RUN/{_POLICY}", *SHORT_FINETUNE],
    "load_policy": [],
}
_OF_PRETRAINING = {**_FROM_RUN, **_FROM_POLICY}
_OF_TASK = {name: _OF_PRETRAINING[name] for name in ("plot", "resume", "evaluate", "load_policy")}


class _Subject(NamedTuple):
    run: Run
    is_whole: bool


def _subjects() -> list[_Subject]:
    names = (
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
    )
    runs = {run.name: run for run in RUNS}
    return [_Subject(runs[name], whole) for name in names for whole in (True, False)]


_SUBJECTS = _subjects()


def _folder(subject: _Subject, shared: Path) -> Path:
    """The folder of a whole run, or of one that was killed halfway."""
    whole = made(subject.run, shared)
    if subject.is_whole:
        return whole
    folder = shared / f"{whole.name}-halfway"
    if not folder.exists():
        moment = Moment("replace", 7, "after", signal.SIGKILL)
        words = subject.run.command(folder, shared)
        fork(lambda: run_until(words, moment), shared)
    return folder


# --- alterations that break a seal --------------------------------------------------------------


def _alter_raw(path: Path, other: Path, rng: random.Random, outside: Path) -> str:
    """Alter a file; what was done, or an empty text if that changes nothing."""
    data = bytearray(path.read_bytes())
    place = rng.randrange(len(data)) if data else 0
    ways = ["cut", "extended", "removed", "replaced by a folder", "replaced by a link"]
    ways += ["emptied", "made huge"]
    if data:
        ways += ["flipped"] * 6 + ["zeros"] * 2 + ["random"]
    if other.exists() and other.read_bytes() != data:
        ways += ["exchanged"] * 3
    way = rng.choice(ways)
    if way == "flipped":
        data[place] ^= 1 << rng.randrange(8)
    elif way == "zeros":
        if not any(data[place : place + 50]):
            return ""
        data[place : place + 50] = bytes(len(data[place : place + 50]))
    elif way == "random":
        data = bytearray(rng.randbytes(len(data)))
    elif way == "cut":
        del data[place:]
    elif way == "extended":
        data += rng.randbytes(rng.choice((1, 7, 4000)))
    elif way == "emptied":
        data.clear()
    elif way == "exchanged":
        data = bytearray(other.read_bytes())
    if way in ("removed", "replaced by a folder", "replaced by a link"):
        path.rename(outside / "original")
        if way == "replaced by a folder":
            path.mkdir()
        elif way == "replaced by a link":
            path.symlink_to(outside / "original")
    else:
        path.write_bytes(data)
        if way == "made huge":
            os.truncate(path, 2**35)  # takes no room on the disk
    return f"{path.name} {way} at {place}"


def _link_folder(run: Path, rng: random.Random, outside: Path) -> str:
    """Put a link in the place of something that commands write."""
    name = rng.choice((".lock", "metrics.jsonl", "checkpoints", "pictures", "summary.json"))
    path, target = run / name, outside / "target"
    if path.exists():
        path.rename(target)
    elif name == "pictures":
        target.mkdir()
        (target / "visits.png").write_bytes(b"of somebody else")
    else:
        target.write_bytes(b"")
    path.symlink_to(target)
    return f"{name} replaced by a link"


# --- alterations that are sealed anew -----------------------------------------------------------


def _nasty(rng: random.Random) -> Any:
    """A value that hardly any place is made for."""
    return rng.choice(
        (
            lambda: None,
            lambda: True,
            lambda: rng.choice((-1, 0, 2**31, 10**12, 10**30, 10**400)),
            lambda: rng.choice((0.5, -1e-300, 1e308)),
            lambda: rng.choice(("", "x" * 10**6, "../../x", "evil:Name-v0", "\x00", "é" * 300)),
            lambda: rng.choice(([], [1], {}, {"a": 1}, [[]] * 1000, [30000, 30000], [4] * 200_000)),
        )
    )()


def _alter_value(value: Any, rng: random.Random) -> tuple[Any, str]:
    """JSON with one value replaced, removed, added or renamed; and what was done."""
    places: list[tuple[Any, Any, str]] = []

    def walk(inside: Any, where: str) -> None:
        keys = inside if isinstance(inside, dict) else range(len(inside))
        for key in keys:
            places.append((inside, key, f"{where}.{key}"))
            if isinstance(inside[key], dict | list):
                walk(inside[key], f"{where}.{key}")

    if not isinstance(value, dict | list) or not value or rng.random() < 0.03:
        new = _nasty(rng)
        return new, f"all of it: {str(new)[:40]}"
    walk(value, "")
    inside, key, where = rng.choice(places)
    way = rng.choice(("replace", "replace", "replace", "remove", "add"))
    if named := [place for place in places if place[1] == "env_id" and rng.random() < 0.4]:
        inside, key, where = rng.choice(named)
        inside[key] = rng.choice(("evil:Name-v0", "antigravity:Name-v0", "evil.sub:CartPole-v1"))
    elif way == "replace":
        inside[key] = _nasty(rng)
    elif way == "remove":
        del inside[key]
        return value, f"{where} removed"
    elif isinstance(inside, dict):
        inside[rng.choice(("unknown", "", "__class__"))] = _nasty(rng)
        return value, f"a key added beside {where}"
    else:
        inside.append(_nasty(rng))
    return value, f"{where} = {str(inside[key])[:40]}"


def _alter_json(path: Path, rng: random.Random) -> str:
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    if not lines:
        return ""
    number = rng.randrange(len(lines))
    value, what = _alter_value(json.loads(lines[number]), rng)
    text = json.dumps(value)
    way = rng.random()
    if way < 0.03:
        text, what = text.replace("0", "NaN", 1), "NaN"
    elif way < 0.06:
        text, what = text[:-1] + ', "seed": 3, "seed": 4}', "a key twice"
    elif way < 0.09:
        text, what = "[" * 100_000, "nested 100,000 deep"
    elif way < 0.12:
        text, what = "\ufeff" + text, "a byte order mark"
    lines[number] = text
    path.write_text("\n".join(lines) + "\n" * (path.suffix == ".jsonl"))
    return f"{path.name}: {what}"


def _alter_tensor(tensors: dict[str, Any], rng: random.Random) -> tuple[str, bool]:
    """Alter one array in place; what was done, and whether no reader can work with it."""
    name = rng.choice(sorted(tensors))
    array = tensors[name] = np.array(tensors[name])
    ways = ["flat", "longer", "other type", "missing"] + ["values"] * 4
    way = rng.choice(ways)
    if way == "flat":
        tensors[name] = array[..., None]
    elif way == "longer":
        tensors[name] = np.concatenate([np.atleast_1d(array)] * 2)
    elif way == "other type":
        tensors[name] = array.astype(np.int16 if array.dtype.kind == "f" else np.float16)
    elif way == "missing":
        del tensors[name]
    elif array.dtype.kind == "f":
        array[...] = rng.choice((np.nan, np.inf, -np.inf))
    else:
        array[...] = rng.choice((-1, 100)) if array.dtype.itemsize == 1 else -(2**31) + 3
    return f"{name}: {way}", array.size > 0 and (way != "values" or array.dtype.kind == "f")


def _seal(data: bytes) -> bytes:
    """A sealed file with the digest that fits it."""
    place = data.index(_DIGEST_BEGINS) + len(_DIGEST_BEGINS)
    zeros = data[:place] + b"0" * 64 + data[place + 64 :]
    return data[:place] + hashlib.sha256(zeros).hexdigest().encode() + data[place + 64 :]


def _alter_sealed(path: Path, rng: random.Random) -> tuple[str, bool]:
    """Alter a sealed file and seal it anew; what was done, and whether no reader can work so."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body, tensors = json.loads(data[8 : 8 + length]), data[8 + length :], load(data)
    text = json.loads(header["__metadata__"]["rover"])
    way, is_bad = rng.random(), False
    if way < 0.5 and tensors:
        what, is_bad = _alter_tensor(tensors, rng)
    elif way < 0.6 and tensors:
        claim = header[rng.choice(sorted(tensors))]
        claim["shape"] = rng.choice(([2**40], [2**31, 2**31], [0], [-1], [1] * 5000, ["a"]))
        what, is_bad = f"a tensor of shape {str(claim['shape'])[:30]} is claimed", True
    elif way < 0.65:
        text["content"], what = _nasty(rng), "another content"
    else:
        text["content"], what = _alter_value(text["content"], rng)
    header["__metadata__"]["rover"] = json.dumps(text, separators=(",", ":"))
    if "is claimed" in what:
        raw = json.dumps(header, separators=(",", ":")).encode()
        data = len(raw).to_bytes(8, "little") + raw + body
    else:
        data = save(tensors, metadata=header["__metadata__"])
    path.write_bytes(_seal(data))
    return f"{path.name}: {what}", is_bad


def _seal_run(run: Path) -> None:
    """A manifest that fits the files of a run."""
    manifest = run / "manifest.json"
    if manifest.is_file():
        stored = json.loads(manifest.read_text())
        for name in stored["files"]:
            if (run / name).is_file():
                stored["files"][name] = hashlib.sha256((run / name).read_bytes()).hexdigest()
        manifest.write_text(json.dumps(stored))


# --- an attempt ---------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, Any]:
    """What is in a folder, links and all, but for locks and pictures."""
    found: dict[str, Any] = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and path.stat().st_size < 2**30:
            found[name] = path.read_bytes()
        else:
            found[name] = "a folder, or huge"
    return {k: v for k, v in found.items() if k != ".lock" and not k.startswith("pictures")}


def attack(attempt: Attempt) -> None:
    """Alter a file of a run, and give the run to a command."""
    rng = attempt.rng
    subject = _SUBJECTS[attempt.number % len(_SUBJECTS)]
    whole = _folder(subject, attempt.shared)
    work, outside = attempt.folder / "work", attempt.folder / "outside"
    run = work / "RUN"
    outside.mkdir()
    (outside / "evil.py").write_text(_MARK)
    shutil.copytree(whole, run, symlinks=True)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    path = rng.choice(files)
    is_whole_file, is_bad, way = subject.is_whole, False, rng.random()
    if way < 0.1:
        kind, did = "links", _link_folder(run, rng, outside)
    elif way < 0.45:
        other = _folder(rng.choice(_SUBJECTS), attempt.shared) / path.relative_to(run)
        kind, did = "raw", _alter_raw(path, other, rng, outside)
        is_bad = "by a link" not in did
    elif path.suffix == ".safetensors":
        kind, (did, is_bad) = "sealed anew", _alter_sealed(path, rng)
        _seal_run(run)
    else:
        kind, did = "sealed anew", _alter_json(path, rng)
        if path.name != "manifest.json":
            _seal_run(run)
    if not did:
        return
    pretrained = subject.run.words[0] == "pretrain"
    commands = _OF_PRETRAINING if pretrained else _OF_TASK
    name = rng.choice(sorted(commands))
    before, untouched = snapshot(run), snapshot(outside)
    ended = fork(_commanded(commands[name], outside), work, seconds=60, bound_memory=True)
    state = "" if is_whole_file else " halfway"
    what = f"{subject.run.name}{state}, {kind}: {did}; {name}"
    altered = path.name if path.parent == run else "checkpoint"
    attempt.count(f"{kind}: {altered}" if kind != "links" else f"links: {did.split()[0]}")
    if not attempt.check(what, ended):
        return
    if (now := snapshot(outside)) != untouched:
        changed = sorted(k for k in now | untouched if now.get(k) != untouched.get(k))
        attempt.find(what, f"changed outside of the run: {changed}")
    if ended.code == 2 and (now := snapshot(run)) != before:
        changed = sorted(k for k in now | before if now.get(k) != before.get(k))
        attempt.find(what, f"refused, but the run was changed: {changed}")
    if ended.code == 0 and is_bad and _reads(name, path, run, kind == "raw" and subject.is_whole):
        attempt.find(what, f"accepted ({name})")
    if ended.code == 0 and name == "resume" and kind == "raw" and not subject.is_whole:
        found, expected = contents(run), contents(made(subject.run, attempt.shared))
        if path.name != "config.json" and found != expected:
            changed = sorted(k for k in found | expected if found.get(k) != expected.get(k))
            attempt.find(what, f"accepted, and ends in other bits: {changed}")


def _reads(command: str, path: Path, run: Path, is_sealed: bool) -> bool:
    """Whether a command has to notice what was done to a file."""
    if command in _FROM_POLICY:
        return path.name == _POLICY
    if is_sealed:
        manifest = run / "manifest.json"
        return path.name in (
            json.loads(manifest.read_text())["files"] if manifest.is_file() else ()
        )
    reads = {_POLICY: ("evaluate", "finetune"), "buffer.safetensors": ("offline", "export")}
    return command in reads.get(path.name, ())


def _commanded(words: list[str], outside: Path) -> Callable[[], int]:
    """Runs a command, or load_policy, where the module that leaves a mark can be imported."""

    def action() -> int:
        sys.path.insert(0, str(outside))
        os.environ["MINARI_DATASETS_PATH"] = str(Path.cwd() / "minari")
        if words:
            return main(words)
        try:
            policy = load_policy(f"RUN/{_POLICY}")
            policy.save("again.safetensors")
        except RoverError as error:
            sys.stderr.write(f"rover: error: {' '.join(str(error).split())}\n")
            return 2
        return 0

    return action
