"""One mirror-descent step: the paper's dense form against the compact one, in one process.

The data are n transitions of Multi-Rooms 5 (109 states), drawn uniformly over states and actions,
with z-dimensional L1-normalised features and a linear kernel, as in the paper. A step is: the
policy from the accumulated coefficients, its occupancy and objective, and the gradient's
coefficients. What does not change between steps (Gram matrices, their factor, the fitted model) is
prepared before the clock starts, for every contestant.

    dense       Theorem 1 as printed: (K+λI)⁻¹M by solves, one LU for both resolvents.
    rearranged  the same numbers from one LU of K + λI − γM: the best that n×n matrices can do.
    compact     s×s matrices, s = the number of distinct states.

Times are CPU seconds of the process, so that other work on the machine does not count; for more
than one thread, use --wall on an idle machine.

    python benchmarks/mirror_descent_step.py --sizes 512 1024 4096 --threads 1
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rover.envs.layouts import make_layout
from rover.operators import (
    DenseOperator,
    Linear,
    Objective,
    Occupancy,
    TransitionModel,
    exact_support,
    fit_transition_model,
    policy_at_anchors,
    solve_occupancy,
)
from rover.transitions import merge_transitions

# The oracle of the tests: the package itself has no use for the slow form.
sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "tests" / "helpers")]
from common import begin, parser, show
from dense_form import DenseReference

Result = TypeVar("Result")

N_ACTIONS = 4
DISCOUNT, RIDGE, SINK_NORM, STEP_SIZE = 0.99, 1e-3, 0.1, 10.0


Clock = Callable[[], float]


def median_time(function: Callable[[], Result], repeats: int, clock: Clock) -> tuple[float, Result]:
    """Median time of `repeats` calls after one that is not counted, and the last result."""
    result, times = function(), []
    for _ in range(repeats):
        begin = clock()
        result = function()
        times.append(clock() - begin)
    return statistics.median(times), result


def rearranged_step(
    reference: DenseReference, ridge_gram: Tensor, coefficients: Tensor
) -> tuple[float, Tensor]:
    """J and the next coefficients without (K+λI)⁻¹M: u = (G⁻¹ − γM)⁻¹ G⁻¹ α0, for N = n + q rows.

    `ridge_gram` is G⁻¹ = K + λI. The sink's row and column decouple and are written out.
    """
    n, n_rows = reference.similarity.shape
    probs = dense_policy_at_states(reference, coefficients)
    system = torch.eye(n_rows).double()
    system[:n] = (reference.similarity * probs[:, reference.actions].T).mul_(-DISCOUNT)
    system[:n, :n] += ridge_gram
    lu, pivots = torch.linalg.lu_factor(system)
    start = torch.cat([torch.zeros(n).double(), reference.start_weights])  # G⁻¹ leaves it alone
    weights = torch.linalg.lu_solve(lu, pivots, start[:, None])[:, 0]
    everything = torch.cat([weights, torch.ones(1).double() / (1.0 - DISCOUNT)])
    gram_weights = reference.gram @ everything
    scale = (1.0 - DISCOUNT) ** 2
    adjoint = torch.linalg.lu_solve(lu, pivots, gram_weights[:-1, None], adjoint=True)[:, 0]
    sink = gram_weights[-1:] / (1.0 - DISCOUNT)
    gradient = 2.0 * DISCOUNT * scale * torch.cat([adjoint, sink])
    return scale * float(everything @ gram_weights), coefficients + STEP_SIZE * gradient


def dense_policy_at_states(reference: DenseReference, coefficients: Tensor) -> Tensor:
    """π at next and initial states (N, A), from the similarities that are at hand."""
    n = len(reference.actions)
    by_action = torch.zeros(n, N_ACTIONS).double()
    by_action[torch.arange(n), reference.actions] = coefficients[:n]
    return torch.softmax(-(reference.similarity.T @ by_action), dim=1)


def compact_step(operator: DenseOperator, start: Tensor, dual: Tensor) -> tuple[Occupancy, Tensor]:
    """Occupancy of the policy that `dual` stands for, and the next dual."""
    probs = policy_at_anchors(operator, dual, discount=DISCOUNT)
    occupancy = solve_occupancy(
        operator, probs, start, discount=DISCOUNT, objective=Objective(sink_norm=SINK_NORM)
    )
    return occupancy, dual + STEP_SIZE * occupancy.adjoint()


def measure(n: int, width: int, repeats: int, clock: Clock) -> dict[str, float]:
    """Seconds of each form with n transitions, and the differences of what they compute."""
    layout = make_layout("multi_rooms", rooms=5)
    rng = np.random.default_rng(n)
    table = np.maximum(rng.normal(size=(layout.n_states, width)), 0.0)
    features = torch.from_numpy(table / table.sum(1, keepdims=True))
    inputs = rng.integers(layout.n_states, size=n)
    actions = rng.integers(N_ACTIONS, size=n)
    successors = layout.successor[inputs, actions]
    starts = np.array([layout.index(layout.start)])

    def fit() -> TransitionModel:
        support = exact_support(merge_transitions(inputs, actions, successors), starts, np.ones(1))
        return fit_transition_model(features, support, Linear(), n_actions=N_ACTIONS, ridge=RIDGE)

    fit_s, model = median_time(fit, 20, clock)
    operator = DenseOperator(model.transition, model.gram)
    # Timed away from the uniform policy, where nothing is symmetric by accident.
    _, dual = compact_step(operator, model.support.start, torch.zeros(operator.n_states).double())
    compact_s, (occupancy, _) = median_time(
        lambda: compact_step(operator, model.support.start, dual), 500, clock
    )

    reference = DenseReference(
        inputs=features[inputs],
        actions=torch.from_numpy(actions),
        successors=features[successors],
        terminated=torch.zeros(n).bool(),
        starts=features[starts],
        start_weights=torch.ones(1).double(),
        kernel=Linear(),
        n_actions=N_ACTIONS,
        ridge=RIDGE,
        discount=DISCOUNT,
        objective=Objective(sink_norm=SINK_NORM),
    )
    ridge_gram = reference.factor @ reference.factor.T
    first, _ = reference.mirror_descent_step(torch.zeros(n + 2).double(), STEP_SIZE)
    dense_s, (_, evaluation) = median_time(
        lambda: reference.mirror_descent_step(first, STEP_SIZE), repeats, clock
    )
    rearranged_s, (rearranged_objective, _) = median_time(
        lambda: rearranged_step(reference, ridge_gram, first), repeats, clock
    )
    if abs(rearranged_objective / evaluation.objective - 1.0) > 1e-6:
        raise SystemExit("the rearranged step does not compute what the dense one does")
    logits = -reference.gradient(first, reference.states)
    assert torch.allclose(dense_policy_at_states(reference, first), torch.softmax(logits, dim=1))
    expected = reference.gradient(evaluation.coefficients, features)
    expected = expected - 2.0 * DISCOUNT * SINK_NORM**2 * evaluation.sink_mass
    gradient = DISCOUNT * model.regressors(features) @ model.coefficients(occupancy.adjoint())
    return {
        "n": n,
        "s": operator.n_states,
        "dense s": dense_s,
        "rearranged s": rearranged_s,
        "compact ms": 1e3 * compact_s,
        "fit ms": 1e3 * fit_s,
        "dense÷compact": dense_s / compact_s,
        "rearranged÷compact": rearranged_s / compact_s,
        "ΔJ/J": abs(occupancy.objective / evaluation.objective - 1.0),
        "Δ∇J/∇J": float((gradient - expected).abs().max() / expected.abs().max()),
    }


def main() -> None:
    arguments = parser(__doc__, sizes=[512, 1024, 4096])
    arguments.add_argument("--width", type=int, default=200, help="z")
    arguments.add_argument("--repeats", type=int, default=3, help="of the dense steps")
    arguments.add_argument("--threads", type=int, default=1, help="the same for every contestant")
    arguments.add_argument("--wall", action="store_true", help="wall time instead of CPU time")
    asked = arguments.parse_args()
    begin(threads=asked.threads)
    clock: Clock = time.perf_counter if asked.wall else time.process_time
    for number, n in enumerate(asked.sizes):
        show(measure(n, asked.width, asked.repeats, clock), is_first=number == 0)


if __name__ == "__main__":
    main()
