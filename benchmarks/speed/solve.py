"""Plans on many states: a mirror-descent step, and optimal values beside quantecon's.

    python -m benchmarks.speed.solve descent --states 10000 100000 1000000
    python -m benchmarks.speed.solve values --states 1000 10000 100000

`descent`: square rooms of 9×9 cells with one door in every wall, exact states (Dirac kernel), known
dynamics, four actions, a policy some steps away from uniform. Timed apart: building the operator
(once per model, with the fill-reducing order), factoring I − γP_π, the two solves, and the
gradient. `values`: random problems, of which each of four actions has five random successors and a
random reward, and open lattices with random rewards, beside quantecon's modified policy iteration
(`pip install quantecon`), asked for the same accuracy: the least of five times.
"""

from __future__ import annotations

import itertools
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix, vstack

from benchmarks.common import begin, parser, report
from rover.operators import Objective, SparseOperator, mirror_descend
from rover.operators.values import RowTasks

DISCOUNT = 0.99
ROOM = 9
PROBLEMS = "random", "lattice"


def rooms_and_doors(side: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Free cells (side, side): rooms of 9×9 with a door in every wall between two rooms."""
    free = np.ones((side, side), np.bool_)
    walls, corners = np.arange(ROOM, side, ROOM + 1), np.arange(0, side, ROOM + 1)
    free[walls, :] = free[:, walls] = False
    for wall in walls:
        across, along = rng.integers(ROOM, size=(2, len(corners)))
        free[wall, np.minimum(corners + across, side - 1)] = True
        free[np.minimum(corners + along, side - 1), wall] = True
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


def of_pairs(matrices: list[csr_array]) -> csr_array:
    """The matrices of actions as one, row j·A + a."""
    by_state = np.arange(len(matrices) * matrices[0].shape[0]).reshape(len(matrices), -1).T.ravel()
    return csr_array(vstack(matrices, format="csr")[by_state])


@contextmanager
def timed(times: dict[str, float], name: str) -> Iterator[None]:
    """Note the CPU seconds of a block."""
    began = time.process_time()
    yield
    times[name] = time.process_time() - began


def descent(n_states: int) -> dict[str, float]:
    """CPU seconds of each part on one grid, and how well the solution holds."""
    side = round((n_states / 0.83) ** 0.5)  # five sixths of the cells are free
    matrices = grid_dynamics(rooms_and_doors(side, np.random.default_rng(0)))
    size = matrices[0].shape[0]
    start = np.eye(1, size)[0]
    times: dict[str, float] = {}
    with timed(times, "build"):
        rows = of_pairs(matrices)
        operator = SparseOperator(rows, torch.from_numpy(start), np.zeros(rows.shape[0]))
    how: dict[str, Any] = {"discount": DISCOUNT, "objective": Objective(sink_norm=0.0)}
    with timed(times, "two steps"):  # one solve at the start, and one of the step
        probs = mirror_descend(
            operator, operator.start, n_steps=1, step_size=10.0, **how
        ).policy_probs
    with timed(times, "factor"):
        resolvent: Any = operator.resolvent(probs, DISCOUNT)
    with timed(times, "solves"):
        occupancy = resolvent.solve(operator.start)
        adjoint = resolvent.solve(2.0 * (1.0 - DISCOUNT) ** 2 * occupancy, transposed=True)
    with timed(times, "gradient"):
        operator.action_values(adjoint)
    return {
        "states": size,
        "build s": times["build"],
        "factor s": times["factor"],
        "nonzeros": int(resolvent.factors.nnz),
        "solves s": times["solves"],
        "gradient s": times["gradient"],
        "whole step s": times["two steps"] / 2.0,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def least(solve: Callable[[], Any]) -> float:
    """The least CPU seconds of a few runs."""
    times = dict[str, float]()
    for number in range(5):
        with timed(times, str(number)):
            solve()
    return min(times.values())


def values(kind: str, size: int) -> dict[str, Any]:
    """CPU seconds of both on one problem, and how far their values are apart."""
    from quantecon.markov import DiscreteDP  # no dependency of the benchmarks

    rng, pairs = np.random.default_rng(0), np.arange(4 * size).repeat(5)
    if kind == "random":
        shares, to = (
            rng.dirichlet(np.ones(5), size=4 * size).ravel(),
            rng.integers(size, size=20 * size),
        )
        onward = csr_array((shares, (pairs, to)), shape=(4 * size, size))
    else:
        onward = of_pairs(grid_dynamics(np.ones((round(size**0.5),) * 2, np.bool_)))
    size, earned = onward.shape[1], rng.random(len(onward.indptr) - 1)
    tasks = RowTasks(onward, earned[:, None], np.full((1, 1), DISCOUNT), np.ones((1, 1)))
    start = np.eye(1, size)[0]
    found = tasks.optimal(start).states[:, 0]
    other = DiscreteDP(earned, csr_matrix(onward), DISCOUNT, *np.divmod(np.arange(4 * size), 4))
    most = float(np.abs(found).max())

    def reference() -> Any:
        return other.solve("mpi", epsilon=1e-11 * most, max_iter=10_000)

    apart = float(np.abs(reference().v - found).max()) / most
    own, their = least(lambda: tasks.optimal(start)), least(reference)
    seconds = {"rover s": own, "quantecon s": their, "ratio": own / their}
    return {"problem": kind, "states": size, **seconds, "values apart": apart}


def main() -> None:
    arguments = parser(__doc__, states=[10_000, 100_000])
    arguments.add_argument("what", nargs="?", choices=("descent", "values"), default="descent")
    asked = arguments.parse_args()
    begin()
    if asked.what == "descent":
        report(map(descent, asked.states))
    else:
        report(itertools.starmap(values, itertools.product(PROBLEMS, asked.states)))


if __name__ == "__main__":
    main()
