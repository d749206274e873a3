"""Plans where outcomes are drawn: ROVER beside counting and fitted Q iteration, on the same steps.

    python -m benchmarks.figures.chance --problems clinic machines --steps 1000 4000 --seeds 100 101

The expected return of 100 steps of each plan, exactly, by the problem's probabilities; beside them
uniformly random actions and the best, by backward induction. Plans see the steps of a run of ROVER,
whose episodes are of 100 steps, or those of random actions (`--data random`). `counting` is value
iteration on relative frequencies, in which an action that was never tried is worth the least;
`fitted_q` is fitted Q iteration with extra trees (Ernst, Geurts and Wehenkel 2005).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from scipy.sparse import csr_array, diags_array
from sklearn.ensemble import ExtraTreesRegressor

import rover
from benchmarks.common import Recorded, begin, parser, report
from benchmarks.worlds.chance import PROBLEMS, Floats, Problem
from rover.data import Buffer

EPISODE, DISCOUNT = 100, 0.99


def collected(problem: Problem, data: str, steps: int, seed: int) -> tuple[Buffer, Floats]:
    """Transitions of ROVER or of random actions, and their rewards."""
    env = Recorded(problem)
    limited = gym.wrappers.TimeLimit(env, EPISODE)
    name = {"own": "rover", "random": "random"}[data]
    agent = rover.make_agent(name, limited, seed=seed, measure_share=0.0).learn(steps)
    return agent.buffer, np.concatenate(env.rewards)[:steps]


def by_rover(problem: Problem, buffer: Buffer, rewards: Floats) -> Floats:
    """Action probabilities (N, A) of `rover.solve`."""
    policy, seen = rover.solve(buffer, rewards, discount=DISCOUNT), problem.observations
    tables = [policy.tables(seen[i : i + 2000])[0] for i in range(0, len(seen), 2000)]
    return np.concatenate(tables)


def by_counting(problem: Problem, buffer: Buffer, rewards: Floats) -> Floats:
    """Action probabilities (N, A) of value iteration on relative frequencies."""
    n_actions, size = buffer.n_actions, len(buffer.observations)
    pairs = buffer.inputs * n_actions + buffer.actions
    tries = np.bincount(pairs, minlength=size * n_actions)
    shares = diags_array(1.0 / np.maximum(tries, 1))
    index = pairs, buffer.successors
    moves = shares @ csr_array((np.ones(len(pairs)), index), (len(tries), size))
    earned = np.bincount(pairs, rewards, minlength=len(tries)) / np.maximum(tries, 1)
    earned[tries == 0] = min(float(rewards.min()), 0.0) / (1.0 - DISCOUNT)
    values = np.zeros(size)
    for _ in range(2000):
        q = (earned + DISCOUNT * (moves @ values)).reshape(size, n_actions)
        values = q.max(axis=1)
    best = q >= q.max(axis=1, keepdims=True) - 1e-9
    known = {
        row.tobytes(): probs for row, probs in zip(buffer.observations.rows, best, strict=True)
    }
    every = np.ones(n_actions, np.bool_)
    probs = np.array([known.get(row.tobytes(), every) for row in problem.observations], np.float64)
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))


def by_fitted_q(problem: Problem, buffer: Buffer, rewards: Floats, sweeps: int = 60) -> Floats:
    """Action probabilities (N, A) of fitted Q iteration."""
    table, n_actions = buffer.observations.rows, buffer.n_actions
    inputs = np.column_stack([table[buffer.inputs], buffer.actions])
    each = np.repeat(np.arange(n_actions), len(buffer))
    after = np.column_stack([np.tile(table[buffer.successors], (n_actions, 1)), each])
    target = rewards
    for _ in range(sweeps):
        model = ExtraTreesRegressor(40, min_samples_leaf=5, random_state=0).fit(inputs, target)
        target = rewards + DISCOUNT * model.predict(after).reshape(n_actions, -1).max(axis=0)
    seen = problem.observations
    values = [
        model.predict(np.column_stack([seen, np.full(len(seen), a)])) for a in range(n_actions)
    ]
    return np.eye(n_actions)[np.argmax(values, axis=0)]


METHODS = {"rover": by_rover, "counting": by_counting, "fitted_q": by_fitted_q}


def rows_of(name: str, asked: Any) -> Iterator[dict[str, Any]]:
    """A row for each number of steps, seed and method on one problem."""
    problem = PROBLEMS[name]()
    best, uniform = (
        problem.best(EPISODE),
        np.full_like(problem.rewards, 1.0 / problem.action_space.n),
    )
    random = problem.expected(uniform, EPISODE)
    print(f"{name}: {len(uniform):,} states, best {best:.5g}, random actions {random:.5g}")
    for steps, seed in itertools.product(asked.steps, asked.seeds):
        buffer, rewards = collected(PROBLEMS[name](), asked.data, steps, seed)
        for method in asked.methods:
            began = time.process_time()
            probs = METHODS[method](problem, buffer, rewards)
            seconds = round(time.process_time() - began, 1)
            earned = problem.expected(probs, EPISODE)
            yield {
                "problem": name,
                "data": asked.data,
                "steps": steps,
                "seed": seed,
                "method": method,
                "return": round(earned, 1),
                "share": round((earned - random) / (best - random), 3),
                "seconds": seconds,
            }


def main() -> None:
    """Print a row for each problem, number of steps, seed and method."""
    arguments = parser(
        __doc__, problems=PROBLEMS, steps=[300, 1000, 4000], seeds=[100], methods=METHODS
    )
    arguments.add_argument("--data", choices=("own", "random"), default="own")
    arguments.add_argument("--csv", type=Path, help="file that rows are added to")
    asked = arguments.parse_args()
    begin()
    report(itertools.chain(*(rows_of(name, asked) for name in asked.problems)), asked.csv)


if __name__ == "__main__":
    main()
