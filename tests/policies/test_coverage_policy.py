"""The policy that is handed over: softmax, differentiable, and the same when loaded."""

import warnings

import numpy as np
import pytest
import torch
from small_envs import ENVIRONMENTS, QUICK, SMALL_CONV, SMALL_NET

import rover
from rover.coverage.agent import Rover
from rover.data import ObservationTable
from rover.errors import ArtefactError, RoverWarning
from rover.features import Observations
from rover.operators import Dirac
from rover.policies import StatePolicy
from rover.storage import write_tensors

pytestmark = [
    pytest.mark.slow,  # five agents are trained for them
    pytest.mark.filterwarnings("ignore:.*not positive definite"),
]

KINDS = {
    "state": {},
    "onehot": {**SMALL_NET},
    "pixels": {**SMALL_CONV, "encoder_updates": 1},
    "hashed pixels": {},
    "mountain car": {},
    "onehot, linear kernel": {**SMALL_NET, "kernel": "linear"},
}


@pytest.fixture(scope="module")
def agents():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {}
        for name, settings in KINDS.items():
            env = ENVIRONMENTS[name.split(",")[0].removeprefix("hashed ")]()
            steps = 75 if name == "pixels" else 150
            made[name] = Rover(env, seed=2, **{**QUICK, **settings}).learn(steps)
        return made


def batch_of(agent: Rover, n: int = 12) -> np.ndarray:
    return agent.buffer.observations.rows[:n]


@pytest.mark.parametrize("name", KINDS)
def test_a_softmax_that_learns_and_is_the_same_from_its_file(agents, name, tmp_path):
    policy = agents[name].policy
    batch = batch_of(agents[name])
    probs = policy.probs(batch)
    logits = policy(torch.from_numpy(batch.copy())).detach()
    np.testing.assert_allclose(probs, torch.softmax(logits, dim=1).numpy(), rtol=1e-12)
    assert np.abs(probs - 1 / probs.shape[1]).max() > 0.01, "the policy is still uniform"
    policy.save(tmp_path / "a.safetensors")
    loaded = rover.load_policy(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(loaded.probs(batch), policy.probs(batch))
    assert loaded.observation_shape == policy.observation_shape
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()

    loaded.requires_grad_(True)
    torch.log_softmax(loaded(torch.from_numpy(batch.copy())), dim=1)[:, 0].sum().backward()
    for label, parameter in loaded.named_parameters():
        assert parameter.grad is not None, label
        assert bool(torch.isfinite(parameter.grad).all()), label
    assert float(loaded.weights.grad.abs().sum()) > 0
    weights = [x for module in loaded.children() for x in module.parameters()]
    assert not weights or sum(float(p.grad.abs().sum()) for p in weights) > 0


def test_the_handed_over_policy_does_not_follow_later_training():
    agent = Rover(ENVIRONMENTS["onehot"](), seed=1, **QUICK, **SMALL_NET).learn(150)
    policy, batch = agent.policy, batch_of(agent, 4)
    before = policy.probs(batch)
    agent.learn(50)
    np.testing.assert_array_equal(policy.probs(batch), before)
    assert np.abs(agent.policy.probs(batch) - before).max() > 0


def test_exact_states_are_looked_up_as_their_kernel_compares_them():
    table = ObservationTable((2,), np.dtype(np.float32))
    for state in (0.0, 2.0, 5.0):
        table.intern([state, -0.0])
    weights = torch.arange(6, dtype=torch.float64).reshape(3, 2) ** 2
    form = Observations((2,), "float32")
    policy = StatePolicy(form, table.names, weights, epsilon=0.1)
    batch = np.array([[2.0, 0.0], [-0.0, 0.0], [5.0, 0.0], [7.0, 0.0]], np.float32)
    singly = np.concatenate([policy.probs(row[None]) for row in batch])
    np.testing.assert_array_equal(singly, policy.probs(batch))
    seen = torch.from_numpy(table.rows.copy()).double()
    compared = Dirac()(torch.from_numpy(batch).double(), seen) @ weights
    expected = 0.9 * torch.softmax(compared, dim=1) + 0.05
    np.testing.assert_allclose(singly, expected, rtol=1e-12)
    assert (singly[3] == 0.5).all()


def test_read_only_observations_and_python_numbers(agents):
    batch = batch_of(agents["onehot"]).copy()
    batch.flags.writeable = False
    assert agents["onehot"].policy.probs(batch).shape == (len(batch), 4)
    assert agents["state"].policy.act(3, np.random.default_rng(0)) in range(4)
    assert agents["state"].policy.probs(torch.tensor([0, 1])).shape == (2, 4)
    assert agents["onehot"].policy.probs(batch[:0]).shape == (0, 4)


def test_loading_something_else(tmp_path):
    file = tmp_path / "policy.safetensors"
    form = {"shape": [], "dtype": "int64"}
    names = np.zeros((3, 16), np.uint8)
    states = {"form": form, "names": names, "weights": torch.zeros(2, 4), "epsilon": 0.0}
    for content in ({"type": "coverage", "encoder": {}}, {"type": "states", **states}):
        write_tensors(file, content | {"details": {}}, kind="policy")
        with pytest.raises(ArtefactError, match="a policy that this version of rover cannot"):
            rover.load_policy(file)


def test_most_probable_actions_of_a_coverage_policy_are_warned_of_once(agents):
    policy, seen = agents["state"].policy, np.int64(0)
    with pytest.warns(RoverWarning, match="deterministic=False"):
        policy.predict(seen, deterministic=True)
    with warnings.catch_warnings(action="error"):
        policy.predict(seen, deterministic=True)
