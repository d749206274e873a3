"""Kernels, encoders and representation losses that are objects of the user's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_kernel import RationalQuadratic
from same_files import assert_same
from small_envs import ENVIRONMENTS, QUICK
from torch import Tensor, nn

import rover
from rover import Rover
from rover.errors import ConfigurationError

pytestmark = [
    pytest.mark.filterwarnings("ignore:the features of"),
    pytest.mark.filterwarnings("ignore:.*(not positive definite|planning again)"),
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


def test_a_loss_of_ones_own_is_trained_however_far_apart_observations_are():
    losses: list[Tensor] = []

    def noted(*args: Tensor, **named: Tensor) -> Tensor:
        losses.append(squared_error(*args, **named))
        return losses[-1]

    settings: dict[str, Any] = {"representation": noted, "encoder_updates": 2, "mirror_steps": 5}
    agent = Rover("rover/TwoRooms-v0", env_kwargs={"observation": "onehot"}, seed=0, **settings)
    assert agent.config.encoder_tolerance is None
    agent.learn(100)
    assert len(losses) == 2 * 2, "two rounds, though one-hot observations share nothing"


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


def test_an_encoder_of_ones_own_is_neither_changed_nor_shared():
    module = Small()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    first, second = (learn(encoder=module) for _ in range(2))
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    batch = first.buffer.observations.rows
    np.testing.assert_array_equal(first.policy.probs(batch), second.policy.probs(batch))


def test_an_encoder_that_does_not_fit_the_observations_is_named():
    with pytest.raises(ConfigurationError, match="the encoder Linear failed on observations"):
        learn(encoder=nn.Linear(3, 2))
