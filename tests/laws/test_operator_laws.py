"""One law per test, on every kernel and every kind of support."""

import zlib
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import pytest
import torch
from dense_form import DenseEvaluation, DenseReference
from numpy.typing import NDArray
from own_kernel import RationalQuadratic
from torch import Tensor

from rover.operators import (
    DenseOperator,
    Dirac,
    Gaussian,
    Kernel,
    Linear,
    Objective,
    Occupancy,
    Support,
    TransitionModel,
    exact_support,
    fit_transition_model,
    nystrom_support,
    solve_occupancy,
)
from rover.transitions import merge_transitions

N_OBSERVATIONS = 24
N_NEW = 5


KERNELS: dict[str, tuple[Kernel, int]] = {  # kernel and width of the features
    "dirac": (Dirac(), 30),
    "gaussian": (Gaussian(0.6), 30),
    "user's own": (RationalQuadratic(1.5, 0.5), 30),
    "linear dual": (Linear(), 30),
    "linear primal": (Linear(), 6),
}
KINDS = (
    "deterministic",
    "stochastic",
    "duplicates",
    "missing actions",
    "random starts",
    "terminal states",
    "everything",
)


@dataclass(frozen=True)
class Case:
    """Raw transitions on a table of observations, and the settings of the estimate."""

    kernel: Kernel
    features: Tensor  # (N, z)
    new_features: Tensor  # (M, z) of observations that are not in the table
    inputs: NDArray[np.int64]
    actions: NDArray[np.int64]
    successors: NDArray[np.int64]
    terminated: NDArray[np.bool_]
    starts: NDArray[np.int64]
    start_weights: NDArray[np.float64]
    policy_logits: Tensor  # (2N, A): an observation has one policy as an ordinary state, one ended
    n_actions: int = 3
    ridge: float = 0.05
    discount: float = 0.93
    sink_norm: float = 0.4

    @property
    def support(self) -> Support:
        counts = merge_transitions(self.inputs, self.actions, self.successors, self.terminated)
        return exact_support(counts, self.starts, self.start_weights)

    def model(self, support: Support | None = None) -> TransitionModel:
        return fit_transition_model(
            self.features,
            self.support if support is None else support,
            self.kernel,
            n_actions=self.n_actions,
            ridge=self.ridge,
        )

    def solved(
        self, support: Support | None = None
    ) -> tuple[TransitionModel, DenseOperator, Occupancy]:
        model = self.model(support)
        operator = DenseOperator(model.transition, model.gram)
        probs = self.probs_at_anchors(model.support)
        return model, operator, self.occupancy(operator, probs, model.support.start)

    def occupancy(self, operator: DenseOperator, probs: Tensor, start: Tensor) -> Occupancy:
        settings = {"discount": self.discount, "objective": Objective(sink_norm=self.sink_norm)}
        return solve_occupancy(operator, probs, start, **settings)

    @property
    def probs(self) -> Tensor:
        """(2N, A): row 2x is the policy at observation x, row 2x + 1 where x is terminal."""
        return torch.softmax(self.policy_logits, dim=1)

    def probs_at_anchors(self, support: Support) -> Tensor:
        return self.probs[torch.from_numpy(2 * support.anchors + support.terminal)]

    @property
    def row_keys(self) -> Tensor:
        """Row of `probs` for each raw next state, the initial states last."""
        keys = np.concatenate([2 * self.successors + self.terminated, 2 * self.starts])
        return torch.from_numpy(keys)

    @property
    def normalised_start(self) -> Tensor:
        return torch.from_numpy(self.start_weights / self.start_weights.sum())

    @cached_property
    def fitted(self) -> tuple[TransitionModel, DenseOperator, Occupancy]:
        return self.solved()

    @cached_property
    def reference(self) -> DenseReference:
        return DenseReference(
            inputs=self.features[self.inputs],
            actions=torch.from_numpy(self.actions),
            successors=self.features[self.successors],
            terminated=torch.from_numpy(self.terminated),
            starts=self.features[self.starts],
            start_weights=self.normalised_start,
            kernel=self.kernel,
            n_actions=self.n_actions,
            ridge=self.ridge,
            discount=self.discount,
            sink_norm=self.sink_norm,
        )

    @cached_property
    def oracle(self) -> DenseEvaluation:
        return self.reference.evaluate(self.probs[self.row_keys])


