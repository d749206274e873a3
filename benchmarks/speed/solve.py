"""One mirror-descent step on rooms-and-doors grids of 10⁴ to 10⁶ states, by the sparse path.

Square rooms of 9×9 cells with one door in every wall, exact states (Dirac kernel), known dynamics,
four actions, a policy some steps away from uniform. Timed apart: building the operator (once per
model, with the fill-reducing order), factoring I − γP_π, the two solves, and the gradient.

    python -m benchmarks.speed.solve --states 10000 100000 1000000
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from benchmarks.common import begin, parser, report
from rover.operators import Objective, SparseOperator, mirror_descend

DISCOUNT = 0.99
ROOM = 9


def rooms_and_doors(side: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Free cells (side, side): rooms of 9×9 with a door in every wall between two rooms."""
    free = np.ones((side, side), np.bool_)
    walls, corners = np.arange(ROOM, side, ROOM + 1), np.arange(0, side, ROOM + 1)
    free[walls, :] = free[:, walls] = False
    for wall in walls:
        doors = np.minimum(corners + rng.integers(ROOM, size=len(corners)), side - 1)
        free[wall, doors] = True
        doors = np.minimum(corners + rng.integers(ROOM, size=len(corners)), side - 1)
        free[doors, wall] = True
    return free


def grid_dynamics(free: NDArray[np.bool_]) -> list[csr_array]:
    """P(y | x, a) for up, down, left and right; a move into a wall stays."""
    number = np.full(free.shape, -1)
    number[free] = np.arange(int(free.sum()))
    padded = np.pad(number, 1, constant_values=-1)
    rows, columns = np.nonzero(free)
    states = np.arange(len(rows))
    matrices = []
    for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        ahead = padded[rows + 1 + down, columns + 1 + right]
        target = np.where(ahead >= 0, ahead, states)
        matrices.append(
            csr_array((np.ones(len(states)), (states, target)), shape=(len(states),) * 2)
        )
    return matrices


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Note the CPU seconds of a block."""
    began = time.process_time()
    yield
    times[name] = time.process_time() - began


def measure(n_states: int) -> dict[str, float]:
    """CPU seconds of each part on one grid, and how well the solution holds."""
    side = round((n_states / 0.83) ** 0.5)  # five sixths of the cells are free
    matrices = grid_dynamics(rooms_and_doors(side, np.random.default_rng(0)))
    size = matrices[0].shape[0]
    start = np.zeros(size)
    start[0] = 1.0
    times: dict[str, float] = {}
    with timed(times, "build"):
        by_state = np.arange(len(matrices) * size).reshape(len(matrices), size).T.ravel()
        rows = csr_array(vstack(matrices, format="csr")[by_state])  # row j·A + a
        operator = SparseOperator(rows, torch.from_numpy(start), np.zeros(rows.shape[0]))
    how: dict[str, Any] = {"discount": DISCOUNT, "objective": Objective(sink_norm=0.0)}
    with timed(times, "two steps"):  # one solve at the start, and one of the step
        descent = mirror_descend(operator, operator.start, n_steps=1, step_size=10.0, **how)
    probs = descent.policy_probs
    with timed(times, "factor"):
        resolvent: Any = operator.resolvent(probs, DISCOUNT)
    with timed(times, "solves"):
        occupancy = resolvent.solve(operator.start)
        adjoint = resolvent.solve(2.0 * (1.0 - DISCOUNT) ** 2 * occupancy, transposed=True)
    with timed(times, "gradient"):
        operator.action_values(adjoint)
    weights = occupancy.numpy()
    policy = sum(
        csr_array(matrix.multiply(probs[:, action].numpy()[:, None]))
        for action, matrix in enumerate(matrices)
    )
    left = weights - DISCOUNT * (policy.T @ weights)
    return {
        "states": size,
        "build s": times["build"],
        "factor s": times["factor"],
        "nonzeros": int(resolvent.factors.nnz),
        "solves s": times["solves"],
        "gradient s": times["gradient"],
        "whole step s": times["two steps"] / 2.0,
        "residual": float(np.abs(left - start).max()),
        "|mass−1|": abs((1.0 - DISCOUNT) * float(weights.sum()) - 1.0),
        "J before": descent.objectives[0],
        "J after": descent.objectives[-1],
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    asked = parser(__doc__, states=[10_000, 100_000, 1_000_000]).parse_args()
    begin()
    report(map(measure, asked.states))


if __name__ == "__main__":
    main()
