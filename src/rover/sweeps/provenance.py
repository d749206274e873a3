"""Where, when and with which code a run was made."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rover.version import __version__


def provenance(*, jobs: int) -> dict[str, Any]:
    """What holds of this process, now: a line of a run's ``provenance.jsonl``.

    Args:
        jobs: runs that are allowed side by side.

    Returns:
        began: UTC, ISO 8601. commit: of the source, with "+" if files of the source were changed
        since; "unknown" outside a checkout. cpu: model of the processor. cores: that the process
        may use. jobs. versions: of Python, rover and the packages that the figures depend on.
    """
    packages = ("torch", "numpy", "scipy", "gymnasium", "clarabel")
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "began": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "cpu": _cpu_model(),
        "cores": len(affinity(0)) if affinity else os.cpu_count() or 1,
        "jobs": jobs,
        "versions": {
            "python": platform.python_version(),
            "rover": __version__,
            **{name: version(name) for name in packages},
        },
    }


def describe_provenance(records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Machine, versions, commits and dates of many sittings, each fact once, as sentences."""
    every = sorted(records, key=lambda record: str(record["began"]))
    if not every:
        return []
    machines = dict.fromkeys(f"{record['cpu']}, {record['cores']} cores" for record in every)
    jobs = dict.fromkeys(str(record["jobs"]) for record in every)
    commits = dict.fromkeys(record["commit"] for record in every)
    versions = dict.fromkeys(
        ", ".join(f"{name} {number}" for name, number in sorted(record["versions"].items()))
        for record in every
    )
    dates = dict.fromkeys((every[0]["began"][:10], every[-1]["began"][:10]))
    return [
        f"Machine: {'; '.join(machines)}.",
        f"Runs side by side: {' or '.join(jobs)}, one thread each.",
        f"Dates (UTC): {' to '.join(dates)}.",
        f"Commit{'s' if len(commits) > 1 else ''}: {', '.join(commits)}.",
        f"Versions: {'; '.join(versions)}.",
    ]


def _commit() -> str:
    """Commit of the checkout that rover lies in; only changes below src/ make it "changed"."""
    commit, changes = (
        ["git", "rev-parse", "--short=12", "HEAD"],
        ["git", "status", "--porcelain", "--", ":/src", ":/pyproject.toml"],
    )
    options: dict[str, Any] = {"check": True, "capture_output": True, "text": True, "timeout": 30}
    try:
        found, changed = (
            subprocess.run(words, cwd=Path(__file__).parent, **options).stdout.strip()
            for words in (commit, changes)
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{found}+" if changed else str(found)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine() or "unknown processor")
