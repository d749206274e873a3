"""Steps per second of CPU time of every baseline on Two Rooms, after the seed steps, and its parts.

Everything is counted: collecting, the intrinsic reward (represent), the learner (improve), and
measuring a snapshot of the policy every 500 steps. CPU time, so that other programs on the machine
count little; the parts are milliseconds of wall time per step. Prints hardware, date and commit:

    OMP_NUM_THREADS=1 python -m benchmarks.speed.baselines
    OMP_NUM_THREADS=1 python -m benchmarks.speed.baselines --observations pixels --agents rnd apt
"""

from __future__ import annotations

import itertools
import time
from typing import Any

from benchmarks.common import begin, parser, report
from rover.baselines import agent_names, make_agent

BASELINES = tuple(agent_names())[1:]

SNAPSHOT_EVERY = 500
STEPS = {
    ("fast", "onehot"): 2000,
    ("published", "onehot"): 200,
    ("fast", "pixels"): 200,
    ("published", "pixels"): 20,
}
ROUNDS = 3


def measured(name: str, preset: str, observation: str, rounds: int) -> dict[str, Any]:
    """Steps per second of the best of a few rounds, with its share of a snapshot, and its parts."""
    n = STEPS[preset, observation]
    # MEPOL has no snapshots but after its batches, of which one alone is timed below.
    own = {} if name == "mepol" else {"policy_every": n}
    agent = make_agent(
        name, "rover/TwoRooms-v0", preset, env_kwargs={"observation": observation}, **own
    )
    seed_steps = getattr(agent.config, "seed_steps", 0)
    if seed_steps:
        agent.learn(-(-seed_steps // n) * n)
    if name == "mepol":
        n = agent.config.n_trajectories * agent.env.unwrapped.horizon
    best: tuple[float, dict[str, float]] = (0.0, {})
    for _ in range(rounds):
        before = dict(agent.summary()["seconds"])
        began = time.process_time()
        agent.learn(n)
        taken = time.process_time() - began
        after = agent.summary()["seconds"]
        parts = {part: 1e3 * (after[part] - before.get(part, 0.0)) / n for part in after}
        if name != "mepol":
            taken -= n * parts["evaluate"] / 1e3 * (1.0 - n / SNAPSHOT_EVERY)
        best = max(best, (n / taken, parts), key=lambda found: found[0])
    about = {"observations": observation, "preset": preset, "agent": name, "steps/s": best[0]}
    return about | {part: best[1].get(part, 0.0) for part in ("collect", "represent", "improve")}


def main() -> None:
    """Print one line for each agent, preset and kind of observation."""
    arguments = parser(__doc__, agents=BASELINES, presets=["fast"], observations=["onehot"])
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    asked = arguments.parse_args()
    begin()
    cases = itertools.product(asked.observations, asked.presets, asked.agents)
    report(measured(name, preset, seen, asked.rounds) for seen, preset, name in cases)


if __name__ == "__main__":
    main()
