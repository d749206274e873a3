"""What a sweep costs beyond its runs: its time over the sum of the runs' own, divided by the cores.

    python benchmarks/sweep_overhead.py                            # about a minute
    python benchmarks/sweep_overhead.py --runs 200 --seconds 10    # on two cores 21 minutes

The own time of a run is `wall_seconds` of its summary: from its first step to its last file.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from rover.storage import read_json
from rover_bench import load_study
from rover_bench.execute import execute

sys.path.append(str(Path(__file__).parent))
from common import begin, parser

RUN = {"env": "rover/MultiRooms-v0", "env_kwargs": {"observation": "onehot"}, "agent": "rnd"}


def sweep(steps: int, seeds: range, *, jobs: int) -> tuple[float, list[float]]:
    """Seconds of a sweep, and of each of its runs."""
    run = {**RUN, "steps": steps, "seeds": list(seeds)}
    study = load_study({"name": "s", "title": "s", "run": run, "axes": {"agent": {"rnd": {}}}})
    with tempfile.TemporaryDirectory() as folder:
        runs = study.cases()[0].runs(Path(folder))
        began = time.perf_counter()
        finished, failures = execute(runs, jobs=jobs, say=lambda line: None)
        seconds = time.perf_counter() - began
        assert not failures, failures
        return seconds, [read_json(r.folder / "summary.json")["wall_seconds"] for r in finished]


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--seconds", type=float, default=4.0, help="about, of each run")
    arguments.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = arguments.parse_args()
    begin()
    # side by side, as the runs that are measured: alone a run is quicker
    first, of_runs = sweep(1000, range(options.jobs), jobs=options.jobs)
    of_run = max(of_runs)
    steps = max(100, round(1000 * options.seconds / of_run))
    seconds, own = sweep(steps, range(options.runs), jobs=options.jobs)
    ideal = sum(own) / options.jobs
    extra = seconds - ideal
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    mean = sum(own) / options.runs
    print(f"{options.runs} runs of {mean:.1f} s ({steps:,} steps), {options.jobs} at a time")
    print(f"sweep {seconds:.1f} s, runs over cores {ideal:.1f} s")
    print(f"overhead {extra / ideal:.1%}, {extra / options.runs * options.jobs:.2f} s a run")
    print(f"of a sweep of one round, with all that is imported once: {first - of_run:.1f} s")


if __name__ == "__main__":
    main()
