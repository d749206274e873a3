"""How good a plan for slippery FrozenLake 8×8 the data allow: an even sample of every pair.

    python examples/even_sample.py

Outcomes of every pair of state and action are drawn from the true dynamics, equally many of each,
which nobody who walks on the lake can have; the plan for the goal is made from their relative
frequencies. Printed: draws of each pair, of all, and the chance that the plan's episodes of 200
steps end at the goal, in ten samples, beside the plan from the true dynamics.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import finite_dynamics
from rover.evaluation.regret import FiniteTasks, expected_returns

GOAL, HORIZON, DISCOUNT, SWEEPS = 63, 200, 0.999, 3000

_Table = NDArray[np.float64]


def plan(dynamics: _Table, ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Actions (S,) of the stationary plan for the goal, of dynamics (S, A, S)."""
    reward = np.eye(len(dynamics))[GOAL]
    action_values = dynamics @ reward
    for _ in range(SWEEPS):
        onward = np.where(ends, 0.0, action_values.max(axis=1))
        action_values = dynamics @ (reward + DISCOUNT * onward)
    best: NDArray[np.int64] = action_values.argmax(axis=1)
    return best


def main() -> None:
    """Print the table."""
    problem = finite_dynamics(gym.make("FrozenLake-v1", map_name="8x8", is_slippery=True))
    assert problem is not None
    exact, ends = problem.dynamics, problem.dynamics.terminal
    dynamics = np.stack([matrix.toarray() for matrix in exact.transition], axis=1)
    reward = dynamics[:, :, GOAL].T.reshape(-1, 1)
    task = FiniteTasks(reward, ends[:, None])

    def success(actions: NDArray[np.int64]) -> float:
        policies = np.eye(exact.n_actions)[actions][None]
        return float(expected_returns(exact, task, horizon=HORIZON, policies=policies)[0])

    print(f"the true dynamics: {success(plan(dynamics, ends)):.3f}")
    rng = np.random.default_rng(0)
    for count in (5, 10, 20, 40):
        found = []
        for _ in range(10):
            sample = dynamics.copy()
            sample[~ends] = rng.multinomial(count, dynamics[~ends]) / count
            found.append(success(plan(sample, ends)))
        shown = " ".join(f"{one:.3f}" for one in sorted(found))
        print(f"{count} of each pair, {4 * count * int((~ends).sum()):,} in all: {shown}")


if __name__ == "__main__":
    main()
