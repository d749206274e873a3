"""Plans on states and on landmarks."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rover import Rover, load_policy
from rover.coverage.improve import PlanningModel
from rover.operators import Interpolation, Objective, solve_occupancy
from rover.policies import CoveragePolicy
from rover.transitions import merge_transitions
from rover.world.rows import Rows


@pytest.mark.parametrize("observation", ["state", "onehot", "pixels"])
def test_states_are_states_however_they_are_seen(observation, tmp_path):
    """The same steps, the same coverage, and a policy that is uniform where nothing was seen."""
    where = {"horizon": 40}
    seen, plain = (
        Rover("rover/TwoRooms-v0", env_kwargs={**where, "observation": kind}, seed=0).learn(120)
        for kind in (observation, "state")
    )
    np.testing.assert_array_equal(seen.buffer.actions, plain.buffer.actions)
    assert seen.summary()["objective"] == pytest.approx(plain.summary()["objective"], rel=1e-12)
    rows = seen.buffer.observations.rows
    np.testing.assert_allclose(
        seen.policy.probs(rows), plain.policy.probs(plain.buffer.observations.rows), rtol=1e-12
    )
    seen.policy.save(tmp_path / "policy")
    again = load_policy(tmp_path / "policy")
    np.testing.assert_array_equal(again.probs(rows), seen.policy.probs(rows))
    if observation != "state":
        unseen = rows[:1].copy()
        unseen[0, 0] = 1 - unseen[0, 0]
        np.testing.assert_array_equal(again.probs(unseen), np.full((1, 4), 0.25))
        assert (tmp_path / "policy").stat().st_size < 40_000


@given(st.integers(0, 2**32 - 1), st.integers(2, 8), st.floats(0.1, 0.95))
@settings(max_examples=30)
def test_a_terminal_state_is_occupied_for_one_step(seed, n, discount):
    """Against a chain in which every arrival is either an ordinary state or a terminal one."""
    rng = np.random.default_rng(seed)
    to, ends = rng.integers(n, size=2 * n), rng.random(2 * n) < 0.4
    inputs, actions = np.divmod(np.arange(2 * n), 2)
    counts, probs = merge_transitions(inputs, actions, to, ends), rng.dirichlet(np.ones(2), n)
    operator = Rows.of_counts(counts, np.eye(n)[0], n_actions=2).operator()
    chain = np.zeros((2 * n, 2 * n))
    np.add.at(chain, (inputs, to + n * ends), probs[inputs, actions])
    chain[n:, 0] = 1.0  # where another episode begins
    occupancy = np.linalg.solve(np.eye(2 * n) - discount * chain.T, np.eye(2 * n)[0])
    twins = np.unique(to[ends])
    table = torch.from_numpy(probs[np.append(np.arange(n), twins)])
    solved = solve_occupancy(
        operator, table, operator.start, discount=discount, objective=Objective(sink_norm=0.5)
    )
    expected = occupancy[np.append(np.arange(n), n + twins)]
    np.testing.assert_allclose(solved.weights.numpy(), expected, atol=1e-10)
    shares = (1.0 - discount) * (occupancy[:n] + occupancy[n:])
    assert solved.objective == pytest.approx(float(shares @ shares), rel=1e-10)


@pytest.fixture(scope="module")
def car():
    return Rover("MountainCar-v0", seed=0, n_landmarks=40, measure_share=0.0).learn(300)


def test_the_net_is_finer_where_the_dynamics_model_explains_the_motion(car, monkeypatch):
    assert 40 < len(car._improve()[0].basis) <= 100
    monkeypatch.setattr("rover.coverage.improve.MOST_UNEXPLAINED", -1.0)
    assert len(car._improve()[0].basis) <= 40


def test_a_policy_on_landmarks_is_what_was_planned_there(car):
    seen = car._representation
    encoder = seen.policy_encoder()
    model, encoder = PlanningModel.of_landmarks(
        car.world.landmarks(seen.sums), encoder, car._cover, most=40
    )
    values = torch.from_numpy(np.random.default_rng(0).normal(size=len(model.anchors)))
    wanted = model.operator.action_values(values)[: len(model.basis)]
    policy = CoveragePolicy(encoder, Interpolation(), model.basis, model.coefficients(values))
    regressors = policy.kernel(model.basis, model.basis)
    at_landmarks = policy.logits_from_regressors(regressors)
    assert torch.allclose(at_landmarks, wanted, atol=1e-9)
