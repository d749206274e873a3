"""Rooms that every episode draws anew: their contexts, and the objective over them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from rover.envs import RandomRooms, finite_dynamics, make_env
from rover.errors import ConfigurationError
from rover.evaluation import optimal_occupancy, policy_occupancy

SMALL = {"rooms": 3, "room_size": 2, "contexts": 4}


@pytest.mark.parametrize("observation", ["map", "view"])
def test_it_follows_gymnasium_and_its_stated_dynamics(observation):
    env = RandomRooms(observation=observation, **SMALL)
    check_env(env, skip_render_check=True)
    rng, contexts = np.random.default_rng(0), set()
    for episode in range(12):
        seen, info = env.reset(seed=episode)
        state, ended = info["state"], False
        contexts.add(info["context"])
        assert env.mdp.dynamics.start[state] == 0.25
        while not ended:
            assert np.array_equal(seen, env.mdp.observations[state])
            assert env.context_of[state] == info["context"]
            action = int(rng.integers(4))
            seen, _, _, ended, info = env.step(action)
            assert env.mdp.dynamics.transition[action][state, info["state"]] == 1.0
            state = info["state"]
    assert len(contexts) == 4


def test_only_a_map_tells_the_states_apart():
    env = make_env("rover/RandomRooms-v0", SMALL)
    problem = finite_dynamics(env)
    assert len(np.unique(problem.observations, axis=0)) == problem.dynamics.n_states
    assert (
        finite_dynamics(make_env("rover/RandomRooms-v0", SMALL | {"observation": "view"})) is None
    )


def test_the_objective_over_contexts_is_that_of_all_of_them_together():
    """‖μ‖² of the whole is the mean of ‖μ_c‖² over the contexts, divided by their number."""
    env, discount = RandomRooms(**SMALL), 0.9
    n = len(env.layouts)
    policy = np.random.default_rng(1).dirichlet(np.ones(4), size=env.mdp.dynamics.n_states)
    whole = policy_occupancy(env.mdp.dynamics, policy, discount=discount)
    apart, optima = [], []
    for context, layout in enumerate(env.layouts):
        alone = gym.make("rover/Grid-v0", layout=layout.text).unwrapped
        mine = policy[env.context_of == context]
        apart.append(np.square(policy_occupancy(alone.dynamics(), mine, discount=discount)).sum())
        optima.append(optimal_occupancy(alone.dynamics(), discount=discount).objective)
    assert np.square(whole).sum() * n == pytest.approx(np.mean(apart), rel=1e-9)
    together = optimal_occupancy(env.mdp.dynamics, discount=discount).objective
    assert together * n == pytest.approx(np.mean(optima), rel=1e-5)


def test_a_family_follows_from_its_seed():
    with pytest.raises(ConfigurationError, match="there are 4 places of the doors; ask for fewer"):
        RandomRooms(**SMALL | {"contexts": 5})
    first, again, other = (RandomRooms(family=seed) for seed in (1, 1, 2))
    assert first.layouts == again.layouts != other.layouts
