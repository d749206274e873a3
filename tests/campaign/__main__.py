"""Make attempts to break rover for a time, print their counts, and fail on any finding."""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import re
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch._dynamo  # noqa: F401  (this and the others below so that forked processes need not)

from rover.baselines import agent_class, agent_names

from . import commands, files, kills, misuse
from .runner import Attack, Finding, Tally, run

ATTACKS: Mapping[str, Attack] = {
    "kills": kills.attack,
    "files": files.attack,
    "commands": commands.attack,
    "misuse": misuse.attack,
}


def _work(
    share: int, kinds: Sequence[str], numbers: Sequence[int], jobs: int, folder: Path, **limits: int
) -> Tally:
    chosen: Iterable[int] = numbers[share::jobs]
    queues = {kind: chosen if numbers else itertools.count(share, jobs) for kind in kinds}
    return run({kind: ATTACKS[kind] for kind in kinds}, queues, folder / str(share), **limits)


def report(tally: Tally, seed: int) -> str:
    """The counts, and one finding of each sort with the command that repeats it."""
    lines = []
    for kind in ATTACKS:
        counts = {what: n for (of, what), n in sorted(tally.counts.items()) if of == kind}
        lines += [f"{kind}: {sum(counts.values())}"] * bool(counts)
        lines += [f"  {n:6} {what}" for what, n in counts.items()]
    sorts: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(tally.findings):
        sort = re.sub(r"\d\S*|/\S+|'[^']*'", "", finding.happened)[:80]  # roughly one cause
        sorts.setdefault((finding.kind, sort), []).append(finding)
    lines.append(f"findings: {len(tally.findings)}, of {len(sorts)} sorts")
    for (kind, number, did, happened), *others in sorts.values():
        lines += [f"- {did}", f"    {happened}"]
        options = f"--seed {seed} --kinds {kind} --numbers {number}"
        lines.append(f"    python -m tests.campaign {options}")
        lines += [f"    and {len(others)} like it: {[x.number for x in others][:20]}"] * bool(
            others
        )
    return "\n".join(lines)


def main() -> int:
    """Run the campaign that the command line describes; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=int, default=600, help="for all kinds together")
    parser.add_argument("--least", type=int, default=0, help="of each kind, whatever time it takes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(ATTACKS), help="separated by commas")
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--numbers", type=int, nargs="+", default=[], help="only these attempts")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    if unknown := set(kinds) - set(ATTACKS):
        parser.error(f"unknown kinds {', '.join(unknown)}; there are {', '.join(ATTACKS)}")
    for name in agent_names():
        agent_class(name)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="rover-campaign-") as folder:
        work = partial(
            _work,
            kinds=kinds,
            numbers=options.numbers,
            jobs=options.jobs,
            folder=Path(folder),
            seed=options.seed,
            seconds=sys.maxsize if options.numbers else options.seconds,
            least=-(-options.least // options.jobs),
        )
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("fork")) as pool:
            for one in pool.map(work, range(options.jobs)):
                tally.counts.update(one.counts)
                tally.findings += one.findings
    sys.stdout.write(report(tally, options.seed) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
