"""Mirror descent: its closed form, its promises, and how near it comes to the exact optimum."""

from typing import Any

import numpy as np
import pytest
import torch
from dense_form import DenseReference
from finite_problems import known_operator
from torch import Tensor

from rover.envs import GridWorld
from rover.errors import SingularSolveError
from rover.evaluation import optimal_occupancy, policy_occupancy
from rover.operators import (
    DenseOperator,
    Gaussian,
    MirrorDescentResult,
    Objective,
    TransitionOperator,
    exact_support,
    fit_transition_model,
    mirror_descend,
    solve_occupancy,
)
from rover.transitions import merge_transitions

RULES = {
    "constant": (2.0, "constant"),
    "too large": (1e5, "constant"),
    "backtracking": (50.0, "backtracking"),
    "growing": (10.0, "growing"),
}


def corridor_problem(seed: int = 0) -> tuple[DenseReference, DenseOperator, Tensor, Tensor]:
    """Noisy steps along a line, a Gaussian kernel: the paper's form, operator, start, anchors."""
    rng = np.random.default_rng(seed)
    n, length = 120, 15
    places = torch.linspace(0, 1, length).double()[:, None]
    inputs, actions = rng.integers(length, size=n), rng.integers(2, size=n)
    moves = np.where(rng.random(n) < 0.9, 2 * actions - 1, 0)
    successors = np.clip(inputs + moves, 0, length - 1)
    starts = np.array([7])
    kernel = Gaussian(0.05)
    counts = merge_transitions(inputs, actions, successors)
    support = exact_support(counts, starts, np.ones(1))
    model = fit_transition_model(places, support, kernel, n_actions=2, ridge=0.1)
    reference = DenseReference(
        inputs=places[inputs],
        actions=torch.from_numpy(actions),
        successors=places[successors],
        terminated=torch.zeros(n).bool(),
        starts=places[starts],
        start_weights=torch.ones(1).double(),
        kernel=kernel,
        n_actions=2,
        ridge=0.1,
        discount=0.9,
        sink_norm=0.3,
    )
    operator = DenseOperator(model.transition, model.gram)
    return reference, operator, support.start, model.anchor_features


def descend(
    operator: TransitionOperator,
    start: Tensor,
    rule: Any = RULES["growing"],
    *,
    n_steps: int,
    discount: float = 0.95,
    sink_norm: float = 0.2,
    **options: Any,
) -> MirrorDescentResult:
    settings = {"discount": discount, "n_steps": n_steps, **options}
    settings |= {"step_size": rule[0], "step_rule": rule[1]}
    return mirror_descend(operator, start, objective=Objective(sink_norm=sink_norm), **settings)


def test_closed_form_is_the_papers_accumulated_coefficients():
    """softmax(−γ P_aᵀ V) with one vector V equals eq. pmd_simplified, one number per transition."""
    reference, operator, start, anchors = corridor_problem()
    coefficients = torch.zeros(len(reference.actions) + 2).double()
    objectives = []
    for _ in range(8):
        coefficients, evaluation = reference.mirror_descent_step(coefficients, 2.0)
        objectives.append(evaluation.objective)
    settings = {"discount": 0.9, "sink_norm": 0.3, "n_steps": 8}
    result = descend(operator, start, RULES["constant"], **settings)
    assert result.objectives[:-1] == pytest.approx(objectives, rel=1e-10)
    assert result.objectives[-1] == min(result.objectives)
    expected = torch.softmax(-reference.gradient(coefficients, anchors), dim=1)
    assert float((result.policy_probs - expected).abs().max()) < 1e-10


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_result_is_the_best_iterate(rule):
    _, operator, start, _ = corridor_problem()
    result = descend(operator, start, rule, n_steps=30)
    assert result.occupancy.objective == min(result.objectives)
    checked = solve_occupancy(
        operator, result.policy_probs, start, discount=0.95, objective=Objective(sink_norm=0.2)
    )
    assert checked.objective == result.occupancy.objective
    assert torch.allclose(result.policy_probs.sum(1), torch.ones(operator.n_states).double())
    again = descend(*corridor_problem()[1:3], rule, n_steps=30)
    assert torch.equal(again.dual, result.dual)  # the same input gives the same bits
    if rule is RULES["too large"]:
        assert max(result.objectives[1:]) > result.objectives[0]  # it is indeed
    if rule[1] != "constant":  # nothing rises where steps can be rejected
        assert (np.diff(result.objectives) <= 0.0).all()
        assert result.objectives[-1] < 0.8 * result.objectives[0]
    if rule is RULES["constant"]:  # a descent goes on where it was left
        half = descend(operator, start, rule, n_steps=10)
        rest = descend(operator, start, rule, n_steps=20, dual=half.dual)
        assert rest.objectives[-1] == result.objectives[-1]


