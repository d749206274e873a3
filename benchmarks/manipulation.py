"""Zero-shot manipulation: goals of Fetch after reward-free steps, beside doing nothing.

    python benchmarks/manipulation.py FetchReach --steps 2000 --seeds 100 101 102
    python benchmarks/manipulation.py FetchPush --steps 10000 --cover 3 4 5 --seeds 100

For each seed one exploration, and goals that the environment draws, 100 by default: success at the
end of an episode, and at any step of it. Costs are CPU milliseconds of a step of exploration and of
a decision of the returned policy. Settings were chosen on seeds below 100.
"""

from __future__ import annotations

import argparse
import resource
import time

import gymnasium as gym
import numpy as np
import torch

import rover
import rover_bench.fetch_envs  # noqa: F401  (registers the environments)
from rover.envs import goal_view

FIRST_GOAL = 100_000
"""Seed of the first episode that is measured; settings were chosen on episodes from 50 on."""


def measure(task: str, steps: int, seed: int, n_goals: int, cover: list[int] | None) -> None:
    """Print the figures of one seed."""
    env = gym.make(f"arenas/{task}-v0")
    view = goal_view(env)
    assert view is not None
    options = {} if cover is None else {"cover": tuple(cover)}
    began = time.process_time()
    agent = rover.Rover(env, seed=seed, **options).learn(steps)
    exploring = 1e3 * (time.process_time() - began) / steps
    table, buffer = agent.buffer.observations.rows, agent.buffer
    moves = table[buffer.successors] - table[buffer.inputs]
    moving = float((np.linalg.norm(moves[:, list(view.achieved)], axis=1) > 1e-3).mean())
    measured = gym.make(f"arenas/{task}-v0")
    goals = goal_view(measured)
    assert goals is not None
    at_end, ever, still, deciding, n_decisions = 0, 0, 0, 0.0, 0
    began = time.process_time()
    starts, wanted = [], []
    for episode in range(n_goals):
        observation, _ = measured.reset(seed=FIRST_GOAL + 1000 * seed + episode)
        starts.append(observation[list(view.achieved)])
        wanted.append(goals.desired_goal)
    solving = time.process_time()
    policy = rover.solve(agent, goals=wanted)
    solving = time.process_time() - solving
    for episode in range(n_goals):
        observation, _ = measured.reset(seed=FIRST_GOAL + 1000 * seed + episode)
        state, done, reached, succeeded = None, False, False, False
        policy_of_goal = policy.single(episode)
        while not done:
            began = time.process_time()
            action, state = policy_of_goal.predict(observation, state, deterministic=True)
            deciding += time.process_time() - began
            n_decisions += 1
            observation, _, terminated, truncated, info = measured.step(action)
            succeeded = bool(info["is_success"])
            reached |= succeeded
            done = terminated or truncated
        at_end, ever = at_end + succeeded, ever + reached
        still += bool(np.linalg.norm(starts[episode] - wanted[episode]) <= view.goal_radius)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{task}, {steps} steps, seed {seed}: {at_end / n_goals:.2f} at the end, "
        f"{ever / n_goals:.2f} ever, {still / n_goals:.2f} by doing nothing, of {n_goals} goals; "
        f"it moves in {moving:.0%} of the steps; {exploring:.1f} ms a step, solved in "
        f"{solving:.1f} s, {1e3 * deciding / n_decisions:.1f} ms a decision; {memory:.1f} GB",
        flush=True,
    )


def main() -> None:
    """Measure every seed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", help="FetchReach, FetchPush, FetchSlide or FetchPickAndPlace")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100])
    parser.add_argument("--goals", type=int, default=100)
    parser.add_argument("--cover", type=int, nargs="+")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for seed in asked.seeds:
        measure(asked.task, asked.steps, seed, asked.goals, asked.cover)


if __name__ == "__main__":
    main()
