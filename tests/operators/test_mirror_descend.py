"""Mirror descent: its closed form, its promises, and how near it comes to the exact optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from rover.envs.dynamics import dynamics_from_successor
from rover.envs.layout_families import make_layout
from rover.errors import SingularSolveError
from rover.evaluation.optimum import optimal_occupancy, optimality_ratio, policy_occupancy
from rover.operators import (
    DenseOperator,
    Gaussian,
    StepRule,
    backtracking_steps,
    constant_steps,
    exact_support,
    fit_transition_model,
    growing_steps,
    merge_transitions,
    mirror_descend,
    objective_gradient,
    policy_at_anchors,
    solve_occupancy,
    sparse_operator,
    sparse_operator_from_dynamics,
)
from rover.operators.dense import (
    Transitions,
    dense_mirror_descent_step,
    dense_policy,
    fit_dense_reference,
)

RULES = {
    "constant": constant_steps(2.0),
    "backtracking": backtracking_steps(50.0),
    "growing": growing_steps(10.0),
}
PAPER_ENVIRONMENTS = [
    ("two_rooms", 0.99),
    ("multi_rooms", 0.99),
    ("maze", 0.99),
    ("middle_room", 0.9),
]


def corridor_problem(seed: int = 0) -> tuple[Transitions, DenseOperator, Tensor, Tensor]:
    """Noisy steps along a line, a Gaussian kernel: raw transitions, operator, start, anchors."""
    rng = np.random.default_rng(seed)
    n, length = 120, 15
    places = torch.linspace(0, 1, length).double()[:, None]
    inputs, actions = rng.integers(length, size=n), rng.integers(2, size=n)
    moves = np.where(rng.random(n) < 0.9, 2 * actions - 1, 0)
    successors = np.clip(inputs + moves, 0, length - 1)
    starts = np.array([7])
    kernel = Gaussian(0.05)
    support = exact_support(merge_transitions(inputs, actions, successors), starts, np.ones(1))
    model = fit_transition_model(places, support, kernel, n_actions=2, ridge=0.1)
    raw = Transitions(
        inputs=places[inputs],
        actions=torch.from_numpy(actions),
        successors=places[successors],
        terminated=torch.zeros(n).bool(),
        starts=places[starts],
        start_weights=torch.ones(1).double(),
    )
    operator = DenseOperator(model.transition, model.gram)
    return raw, operator, support.start, model.anchor_features


def test_closed_form_is_the_papers_accumulated_coefficients() -> None:
    """softmax(−γ P_aᵀ V) with one vector V equals eq. pmd_simplified, one number per transition."""
    raw, operator, start, anchors = corridor_problem()
    reference = fit_dense_reference(
        raw, Gaussian(0.05), n_actions=2, ridge=0.1, discount=0.9, sink_norm=0.3
    )
    coefficients = torch.zeros(len(raw.actions) + 2).double()
    objectives = []
    for _ in range(8):
        coefficients, evaluation = dense_mirror_descent_step(reference, coefficients, 2.0)
        objectives.append(evaluation.objective)
    result = mirror_descend(
        operator,
        start,
        discount=0.9,
        sink_norm=0.3,
        n_steps=8,
        step_rule=constant_steps(2.0),
    )
    assert result.objectives[:-1] == pytest.approx(objectives, rel=1e-10)
    assert result.objectives[-1] == min(result.objectives)
    expected = dense_policy(reference, coefficients, anchors)
    assert float((result.policy_probs - expected).abs().max()) < 1e-10


def test_each_step_adds_the_gradient_to_the_logits() -> None:
    _, operator, start, _ = corridor_problem()
    settings = {"discount": 0.9, "sink_norm": 0.3}
    logits = torch.zeros(operator.n_states, 2).double()
    for _ in range(5):
        probs = torch.softmax(logits, dim=1)
        occupancy = solve_occupancy(operator, probs, start, **settings)
        logits = logits - 2.0 * objective_gradient(operator, occupancy, discount=0.9)
    result = mirror_descend(operator, start, n_steps=5, step_rule=constant_steps(2.0), **settings)
    assert float((result.policy_probs - torch.softmax(logits, dim=1)).abs().max()) < 1e-12
    again = policy_at_anchors(operator, result.dual, discount=0.9)
    assert torch.equal(again, result.policy_probs)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_result_is_the_best_iterate(rule: StepRule) -> None:
    _, operator, start, _ = corridor_problem()
    result = mirror_descend(
        operator, start, discount=0.95, sink_norm=0.2, n_steps=30, step_rule=rule
    )
    assert result.occupancy.objective == min(result.objectives)
    checked = solve_occupancy(operator, result.policy_probs, start, discount=0.95, sink_norm=0.2)
    assert checked.objective == result.occupancy.objective
    assert torch.allclose(result.policy_probs.sum(1), torch.ones(operator.n_states).double())
    assert result.n_solves >= len(result.objectives)


def test_too_large_a_constant_step_still_returns_the_best_iterate() -> None:
    _, operator, start, _ = corridor_problem()
    result = mirror_descend(
        operator, start, discount=0.95, sink_norm=0.2, n_steps=30, step_rule=constant_steps(1e5)
    )
    assert max(result.objectives[1:]) > result.objectives[0]  # the step is indeed too large
    assert result.occupancy.objective == min(result.objectives)


@pytest.mark.parametrize("name", ["backtracking", "growing"])
def test_objective_never_rises_where_steps_can_be_rejected(name: str) -> None:
    _, operator, start, _ = corridor_problem(1)
    result = mirror_descend(
        operator, start, discount=0.95, sink_norm=0.2, n_steps=60, step_rule=RULES[name]
    )
    assert (np.diff(result.objectives) <= 0.0).all()
    assert result.objectives[-1] < 0.8 * result.objectives[0]


def test_descent_goes_on_where_it_was_left() -> None:
    _, operator, start, _ = corridor_problem()
    settings = {"discount": 0.95, "sink_norm": 0.2}
    whole = mirror_descend(operator, start, n_steps=9, step_rule=constant_steps(1.0), **settings)
    half = mirror_descend(operator, start, n_steps=4, step_rule=constant_steps(1.0), **settings)
    rest = mirror_descend(
        operator, start, n_steps=5, step_rule=constant_steps(1.0), dual=half.dual, **settings
    )
    assert rest.objectives[-1] == whole.objectives[-1]
    assert torch.equal(rest.dual, whole.dual)


def test_descent_stops_when_ten_steps_bring_less_than_the_tolerance() -> None:
    _, operator, start, _ = corridor_problem()
    settings = {"discount": 0.95, "sink_norm": 0.2, "step_rule": growing_steps(10.0)}
    patient = mirror_descend(operator, start, n_steps=400, **settings)
    hasty = mirror_descend(operator, start, n_steps=400, tolerance=1e-4, **settings)
    assert len(hasty.objectives) < len(patient.objectives)
    assert hasty.objectives[-1] == pytest.approx(patient.objectives[-1], rel=1e-3)
    longest = hasty.objectives[-11] - hasty.objectives[-1]
    assert longest < 1e-4 * hasty.objectives[-1]


def test_zero_steps_evaluate_the_uniform_policy() -> None:
    _, operator, start, _ = corridor_problem()
    result = mirror_descend(
        operator, start, discount=0.9, sink_norm=0.0, n_steps=0, step_rule=growing_steps(10.0)
    )
    assert torch.equal(result.policy_probs, torch.full((operator.n_states, 2), 0.5).double())
    assert result.n_solves == len(result.objectives) == 1


@pytest.mark.parametrize(("name", "discount"), PAPER_ENVIRONMENTS)
def test_known_dynamics_reach_the_optimum_in_a_hundred_steps(name: str, discount: float) -> None:
    layout = make_layout(name)
    start = np.zeros(layout.n_states)
    start[layout.index(layout.start)] = 1.0
    dynamics = dynamics_from_successor(
        layout.successor, start=start, terminal=np.zeros(layout.n_states, np.bool_)
    )
    columns = torch.from_numpy(np.ascontiguousarray(dynamics.dense().transpose(0, 2, 1)))
    operator = DenseOperator(columns, torch.eye(layout.n_states).double())
    result = mirror_descend(
        operator,
        torch.from_numpy(start),
        discount=discount,
        sink_norm=0.0,
        n_steps=100,
        step_rule=growing_steps(10.0),
    )
    occupancy = policy_occupancy(
        dynamics.transition, result.policy_probs.numpy(), start, discount=discount
    )
    optimum = optimal_occupancy(dynamics.transition, start, discount=discount)
    ratio = optimality_ratio(occupancy, optimum)
    assert 1.0 - 1e-7 < ratio <= 1.01
    assert result.occupancy.objective == pytest.approx(ratio * optimum.objective, rel=1e-9)

    sparse = sparse_operator_from_dynamics(dynamics.transition, start)
    again = mirror_descend(
        sparse,
        sparse.start,
        discount=discount,
        sink_norm=0.0,
        n_steps=30,
        step_rule=growing_steps(10.0),
    )
    assert again.objectives == pytest.approx(result.objectives[: len(again.objectives)], rel=1e-6)


def test_estimated_and_sparse_operators_descend_alike() -> None:
    rng = np.random.default_rng(3)
    layout = make_layout("two_rooms")
    inputs = rng.integers(layout.n_states, size=2500)
    actions = rng.integers(4, size=2500)
    counts = merge_transitions(inputs, actions, layout.successor[inputs, actions])
    operator = sparse_operator(counts, np.array([0]), np.ones(1), n_actions=4, ridge=1e-3)
    result = mirror_descend(
        operator,
        operator.start,
        discount=0.99,
        sink_norm=0.1,
        n_steps=60,
        step_rule=growing_steps(10.0),
    )
    assert result.objectives[-1] < 0.5 * result.objectives[0]
    assert 0.0 <= result.occupancy.sink_mass < 0.05


class SingularAwayFromUniform:
    """A real operator whose factorisation fails for any policy but the uniform one."""

    def __init__(self, operator: DenseOperator) -> None:
        self.operator = operator
        self.n_states, self.n_actions = operator.n_states, operator.n_actions
        self.action_values, self.apply_gram = operator.action_values, operator.apply_gram

    def resolvent(self, policy_probs: Tensor, discount: float) -> object:
        if float(policy_probs.max() - policy_probs.min()) > 1e-6:
            raise SingularSolveError("I − γ P_π is singular")
        return self.operator.resolvent(policy_probs, discount)


def test_failed_solves_are_rejected_steps_but_never_hidden() -> None:
    _, operator, start, _ = corridor_problem()
    failing = SingularAwayFromUniform(operator)
    settings = {"discount": 0.9, "sink_norm": 0.3, "n_steps": 5}
    result = mirror_descend(failing, start, step_rule=growing_steps(10.0), **settings)  # type: ignore[arg-type]
    assert result.n_solves > len(result.objectives)
    with pytest.raises(SingularSolveError, match="singular"):
        mirror_descend(failing, start, step_rule=constant_steps(10.0), **settings)  # type: ignore[arg-type]
    dual = torch.ones(operator.n_states).double() * torch.arange(operator.n_states)
    with pytest.raises(SingularSolveError, match="singular"):
        mirror_descend(failing, start, step_rule=growing_steps(10.0), dual=dual, **settings)  # type: ignore[arg-type]


class MassCreatedAwayFromUniform(SingularAwayFromUniform):
    """A real operator with thirty times the mass for any policy but the uniform one."""

    def resolvent(self, policy_probs: Tensor, discount: float) -> object:
        uniform = float(policy_probs.max() - policy_probs.min()) <= 1e-6
        inflated = DenseOperator(30.0 * self.operator.transition, self.operator.gram)
        return (self.operator if uniform else inflated).resolvent(policy_probs, discount)


def test_steps_into_created_mass_are_rejected_though_they_read_lower() -> None:
    eye = torch.eye(2).double()
    operator = DenseOperator(torch.stack([0.5 * eye, 0.6 * eye]), eye)
    start = torch.tensor([0.5, 0.5]).double()
    settings = {"discount": 0.9, "sink_norm": 0.0}
    tempting = MassCreatedAwayFromUniform(operator)
    one_step = {"n_steps": 1, **settings}
    result = mirror_descend(tempting, start, step_rule=constant_steps(10.0), **one_step)  # type: ignore[arg-type]
    assert result.objectives[1] < result.objectives[0]
    assert result.occupancy.sink_mass > 1.0
    inflated = DenseOperator(30.0 * operator.transition, operator.gram)
    assert inflated.spectral_radius(result.policy_probs, 0.9) > 1.0
    result = mirror_descend(tempting, start, step_rule=growing_steps(10.0), **one_step)  # type: ignore[arg-type]
    assert result.n_solves > 2
    assert result.occupancy.sink_mass <= 1.0
