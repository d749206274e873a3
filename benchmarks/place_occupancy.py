"""An occupancy and its adjoint on places of a net, by sparse LU factors and by iteration.

Places are random points of a cube. Each of three actions leads from a place somewhere near, to the
four places around there. CPU milliseconds, medians over policies; `LU / iterated` is their ratio,
and `fill` the numbers in the factors over those in the matrix, by which an operator chooses.

    python benchmarks/place_occupancy.py --places 500 2000 --dimensions 2 4 6
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.operators import SparseOperator, sparse
from rover.operators.kernels import gaussian_weights

sys.path.append(str(Path(__file__).parent))
from common import begin, parser, show

DISCOUNT, N_ACTIONS, NEAR, POLICIES = 0.97, 3, 4, 9


def rows_of_places(n_places: int, n_dimensions: int, rng: np.random.Generator) -> csr_array:
    """Rows (s·A, s) of places in a cube, which keep all but a ten thousandth of their mass."""
    places = rng.random((n_places, n_dimensions))
    tree = KDTree(places)
    apart = float(np.median(tree.query(places, 2)[0][:, 1]))
    moves = apart * rng.standard_normal((n_places, N_ACTIONS, n_dimensions))
    distances, index = tree.query((places[:, None] + moves).reshape(-1, n_dimensions), NEAR)
    weights = (1.0 - 1e-4) * gaussian_weights(distances)
    bounds = NEAR * np.arange(len(index) + 1)
    return csr_array((weights.ravel(), index.ravel(), bounds), shape=(len(index), n_places))


def solve(operator: SparseOperator, probs: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
    """The occupancy of a policy; its adjoint is solved for as well."""
    resolvent = operator.resolvent(probs, DISCOUNT)
    weights = resolvent.solve(start)
    resolvent.solve(weights, transposed=True)
    return weights


def measure(n_places: int, n_dimensions: int) -> dict[str, float]:
    """CPU milliseconds of both, and by how much their occupancies differ."""
    rng = np.random.default_rng(0)
    rows, start = rows_of_places(n_places, n_dimensions, rng), torch.eye(n_places).double()[0]
    operators = []
    for sparse._MOST_FILLED in (np.inf, 0.0):  # factored, and iterated
        nowhere = np.zeros(n_places * N_ACTIONS)
        operators.append(SparseOperator(rows, start, nowhere))
    times, apart = np.empty((POLICIES, 2)), 0.0
    for policy in range(POLICIES):
        probs = torch.from_numpy(rng.dirichlet(np.full(N_ACTIONS, 0.3), size=n_places))
        solutions = []
        for column, operator in enumerate(operators):
            began = time.process_time()
            solutions.append(solve(operator, probs, start))
            times[policy, column] = 1000.0 * (time.process_time() - began)
        apart = max(apart, float((solutions[0] - solutions[1]).abs().max() / solutions[0].max()))
    lu, iteration = np.median(times, axis=0)
    resolvent: Any = operators[0].resolvent(probs, DISCOUNT)
    return {
        "places": n_places,
        "dimensions": n_dimensions,
        "fill": resolvent.factors.nnz / resolvent.matrix.nnz,
        "LU ms": lu,
        "iterated ms": iteration,
        "LU / iterated": lu / iteration,
        "difference": apart,
    }


def main() -> None:
    options: dict[str, Any] = {"places": [500, 2000], "dimensions": [2, 4, 6]}
    asked = parser(__doc__, **options).parse_args()
    begin()
    sizes = [(places, d) for places in asked.places for d in asked.dimensions]
    for number, (places, d) in enumerate(sizes):
        show(measure(places, d), is_first=number == 0)


if __name__ == "__main__":
    main()
