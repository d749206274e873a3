"""Drawn outcomes: against exact probabilities, and what held-out episodes choose."""

import numpy as np
import pytest
from gymnasium import spaces
from scipy.sparse import csr_array
from scipy.stats import norm
from walks import Walk, line

import rover
from rover.coverage.config import RoverConfig, resolve
from rover.coverage.cover import Cover
from rover.coverage.improve import PlanningModel
from rover.data import Buffer
from rover.solving.plans import Experience
from rover.world.outcomes import Outcomes
from rover.world.world import World

SERVED, ARRIVING, MOST = 0.75, (0.35, 0.2), 5


def queues(rng, state, action):
    """Two queues of up to five and one server."""
    after = state + (rng.random(2) < ARRIVING)
    if action < 2:
        after[action] -= rng.random() < SERVED
    return np.clip(after, 0, MOST)


def tied(rng, state, action):
    """Two levels that both rise, or both fall."""
    rises = rng.random() < (0.3, 0.7)[action]
    return np.clip(state + (1 if rises else -1), 0, MOST)


def certain(rng, state, action):
    """Two levels, one of which rises or falls."""
    step = ((1, 0), (-1, 0), (0, 1), (0, -1))[action]
    return np.clip(state + step, 0, MOST)


def transitions(move, n, *, n_actions, seed=0, shape=(2,), ends=None, look=np.asarray):
    """Uniformly random actions from a drawn state every ten steps."""
    rng, over = np.random.default_rng(seed), False
    seen = np.shape(look(np.zeros(shape, np.int64)))
    walk = Walk(Buffer(seen, np.int64, n_actions))
    for step in range(n):
        if step % 10 == 0 or over:
            state = rng.integers(MOST + 1, size=shape)
            walk.begin(look(state))
        action = int(rng.integers(n_actions))
        state = move(rng, state, action)
        over = bool(ends is not None and ends(state))
        walk.step(action, look(state), over, step % 10 == 9 and not over)
    return walk.buffer


def kernel(state, action):
    """Probabilities of the next states of two queues, (6, 6)."""
    probs = np.zeros((MOST + 1, MOST + 1))
    for first in (0, 1):
        for second in (0, 1):
            for served in (0, 1):
                p = np.prod(
                    [
                        q if x else 1 - q
                        for q, x in zip((*ARRIVING, SERVED), (first, second, served), strict=True)
                    ]
                )
                after = state + np.array([first, second])
                if action < 2:
                    after[action] -= served
                probs[tuple(np.clip(after, 0, MOST))] += p
    return probs


def variation(outcomes):
    """Mean total variation of the rows of two queues from the exact ones."""
    rows, states, apart = outcomes.rows(outcomes.states), outcomes.states.astype(int), []
    onward = csr_array(rows.onward).toarray().reshape(len(states), 3, -1)
    for number, state in enumerate(states):
        for action in range(3):
            exact = kernel(state, action)[tuple(states.T)]
            apart.append(0.5 * np.abs(onward[number, action] - exact).sum())
    return np.mean(apart)


def test_rows_near_the_exact_probabilities():
    far, near = (variation(Outcomes(transitions(queues, n, n_actions=3))) for n in (300, 3000))
    assert near < 0.06 < far < 0.25


@pytest.mark.parametrize("move", [queues, tied])
def test_mass_sums_to_one(move):
    outcomes = Outcomes(transitions(move, 300, n_actions=2))
    rows = outcomes.rows(outcomes.states)
    mass = rows.onward.sum(axis=1) + rows.ended.sum(axis=1) + rows.sink
    np.testing.assert_allclose(mass, 1.0, atol=1e-9)
    assert rows.onward.data.min() >= 0.0
    assert rows.sink.min() >= 0.0


def test_groups_and_the_inputs_that_matter_are_found_and_not_invented():
    def groups(move, n_actions):
        found = Outcomes(transitions(move, 1000, n_actions=n_actions)).groups
        return sorted(group.columns.tolist() for group in found)

    assert groups(queues, 3) == [[0], [1], [2]]
    assert groups(tied, 2) == [[0, 1], [2]]
    first, second, _ = Outcomes(transitions(queues, 2000, n_actions=3)).groups
    assert 2 not in first.forest.used
    assert 1 not in second.forest.used


