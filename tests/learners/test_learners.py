"""What holds of every learner and of its networks: states, warm-ups, copies, caches, refusals."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_learners import (
    KINDS,
    LEARNERS,
    N_ACTIONS,
    ONE_HOT,
    VECTORS,
    assert_same_state,
    changed,
    coverage_policy,
    drawn,
    make,
    make_batch,
    make_observations,
    named,
    pretrained_encoder,
    stir,
)
from torch import Tensor, nn
from torch.testing import assert_close

from rover.errors import NonFiniteError, RoverWarning
from rover.learners.networks import PolicyNetworkConfig, RowCache, _ParallelMLP


@pytest.mark.parametrize("name", LEARNERS)
def test_a_restored_learner_continues_with_the_same_bits(name):
    skills = {"skill_dim": 3} if "skills" in name else {}
    (encoder, first), (_, second) = named(name), named(name)
    stir(second, seed=2)
    second.update(*make_batch(encoder, **skills))  # something to forget
    keys = first.state().keys()
    for seed in range(3):
        first.update(*make_batch(encoder, seed=seed, m=4 + seed, **skills))
    second.load_state(first.state())
    for seed in range(3, 6):
        batch = make_batch(encoder, seed=seed, **skills)
        assert first.update(*batch) == second.update(*batch)
    assert_same_state(second.state(), first.state())
    assert first.state().keys() == keys
    assert int(second.state()["n_updates"]) == 6


@pytest.mark.parametrize("name", ["cql, frozen critics", "ddpg, frozen critics and policy"])
def test_cached_features_change_no_bit(name):
    (_, with_rows), (_, without) = named(name), named(name)
    for seed in range(4):  # ever more of a growing table
        batch, *rest = make_batch(ONE_HOT, m=3 + 2 * seed, seed=seed)
        assert with_rows.update(batch, *rest) == without.update(changed(batch, rows=None), *rest)
    assert_same_state(with_rows.state(), without.state())


@pytest.mark.parametrize("of", ["new", "images", "coverage policy", "partly frozen"])
@pytest.mark.parametrize("kind", ["ddpg", "sac"])
def test_a_warm_up_of_the_critics_leaves_the_actor_alone(kind, of):
    encoder, learner = named(f"{kind}, {of}")
    learner.update(*make_batch(encoder, seed=4))
    before = learner.state()
    metrics = learner.update(*make_batch(encoder), train_actor=False)
    assert metrics["actor_grad_norm"] == 0.0
    assert metrics["critic_grad_norm"] > 0.0
    after = learner.state()
    stays = [k for k in before if "actor" in k or "temperature" in k]
    assert stays
    assert_same_state({k: after[k] for k in stays}, {k: before[k] for k in stays})
    assert not torch.equal(before["critics.heads.biases.0"], after["critics.heads.biases.0"])
    assert int(after["n_updates"]) == 2


def test_what_was_given_is_copied_in_and_out():
    policy = coverage_policy()
    weights = policy.weights.detach().clone()
    learner, critics = make("ddpg", actor=policy), make("cql")
    observations = make_observations(ONE_HOT)
    uniform = torch.full((9, N_ACTIONS), 1 / 3)
    new = make("ddpg").policy_logits(observations).softmax(dim=1)
    assert_close(new, uniform, atol=0.01, rtol=0)
    close = {"rtol": 1e-6, "atol": 1e-6}  # features are in single precision
    assert_close(learner.policy_logits(observations), policy(observations), **close)
    handed_over, of_values = learner.policy_module(), critics.policy_module()
    values = of_values(observations)
    for each in (learner, critics):
        each.update(*make_batch(ONE_HOT))
    assert torch.equal(policy.weights, weights)
    assert torch.equal(handed_over(observations), policy(observations))
    assert torch.equal(of_values(observations), values)
    assert not torch.equal(critics.critics(observations), values)
    trained = learner.policy_module()
    assert_close(trained(observations), learner.policy_logits(observations), **close)
    assert not torch.allclose(trained(observations), policy(observations))
    assert not trained.training
    assert not any(p.requires_grad for p in of_values.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_only_new_networks_are_centred(kind):
    center, scale = np.full(4, 2.0), np.full(4, 0.5)
    given = make(kind, VECTORS, critic_encoder=pretrained_encoder(VECTORS, frozen=False))
    cases = [(make(kind, VECTORS), 2.0, 2.0), (given, 0.0, 2.0)]
    if kind != "cql":
        cases.append((make(kind, VECTORS, actor=coverage_policy(VECTORS)), 2.0, 0.0))
    for learner, of_critics, of_actor in cases:
        learner.set_centering(center, scale)
        for name, tensor in learner.state().items():
            if name.endswith("encoder.center") and "optimizer" not in name:
                assert (tensor == (of_actor if name.startswith("actor") else of_critics)).all()
    centred, other = cases[0][0], make(kind, VECTORS)
    batch = make_batch(VECTORS)
    assert centred.update(*batch) != other.update(*batch)
    other.load_state(centred.state())
    assert centred.update(*batch) == other.update(*batch)


def test_the_temperature_follows_the_entropy_at_the_rate_of_adam():
    """Adam's first step of log α is its rate, down where the entropy is above its target."""
    certain = drawn(nn.Linear(9, N_ACTIONS))
    with torch.no_grad():
        certain.get_parameter("bias")[0] += 30.0
    for actor, step in ((None, -0.01), (certain, 0.01)):
        learner = make("sac", actor=actor, temperature_learning_rate=0.01)
        metrics = learner.update(*make_batch(ONE_HOT))
        assert metrics["temperature"] == pytest.approx(0.1, rel=1e-15)
        assert math.log(learner.temperature / 0.1) == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_changes_no_weight(kind):
    module = drawn(nn.Linear(9, N_ACTIONS))
    with torch.no_grad():
        module.get_parameter("bias").fill_(torch.nan)
    cases = [
        ({}, torch.nan, "has critic_loss nan, .* 20 of 20 returns are not finite"),
        ({}, 1e30, ".* lower the learning rates"),
    ]
    if kind != "cql":
        cases.append(({"actor": module}, 0.0, "has critic_loss nan, actor_loss nan"))
    for options, value, message in cases:
        learner = make(kind, **options)
        batch, returns, discounts = make_batch(ONE_HOT)
        before = learner.state()
        with pytest.raises(NonFiniteError, match=f"update 1 of {kind.upper()} {message}"):
            learner.update(batch, torch.full_like(returns, value), discounts)
        assert_same_state(learner.state(), before)


