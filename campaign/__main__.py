"""``python -m campaign``: make attempts for a time, print their counts, fail on any finding."""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path

from campaign.runner import Attack, Finding, Tally, import_everything, run

KINDS = ("kills", "files", "commands", "maps", "misuse")


def attacks(kinds: str) -> dict[str, Attack]:
    """The attack of each kind in a comma-separated list."""
    unknown = set(kinds.split(",")) - set(KINDS)
    if unknown:
        sys.exit(f"unknown kinds {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    return {kind: import_module(f"campaign.{kind}").attack for kind in kinds.split(",")}


def _work(share: tuple[int, int], kinds: str, folder: Path, seed: int, seconds: float) -> Tally:
    own = folder / str(share[0])
    own.mkdir()
    return run(attacks(kinds), own, seed=seed, seconds=seconds, share=share)


def report(tally: Tally, seed: int) -> str:
    """The counts, and each different finding with the command that repeats it."""
    lines = []
    for kind in KINDS:
        counts = {what: n for (of, what), n in sorted(tally.counts.items()) if of == kind}
        if counts:
            lines.append(f"{kind}: {sum(counts.values())}")
            lines += [f"  {n:6} {what}" for what, n in counts.items()]
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(tally.findings):
        alike.setdefault((finding.kind, _signature(finding.happened)), []).append(finding)
    lines.append(f"findings: {len(tally.findings)}, of {len(alike)} kinds")
    for (kind, number, did, happened), *others in alike.values():
        lines += [
            f"- {kind}: {did}",
            f"    {happened}" + (f" (and {len(others)} others)" if others else ""),
        ]
        lines.append(f"    python -m campaign --seed {seed} --kinds {kind} --numbers {number}")
    return "\n".join(lines)


def _signature(text: str) -> str:
    """What findings of one cause have in common, roughly."""
    return re.sub(r"\d\S*|/\S+|'[^']*'", "", text)[:80]


def main() -> int:
    """Run the campaign that the command line describes; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all kinds together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1, help="processes side by side")
    parser.add_argument("--numbers", type=int, nargs="+", help="only these attempts")
    options = parser.parse_args()
    import_everything()
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="rover-campaign-") as name:
        folder = Path(name)
        if options.numbers:
            chosen = attacks(options.kinds)
            tally = run(chosen, folder, seed=options.seed, numbers=options.numbers)
        else:
            work = partial(
                _work,
                kinds=options.kinds,
                folder=folder,
                seed=options.seed,
                seconds=options.seconds,
            )
            context = multiprocessing.get_context("fork")
            with ProcessPoolExecutor(options.jobs, context) as pool:
                for one in pool.map(work, [(i, options.jobs) for i in range(options.jobs)]):
                    tally.add(one)
    sys.stdout.write(report(tally, options.seed) + "\n")
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