def test_same_bits():
    made = [Outcomes(transitions(queues, 300, n_actions=3)) for _ in range(2)]
    first, second = (outcomes.rows(outcomes.states) for outcomes in made)
    assert (first.onward != second.onward).nnz == 0
    assert np.array_equal(first.sink, second.sink)


def test_forests_predict_queues_and_counts_worlds_without_chance_or_without_numbers():
    outcomes = World(transitions(queues, 500, n_actions=3)).outcomes
    assert outcomes is not None
    assert outcomes.gain > 0.1
    assert World(transitions(certain, 500, n_actions=4)).outcomes is None

    def names(rng, state, action):
        return np.clip(state + (rng.random() < 0.5), 0, MOST)

    one_hot = np.eye(MOST + 1, dtype=np.int64)
    for look in (np.asarray, lambda name: one_hot[name]):
        assert World(transitions(names, 300, n_actions=2, shape=(), look=look)).outcomes is None


def test_names_without_order_keep_counts():
    """Cells in a drawn order: no forest over numbers predicts what their counts do."""
    order = np.random.default_rng(1).permutation(30)
    leads = np.random.default_rng(2).integers(30, size=(30, 2, 2))

    def jump(rng, state, action):
        here = int(np.flatnonzero(order == min(int(state[0]), 29))[0])
        return np.array([order[leads[here, action, int(rng.random() < 0.5)]]])

    buffer = transitions(jump, 3000, n_actions=2, shape=(1,))
    found = World(buffer).outcomes
    assert found is None or found.weight <= 2.0


def test_episodes_end_as_often_as_they_did():
    buffer = transitions(queues, 3000, n_actions=3, ends=lambda state: state.sum() >= 8)
    outcomes = Outcomes(buffer)
    rows, states = outcomes.rows(outcomes.states), outcomes.states
    over = [
        sum(kernel(state.astype(int), 2)[i, j] for i in range(6) for j in range(6) if i + j >= 8)
        for state in states
    ]
    alive = states.sum(axis=1) < 8
    assert np.abs(rows.end.reshape(-1, 3)[alive, 2] - np.array(over)[alive]).mean() < 0.08


def test_ends_of_a_task():
    buffer = transitions(queues, 1000, n_actions=3)
    outcomes = Outcomes(buffer)
    ends = buffer.observations.rows[buffer.successors].sum(axis=1) == 0
    rows = Outcomes(buffer, ends).rows(outcomes.states)
    assert outcomes.rows(outcomes.states).ended.nnz == 0
    assert rows.ended.sum() > 1.0
    assert rows.onward.shape == outcomes.rows(outcomes.states).onward.shape


def test_untried_actions_lead_to_the_sink():
    other = Buffer((2,), np.int64, 4)
    other.load_state(transitions(queues, 500, n_actions=3).state())
    outcomes = Outcomes(other)
    sink = outcomes.rows(outcomes.states).sink.reshape(-1, 4)
    assert (sink[:, 3] == 1.0).all()
    assert not sink[:, :3].any()


def test_rewards_are_those_of_states_and_actions():
    buffer = transitions(queues, 1000, n_actions=3)
    table = buffer.observations.rows
    outcomes = Outcomes(buffer)
    paid = -table[buffer.inputs] @ [1.0, 2.0] - buffer.actions
    found = outcomes.rewards(paid[:, None], outcomes.rows(outcomes.states)).reshape(-1, 3)
    expected = (-outcomes.states @ [1.0, 2.0])[:, None] - np.arange(3)
    np.testing.assert_allclose(found, expected, atol=0.1)


def test_a_reward_of_one_pair_is_not_spread_over_those_beside_it():
    buffer = transitions(queues, 300, n_actions=3)
    pairs, tries = np.unique(buffer.inputs * 3 + buffer.actions, return_counts=True)
    special = pairs[tries == 1][0]
    earned = np.where(buffer.inputs * 3 + buffer.actions == special, 40.0, -1.0)[:, None]
    outcomes = Outcomes(buffer)
    found = outcomes.rewards(earned, outcomes.rows(outcomes.states))[:, 0]
    assert found[special] > 30.0
    assert found[np.setdiff1d(pairs, special)].max() < 1.0


