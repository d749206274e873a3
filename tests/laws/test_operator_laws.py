"""One law per test, on every kernel and every kind of support."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from law_cases import CASES, Case, make_case, relative_error
from torch import Tensor

from rover.operators import exact_support, nystrom_support
from rover.transitions import merge_transitions

TOLERANCE = 1e-8


@pytest.fixture(params=CASES, ids=lambda names: f"{names[0]}-{names[1]}")
def case(request):
    return make_case(*request.param)


def gradient_without_sink(case: Case, features: Tensor) -> Tensor:
    gradient = case.reference.gradient(case.oracle.coefficients, features)
    return gradient - 2.0 * case.discount * case.sink_norm**2 * case.oracle.sink_mass


def test_objective_and_sink_mass_equal_the_papers_form(case):
    _, _, occupancy = case.fitted
    expected = case.oracle
    assert occupancy.objective == pytest.approx(expected.objective, rel=TOLERANCE)
    assert occupancy.sink_mass == pytest.approx(expected.sink_mass, rel=TOLERANCE, abs=1e-12)


def test_gradient_at_the_anchors_equals_the_papers_form(case):
    model, operator, occupancy = case.fitted
    ordinary = torch.from_numpy(~model.support.terminal)
    gradient = case.discount * operator.action_values(occupancy.adjoint())[ordinary]
    expected = gradient_without_sink(case, model.anchor_features[ordinary])
    assert relative_error(gradient, expected) < TOLERANCE


def test_gradient_at_new_states_equals_the_papers_form(case):
    model, _, occupancy = case.fitted
    coefficients = case.discount * model.coefficients(occupancy.adjoint())
    everywhere = torch.cat([case.features, case.new_features])
    gradient = model.regressors(everywhere) @ coefficients
    expected = gradient_without_sink(case, everywhere)
    assert relative_error(gradient, expected) < TOLERANCE


def raw_objective(case: Case, probs: Tensor) -> Tensor:
    """J straight from the regression on raw transitions, in operations that autograd follows."""
    states = case.features[np.concatenate([case.successors, case.starts])]
    inputs, n = case.features[case.inputs], len(case.inputs)
    actions = torch.from_numpy(case.actions)
    same_action = actions[:, None] == actions[None, :]
    gram = case.kernel(inputs, inputs) * same_action + case.ridge * torch.eye(n).double()
    at_states = case.kernel(inputs, states) * probs[case.row_keys][:, actions].T  # (n, N)
    start = torch.cat([torch.zeros(n).double(), case.normalised_start])
    ended = torch.cat([torch.from_numpy(case.terminated), torch.zeros(len(case.starts)).bool()])
    predicted = torch.cat(
        [
            torch.linalg.solve(gram, at_states),
            torch.zeros(len(case.starts), 1).double().expand(-1, len(states)),
        ]
    )
    predicted = torch.where(ended[None, :], start[:, None], predicted)
    system = torch.eye(len(states)).double() - case.discount * predicted
    weights = (1.0 - case.discount) * torch.linalg.solve(system, start)
    sink = 1.0 - weights.sum()
    return weights @ case.kernel(states, states) @ weights + case.sink_norm**2 * sink**2


def test_gradient_times_occupancy_is_what_autograd_finds(case):
    model, operator, occupancy = case.fitted
    probs = case.probs.clone().requires_grad_(True)
    objective = raw_objective(case, probs)
    assert occupancy.objective == pytest.approx(float(objective.detach()), rel=TOLERANCE)
    (derivative,) = torch.autograd.grad(objective, probs)
    partial = case.discount * operator.action_values(occupancy.adjoint())
    partial = partial * occupancy.weights[:, None]
    keys = 2 * model.support.anchors + model.support.terminal
    ordinary = ~model.support.terminal  # what a policy does in a terminal state changes nothing
    assert relative_error(partial[ordinary], derivative[keys[ordinary]]) < TOLERANCE


def test_mass_that_leaves_the_anchors_is_the_occupancy_of_an_absorbing_sink(case):
    model, operator, occupancy = case.fitted
    probs = case.probs_at_anchors(model.support)
    policy_transition = operator.policy_transition(probs)
    n = operator.n_states
    augmented = torch.zeros(n + 1, n + 1).double()
    augmented[:n, :n] = policy_transition
    augmented[n, :n] = 1.0 - policy_transition.sum(0)
    augmented[n, n] = 1.0
    start = torch.cat([model.support.start, torch.zeros(1).double()])
    system = torch.eye(n + 1).double() - case.discount * augmented
    distribution = (1.0 - case.discount) * torch.linalg.solve(system, start)
    assert float(distribution.sum()) == pytest.approx(1.0, abs=1e-12)
    assert occupancy.sink_mass == pytest.approx(float(distribution[n]), abs=1e-12)


def test_residual_is_one_minus_the_regressions_total_weight(case):
    model = case.fitted[0]
    points = torch.cat([case.features, case.new_features])

    def sink_mass(features: Tensor) -> Tensor:
        kept = model.coefficients(torch.ones_like(model.support.start))
        return 1.0 - model.regressors(features) @ kept

    residual = sink_mass(points)
    for action in range(case.n_actions):
        inputs = case.features[case.inputs[case.actions == action]]
        if len(inputs) == 0:
            assert torch.equal(residual[:, action], torch.ones(len(points)).double())
            continue
        gram = case.kernel(inputs, inputs) + case.ridge * torch.eye(len(inputs)).double()
        weights = torch.linalg.solve(gram, case.kernel(inputs, points))
        expected = 1.0 - weights.sum(0)
        assert float((residual[:, action] - expected).abs().max()) < TOLERANCE
    ordinary = ~model.support.terminal
    at_anchors = sink_mass(model.anchor_features).T
    kept = model.transition.sum(dim=1) + at_anchors
    assert float((kept[:, ordinary] - 1.0).abs().max()) < TOLERANCE
    assert np.allclose(model.transition.sum(dim=1)[:, ~ordinary], 1.0)


def test_repeating_the_data_and_the_ridge_changes_nothing(case):
    once = case.model()
    again = replace(case.repeated(4), ridge=4 * case.ridge).model()
    assert np.array_equal(once.support.anchors, again.support.anchors)
    assert float((once.transition - again.transition).abs().max()) < TOLERANCE


def test_order_of_the_transitions_changes_no_bit(case):
    order = np.random.default_rng(1).permutation(len(case.inputs))
    names = ("inputs", "actions", "successors", "terminated")
    shuffled = replace(case, **{name: getattr(case, name)[order] for name in names})
    assert torch.equal(case.fitted[0].transition, shuffled.model().transition)


def test_anchors_without_mass_change_nothing(case):
    counts = merge_transitions(case.inputs, case.actions, case.successors, case.terminated)
    everything = exact_support(
        counts,
        np.concatenate([case.starts, np.arange(len(case.features))]),
        np.concatenate([case.start_weights, np.zeros(len(case.features))]),
    )
    _, _, occupancy = case.solved(everything)
    _, _, expected = case.fitted
    assert occupancy.objective == pytest.approx(expected.objective, rel=TOLERANCE)
    assert occupancy.sink_mass == pytest.approx(expected.sink_mass, abs=1e-10)


@pytest.mark.parametrize(
    ("kernel", "kind"), [names for names in CASES if not names[0].startswith("linear")]
)
def test_nystrom_with_every_point_as_anchor_is_exact(kernel, kind):
    case = make_case(kernel, kind)
    counts = merge_transitions(case.inputs, case.actions, case.successors, case.terminated)
    support = nystrom_support(
        case.features,
        counts,
        case.starts,
        case.start_weights,
        case.kernel,
        n_anchors=10 * len(case.features),
        min_distance=0.0,
        projection_ridge=1e-13,
    )
    model, _, occupancy = case.solved(support)
    exact_model, _, expected = case.fitted
    assert occupancy.objective == pytest.approx(expected.objective, rel=TOLERANCE)
    assert occupancy.sink_mass == pytest.approx(expected.sink_mass, abs=1e-8)
    points = torch.cat([case.features, case.new_features])
    values = model.regressors(points) @ model.coefficients(occupancy.adjoint())
    exact_values = exact_model.regressors(points) @ exact_model.coefficients(expected.adjoint())
    assert relative_error(values, exact_values) < TOLERANCE