def make_mlp() -> _ParallelMLP:
    config = PolicyNetworkConfig(encoder=ONE_HOT, n_actions=3, hidden_sizes=(7,), skill_dim=2)
    return _ParallelMLP(2, 5, config, output_gain=1.0, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("n", [4, 20])
def test_heads_are_perceptrons_on_features_and_skill_side_by_side(n):
    """With fewer and with more results than features, which are gathered as early as pays."""
    mlp, generator = make_mlp().double(), torch.Generator().manual_seed(1)
    features = torch.randn(9, 5, dtype=torch.float64, generator=generator, requires_grad=True)
    skills = torch.randn(n, 2, dtype=torch.float64, generator=generator)
    index = torch.randint(0, 9, (n,), generator=generator)
    expected = []
    for head in range(2):
        first = torch.cat([mlp.weights[0][head], mlp.skill_weights[head]], dim=1)
        hidden = torch.relu(torch.cat([features[index], skills], dim=1) @ first.T)
        expected.append(hidden @ mlp.weights[1][head].T)
    found, inputs = mlp(features, index, skills), [features, *mlp.weights]
    torch.testing.assert_close(found, torch.stack(expected))
    for ours, theirs in zip(
        torch.autograd.grad(found.square().sum(), inputs),
        torch.autograd.grad(torch.stack(expected).square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    assert not torch.equal(mlp.weights[0][0], mlp.weights[0][1])


GENERATOR = torch.Generator().manual_seed(0)
WEIGHTS = torch.randn(31, 17, generator=GENERATOR)


class Counted:
    """A product whose last digits depend on the number of rows, and how many rows it saw."""

    def __init__(self) -> None:
        self.n = 0

    def __call__(self, observations: Tensor) -> Tensor:
        self.n += len(observations)
        return torch.relu(observations @ WEIGHTS)


def table_of(n: int, seed: int = 1) -> Tensor:
    return torch.randn(n, 31, generator=torch.Generator().manual_seed(seed))


ROW_BYTES = 4 * 17


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=40, unique=True), min_size=1),
    st.integers(0, 30),
)
def test_the_same_bits_whatever_was_seen_before(batches, room):
    table, counted = table_of(100), Counted()
    large, small = RowCache(counted), RowCache(Counted(), max_bytes=room * ROW_BYTES)
    alone = RowCache(Counted())
    for batch in batches:
        rows = torch.tensor(batch)
        expected = alone(table[rows], None)
        assert torch.equal(large(table[rows], rows), expected)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RoverWarning)
            assert torch.equal(small(table[rows], rows), expected)
    assert counted.n == len({row for batch in batches for row in batch})
    single = torch.cat([torch.relu(x[None].clone() @ WEIGHTS) for x in table[rows]])
    assert torch.equal(expected, single)


def test_a_full_memory_is_named_once():
    counted = Counted()
    cache, rows = RowCache(counted, max_bytes=4 * ROW_BYTES + 1), torch.arange(6)
    with pytest.warns(RoverWarning, match="features of 4 observations fill the 273 bytes"):
        cache(table_of(6), rows)
    cache(table_of(6), rows)  # a second warning would be an error
    assert counted.n == 6 + 2
    cache.clear()
    cache(table_of(6), rows)
    assert counted.n == 6 + 2 + 6
