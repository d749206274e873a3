"""Contextual environments: recognised, explored, planned in, and their returned policy."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from random_rooms import RandomRooms
from walks import collected

from rover import Rover, load_policy
from rover.contexts.explorer import ContextExplorer
from rover.data import Buffer, Collector
from rover.data.histories import changes_with_episodes
from rover.errors import ConfigurationError, RoverWarning
from rover.evaluation.rollouts import episode_coverage
from rover.policies import ContextPolicy, Policy
from rover.solving import solve_in_contexts

ROOMS: dict[str, Any] = {
    "rooms": 4,
    "room_size": 4,
    "contexts": 64,
    "horizon": 60,
    "observation": "view",
}
QUICK: dict[str, Any] = {"evaluation_episodes": 2, "policy_every": 100, "measure_share": 1.0}
SELDOM: dict[str, Any] = {**QUICK, "policy_every": 500, "measure_share": 0.2}


def rooms(**changes: Any) -> gym.Env[Any, Any]:
    return RandomRooms(**{**ROOMS, **changes})


def explored(steps: int, seed: int = 0) -> tuple[ContextExplorer, Buffer]:
    env = rooms()
    buffer = Buffer(env.observation_space.shape or (), np.uint8, 4)
    collector = Collector(env, buffer, seed=seed)
    collector.start_episode()
    explorer, rng = ContextExplorer(buffer), np.random.default_rng(seed)
    for row in range(steps):
        done = collector.step(explorer.act(collector.observations[0], rng))
        explorer.observe(row, done=done)
    return explorer, buffer


def returned(trained: tuple[ContextExplorer, Buffer]) -> ContextPolicy:
    explorer, buffer = trained
    policy = ContextPolicy.of(explorer, buffer.observations.shape)
    assert policy is not None
    return policy


@pytest.fixture(scope="module")
def trained():
    return explored(1500)


def test_changing_worlds_are_told_from_those_that_stay():
    assert changes_with_episodes(collected(rooms(), 2000).buffer)
    # States that are seen as such, and one layout in every episode, whatever its starts.
    assert not changes_with_episodes(collected(rooms(observation="map"), 2000).buffer)
    assert not changes_with_episodes(collected(rooms(contexts=1, observation="map"), 2000).buffer)
    assert not changes_with_episodes(collected(rooms(horizon=2000), 1000).buffer), (
        "no episode is over"
    )


def test_an_explorer_is_a_function_of_the_buffer(trained):
    explorer, buffer = trained
    again = ContextExplorer(buffer)
    assert np.array_equal(explorer.model.weights, again.model.weights)
    assert np.array_equal(explorer.model.inverses, again.model.inverses)
    assert np.array_equal(explorer.kept, again.kept)
    row, rngs = len(buffer), [np.random.default_rng(3) for _ in range(2)]
    standing = int(buffer.successors[-1])
    assert row % ROOMS["horizon"] == 0 or explorer.act(standing, rngs[0]) == again.act(
        standing, rngs[1]
    )


def test_policies_with_and_without_a_memory_cover_more_than_random_actions(trained):
    with_memory = returned(trained)

    def uniform(_: np.random.Generator) -> Any:
        return lambda seen: np.full((len(seen), 4), 0.25)

    choices = {
        "memory": with_memory.sample_component,
        "markov": lambda _: with_memory.probs,
        "uniform": uniform,
    }
    found = {
        name: episode_coverage(rooms(), sample, horizon=60, max_steps=1200, seed=(9,))
        for name, sample in choices.items()
    }
    assert all(one["n_steps"] == 1200 for one in found.values())
    best = found["memory"]["episode_observations"]
    assert best > 1.3 * found["uniform"]["episode_observations"]
    assert best > found["markov"]["episode_observations"]
    assert found["memory"]["episode_objective"] < found["uniform"]["episode_objective"]


def test_a_policy_with_a_memory_does_the_same_after_it_was_stored(trained, tmp_path):
    policy = returned(trained)
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    stored = load_policy(path)
    assert isinstance(stored, ContextPolicy)
    env = rooms()
    walks = []
    for one in (policy, stored):
        rng, actions = np.random.default_rng(1), []
        for seed in (5, 5):
            one.reset()
            seen, _ = env.reset(seed=seed)
            for _ in range(30):
                actions.append(one.act(seen, rng))
                seen = env.step(actions[-1])[0]
        walks.append(actions)
    assert walks[0] == walks[1]
    everything = trained[1].observations.rows
    assert np.array_equal(policy.probs(everything), stored.probs(everything))
    assert policy.probs(everything).sum(axis=1) == pytest.approx(1.0)


def test_observations_that_are_too_large_are_refused():
    large = gym.wrappers.TransformObservation(
        rooms(), lambda _: _, gym.spaces.Box(0, 255, (5000,), np.uint8)
    )
    with pytest.raises(ConfigurationError, match="observations of at most 4,096 numbers"):
        Rover(large, contexts=True)


@pytest.mark.filterwarnings("ignore:.*outcomes depend on earlier")  # on the doors
def test_a_run_recognises_contexts_and_resumes_to_the_bit(tmp_path):
    def make(folder: str) -> Rover:
        env = rooms(horizon=30)
        return Rover(env, seed=3, run_dir=tmp_path / folder, checkpoint_every=200, **SELDOM)

    # Random starts look like nothing else at first; what repeats tells by step 1,000.
    with pytest.warns(RoverWarning, match="explored on a graph of its own"):
        whole = make("whole").learn(1600)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make("parts").learn(1600, callback=lambda record: record["step"] < 1400)
        resumed = Rover.resume(tmp_path / "parts", env=rooms(horizon=30)).finish()
    assert whole.summary()["contexts"] is True
    assert np.array_equal(whole.buffer.actions, resumed.buffer.actions)
    policies = [load_policy(tmp_path / name / "policy.safetensors") for name in ("whole", "parts")]
    weights = (dict(policy.state_dict()) for policy in policies)
    torch.testing.assert_close(*weights, rtol=0.0, atol=0.0)


def test_a_run_that_is_told_measures_within_episodes_and_hands_over_the_best():
    agent = Rover(rooms(), seed=4, contexts=True, **QUICK).learn(1000)
    summary = agent.summary()
    assert isinstance(agent.policy, ContextPolicy)
    assert summary["episode_observations"] > summary["uniform_episode_observations"]
    assert summary["episode_objective"] < summary["uniform_episode_objective"]
    assert summary["worse_than_random"] is False
    assert summary["left_out"] is None


SMALL_ROOMS: dict[str, Any] = {"contexts": 64, "horizon": 60, "observation": "view"}


def at_the_right(observations: np.ndarray) -> np.ndarray:
    """True in the last column of the map: there are walls alone to the right of the agent."""
    return (observations.reshape(-1, 5, 5)[:, :, 3:] >= 2).all(axis=(1, 2))


@pytest.fixture(scope="module")
def agent():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Rover(RandomRooms(**SMALL_ROOMS), seed=1, contexts=True, measure_share=1).learn(1500)


def arrivals(policy: Policy | None, env: gym.Env[Any, Any], n: int = 25) -> float:
    """Mean number of steps to the right of the map, or all 60 of an episode."""
    rng, steps = np.random.default_rng(0), []
    for episode in range(n):
        seen, _ = env.reset(seed=episode)
        if policy is not None:
            policy.reset()
        taken = 0
        while taken < 60 and not at_the_right(seen[None])[0]:
            action = int(rng.integers(4)) if policy is None else policy.act(seen, rng)
            seen, taken = env.step(action)[0], taken + 1
        steps.append(taken)
    return float(np.mean(steps))


def test_a_goal_is_reached_sooner_in_layouts_that_were_never_seen(agent):
    fresh = RandomRooms(**SMALL_ROOMS, family=7)
    by_goal = solve_in_contexts(agent, goal=at_the_right)
    reached = at_the_right(agent.buffer.observations.rows)[agent.buffer.successors]
    assert isinstance(agent.policy, ContextPolicy)
    solved = by_goal, agent.policy
    by_reward = solve_in_contexts(agent, reward=reached.astype(float))
    steps = {
        name: arrivals(policy, fresh)
        for name, policy in (("goal", by_goal), ("reward", by_reward), ("random", None))
    }
    assert steps["goal"] < 0.75 * steps["random"]
    assert steps["reward"] < 0.75 * steps["random"]
    # One step before the goal, which lies to the right.
    before = agent.buffer.observations.rows[agent.buffer.inputs[reached]]
    before = before[~at_the_right(before)]
    right = [policy.probs(before)[:, 3].mean() for policy in solved]
    assert right[0] > 0.9
    assert right[0] > right[1] + 0.3
    assert by_goal.details["tasks"] == ["at_the_right"]


def test_what_cannot_be_planned_for_is_refused(agent):
    n = len(agent.buffer)
    with pytest.raises(ConfigurationError, match="one of reward= and goal="):
        solve_in_contexts(agent)
    with pytest.raises(ConfigurationError, match="rewards below 0"):
        solve_in_contexts(agent, reward=-np.arange(n, dtype=float))
    with pytest.raises(ConfigurationError, match="no transition arrives"):
        solve_in_contexts(agent, goal=lambda seen: np.zeros(len(seen), bool))
    with pytest.raises(ConfigurationError, match=r"in \(0, 1\)"):
        solve_in_contexts(agent, goal=at_the_right, discount=1.0)
    with pytest.raises(ConfigurationError, match="contexts=True"):
        solve_in_contexts(agent.buffer, goal=at_the_right)
