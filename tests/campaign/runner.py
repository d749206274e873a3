"""What all attempts share: a forked process for each, its time and memory, counts and findings.

Torch is imported once, by the process that forks, so that an attempt costs what it does and not
its imports. Linux only, because of how processes are waited for and their memory is bounded.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import resource
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rover.cli import main

_CPU_SECONDS = 60  # after which a process hangs, however busy the machine is
WALL_SECONDS = 900.0  # after which one hangs that does not even compute
_SPARE_MEMORY = 2 * 2**30  # beyond what a process that has just been forked has mapped
_INTERNAL = re.compile(r"Traceback|Exception ignored|pydantic|[Aa]llocat")
_LONGEST_MESSAGE = 4000


class Ended(NamedTuple):
    """How a process ended; the code of one that was killed is −signal; None: it hung."""

    code: int | None
    out: str
    err: str


def fork(action: Callable[[], int], folder: Path, *, kill_after: float | None = None) -> Ended:
    """Run `action` in a process of its own, where a huge allocation fails.

    Args:
        action: returns the exit code.
        folder: the working directory.
        kill_after: seconds after which the process is killed on purpose.
    """
    sys.stdout.flush()
    written = [os.memfd_create("out"), os.memfd_create("err")]
    process = os.fork()
    if process == 0:
        code = 70  # of an exception
        try:
            os.setsid()
            os.dup2(written[0], 1)
            os.dup2(written[1], 2)
            os.chdir(folder)
            mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + _SPARE_MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 1))
            code = action()
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    handle = os.pidfd_open(process)
    waiting = select.poll()
    waiting.register(handle, select.POLLIN)
    is_late = not waiting.poll(1000 * (WALL_SECONDS if kill_after is None else kill_after))
    if is_late:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    os.close(handle)
    with contextlib.suppress(OSError):  # what it started
        os.killpg(process, signal.SIGKILL)
    texts = []
    for number in written:
        with os.fdopen(number, "rb") as file:
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    code = os.waitstatus_to_exitcode(status)
    hangs = (is_late and kill_after is None) or code == -signal.SIGXCPU
    return Ended(None if hangs else code, *texts)


def rover(words: Sequence[str], folder: Path) -> Ended:
    """Run a command line of rover in a process of its own."""
    return fork(lambda: main(words), folder)


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """The keys whose values differ, or that only one of the two has."""
    return sorted(k for k in before | after if before.get(k, ...) != after.get(k, ...))


class Finding(NamedTuple):
    """What an attempt did, and what happened."""

    kind: str
    number: int
    did: str
    happened: str


@dataclass
class Tally:
    """The counts and findings of attempts."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def total(self, kind: str) -> int:
        """How many of a kind were counted."""
        return sum(n for (of, _), n in self.counts.items() if of == kind)


@dataclass
class Attempt:
    """One attempt: its random numbers, its folders, and where its findings go.

    Attributes:
        kind, number: what `rng` follows from, with the seed.
        rng: random numbers.
        folder: empty at the beginning, removed at the end.
        shared: of all attempts of this process; what is made there once is not changed.
        tally: counts and findings.
    """

    kind: str
    number: int
    rng: random.Random
    folder: Path
    shared: Path
    tally: Tally

    def count(self, what: str) -> None:
        """Count one of `what`."""
        self.tally.counts[self.kind, what] += 1

    def find(self, did: str, happened: str) -> None:
        """Note a finding."""
        texts = (" ".join(text.split())[:800] for text in (did, happened))
        finding = Finding(self.kind, self.number, *texts)
        self.tally.findings.append(finding)
        sys.stderr.write(" ".join(map(str, finding)) + "\n")  # seen before the end

    def check(self, did: str, ended: Ended, *, codes: Sequence[int] = (0, 2)) -> bool:
        """Whether a command ended with an allowed code, and in one line where it was refused."""
        lines = [x for x in ended.err.splitlines() if x and not x.startswith("rover: warning: ")]
        problem = ""
        if ended.code is None:
            problem = "hangs"
        elif ended.code not in codes:
            problem = f"exit code {ended.code}, not one of {tuple(codes)}"
        elif _INTERNAL.search(ended.err):
            problem = f"exit code {ended.code}, an error of our own depth"
        elif ended.code == 2 and not (len(lines) == 1 and lines[0].startswith("rover: error: ")):
            problem = f"exit code 2 with {len(lines)} lines"
        elif len(ended.err) > _LONGEST_MESSAGE:
            problem = f"{len(ended.err)} characters on stderr"
        if problem:
            self.find(did, f"{problem}; stderr: {' | '.join([*lines[:1], *lines[1:][-2:]])}")
        return not problem


Attack = Callable[[Attempt], None]


def run(
    attacks: Mapping[str, Attack],
    numbers: Mapping[str, Iterable[int]],
    folder: Path,
    *,
    seed: int,
    seconds: float = float("inf"),
    least: int = 0,
) -> Tally:
    """Make attempts, those of each kind for about the same time, then those that are still due.

    Args:
        attacks: by kind.
        numbers: of the attempts of each kind.
        folder: for files.
        seed: what every attempt follows from, with its kind and number.
        seconds: after which no other is made.
        least: how many there are to be of each kind, however long that takes.
    """
    tally, shared = Tally(), folder / "shared"
    shared.mkdir(parents=True)
    spent, left = dict.fromkeys(attacks, 0.0), {kind: iter(numbers[kind]) for kind in attacks}
    while left:
        is_over = sum(spent.values()) >= seconds
        due = [kind for kind in left if not is_over or tally.total(kind) < least]
        if not due:
            break
        kind = min(due, key=spent.__getitem__)
        number = next(left[kind], None)
        if number is None:
            del left[kind]
            continue
        began, own = time.monotonic(), folder / f"{kind}-{number}"
        own.mkdir()
        rng = random.Random(f"{seed} {kind} {number}")
        attempt = Attempt(kind, number, rng, own, shared, tally)
        try:
            attacks[kind](attempt)
        except Exception as error:  # of the campaign itself
            place = traceback.extract_tb(error.__traceback__)[-1]
            attempt.find("the campaign", f"{error!r} in {place.filename}, line {place.lineno}")
        shutil.rmtree(own, ignore_errors=True)
        spent[kind] += time.monotonic() - began
    return tally
