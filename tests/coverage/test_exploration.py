"""Plans over states and landmarks, of exploration and of coverage: exact on small problems."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from walks import numbered

from rover import Rover, load_policy
from rover.coverage.explore import _StateExplorer
from rover.coverage.improve import PlanningModel
from rover.data import Buffer
from rover.operators import Interpolation, Objective, solve_occupancy
from rover.policies import CoveragePolicy
from rover.transitions import merge_transitions
from rover.world.counts import Counts, Rows, exploration_values

SEEDS = st.integers(0, 2**31)
N_ACTIONS = 3


def state_buffer(n_states: int, moves: list[tuple[int, int, int, bool]]) -> Buffer:
    return numbered(n_states, N_ACTIONS, [(*move, False) for move in moves])


def explorer_of(buffer: Buffer) -> _StateExplorer:
    return _StateExplorer(Counts(buffer), buffer)


def distances(table: NDArray[np.int64], begin: int) -> dict[int, int]:
    """Steps from a state to every other, on a table (S, A) of successors, −2 where unknown."""
    queue, depth = deque([begin]), {begin: 0}
    while queue:
        state = queue.popleft()
        for y in table[state].tolist():
            if y >= 0 and y not in depth:
                depth[y] = depth[state] + 1
                queue.append(y)
    return depth


@given(SEEDS, st.integers(2, 12))
def test_the_plan_has_the_most_novelty_a_step_where_outcomes_are_certain(seed, n_states):
    rng = np.random.default_rng(seed)
    table = rng.integers(n_states, size=(n_states, N_ACTIONS))
    idle = rng.random(N_ACTIONS) < 0.5  # actions that lead nowhere
    table[:, idle] = np.arange(n_states)[:, None]
    table[rng.random(table.shape) < 0.2] = -2
    known = [(x, a, int(table[x, a]), False) for x, a in np.argwhere(table >= 0).tolist()]
    explorer = explorer_of(state_buffer(n_states, known))
    begin = state = int(rng.integers(n_states))
    tried, moved = table >= 0, (table >= 0) & (table != np.arange(n_states)[:, None])
    weights = (1.0 + (1.0 + moved.sum(axis=0)) / (1.0 + tried.sum(axis=0))) / 2.0
    worth = [
        weights[a] / (1 + steps)
        for x, steps in distances(table, begin).items()
        for a in np.flatnonzero(table[x] == -2)
    ]
    for steps in range(1, 2 * n_states):
        action = explorer.act(state, rng)
        if action is None:
            assert not worth
            return
        if table[state, action] == -2:
            assert weights[action] / steps == pytest.approx(max(worth))
            return
        state = int(table[state, action])
    raise AssertionError("the plan leads nowhere")


@given(SEEDS, st.integers(2, 8), st.booleans())
def test_values_solve_the_problem_that_they_are_of(seed, n_states, once):
    rng = np.random.default_rng(seed)
    dense = rng.dirichlet(np.full(n_states + 1, 0.3), size=(n_states, N_ACTIONS))
    novelty = rng.random((n_states, N_ACTIONS)) ** 4
    start = rng.dirichlet(np.ones(n_states))
    flat = dense.reshape(-1, n_states + 1)
    ended = csr_array((flat[:, -1], (np.arange(len(flat)), np.zeros(len(flat), np.int64))))
    ended.resize(len(flat), n_states)
    rows = Rows(csr_array(flat[:, :-1]), ended, np.zeros(len(flat)), start, np.empty((0, 0)))
    values = exploration_values(novelty, rows, discount=0.9, once=once, tolerance=1e-5).actions
    oracle = np.zeros(n_states)
    for _ in range(500):
        onward = 0.9 * dense @ np.append(oracle, start @ oracle)
        actions = np.maximum(novelty, onward) if once else novelty + onward
        oracle = actions.max(axis=1)
    np.testing.assert_allclose(values, actions, rtol=2e-4)


def test_chance_makes_tried_pairs_worth_another_try_until_they_are_known():
    """Two states; every action leads to either by chance, so one try of a pair says little."""
    rng, chance = np.random.default_rng(0), np.random.default_rng(1)
    buffer = state_buffer(2, [])
    explorer, state, planned = explorer_of(buffer), 0, np.zeros((2, N_ACTIONS), int)
    for row in range(600):
        action = explorer.act(state, rng)
        if action is None:  # nothing contradicts the plan before a pair is tried again
            action = int(rng.integers(N_ACTIONS))
        else:
            planned[state, action] += 1
        y = int(chance.integers(2))
        buffer.add(state, action, y, False, False)
        explorer.observe(row, done=False)
        state = y
    assert planned.min() >= 10
    assert planned.max() <= 70, "novelty below what is worth a plan is left alone"
    assert explorer.model.outcome_variance == pytest.approx(0.5, abs=0.05)
    assert explorer.model.outcome_variance == pytest.approx(buffer.counts().outcome_variance)


def test_a_new_start_is_a_state_nothing_is_known_of():
    buffer = state_buffer(1, [(0, a, 0, False) for a in range(N_ACTIONS)])
    explorer, rng = explorer_of(buffer), np.random.default_rng(0)
    assert explorer.act(0, rng) is None
    assert explorer.act(buffer.observations.intern(np.int64(7)), rng) is not None


def test_termination_leads_to_where_episodes_begin():
    """From state 1 nothing new can be reached but through the end of the episode."""
    moves = [(0, 0, 1, False), *((1, a, 1, a == 2) for a in range(N_ACTIONS))]
    explorer = explorer_of(state_buffer(2, moves))
    assert explorer.act(1, np.random.default_rng(0)) == 2


@given(SEEDS)
@settings(max_examples=40)
def test_a_plan_made_from_a_stored_buffer_is_the_same(seed):
    rng = np.random.default_rng(seed)
    columns = rng.integers([5, N_ACTIONS, 5, 10], size=(60, 4)).tolist()
    moves = [(x, a, y, t == 0) for x, a, y, t in columns]
    grown = state_buffer(5, [])
    explorer = explorer_of(grown)
    for row, move in enumerate(moves):
        grown.add(*move, False)
        explorer.observe(row, done=move[3])
    explorer.forget_plan()
    again = explorer_of(state_buffer(5, moves))
    planned = []
    for one in (explorer, again):
        # The plan itself, where outcomes are certain.
        one.model.most_novel_path = lambda *_: ([], -1)
        one.act(0, rng)
        planned.append(one._plan.actions)
    np.testing.assert_allclose(*planned, rtol=0, atol=1e-10)
    tries = np.zeros((5, N_ACTIONS))
    np.add.at(tries, (grown.inputs, grown.actions), 1)
    ridge = max(grown.counts().outcome_variance, 1e-12)
    for one in (explorer, again):
        np.testing.assert_allclose(one._novelty, ridge / (tries + ridge), rtol=1e-9)


def test_starts_that_were_seen_once_say_how_many_were_not():
    buffer = state_buffer(4, [(0, 0, 1, False), (1, 0, 2, True)])
    states, weights = buffer.starts(unseen=True)
    assert (states.tolist(), weights.tolist()) == ([0], [1.0])  # one episode says nothing
    for start in (0, 3):
        buffer.add_start(start)
    states, weights = buffer.starts(unseen=True)
    # seen once: 3, one episode of three; spread over the states 0 and 1 that were acted in
    assert states.tolist() == [0, 1, 3]
    np.testing.assert_allclose(weights, [2 / 3 * 2 / 3 + 1 / 6, 1 / 6, 2 / 3 * 1 / 3])
    states, weights = buffer.starts(unseen=False)
    assert states.tolist() == [0, 3]
    np.testing.assert_allclose(weights, [2 / 3, 1 / 3])


def test_ways_are_searched_in_more_than_three_dimensions_and_resume_to_the_bit(tmp_path):
    quick = {"seed": 3, "measure_share": 0.0, "checkpoint_every": 50, "policy_every": 50}
    whole = Rover("Acrobot-v1", **quick).learn(120)
    Rover("Acrobot-v1", run_dir=tmp_path / "part", **quick).learn(105)
    rest = Rover.resume(tmp_path / "part")
    assert 50 < len(rest.buffer) < 120
    rest.learn(120 - len(rest.buffer))
    np.testing.assert_array_equal(rest.buffer.actions, whole.buffer.actions)
    without = Rover("Acrobot-v1", search=False, **quick).learn(120)
    assert not np.array_equal(without.buffer.actions, whole.buffer.actions)
    # MountainCar's two dimensions are left to the plan, unless search is asked for.
    by_plan, asked, by_default = (
        Rover("MountainCar-v0", seed=3, measure_share=0.0, search=search).learn(90).buffer.actions
        for search in (False, True, None)
    )
    np.testing.assert_array_equal(by_default, by_plan)
    assert not np.array_equal(asked, by_plan)


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