@cache
def make_case(kernel_name: str, kind: str) -> Case:
    """One problem, always the same for the same names."""
    kernel, width = KERNELS[kernel_name]
    rng = np.random.default_rng(zlib.crc32(f"{kernel_name}/{kind}".encode()))
    everything = kind == "everything"
    n_actions = 3
    table = rng.integers(N_OBSERVATIONS, size=(N_OBSERVATIONS, n_actions))
    n = 60
    inputs = rng.integers(N_OBSERVATIONS, size=n)
    inputs[:3] = 3, 8, 20  # the initial states, so that something can follow them
    actions = rng.integers(n_actions, size=n)
    if kind == "missing actions" or everything:
        actions[actions == 1] = 0  # action 1 was never taken
    if kind == "duplicates" or everything:
        inputs, actions = inputs[rng.integers(12, size=n)], actions[rng.integers(12, size=n)]
    successors = table[inputs, actions]
    if kind == "stochastic" or everything:
        slipped = rng.random(n) < 0.4
        inputs[: n // 2], actions[: n // 2] = inputs[0], actions[0]  # one pair, many next states
        successors = np.where(slipped, rng.integers(N_OBSERVATIONS, size=n), table[inputs, actions])
    terminated = np.zeros(n, np.bool_)
    if kind == "terminal states" or everything:
        # Some observations end episodes always, one only at times.
        terminated = (successors % 5 == 0) | ((successors == successors[0]) & (rng.random(n) < 0.5))
    many_starts = kind in ("random starts", "terminal states") or everything
    features = torch.from_numpy(rng.normal(size=(N_OBSERVATIONS + N_NEW, width)))
    features /= features.norm(dim=1, keepdim=True)
    return Case(
        kernel=kernel,
        features=features[:N_OBSERVATIONS].contiguous(),
        new_features=features[N_OBSERVATIONS:].contiguous(),
        inputs=inputs,
        actions=actions,
        successors=successors,
        terminated=terminated,
        starts=np.array([3, 8, 20]) if many_starts else np.array([3]),
        start_weights=np.array([1.0, 2.0, 5.0]) if many_starts else np.array([1.0]),
        policy_logits=torch.from_numpy(rng.normal(size=(2 * N_OBSERVATIONS, n_actions))),
    )


CASES = [(kernel, kind) for kernel in KERNELS for kind in KINDS]


def relative_error(value: Tensor, reference: Tensor) -> float:
    """Largest difference over the largest entry of the reference."""
    return float((value - reference).abs().max() / reference.abs().max())


TOLERANCE = 1e-8


@pytest.fixture(params=CASES, ids=lambda names: f"{names[0]}-{names[1]}")
def case(request):
    return make_case(*request.param)


def gradient_without_sink(case: Case, features: Tensor) -> Tensor:
    gradient = case.reference.gradient(case.oracle.coefficients, features)
    return gradient - 2.0 * case.discount * case.sink_norm**2 * case.oracle.sink_mass


def test_objective_sink_mass_and_gradients_equal_the_papers_form(case):
    """The gradient at the anchors, and by the regression at these and at new states."""
    model, operator, occupancy = case.fitted
    expected = case.oracle
    assert occupancy.objective == pytest.approx(expected.objective, rel=TOLERANCE)
    assert occupancy.sink_mass == pytest.approx(expected.sink_mass, rel=TOLERANCE, abs=1e-12)
    adjoint, ordinary = occupancy.adjoint(), torch.from_numpy(~model.support.terminal)
    at_anchors = case.discount * operator.action_values(adjoint)[ordinary]
    expected = gradient_without_sink(case, model.anchor_features[ordinary])
    assert relative_error(at_anchors, expected) < TOLERANCE
    everywhere = torch.cat([case.features, case.new_features])
    gradient = case.discount * model.regressors(everywhere) @ model.coefficients(adjoint)
    assert relative_error(gradient, gradient_without_sink(case, everywhere)) < TOLERANCE


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


def test_order_of_the_transitions_changes_no_bit(case):
    order = np.random.default_rng(1).permutation(len(case.inputs))
    names = ("inputs", "actions", "successors", "terminated")
    shuffled = replace(case, **{name: getattr(case, name)[order] for name in names})
    assert torch.equal(case.fitted[0].transition, shuffled.model().transition)


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
