"""Where figures come from: machine, versions and commit, recorded by every run as it begins."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from rover.storage import read_json, write_json
from rover.version import __version__

FILE_NAME = "provenance.json"
PACKAGES = ("torch", "numpy", "scipy", "gymnasium", "clarabel")


class Session(BaseModel):
    """One sitting of a run: from its start, or a resumption, to its end or interruption.

    Attributes:
        began: UTC, ISO 8601.
        commit: commit of the source, with "+" if files of the source were changed since; "unknown"
            outside a checkout.
        cpu: model of the processor.
        cores: cores that the process may use.
        jobs: runs that were allowed side by side.
        versions: of Python, rover and the packages that the figures depend on.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    began: str
    commit: str
    cpu: str
    cores: int
    jobs: int
    versions: dict[str, str]


class Provenance(BaseModel):
    """All the sittings of one run, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sessions: tuple[Session, ...]


def begin_session(*, jobs: int) -> Session:
    """What holds of this process, now."""
    return Session(
        began=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=_commit(Path(__file__).parent),
        cpu=_cpu_model(),
        cores=_usable_cores(),
        jobs=jobs,
        versions={
            "python": platform.python_version(),
            "rover": __version__,
            **{name: _version(name) for name in PACKAGES},
        },
    )


def append_session(folder: Path, session: Session) -> None:
    """Record `session` in the run folder, which must exist.

    Raises:
        ArtefactError: the record there is damaged.
        StorageError: it cannot be written.
    """
    path = folder / FILE_NAME
    earlier = read_provenance(folder).sessions if path.exists() else ()
    write_json(path, Provenance(sessions=(*earlier, session)))


def read_provenance(folder: Path) -> Provenance:
    """The sittings of the run in `folder`.

    Raises:
        ArtefactError: there is no record, or it is damaged.
    """
    return read_json(folder / FILE_NAME, model=Provenance)


def describe_sessions(sessions: Iterable[Session]) -> list[str]:
    """Machine, versions, commits and dates of many sittings, each fact once, as sentences."""
    every = sorted(sessions, key=lambda session: session.began)
    if not every:
        return []
    machines = _distinct(f"{session.cpu}, {session.cores} cores" for session in every)
    jobs = _distinct(str(session.jobs) for session in every)
    commits = _distinct(session.commit for session in every)
    versions = _distinct(
        ", ".join(f"{name} {number}" for name, number in session.versions.items())
        for session in every
    )
    first, last = every[0].began[:10], every[-1].began[:10]
    return [
        f"Machine: {'; '.join(machines)}.",
        f"Runs side by side: {' or '.join(jobs)}, one thread each.",
        f"Dates (UTC): {first if first == last else f'{first} to {last}'}.",
        f"Commit{'s' if len(commits) > 1 else ''}: {', '.join(commits)}.",
        f"Versions: {'; '.join(versions)}.",
    ]


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _commit(inside: Path) -> str:
    """Commit of the checkout that `inside` lies in; only changes below src/ make it "changed"."""
    try:
        commit = _git(inside, "rev-parse", "--short=12", "HEAD")
        changed = _git(inside, "status", "--porcelain", "--", ":/src", ":/pyproject.toml")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+" if changed else commit


def _git(inside: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=inside, check=True, capture_output=True, text=True, timeout=30
    ).stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