def test_a_plan_serves_the_longer_queue_that_costs_more():
    buffer = transitions(queues, 500, n_actions=3)
    policy = rover.solve(buffer, lambda x, a, y: -x @ np.array([1.0, 3.0]))
    states = np.array([[3, 3], [4, 0], [9, 9]])
    assert policy.probs(states).argmax(axis=1).tolist() == [1, 0, 1]
    goal = rover.solve(buffer, goal=np.array([0, 0]))
    assert goal.probs(np.array([[0, 3], [3, 0]])).argmax(axis=1).tolist() == [1, 0]


def test_rewards_of_where_a_step_leads():
    """A cost of what is missing below a level, which no sum over changes says."""
    buffer = transitions(queues, 2000, n_actions=3)
    table, outcomes = buffer.observations.rows, Outcomes(buffer)
    rows = outcomes.rows(outcomes.states)

    def cost(states):
        return np.maximum(states - 3, 0) @ [5.0, 2.0]

    found = outcomes.rewards(cost(table[buffer.successors])[:, None], rows)[:, 0]
    np.testing.assert_allclose(found, rows.onward @ cost(outcomes.states), atol=0.15)


def test_coverage_is_planned_on_drawn_outcomes():
    buffer = transitions(queues, 500, n_actions=3)
    world, config = World(buffer), resolve(RoverConfig(), spaces.Box(0, MOST, (2,), np.int64))
    rows = world.outcomes.rows(buffer.observations.rows.astype(float))
    model = PlanningModel.of_states(world, None, config, Cover(buffer, None, None))
    assert np.abs(model.operator.transition - rows.onward).max() < 1e-12
    certainly = World(transitions(certain, 500, n_actions=4))
    assert certainly.outcomes is None


STROKES = np.array([0.05, 0.2, 0.5])


def putts(n, spread, seed=0):
    """Strokes towards a hole at 1, whose lengths vary by a share; they cost, and more beyond it."""
    rng, over = np.random.default_rng(seed), True
    walk, rewards = Walk(Buffer((1,), np.float64, 3)), []
    for _ in range(n):
        if over:
            walk.begin(at := rng.random(1))
        action = int(rng.integers(3))
        at = at + STROKES[action] * (1.0 + spread * rng.normal())
        over = bool(at[0] > 0.95)
        walk.step(action, at, over)
        rewards.append(-0.02 + over * (1.0 if at[0] < 1.05 else -1.0))
    return walk.buffer, np.array(rewards)


def test_continuous_numbers_that_are_drawn_are_planned_for_as_on_a_fine_grid():
    buffer, rewards = putts(2000, 0.3)
    assert Experience.of(buffer).points().neighbours.are_drawn
    policy = rover.solve(buffer, rewards, discount=0.95)
    grid, earned, onward = np.linspace(0.0, 0.95, 400), [], []
    edges = np.append(grid - grid[1] / 2, [0.95, 1.05])
    for length in STROKES:
        chances = norm.cdf((edges - grid[:, None]) / length, 1.0, 0.3)
        onward.append(np.diff(chances[:, :-1], axis=1))
        onward[-1][:, 0] += chances[:, 0]
        earned.append(2.0 * (chances[:, -1] - chances[:, -2]) - (1.0 - chances[:, -2]) - 0.02)
    earned, onward = np.array(earned), 0.95 * np.array(onward)
    best = values = np.zeros(len(grid))
    chosen = policy.probs(grid[:, None]).argmax(axis=1), np.arange(len(grid))
    for _ in range(300):
        best = (earned + onward @ best).max(axis=0)
        values = (earned + onward @ values)[chosen]
    assert (best - values).mean() < 0.03
    assert np.abs(policy.value(grid[:, None]) - best).mean() < 0.06


def test_certain_continuous_numbers_are_not_drawn():
    assert not Experience.of(putts(1000, 0.0)[0]).points().neighbours.are_drawn
    walled = line(1000, np.random.default_rng(0), wall=0.5)
    assert not Experience.of(walled).points().neighbours.are_drawn
