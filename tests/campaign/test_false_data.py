"""Drawn situations in which data would be false: an environment that somebody else steps, one that
resets itself, and episodes that were glued together."""

import random
import warnings
from typing import Any

import numpy as np
import pytest
from small_agents import SMALL
from small_envs import Small, bytes_place, numbered_place, short_vector_place

from rover import make_agent
from rover.data import Buffer

PLACES = bytes_place, numbered_place, short_vector_place


def learned(env: Small, drawn: random.Random, **options: Any) -> Buffer:
    """Up to 200 steps of random actions, in several calls."""
    agent = make_agent("random", env, seed=drawn.randrange(99), **SMALL["random"])
    for _ in range(3):
        agent.learn(drawn.randint(20, 60), **options)
    return agent.buffer


@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_is_touched_leaves_the_same_data(drawn: random.Random) -> None:
    make, state = drawn.choice(PLACES), drawn.getstate()
    alone, env, touches = learned(make(), drawn), make(), random.Random(drawn.random())

    def touch(_: Any) -> None:
        for _ in range(touches.randrange(9)):
            env.reset() if touches.random() < 0.3 else env.step(touches.randrange(4))

    drawn.setstate(state)
    touched = learned(env, drawn, callback=touch)
    for name, column in alone.state().items():
        np.testing.assert_array_equal(touched.state()[name], column, err_msg=name)


@pytest.mark.filterwarnings("ignore")
def test_an_environment_that_resets_itself_leaves_true_transitions(drawn: random.Random) -> None:
    env, name = drawn.choice(PLACES)(), drawn.choice(["final_obs", "terminal_observation"])
    env.limit, step = drawn.randint(5, 50), env.step

    def resetting(action: Any) -> Any:
        seen, reward, ended, cut, info = step(action)
        return (
            (env.reset()[0], reward, ended, cut, {name: seen})
            if cut
            else (seen, 0.0, ended, cut, info)
        )

    env.step = resetting  # type: ignore[method-assign]
    buffer = learned(env, drawn)
    pairs = np.stack([buffer.inputs, buffer.actions], axis=1)
    n_outcomes = len(np.unique(np.column_stack([pairs, buffer.successors]), axis=0))
    assert n_outcomes == len(np.unique(pairs, axis=0)), (name, env.limit)


def test_glued_episodes_are_cut_where_they_were_glued(drawn: random.Random) -> None:
    length, n_episodes = drawn.randint(20, 200), drawn.randint(5, 30)
    walks = [np.cumsum([drawn.choice((0, 1)) for _ in range(length)]) for _ in range(n_episodes)]
    seen, none = (
        np.append(np.concatenate(walks), walks[-1][-1]),
        np.zeros(length * n_episodes, bool),
    )
    taken = np.append(np.diff(np.concatenate(walks)) > 0, False).astype(int)
    with warnings.catch_warnings(action="error"):
        cut = Buffer.from_arrays(seen[:, None], taken, None, none, none, episode_length=length)
    rows = cut.observations.rows[:, 0]
    assert cut.n_episodes == n_episodes
    assert set(rows[cut.successors] - rows[cut.inputs]) <= {0, 1}
