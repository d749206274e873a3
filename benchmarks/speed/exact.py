"""Optimal values of finite problems, against quantecon's modified policy iteration on the same.

Random problems have four actions with five random successors each and random rewards; a lattice
has four moves, of which those into the border stay, and random rewards or one reward in a corner.
Both are asked for values within 1e-11 of the largest times γ / (1 − γ).

    pip install quantecon
    python -m benchmarks.speed.exact
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from benchmarks.common import begin, parser, show
from rover.world.rows import RowTasks

DISCOUNT = 0.99
N_ACTIONS = 4
BRANCHES = 5
REPEATS = 5


def random_problem(size: int, rng: np.random.Generator) -> tuple[csr_array, NDArray[np.float64]]:
    """P (m·A, m) and rewards (m·A,) of a random problem."""
    n_pairs = size * N_ACTIONS
    shares = rng.dirichlet(np.ones(BRANCHES), size=n_pairs).ravel()
    pairs = np.repeat(np.arange(n_pairs), BRANCHES)
    to = rng.integers(size, size=len(pairs))
    return csr_array((shares, (pairs, to)), shape=(n_pairs, size)), rng.random(n_pairs)


def lattice(
    size: int, rng: np.random.Generator, *, is_sparse: bool = False
) -> tuple[csr_array, NDArray[np.float64]]:
    """P and rewards of a square lattice."""
    side = round(size**0.5)
    rows, columns = np.divmod(np.arange(side * side), side)
    moves = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
    to = np.clip(rows[:, None] + moves[:, 0], 0, side - 1) * side
    to = (to + np.clip(columns[:, None] + moves[:, 1], 0, side - 1)).ravel()
    ones = np.ones(len(to))
    onward = csr_array((ones, (np.arange(len(to)), to)), shape=(len(to), side * side))
    return onward, (to == len(rows) - 1).astype(float) if is_sparse else rng.random(len(to))


PROBLEMS: dict[str, Callable[..., tuple[csr_array, NDArray[np.float64]]]] = {
    "random": random_problem,
    "lattice": lattice,
    "lattice, one reward": lambda size, rng: lattice(size, rng, is_sparse=True),
}


def seconds(solve: Callable[[], Any]) -> float:
    """The least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        began = time.process_time()
        solve()
        times.append(time.process_time() - began)
    return min(times)


def measure(kind: str, size: int) -> dict[str, Any]:
    """CPU seconds of both on one problem, and how far their values are apart."""
    from quantecon.markov import DiscreteDP  # no dependency of the benchmarks

    onward, rewards = PROBLEMS[kind](size, np.random.default_rng(0))
    size = onward.shape[1]
    start = np.zeros(size)
    start[0] = 1.0
    tasks = RowTasks(onward, rewards[:, None], np.full((1, 1), DISCOUNT), np.ones((1, 1)))
    pairs = np.divmod(np.arange(len(rewards)), N_ACTIONS)
    other = DiscreteDP(rewards, csr_matrix(onward), DISCOUNT, *pairs)
    values = tasks.optimal(start).states[:, 0]
    largest = float(np.abs(values).max())

    def reference() -> Any:
        return other.solve("mpi", epsilon=1e-11 * largest, max_iter=10_000)

    apart = float(np.abs(reference().v - values).max()) / largest
    own, their = seconds(lambda: tasks.optimal(start)), seconds(reference)
    return {
        "problem": kind,
        "states": size,
        "rover s": own,
        "quantecon s": their,
        "ratio": own / their,
        "values apart": apart,
    }


def main() -> None:
    asked = parser(__doc__, states=[1000, 10_000, 100_000]).parse_args()
    begin()
    for number, (kind, size) in enumerate((k, n) for k in PROBLEMS for n in asked.states):
        show(measure(kind, size), is_first=number == 0)


if __name__ == "__main__":
    main()
