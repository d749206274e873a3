"""What all attempts share: a process that is forked for each, its time and memory, the counts.

Torch is imported once, by the process that forks: an attempt then costs what it does and not its
imports. Linux only, because of how a process is waited for.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rover.cli import main
from rover.cli.commands import COMMANDS

BUG = 70
"""Exit code of a forked process that ended with an exception."""

_SPARE_MEMORY = 2 * 2**30  # beyond what a process that has just been forked has mapped
_INTERNAL = re.compile(r"Traceback|Exception ignored|\b[A-Z]\w+Error\b|pydantic|object at 0x")


class Ended(NamedTuple):
    """How a process ended; the code of one that was killed is −signal, None: it hung."""

    code: int | None
    out: str
    err: str


def fork(
    action: Callable[[], int | None],
    folder: Path,
    *,
    seconds: float = 60.0,
    kill_after: float | None = None,
    bound_memory: bool = False,
) -> Ended:
    """Run `action` in a process of its own.

    Args:
        action: returns the exit code.
        folder: the working directory.
        seconds: after which the process hangs, and is killed.
        kill_after: seconds after which it is killed on purpose.
        bound_memory: whether a large allocation fails.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    written = [os.memfd_create("out"), os.memfd_create("err")]
    process = os.fork()
    if process == 0:
        code = BUG
        try:
            os.setsid()
            os.dup2(written[0], 1)
            os.dup2(written[1], 2)
            os.chdir(folder)
            if bound_memory:
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                limit = pages * resource.getpagesize() + _SPARE_MEMORY
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            code = action() or 0
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
    hung = not waiting.poll(1000 * (seconds if kill_after is None else kill_after))
    if hung:
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(OSError):  # what it started
        os.killpg(process, signal.SIGKILL)
    os.close(handle)
    texts = []
    for file in written:
        with os.fdopen(file, "rb") as content:
            content.seek(0)
            texts.append(content.read().decode(errors="replace"))
    code = None if hung and kill_after is None else os.waitstatus_to_exitcode(status)
    return Ended(code, texts[0], texts[1])


def rover(words: Sequence[str], folder: Path, *, bound_memory: bool = False) -> Ended:
    """Run a command line of rover in a process of its own."""
    return fork(lambda: main(words), folder, bound_memory=bound_memory)


class Finding(NamedTuple):
    """What an attempt found: what it did, and what happened."""

    kind: str
    number: int
    did: str
    happened: str


@dataclass
class Tally:
    """The counts and findings of attempts."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        """Take over those of another."""
        self.counts.update(other.counts)
        self.findings += other.findings


@dataclass
class Attempt:
    """One attempt: its random numbers, its folders, and where its findings go.

    Attributes:
        kind, number: with the seed they name the attempt.
        rng: follows from seed, kind and number.
        folder: empty at the beginning, removed at the end.
        shared: of all attempts of this process; what is made there once is not changed.
    """

    kind: str
    number: int
    rng: random.Random
    folder: Path
    shared: Path
    tally: Tally

    def count(self, what: str, times: int = 1) -> None:
        """Add to the count of `what`."""
        self.tally.counts[self.kind, what] += times

    def find(self, did: str, happened: str) -> None:
        """Note a finding."""
        texts = (" ".join(text.split())[:800] for text in (did, happened))
        self.tally.findings.append(Finding(self.kind, self.number, *texts))

    def check(self, did: str, ended: Ended, *, codes: Sequence[int] = (0, 2)) -> bool:
        """Check how a command ended: an allowed code, and one line where it was refused.

        Args:
            did: what was done, for the finding.
            ended: how the command ended.
            codes: those that are allowed.

        Returns:
            Whether there is nothing to find.
        """
        lines = [x for x in ended.err.splitlines() if x and not x.startswith("rover: warning: ")]
        shown = f"stderr: {' | '.join(lines[:2] + lines[-2:])!r}"
        if ended.code is None:
            self.find(did, f"hangs; {shown}")
        elif ended.code not in codes:
            self.find(did, f"exit code {ended.code}, not one of {tuple(codes)}; {shown}")
        elif _INTERNAL.search(ended.err) or "not enough memory" in ended.err:
            self.find(did, f"exit code {ended.code}, an error of our own depth; {shown}")
        elif ended.code == 2 and not (len(lines) == 1 and lines[0].startswith("rover: error: ")):
            self.find(did, f"exit code 2 with {len(lines)} lines; {shown}")
        elif len(ended.err) > 4000:
            self.find(did, f"{len(ended.err)} characters on stderr; {shown}")
        else:
            return True
        return False


Attack = Callable[[Attempt], None]


def attempt(kind: str, attack: Attack, number: int, *, seed: int, shared: Path) -> Tally:
    """Make one attempt; an exception of the campaign itself is a finding too."""
    folder = shared / f"{kind}-{number}"
    folder.mkdir(parents=True)
    one = Attempt(
        kind, number, random.Random(f"{seed} {kind} {number}"), folder, shared / "made", Tally()
    )
    one.shared.mkdir(exist_ok=True)
    try:
        attack(one)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        what = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        one.find("the campaign itself", what)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return one.tally


def run(
    attacks: Mapping[str, Attack],
    folder: Path,
    *,
    seed: int,
    seconds: float = float("inf"),
    attempts: Mapping[str, int] | None = None,
    numbers: Sequence[int] | None = None,
    share: tuple[int, int] = (0, 1),
) -> Tally:
    """Make attempts of each kind, in turns, until the time or their number is over.

    Args:
        attacks: by kind.
        folder: for files.
        seed: what every attempt follows from.
        seconds: of time for all kinds together, which have equal parts of it.
        attempts: how many of each kind; None: as many as fit.
        numbers: only these.
        share: (i, n): of the attempts only i, i + n, i + 2n, ...
    """
    tally, spent, following = Tally(), dict.fromkeys(attacks, 0.0), dict.fromkeys(attacks, share[0])
    if numbers is not None:
        for kind, attack in attacks.items():
            for number in numbers:
                tally.add(attempt(kind, attack, number, seed=seed, shared=folder))
        return tally
    limits = dict.fromkeys(attacks, sys.maxsize) if attempts is None else attempts
    while sum(spent.values()) < seconds:
        left = [kind for kind in attacks if following[kind] < limits[kind]]
        if not left:
            break
        kind = min(left, key=lambda kind: spent[kind])
        began = time.monotonic()
        tally.add(attempt(kind, attacks[kind], following[kind], seed=seed, shared=folder))
        spent[kind] += time.monotonic() - began
        following[kind] += share[1]
    return tally


def import_everything() -> None:
    """Import what any attempt needs, so that forked processes need not."""
    import torch._dynamo  # noqa: F401  (imported by the first optimizer)

    from rover.baselines import agent_class, agent_names

    for name in agent_names():
        agent_class(name)
    assert COMMANDS
