"""The oracle itself: the paper's formulas, each in the most literal way there is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dense_form import DenseReference
from torch import Tensor

from rover.operators import Gaussian

KERNEL = Gaussian(0.8)
DISCOUNT, SINK, RIDGE = 0.9, 0.3, 0.2


def reference() -> DenseReference:
    rng, n = np.random.default_rng(0), 20
    points = torch.from_numpy(rng.normal(size=(2 * n + 1, 3)))
    return DenseReference(
        inputs=points[:n],
        actions=torch.from_numpy(rng.integers(2, size=n)),
        successors=points[n : 2 * n],
        terminated=torch.zeros(n).bool(),
        starts=points[2 * n :],
        start_weights=torch.ones(1).double(),
        kernel=KERNEL,
        n_actions=2,
        ridge=RIDGE,
        discount=DISCOUNT,
        sink_norm=SINK,
    )


def literal(raw: DenseReference, probs: Tensor) -> tuple[float, Tensor]:
    """J and c_π with every matrix of Theorem 1 and the augmented proposition written out."""
    n = len(raw.actions)
    eye = torch.eye(n + 2).double()
    same = (raw.actions[:, None] == raw.actions[None, :]).double()
    inverse = eye.clone()  # G̃: data, initial state, sink
    inverse[:n, :n] = torch.linalg.inv(
        KERNEL(raw.inputs, raw.inputs) * same + RIDGE * torch.eye(n).double()
    )
    coupling = torch.zeros(n + 2, n + 2).double()  # M̃
    for i in range(n):
        for j in range(n + 1):
            similarity = KERNEL(raw.inputs[i : i + 1], raw.states[j : j + 1])[0, 0]
            coupling[i, j] = probs[j, raw.actions[i]] * similarity
    coupling[n + 1, n + 1] = 1.0
    lift = eye.clone()  # rows of Φ̃ over (φ(x'), φ(x_0), φ_sink)
    lift[:-1, -1] = -1.0
    gram = torch.zeros(n + 2, n + 2).double()
    gram[: n + 1, : n + 1] = KERNEL(raw.states, raw.states)
    gram[n + 1, n + 1] = SINK**2
    gram = lift @ gram @ lift.T
    start = torch.zeros(n + 2).double()
    start[n:] = 1.0
    resolvent = torch.linalg.inv(eye - DISCOUNT * inverse @ coupling)
    weights = resolvent @ start
    adjoint = torch.linalg.inv(eye - DISCOUNT * coupling.T @ inverse) @ gram @ weights
    scale = (1.0 - DISCOUNT) ** 2
    return (
        scale * float(weights @ gram @ weights),
        2.0 * DISCOUNT * scale * inverse @ adjoint,
    )


def test_evaluation_is_the_theorem_written_out() -> None:
    raw = reference()
    probs = torch.from_numpy(np.random.default_rng(1).dirichlet(np.ones(2), 21))
    evaluation = raw.evaluate(probs)
    objective, coefficients = literal(raw, probs)
    assert evaluation.objective == pytest.approx(objective, rel=1e-12)
    assert torch.allclose(evaluation.coefficients, coefficients, rtol=1e-9, atol=1e-13)
    # The sink's own coefficient is 2γ ε² m: the cost of staying there.
    constant = 2.0 * DISCOUNT * SINK**2 * evaluation.sink_mass
    assert float(evaluation.coefficients[-1]) == pytest.approx(constant)
