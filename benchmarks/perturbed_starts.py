"""Success of solved and adapted policies from exact and from perturbed starts, over ten seeds.

Two points whose float states happen to repeat (tests/helpers/walled_points.py): an arena with four
levels of velocity, and a point among walls with coarse steps. A policy is solved on 3,000 steps
without reward, of ROVER or of uniform actions, or adapted on them; it acts from starts moved by a
distance in a random direction, twenty episodes each. Prints the mean and the least success over
the seeds whose data reached the goal, and their number:

    OMP_NUM_THREADS=1 python benchmarks/perturbed_starts.py
    OMP_NUM_THREADS=1 python benchmarks/perturbed_starts.py --seeds 3 --data random
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import rover

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "helpers")]
from common import begin, parser
from walled_points import ARENAS, random_walk, success

FIRST_SEED = 100
PERTURBATIONS = (0.0, 0.01, 0.02, 0.05)
ADAPT_STEPS = 800


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=10, help="how many")
    arguments.add_argument("--steps", type=int, default=3000)
    arguments.add_argument("--data", choices=["rover", "random"], default="rover")
    options = arguments.parse_args()
    begin()
    print("environment    policy   ", *(f"start {by:<10}" for by in PERTURBATIONS))
    for name, make in ARENAS.items():
        rates: dict[str, list[list[float]]] = {"solved": [], "adapted": []}
        for seed in range(FIRST_SEED, FIRST_SEED + options.seeds):
            if options.data == "rover":
                buffer = rover.Rover(make(), seed=seed).learn(options.steps).buffer
            else:
                buffer = random_walk(make(), options.steps, seed)
            if not buffer.terminated.any():
                continue  # the goal was never reached, so that there is nothing to solve
            solved = rover.solve(buffer, buffer.terminated.astype(float))  # an end is the goal
            adapted = rover.adapt(
                buffer,
                make(perturbation=0.03),
                evaluation_env=make(perturbation=0.03),
                total_timesteps=ADAPT_STEPS,
                seed=seed,
            ).policy
            for kind, policy in (("solved", solved), ("adapted", adapted)):
                rates[kind].append([success(make(perturbation=by), policy) for by in PERTURBATIONS])
        for kind, table in rates.items():
            figures = zip(np.mean(table, axis=0), np.min(table, axis=0), strict=True)
            cells = (f"{mean:.2f} (from {least:.2f})" for mean, least in figures)
            print(f"{name:14} {kind:8}", *cells, f"{len(table)} seeds", flush=True)


if __name__ == "__main__":
    main()
