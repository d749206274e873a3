"""Kernels, encoders, losses, and what is to be covered, as objects of the user's own."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from own_kernel import RationalQuadratic
from same_files import assert_same
from small_envs import ENVIRONMENTS, QUICK, image_place, numbered_place
from torch import Tensor, nn

import rover
from rover import Rover
from rover.envs import finite_dynamics
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.evaluation import policy_occupancy

pytestmark = [
    pytest.mark.filterwarnings("ignore:coverage, J and"),
    pytest.mark.filterwarnings("ignore:.*not positive definite"),
]


class Small(nn.Module):
    """An encoder of 16 one-hot states."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        states = Rover(ENVIRONMENTS["onehot"]()).measures.evaluator
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layer = nn.Linear(states.n_states, 8)

    def forward(self, observations: Tensor) -> Tensor:
        return nn.functional.normalize(torch.tanh(self.layer(observations)), dim=1)


def squared_error(
    predicted: Tensor, features: Tensor, *, next_index: Tensor, counts: Tensor, **_: Tensor
) -> Tensor:
    error = (predicted - features.detach()[next_index]).square().sum(dim=1)
    return (counts * error).sum() / counts.sum()


def learn(folder: Path | None = None, callback: Any = None, **objects: Any) -> Rover:
    settings = {**QUICK, "batch_size": 64, "encoder_updates": 4, "checkpoint_every": 25, **objects}
    agent = Rover(ENVIRONMENTS["onehot"](), seed=1, run_dir=folder, **settings)
    return agent.learn(75, callback=callback)


OBJECTS: dict[str, Any] = {
    "kernel": RationalQuadratic(1.0, 0.2),
    "encoder": Small(),
    "representation": squared_error,
}


def test_a_run_resumes_in_the_same_bits_when_they_are_given_again(tmp_path):
    whole = learn(tmp_path / "whole", **OBJECTS)
    learn(tmp_path / "stopped", callback=lambda record: record["step"] < 50, **OBJECTS)
    with pytest.raises(ConfigurationError, match="='custom' stands for an object of your own"):
        Rover.resume(tmp_path / "stopped", env=ENVIRONMENTS["onehot"]())
    resumed = Rover.resume(tmp_path / "stopped", env=ENVIRONMENTS["onehot"](), **OBJECTS)
    assert resumed.num_timesteps == 50
    resumed.finish()
    batch = whole.buffer.observations.rows
    np.testing.assert_array_equal(resumed.policy.probs(batch), whole.policy.probs(batch))
    assert_same(tmp_path / "stopped", tmp_path / "whole", "metrics.jsonl")
    assert np.abs(whole._policy.probs(batch) - 0.25).max() > 0.01, "the policy is still uniform"


def test_their_policy_is_read_with_them(tmp_path):
    agent = learn(**OBJECTS)
    batch = agent.buffer.observations.rows
    path = tmp_path / "policy.safetensors"
    agent.policy.save(path)
    with pytest.raises(ConfigurationError, match="author's own encoder: pass one like it"):
        rover.load_policy(path)
    with pytest.raises(ConfigurationError, match="author's own kernel: pass one like it"):
        rover.load_policy(path, encoder=Small())
    # the weights are those of the file, not of the module
    loaded = rover.load_policy(path, encoder=Small(seed=5), kernel=RationalQuadratic(1.0, 0.2))
    np.testing.assert_array_equal(loaded.probs(batch), agent.policy.probs(batch))


class Walk(gym.Env[Any, Any]):
    """Numbers that four actions move up or down, each pair of actions its own; noise beside."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.place, self.age = self.np_random.normal(size=2), 0
        return self._look(), {}

    def step(self, action: Any) -> Any:
        self.place[int(action) // 2] += 1.0 - 2.0 * (int(action) % 2)
        self.place += 0.05 * self.np_random.normal(size=2)
        self.age += 1
        return self._look(), 0.0, False, self.age == 50, {}

    def _look(self) -> Any:
        return np.append(self.place, self.np_random.random())


def room(rows: Any) -> Any:
    """Which half of the corridor."""
    return np.asarray(rows)[:, None] >= 3


def halves(**settings: Any) -> tuple[Rover, np.ndarray]:
    env = gym.make("rover/Corridor-v0", length=9, observation="state")
    agent = Rover(env, seed=0, **settings).learn(150)
    problem = finite_dynamics(env)
    (probs,) = agent.policy.tables(problem.observations)
    occupancy = policy_occupancy(problem.dynamics, probs, discount=agent.config.discount)
    return agent, np.bincount(room(problem.observations)[:, 0], occupancy)


def test_exact_states_share_the_places_that_they_cover():
    agent, wanted = halves(cover=room)
    _, alike = halves()
    np.testing.assert_allclose(wanted, 0.5, atol=0.01)
    assert alike.max() > 0.6

    labels = room(agent.buffer.observations.rows)
    operator = agent.world.counts.rows().operator(agent._cover.groups())
    weights = np.random.default_rng(0).random(operator.n_states)
    np.testing.assert_allclose(
        operator.apply_gram(torch.from_numpy(weights)), (labels == labels.T) @ weights
    )


@pytest.mark.parametrize("cover", [(0,), lambda rows: rows[:, :1]])
def test_a_net_prices_novelty_by_what_is_covered(cover):
    agent = Rover(Walk(), seed=0, cover=cover, mirror_steps=5, evaluation_episodes=2).learn(150)
    model = agent.world.landmarks(agent._explorer.sums)
    here = model.rows(600).landmarks[:3].copy()
    there = here.copy()
    there[:, 1] += 7.0
    novelty = model.novelty
    np.testing.assert_array_equal(novelty(here), novelty(there))
    if cover == (0,):
        there[:, 0] += 7.0
        assert (novelty(there) > novelty(here)).all()
    first, second = np.ptp(agent.buffer.observations.rows[:, :2], axis=0)
    assert first > 1.25 * second, (first, second)


@pytest.mark.parametrize(
    ("env", "cover", "message"),
    [
        (Walk, (3,), r"different dimensions from 0 to 2, not \[3\]"),
        (Walk, (), "different dimensions"),
        (Walk, (1, 1), "different dimensions"),
        (image_place, (0,), "needs vector observations; pass a function"),
        (numbered_place, (0,), "needs vector observations; pass a function"),
        (Walk, "nosuch", "cover"),
    ],
)
def test_wrong_dimensions(env, cover, message):
    with pytest.raises(ConfigurationError, match=message):
        Rover(env(), cover=cover)


def test_wrong_functions():
    for cover in (lambda rows: rows[:, 0], lambda rows: rows[:1], lambda rows: rows.astype("U9")):
        with pytest.raises(ConfigurationError, match="cover must make an array of"):
            Rover(Walk(), cover=cover).learn(100)
    with pytest.raises(NonFiniteError, match="what cover returned"):
        Rover(Walk(), cover=lambda rows: rows[:, :1] * np.nan).learn(100)


def test_what_cannot_be_covered_is_said():
    with pytest.warns(RoverWarning, match="nothing of what cover names follows from the step"):
        Rover(Walk(), cover=(2,), mirror_steps=5, evaluation_episodes=2).learn(120)
    with pytest.warns(RoverWarning, match="are of all states alike, whatever cover and target say"):
        Rover("rover/Corridor-v0", env_kwargs={"length": 5}, cover=room)
