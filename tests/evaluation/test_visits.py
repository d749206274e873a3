"""Coverage by data: what is counted, beside random actions, and arrivals at a reward."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_envs import image_place, numbered_place

from rover.baselines import make_agent
from rover.data import Buffer, Collector
from rover.data.rollout import _Arrival
from rover.evaluation.visits import (
    _arrivals,
    data_coverage,
    first_steps,
)
from rover.training.measures import _random_references


def walk(successors: list[int], ends: set[int]) -> Buffer:
    """A buffer whose n-th step leads to `successors[n]`, and whose episodes begin in 0."""
    buffer = Buffer((1,), np.float32, 2)
    index = [buffer.observations.intern(np.array([k], np.float32)) for k in range(10)]
    buffer.add_start(index[0])
    place = 0
    for number, reached in enumerate(successors):
        buffer.add(place, number % 2, reached, False, number in ends)
        place = reached
        if number in ends:
            buffer.add_start(index[0])
            place = 0
    return buffer


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=10, max_size=60), st.data())
def test_first_visits_are_those_of_brute_force(successors, data):
    ends = data.draw(st.sets(st.integers(0, len(successors) - 1), max_size=4))
    buffer, labels = walk(successors, ends), np.array([0, 0, 1, 1, 2, 3, 4, 5, -1, 6])
    found, n_steps = first_steps(buffer, labels), len(successors)
    # Step after which each place is stood on; an episode begins right after the step before.
    seen = [(0, 0)]
    for number, reached in enumerate(successors, start=1):
        seen.append((number, reached))
        seen += [(number, 0)] * (number - 1 in ends)
    pairs = sorted(zip(*(column.tolist() for column in _arrivals(buffer)), strict=True))
    assert pairs == sorted(seen)
    for step in range(n_steps + 1):
        cells = {labels[place] for when, place in seen if when <= step} - {-1}
        assert np.count_nonzero(found <= step) == len(cells)


@pytest.mark.parametrize(
    ("rewards", "ended", "first", "is_sparse"),
    [
        ([0, 0, 0, 1, 0], (), 4, True),
        ([-1, -1, -1, 0], (), 4, True),
        ([-1.0, -1.0, -1.0], (3,), 3, True),  # a cost that ends, as of MountainCar
        ([0, 0, 0], (3,), None, True),  # a hole, or nothing
        ([1, 1, 1], (3,), None, True),  # a fall, as of CartPole
        ([0.1, 0.3, 0.2], (), 2, False),  # dense rewards have no arrival
        ([np.array([0.0]), np.array([1.0])], (), 2, True),
        ([float("nan"), float("nan"), 1.0], (), None, False),
        ([np.zeros(2), np.ones(2)], (), None, False),
        (["none", None], (), None, False),
    ],
)
def test_an_arrival_is_the_first_reward_above_the_usual_one(rewards, ended, first, is_sparse):
    arrival = _Arrival()
    for number, reward in enumerate(rewards, start=1):
        arrival.note(reward, number in ended)
    assert arrival.within(10) == (is_sparse, first if is_sparse else None)
    if is_sparse and first is not None:
        assert arrival.within(first - 1) == (True, None)


def summary_of(agent: str, env: gym.Env[Any, Any], steps: int, **settings: Any) -> dict[str, Any]:
    return make_agent(agent, env, seed=0, **settings).learn(steps).summary()


def test_each_kind_of_observation_is_counted_in_its_unit():
    grid = summary_of("random", gym.make("rover/TwoRooms-v0"), 200)
    assert grid["visited_unit"] == "states"
    assert 1 < grid["uniform_states_seen"] <= grid["states_total"]
    assert grid["uniform_observations"] is grid["data_cells"] is None
    numbers = summary_of("random", numbered_place(), 200)
    assert numbers["visited_unit"] == "observations"
    assert 10 < numbers["uniform_observations"] <= 25
    assert numbers["pairs_known"] == 4 * numbers["observations"]
    assert numbers["sparse_reward"] is False  # NaN, which pretraining does not mind
    car = summary_of("random", gym.make("MountainCar-v0"), 600)
    assert car["visited_unit"] == "cells"
    least, most = car["uniform_visited_least"], car["uniform_visited_most"]
    assert least <= car["uniform_data_cells"] <= most <= 50  # which they have together
    assert 0.3 < car["data_cells"] / car["uniform_data_cells"] < 3.0  # random actions themselves
    assert car["pairs_tried"] is car["first_arrival"] is None
    assert car["measured_steps"] == 0  # the reference is no part of the evaluation budget
    alone = summary_of("random", gym.make("MountainCar-v0"), 300, measure_share=0.0)
    assert alone["visited_unit"] is alone["uniform_data_cells"] is None


def test_a_large_reference_is_shorter_than_the_run(monkeypatch):
    monkeypatch.setattr("rover.training.measures._REFERENCE_BYTES", 5 * 20 * 20 * 3)
    env, empty = image_place(), Buffer((20, 20, 3), np.uint8, 4)
    like = Collector(env, empty, seed=0)
    references = _random_references(env, like, n_steps=50, seed=0)
    assert [len(one.buffer) for one in references] == [5, 5, 5]
    run = references.pop()
    run.buffer.add(0, 0, 0, False, False)  # one step more than the references
    figures, curves = data_coverage(run, references, repeats=True)
    assert figures["compared_steps"] == curves["visited_steps"][-1] == 5
