"""How good a plan for slippery FrozenLake 8×8 the data allow: an even sample of every pair.

    python experiments/even_sample.py

Outcomes of every pair of state and action are drawn from the true dynamics, equally many of each,
which nobody who walks on the lake can have; the plan for the goal is made from their relative
frequencies. Printed: draws of each pair, of all, and the chance that the plan's episodes of 200
steps end at the goal, in ten samples, beside that of the plan from the true dynamics.
"""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

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


def success(dynamics: _Table, ends: NDArray[np.bool_], actions: NDArray[np.int64]) -> float:
    """Chance that an episode from state 0 ends at the goal."""
    moves = dynamics[np.arange(len(dynamics)), actions]
    value = np.zeros(len(dynamics))
    for _ in range(HORIZON):
        value = moves @ (np.eye(len(dynamics))[GOAL] + np.where(ends, 0.0, value))
    return float(value[0])


def main() -> None:
    """Print the table."""
    table = gym.make("FrozenLake-v1", map_name="8x8", is_slippery=True).unwrapped.P  # type: ignore[attr-defined]
    dynamics, ends = np.zeros((64, 4, 64)), np.zeros(64, np.bool_)
    for (state, action), outcomes in (((s, a), table[s][a]) for s in range(64) for a in range(4)):
        for probability, reached, _, is_end in outcomes:
            dynamics[state, action, reached] += probability
            ends[reached] |= is_end
    print(f"the true dynamics: {success(dynamics, ends, plan(dynamics, ends)):.3f}")
    rng = np.random.default_rng(0)
    for count in (5, 10, 20, 40):
        found = []
        for _ in range(10):
            sample = dynamics.copy()
            sample[~ends] = rng.multinomial(count, dynamics[~ends]) / count
            found.append(success(dynamics, ends, plan(sample, ends)))
        shown = " ".join(f"{one:.3f}" for one in sorted(found))
        print(f"{count} of each pair, {4 * count * int((~ends).sum()):,} in all: {shown}")


if __name__ == "__main__":
    main()
