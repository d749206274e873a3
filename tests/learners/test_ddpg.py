"""DDPG against automatic differentiation of the batch written out, and on a chain."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_batches import (
    DEEP,
    IMAGES,
    N_ACTIONS,
    ONE_HOT,
    STATES,
    VECTORS,
    changed,
    make_batch,
    make_observations,
    stir,
)
from torch import Tensor

from rover.data import NStepSampler, ReplayBuffer
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.features import EncoderSpec
from rover.learners import (
    DiscreteDDPG,
    PolicySpec,
    learner_encoder_spec,
    make_ddpg_config,
    make_policy_network,
    n_step_returns,
)


def make_learner(
    spec: EncoderSpec, *, skill_dim: int = 0, seed: int = 0, **overrides: Any
) -> DiscreteDDPG:
    config = make_ddpg_config("fast", **{"hidden_sizes": (16, 10, 8), **overrides})
    generator = torch.Generator().manual_seed(seed)
    learner = DiscreteDDPG(
        spec, n_actions=N_ACTIONS, config=config, skill_dim=skill_dim, generator=generator
    )
    stir(learner, generator)
    return learner


CASES = [
    pytest.param(ONE_HOT, {}, {}, id="one-hot"),
    pytest.param(ONE_HOT, {"critic_loss": "huber", "entropy_coefficient": 0.2}, {}, id="huber"),
    pytest.param(ONE_HOT, {"share_encoder": True}, {}, id="one-hot, shared"),
    pytest.param(ONE_HOT, {"hidden_sizes": (16,)}, {}, id="no hidden layer in the heads"),
    pytest.param(ONE_HOT, {}, {"skill_dim": 5}, id="one-hot, skills"),
    pytest.param(STATES, {}, {}, id="states"),
    pytest.param(VECTORS, {}, {"m": 30}, id="vectors, more observations than transitions"),
    pytest.param(VECTORS, {}, {"m": 30, "skill_dim": 2}, id="vectors, skills"),
    pytest.param(DEEP, {}, {}, id="deep encoder"),
    pytest.param(DEEP, {"share_encoder": True}, {"m": 30}, id="deep encoder, shared"),
    pytest.param(IMAGES, {}, {}, id="images"),
    pytest.param(IMAGES, {"share_encoder": False}, {"skill_dim": 2}, id="images, not shared"),
]


@pytest.mark.parametrize(("spec", "overrides", "shape"), CASES)
def test_an_update_is_that_of_the_batch_written_out(
    spec: EncoderSpec, overrides: dict[str, Any], shape: dict[str, int]
) -> None:
    learner = make_learner(spec, skill_dim=shape.get("skill_dim", 0), **overrides)
    batch, returns, discounts = make_batch(spec, **shape)
    critics, actor = copy.deepcopy(learner.critics), copy.deepcopy(learner.actor)
    targets = copy.deepcopy(learner.target_critics)
    config, skills = learner.config, batch.skills
    here, there = batch.observations[batch.index], batch.observations[batch.next_index]
    if learner.shares_encoder:
        targets.encoder = actor.encoder = critics.encoder

    def logits(observations: Tensor) -> Tensor:
        if not learner.shares_encoder:
            result: Tensor = actor(observations, skills)
            return result
        features = critics.encoder(observations).detach()
        return actor.head(features, None, skills)[0]

    next_q = targets(there, skills).amin(dim=0)
    y = (returns + discounts * (logits(there).softmax(1) * next_q).sum(1)).detach()
    q = critics(here, skills)
    taken = q[:, torch.arange(len(batch)), batch.actions]
    loss = F.mse_loss if config.critic_loss == "mse" else F.huber_loss
    of_critics = loss(taken[0], y) + loss(taken[1], y)
    distribution = torch.distributions.Categorical(logits=logits(here))
    values = (distribution.probs * q.detach().amin(dim=0)).sum(1)
    of_actor = -(values + config.entropy_coefficient * distribution.entropy()).mean()
    optimizer = torch.optim.Adam(
        {*critics.parameters(), *actor.parameters()}, lr=config.critic_learning_rate
    )
    (of_critics + of_actor).backward()

    metrics = learner.update(batch, returns, discounts)
    assert metrics.critic_loss == pytest.approx(of_critics.item(), rel=1e-4)
    assert metrics.actor_loss == pytest.approx(of_actor.item(), rel=1e-4)
    assert metrics.q_mean == pytest.approx(taken.mean().item(), rel=1e-3, abs=1e-5)
    assert metrics.target_mean == pytest.approx(y.mean().item(), rel=1e-3, abs=1e-5)
    assert metrics.policy_entropy == pytest.approx(distribution.entropy().mean().item(), rel=1e-4)
    for ours, reference in ((learner.critics, critics), (learner.actor, actor)):
        for (name, parameter), expected in zip(
            ours.named_parameters(), reference.parameters(), strict=True
        ):
            torch.testing.assert_close(
                parameter.grad,
                expected.grad,
                rtol=1e-3,
                atol=1e-5,
                msg=lambda m, n=name: f"{n} {m}",
            )
    # Adam and the targets, from the gradients that were just compared.
    for ours, reference in ((learner.critics, critics), (learner.actor, actor)):
        for parameter, expected in zip(ours.parameters(), reference.parameters(), strict=True):
            expected.grad = parameter.grad
    old_targets = [p.detach().clone() for p in targets.heads.parameters()]
    optimizer.step()
    for ours, reference in ((learner.critics, critics), (learner.actor, actor)):
        for parameter, expected in zip(ours.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(parameter, expected, rtol=1e-5, atol=1e-6)
    for new, old, online in zip(
        learner.target_critics.heads.parameters(),
        old_targets,
        learner.critics.heads.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(new, old + config.target_rate * (online - old))


def test_targets_follow_the_input_layer_unless_it_is_shared() -> None:
    for shared in (False, True):
        learner = make_learner(ONE_HOT, share_encoder=shared, target_rate=1.0)
        learner.update(*make_batch(ONE_HOT))
        assert (learner.target_critics.encoder is learner.critics.encoder) == shared
        for target, online in zip(
            learner.target_critics.parameters(), learner.critics.parameters(), strict=True
        ):
            torch.testing.assert_close(target, online)


def test_a_new_policy_is_nearly_uniform() -> None:
    learner = DiscreteDDPG(
        ONE_HOT,
        n_actions=N_ACTIONS,
        config=make_ddpg_config("fast"),
        generator=torch.Generator().manual_seed(0),
    )
    probs = learner.policy_logits(make_observations(ONE_HOT, 9)).softmax(dim=1)
    torch.testing.assert_close(probs, torch.full((9, N_ACTIONS), 1 / 3), atol=0.01, rtol=0)


def test_rewards_in_double_precision_are_taken() -> None:
    first, second = make_learner(ONE_HOT), make_learner(ONE_HOT)
    batch, returns, discounts = make_batch(ONE_HOT)
    single = first.update(batch, returns, discounts)
    assert second.update(batch, returns.double(), discounts.double()) == single


def chain(length: int) -> ReplayBuffer:
    """Right moves on, left moves back; the step out of the last state ends the episode."""
    buffer = ReplayBuffer((length,), np.dtype(np.float32), 2)
    for state in np.eye(length, dtype=np.float32):
        buffer.observations.intern(state)
    rng, state = np.random.default_rng(0), 0
    buffer.add_start(0)
    for step in range(3000):
        action = int(rng.integers(2))
        ends = action == 1 and state == length - 1
        following = min(state + 1, length - 1) if action else max(state - 1, 0)
        truncated = not ends and step % 17 == 16
        buffer.add(state, action, following, ends, truncated)
        state = 0 if ends or truncated else following
    return buffer


@pytest.mark.parametrize("n_steps", [1, 3])
def test_a_chain_is_solved(n_steps: int) -> None:
    length, discount = 6, 0.9
    buffer = chain(length)
    spec = learner_encoder_spec((length,), observation_dtype="float32", one_hot=True, width=64)
    learner = DiscreteDDPG(
        spec,
        n_actions=2,
        config=make_ddpg_config(
            "fast", actor_learning_rate=2e-3, critic_learning_rate=2e-3, target_rate=0.05
        ),
        generator=torch.Generator().manual_seed(0),
    )
    sampler, rng = NStepSampler(buffer, n_steps=n_steps), np.random.default_rng(1)
    for _ in range(600):
        windows = sampler.sample(128, rng)
        rewards = torch.from_numpy(buffer.terminated[windows.rows]).float()
        result = n_step_returns(rewards, windows.terminated, windows.truncated, discount=discount)
        assert torch.equal(result.last + 1, torch.from_numpy(windows.lengths))
        learner.update(windows.batch, result.returns, result.discounts)
    table = torch.from_numpy(buffer.observations.rows)
    assert (learner.policy_logits(table).argmax(dim=1) == 1).all()
    if n_steps == 1:  # longer windows follow the random behaviour, so their values are lower
        values = learner.critics(table).amin(dim=0)[:, 1].detach()
        optimum = discount ** torch.arange(length - 1, -1, -1)
        torch.testing.assert_close(values, optimum, atol=0.05, rtol=0)


@pytest.mark.parametrize(("spec", "skill_dim"), [(ONE_HOT, 0), (STATES, 3), (IMAGES, 0)])
def test_a_restored_learner_continues_with_the_same_bits(spec: EncoderSpec, skill_dim: int) -> None:
    first = make_learner(spec, skill_dim=skill_dim)
    second = make_learner(spec, skill_dim=skill_dim, seed=1)
    assert first.state().keys() == second.state().keys()
    for seed in range(3):
        first.update(*make_batch(spec, skill_dim=skill_dim, seed=seed))
    second.load_state(first.state())
    for seed in range(3, 6):
        batch = make_batch(spec, skill_dim=skill_dim, seed=seed)
        assert first.update(*batch) == second.update(*batch)
    for name, tensor in first.state().items():
        assert torch.equal(tensor, second.state()[name]), name
    assert second.n_updates == 6


def test_centering_reaches_every_network_and_is_stored() -> None:
    center, scale = np.full(4, 2.0), np.full(4, 0.5)
    learner, other = make_learner(VECTORS), make_learner(VECTORS)
    learner.set_centering(center, scale)
    assert not torch.equal(
        learner.policy_logits(make_observations(VECTORS, 9)),
        other.policy_logits(make_observations(VECTORS, 9)),
    )
    other.load_state(learner.state())
    assert learner.update(*make_batch(VECTORS)) == other.update(*make_batch(VECTORS))


@pytest.mark.parametrize(("spec", "skill_dim"), [(ONE_HOT, 4), (IMAGES, 0)])
def test_the_policy_is_rebuilt_from_json_and_tensors(spec: EncoderSpec, skill_dim: int) -> None:
    learner = make_learner(spec, skill_dim=skill_dim)
    policy = learner.policy_module()
    observations = make_observations(spec, 9)
    skills = torch.randn(9, skill_dim) if skill_dim else None
    expected = learner.policy_logits(observations, skills)
    learner.update(*make_batch(spec, skill_dim=skill_dim))
    rebuilt = make_policy_network(
        PolicySpec.model_validate_json(policy.spec.model_dump_json()),
        torch.Generator().manual_seed(5),
    )
    rebuilt.load_state_dict(policy.state_dict())
    assert not any(p.requires_grad for p in policy.parameters())
    assert torch.equal(policy(observations, skills), expected)
    assert torch.equal(rebuilt(observations, skills), expected)
    assert not torch.equal(learner.policy_logits(observations, skills), expected)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: r.fill_(torch.nan), r"update 1 of DDPG .* 20 of 20 returns are not finite"),
        (lambda r: r.fill_(1e30), r"update 1 of DDPG .* lower the learning rates"),
    ],
)
def test_what_is_not_finite_changes_no_weight(
    spoil: Callable[[Tensor], Tensor], message: str
) -> None:
    learner = make_learner(ONE_HOT)
    batch, returns, discounts = make_batch(ONE_HOT)
    before = learner.state()
    with pytest.raises(NonFiniteError, match=message):
        learner.update(batch, spoil(returns), discounts)
    for name, tensor in learner.state().items():
        assert torch.equal(tensor, before[name]), name


def test_batches_that_do_not_fit_are_refused() -> None:
    learner = make_learner(ONE_HOT)
    batch, returns, discounts = make_batch(ONE_HOT)
    for bad, message in (
        (changed(batch, actions=batch.actions + 2), r"actions must lie in 0 … 2, got 2 … 4"),
        (changed(batch, index=batch.index - 9), r"^index must lie in 0 … 8"),
        (changed(batch, next_index=batch.next_index + 9), r"^next_index must lie in 0 … 8"),
        (changed(batch, index=batch.index[:3]), "of the same length"),
        (changed(batch, observations=torch.zeros(9, 8)), r"built for float32 .*\(m, 9\)"),
        (changed(batch, observations=torch.zeros(9, 9).double()), "was given torch.float64"),
        (changed(batch, skills=torch.zeros(20, 2)), "network without skills"),
        (changed(batch, rows=torch.arange(8)), r"^rows must be 9 numbers .* of shape \(8,\)"),
        (changed(batch, rows=torch.arange(9) - 1), "^rows must be 9 numbers of type int64 from 0"),
        (changed(batch, rows=torch.arange(9.0)), "got torch.float32"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            learner.update(bad, returns, discounts)
    with pytest.raises(ConfigurationError, match="of the same length"):
        learner.update(batch, returns[:, None], discounts)
    with pytest.raises(ConfigurationError, match=r"needs skills of shape \(20, 2\) .* none"):
        make_learner(ONE_HOT, skill_dim=2).update(batch, returns, discounts)
    with pytest.raises(ConfigurationError, match=r"states must lie in 0 … 8, got 1 … 9"):
        make_learner(STATES).update(
            changed(batch, observations=torch.arange(1, 10)), returns, discounts
        )


def test_states_of_other_learners_are_refused() -> None:
    learner = make_learner(ONE_HOT)
    state = learner.state()
    with pytest.raises(ArtefactError, match=r"lacks \['n_updates'\] and has unknown nothing"):
        learner.load_state({k: v for k, v in state.items() if k != "n_updates"})
    with pytest.raises(ArtefactError, match="build the learner with the settings"):
        learner.load_state(make_learner(ONE_HOT, hidden_sizes=(16, 10, 9)).state())


def test_encoders_without_weights_are_refused() -> None:
    spec = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=3)
    with pytest.raises(ConfigurationError, match="needs an 'mlp' or 'conv' encoder"):
        make_learner(spec)
