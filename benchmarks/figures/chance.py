"""Plans where outcomes are drawn: ROVER beside counting and fitted Q iteration, on the same steps.

    python -m benchmarks.figures.chance --problems clinic machines --steps 1000 4000 --seeds 100 101

The expected return of 100 steps of each plan, exactly, by the problem's probabilities; beside them
uniformly random actions and the best, by backward induction. Plans see the steps of a run of ROVER,
whose episodes are of 100 steps, or those of random actions (`--data random`). `counting` is value
iteration on relative frequencies, in which an action that was never tried is worth the least;
`fitted_q` is fitted Q iteration with extra trees (Ernst, Geurts and Wehenkel 2005).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array
from sklearn.ensemble import ExtraTreesRegressor

import rover
from benchmarks.common import add_rows, begin, parser, show
from benchmarks.worlds.chance import PROBLEMS, Floats, Problem
from rover.data import Buffer
from rover.envs import Spaces

COLUMNS = "problem", "data", "steps", "seed", "method", "return", "share", "seconds"
EPISODE, DISCOUNT = 100, 0.99


class Recorded(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that keeps its rewards."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.rewards: list[float] = []

    def step(self, action: Any) -> Any:
        """Make a step."""
        result = self.env.step(action)
        self.rewards.append(float(result[1]))
        return result


def collected(problem: Problem, data: str, steps: int, seed: int) -> tuple[Buffer, Floats]:
    """Transitions of ROVER or of random actions, and their rewards."""
    env = Recorded(problem)
    limited = gym.wrappers.TimeLimit(env, EPISODE)
    if data == "own":
        agent = rover.Rover(limited, seed=seed, measure_share=0.0).learn(steps)
        return agent.buffer, np.array(env.rewards[:steps])
    buffer, rng = Buffer.of(Spaces.of(problem)), np.random.default_rng(seed)
    for step in range(steps):
        if step % EPISODE == 0:
            here = buffer.observations.intern(limited.reset(seed=seed if step == 0 else None)[0])
            buffer.add_start(here)
        action = int(rng.integers(buffer.n_actions))
        seen, _, _, truncated, _ = limited.step(np.int64(action))
        there = buffer.observations.intern(seen)
        buffer.add(here, action, there, False, truncated)
        here = there
    return buffer, np.array(env.rewards)


def observed(problem: Problem) -> NDArray[Any]:
    """Observations of all states."""
    if problem.states.shape[1] == 0:
        return np.arange(len(problem.rewards))
    return problem.states.astype(problem.observation_space.dtype)


def by_rover(problem: Problem, buffer: Buffer, rewards: Floats) -> Floats:
    """Action probabilities (N, A) of `rover.solve`."""
    policy, seen = rover.solve(buffer, rewards, discount=DISCOUNT), observed(problem)
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
    probs = np.array([known.get(row.tobytes(), every) for row in observed(problem)], np.float64)
    return np.asarray(probs / probs.sum(axis=1, keepdims=True))


def by_fitted_q(problem: Problem, buffer: Buffer, rewards: Floats, sweeps: int = 60) -> Floats:
    """Action probabilities (N, A) of fitted Q iteration."""
    table, n_actions = (
        buffer.observations.rows.reshape(len(buffer.observations), -1),
        buffer.n_actions,
    )
    inputs = np.column_stack([table[buffer.inputs], buffer.actions])
    each = np.repeat(np.arange(n_actions), len(buffer))
    after = np.column_stack([np.tile(table[buffer.successors], (n_actions, 1)), each])
    target = rewards
    for _ in range(sweeps):
        model = ExtraTreesRegressor(40, min_samples_leaf=5, random_state=0).fit(inputs, target)
        target = rewards + DISCOUNT * model.predict(after).reshape(n_actions, -1).max(axis=0)
    seen = observed(problem).reshape(len(problem.rewards), -1)
    values = [
        model.predict(np.column_stack([seen, np.full(len(seen), a)])) for a in range(n_actions)
    ]
    return np.eye(n_actions)[np.argmax(values, axis=0)]


METHODS = {"rover": by_rover, "counting": by_counting, "fitted_q": by_fitted_q}


def main() -> None:
    """Print a row for each problem, number of steps, seed and method."""
    arguments = parser(
        __doc__,
        problems=list(PROBLEMS),
        steps=[300, 1000, 4000],
        seeds=[100],
        methods=list(METHODS),
    )
    arguments.add_argument("--data", choices=("own", "random"), default="own")
    arguments.add_argument("--csv", type=Path, help="file that rows are added to")
    asked = arguments.parse_args()
    begin()
    is_first = True
    for name in asked.problems:
        problem = PROBLEMS[name]()
        best, n_actions = problem.best(EPISODE), problem.rewards.shape[1]
        uniform = np.full(problem.rewards.shape, 1.0 / n_actions)
        random = problem.expected(uniform, EPISODE)
        print(f"{name}: {len(uniform):,} states, best {best:.5g}, random actions {random:.5g}")
        for steps in asked.steps:
            for seed in asked.seeds:
                buffer, rewards = collected(PROBLEMS[name](), asked.data, steps, seed)
                for method in asked.methods:
                    began = time.process_time()
                    probs = METHODS[method](problem, buffer, rewards)
                    seconds = round(time.process_time() - began, 1)
                    earned = problem.expected(probs, EPISODE)
                    share = round((earned - random) / (best - random), 3)
                    figures = (
                        name,
                        asked.data,
                        steps,
                        seed,
                        method,
                        round(earned, 1),
                        share,
                        seconds,
                    )
                    row = dict(zip(COLUMNS, figures, strict=True))
                    show(row, is_first=is_first)
                    add_rows(asked.csv, COLUMNS, [row])
                    is_first = False


if __name__ == "__main__":
    main()
