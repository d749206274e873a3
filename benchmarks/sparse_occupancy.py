"""One mirror-descent step on rooms-and-doors grids of 10⁴ to 10⁶ states, by the sparse path.

Square rooms of 9×9 cells with one door in every wall, exact states (Dirac kernel), known dynamics,
four actions, a policy some steps away from uniform. Timed apart: building the operator (once per
model, with the fill-reducing order), factoring I − γP_π, the two solves, and the gradient.

    python benchmarks/sparse_occupancy.py --states 10000 100000 1000000
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array

from rover.operators import (
    SparseOperator,
    growing_steps,
    mirror_descend,
    policy_at_anchors,
    sparse_operator_from_dynamics,
)

DISCOUNT = 0.99
ROOM = 9


@dataclass(frozen=True)
class Row:
    """What one grid measured; times in CPU seconds, since all of it runs on one thread."""

    n_states: int
    build_s: float
    factor_s: float
    factor_nonzeros: int
    solves_s: float
    gradient_s: float
    step_s: float
    residual: float
    mass_error: float
    objective_before: float
    objective_after: float
    peak_memory_gib: float


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


def timed(times: dict[str, float], name: str, begin: float) -> None:
    times[name] = time.process_time() - begin


def measure(n_states: int) -> Row:
    side = round((n_states / 0.83) ** 0.5)  # five sixths of the cells are free
    matrices = grid_dynamics(rooms_and_doors(side, np.random.default_rng(0)))
    size = matrices[0].shape[0]
    start = np.zeros(size)
    start[0] = 1.0
    times: dict[str, float] = {}
    begin = time.process_time()
    operator = sparse_operator_from_dynamics(matrices, start)
    timed(times, "build", begin)
    begin = time.process_time()
    descent = mirror_descend(
        operator,
        operator.start,
        discount=DISCOUNT,
        sink_norm=0.0,
        n_steps=1,
        step_rule=growing_steps(10.0),
    )
    whole = (time.process_time() - begin) / descent.n_solves
    probs = policy_at_anchors(operator, descent.dual, discount=DISCOUNT)
    resolvent, weights = step_by_step(operator, probs, times)
    policy = sum(
        csr_array(matrix.multiply(probs[:, action].numpy()[:, None]))
        for action, matrix in enumerate(matrices)
    )
    left = weights - DISCOUNT * (policy.T @ weights)
    return Row(
        n_states=size,
        build_s=times["build"],
        factor_s=times["factor"],
        factor_nonzeros=int(resolvent.factors.nnz),
        solves_s=times["solves"],
        gradient_s=times["gradient"],
        step_s=whole,
        residual=float(np.abs(left - start).max()),
        mass_error=abs((1.0 - DISCOUNT) * float(weights.sum()) - 1.0),
        objective_before=descent.objectives[0],
        objective_after=descent.objectives[-1],
        peak_memory_gib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    )


def step_by_step(
    operator: SparseOperator, probs: torch.Tensor, times: dict[str, float]
) -> tuple[Any, NDArray[np.float64]]:
    """Factor, solve and differentiate once, each on the clock; the factors and the occupancy."""
    begin = time.process_time()
    resolvent = operator.resolvent(probs, DISCOUNT)
    timed(times, "factor", begin)
    begin = time.process_time()
    weights = resolvent.solve(operator.start)
    adjoint = resolvent.solve(2.0 * (1.0 - DISCOUNT) ** 2 * weights, transposed=True)
    timed(times, "solves", begin)
    begin = time.process_time()
    operator.action_values(adjoint)
    timed(times, "gradient", begin)
    return resolvent, weights.numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    print(f"scipy {scipy.__version__}, {platform.platform()}")
    print(
        "  states  build/s  factor/s  nonzeros  solves/s  gradient/s  whole step/s  "
        "residual  |mass−1|  peak GiB"
    )
    rows = []
    for n_states in arguments.states:
        row = measure(n_states)
        rows.append(asdict(row))
        print(
            f"{row.n_states:8d} {row.build_s:8.2f} {row.factor_s:9.3f} "
            f"{row.factor_nonzeros / 1e6:8.2f}M {row.solves_s:9.3f} {row.gradient_s:11.3f} "
            f"{row.step_s:13.3f}   {row.residual:.1e}   {row.mass_error:.1e} "
            f"{row.peak_memory_gib:9.2f}",
            flush=True,
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