def test_descent_stops_when_ten_steps_bring_less_than_the_tolerance():
    _, operator, start, _ = corridor_problem()
    patient = descend(operator, start, n_steps=400)
    hasty = descend(operator, start, n_steps=400, tolerance=1e-4)
    assert len(hasty.objectives) < len(patient.objectives)
    assert hasty.objectives[-1] == pytest.approx(patient.objectives[-1], rel=1e-3)
    longest = hasty.objectives[-11] - hasty.objectives[-1]
    assert longest < 1e-4 * hasty.objectives[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "discount"),
    [("two_rooms", 0.99), ("multi_rooms", 0.99), ("maze", 0.99), ("middle_room", 0.9)],
)
def test_known_dynamics_reach_the_optimum_in_a_hundred_steps(name, discount):
    dynamics = GridWorld(name).finite_mdp.dynamics
    start = torch.from_numpy(dynamics.start)
    columns = torch.from_numpy(np.ascontiguousarray(dynamics.dense().transpose(0, 2, 1)))
    operator = DenseOperator(columns, torch.eye(dynamics.n_states).double())
    settings = {"discount": discount, "sink_norm": 0.0}
    result = descend(operator, start, n_steps=100, **settings)
    occupancy = policy_occupancy(dynamics, result.policy_probs.numpy(), discount=discount)
    optimum = optimal_occupancy(dynamics, discount=discount)
    ratio = occupancy @ occupancy / optimum.objective
    assert 1.0 - 1e-7 < ratio <= 1.01
    assert result.occupancy.objective == pytest.approx(ratio * optimum.objective, rel=1e-9)

    sparse = known_operator(dynamics.transition, dynamics.start)
    again = descend(sparse, sparse.start, n_steps=30, **settings)
    assert again.objectives == pytest.approx(result.objectives[: len(again.objectives)], rel=1e-6)


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


def test_failed_solves_are_rejected_steps_but_never_hidden():
    _, operator, start, _ = corridor_problem()
    failing: Any = SingularAwayFromUniform(operator)
    result = descend(failing, start, n_steps=5)
    assert (np.diff(result.objectives) <= 0.0).all()
    elsewhere = torch.arange(operator.n_states).double()
    for rule, dual in ((RULES["constant"], None), (RULES["growing"], elsewhere)):
        with pytest.raises(SingularSolveError, match="singular"):
            descend(failing, start, rule, n_steps=5, dual=dual)


class MassCreatedAwayFromUniform(SingularAwayFromUniform):
    """A real operator with thirty times the mass for any policy but the uniform one."""

    def resolvent(self, policy_probs: Tensor, discount: float) -> object:
        uniform = float(policy_probs.max() - policy_probs.min()) <= 1e-6
        inflated = DenseOperator(30.0 * self.operator.transition, self.operator.gram)
        return (self.operator if uniform else inflated).resolvent(policy_probs, discount)


def test_steps_into_created_mass_are_rejected_though_they_read_lower():
    eye = torch.eye(2).double()
    operator = DenseOperator(torch.stack([0.5 * eye, 0.6 * eye]), eye)
    start = torch.tensor([0.5, 0.5]).double()
    tempting: Any = MassCreatedAwayFromUniform(operator)
    settings = {"discount": 0.9, "sink_norm": 0.0, "n_steps": 1}
    result = descend(tempting, start, (10.0, "constant"), **settings)
    assert result.objectives[1] < result.objectives[0]
    assert result.occupancy.sink_mass > 1.0
    result = descend(tempting, start, **settings)
    assert result.occupancy.sink_mass <= 1.0
