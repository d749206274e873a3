"""Kernels, encoders, losses, and what is to be covered, as objects of the user's own."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from own_kernel import RationalQuadratic
from same_files import assert_same
from small_envs import ENVIRONMENTS, QUICK, Small, image_place
from torch import Tensor, nn

import rover
from rover import Rover
from rover.coverage.config import RoverConfig
from rover.coverage.cover import Cover
from rover.coverage.represent import Learned
from rover.data import Buffer
from rover.envs import finite_dynamics
from rover.errors import ConfigurationError, NonFiniteError, RoverWarning
from rover.evaluation import policy_occupancy
from rover.features import (
    Encoder,
    Observations,
    custom_encoder,
    encoder_config,
    info_nce_loss,
    make_encoder,
    state_encoder,
)
from rover.operators import Gaussian
from rover.world.world import World

pytestmark = [
    pytest.mark.filterwarnings("ignore:coverage, J and"),
    pytest.mark.filterwarnings("ignore:.*not positive definite"),
]


class OwnEncoder(nn.Module):
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
    "encoder": OwnEncoder(),
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
        rover.load_policy(path, encoder=OwnEncoder())
    # the weights are those of the file, not of the module
    loaded = rover.load_policy(path, encoder=OwnEncoder(seed=5), kernel=RationalQuadratic(1.0, 0.2))
    np.testing.assert_array_equal(loaded.probs(batch), agent.policy.probs(batch))


class Walk(Small):
    """Numbers that four actions move up or down, each pair of actions its own; noise beside."""

    action_space = spaces.Discrete(4)
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float64)

    limit = 50

    def begin(self) -> None:
        self.place = self.np_random.normal(size=2)

    def move(self, action: Any) -> None:
        self.place[int(action) // 2] += 1.0 - 2.0 * (int(action) % 2)
        self.place += 0.05 * self.np_random.normal(size=2)

    def look(self) -> Any:
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
        (Walk, (1, 1), "different dimensions"),
        (image_place, (0,), "needs vector observations; pass a function"),
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


N_STATES, N_ACTIONS = 8, 2
Batch = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]


def _ring_batch(rng: np.random.Generator, size: int = 64) -> Batch:
    """Transitions on a ring of 8 states, left or right, merged; states as one-hot."""
    pairs = rng.integers(0, N_STATES * N_ACTIONS, size=size)
    rows, counts = np.unique(pairs, return_counts=True)
    states, actions = rows // N_ACTIONS, rows % N_ACTIONS
    next_states = (states + 2 * actions - 1) % N_STATES
    distinct, index = np.unique(np.concatenate([states, next_states]), return_inverse=True)
    observations = np.eye(N_STATES, dtype=np.float32)[distinct]
    return observations, index[: len(rows)], actions, index[len(rows) :], counts


VECTORS = encoder_config(
    Observations((N_STATES,), "float32", one_hot=True), feature_dim=12, hidden_sizes=(16,)
)


def _learned(
    seed: int = 0, encoder: Encoder | None = None, loss: Any = None, **settings: Any
) -> Learned:
    """With an encoder of the ring's states."""
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    encoder = make_encoder(VECTORS, generator) if encoder is None else encoder
    config = RoverConfig(**{"representation": "info_nce"} | settings)
    buffer = Buffer((N_STATES,), np.float32, N_ACTIONS)
    parts = World(buffer), Cover(buffer, None), encoder, Gaussian(0.1), loss, config
    return Learned(*parts, generator=generator, rng=rng)


def test_merged_rows_train_as_the_batch_of_duplicates():
    observations, inputs, actions, nexts, counts = _ring_batch(np.random.default_rng(2))
    rows = np.repeat(np.arange(len(counts)), counts)
    merged, plain = _learned(), _learned()
    a = merged.update(observations, inputs, actions, nexts, counts)
    b = plain.update(observations, inputs[rows], actions[rows], nexts[rows], np.ones(len(rows)))
    assert a == pytest.approx(b, rel=1e-6)
    for name, moment in merged.state().items():  # one step: the first moments are the gradients
        if name.startswith("optimizer.exp_avg."):
            torch.testing.assert_close(moment, plain.state()[name], rtol=1e-3, atol=1e-6)


def test_cosine_schedule_falls_to_a_tenth():
    learned = _learned(cosine_updates=2, learning_rate=0.01)
    rng, rates = np.random.default_rng(0), []
    for _ in range(4):
        learned.update(*_ring_batch(rng))
        rates.append(learned._optimizer.param_groups[0]["lr"])
    np.testing.assert_allclose(rates, [0.01, 0.0055, 0.001, 0.001])


def test_a_loss_of_ones_own():
    """InfoNCE as a function is the built-in one to the bit."""

    def loss(
        predicted: Tensor, features: Tensor, *, next_index: Tensor, counts: Tensor, **_: Tensor
    ) -> Tensor:
        targets = features.detach()
        return info_nce_loss(predicted, targets, next_index, counts, temperature=0.05)

    ours, builtin = _learned(loss=loss), _learned()
    rng = np.random.default_rng(0)
    for _ in range(5):
        batch = _ring_batch(rng)
        assert ours.update(*batch) == builtin.update(*batch)
    torch.testing.assert_close(ours.state(), builtin.state(), rtol=0.0, atol=0.0)


@pytest.mark.parametrize("value", [1.0, torch.zeros(()), torch.zeros(3, requires_grad=True)])
def test_a_loss_of_ones_own_that_is_no_scalar_of_the_encoder(value):
    with pytest.raises(ConfigurationError, match="must return a scalar tensor that depends on the"):
        _learned(loss=lambda *_, **__: value).update(*_ring_batch(np.random.default_rng(0)))


def test_a_module_of_ones_own_is_trained():
    module = nn.Sequential(nn.Linear(N_STATES, 12), nn.Tanh())
    space = spaces.Box(0, 1, (N_STATES,), np.float32)
    learned = _learned(0, custom_encoder(module, space))
    before = learned.state()
    learned.update(*_ring_batch(np.random.default_rng(0)))
    changed = {k for k, v in learned.state().items() if not torch.equal(v, before[k])}
    assert "encoder.module.0.weight" in changed
    frozen = custom_encoder(module.requires_grad_(False), space)
    with pytest.raises(ConfigurationError, match="'custom' encoder has no weights to train"):
        _learned(0, frozen)
    with pytest.raises(ConfigurationError, match="'identity' encoder has no weights to train"):
        _learned(0, state_encoder(spaces.Discrete(4)))
