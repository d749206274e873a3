"""Conservative Q-learning against autograd of the batch written out, and on data with a gap."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small_actors import pretrained_encoder
from small_batches import (
    DEEP,
    IMAGES,
    N_ACTIONS,
    ONE_HOT,
    STATES,
    VECTORS,
    assert_same_state,
    changed,
    make_batch,
    make_observations,
    stir,
)

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.features import EncoderSpec
from rover.learners import DiscreteCQL, make_cql_config


def make_cql(spec: EncoderSpec = ONE_HOT, *, encoder: Any = None, **settings: Any) -> DiscreteCQL:
    generator = torch.Generator().manual_seed(0)
    learner = DiscreteCQL(
        spec,
        n_actions=N_ACTIONS,
        config=make_cql_config("fast", **{"hidden_sizes": (16, 8), **settings}),
        critic_encoder=encoder,
        generator=generator,
    )
    stir(learner, generator)
    return learner


CASES = [
    pytest.param(ONE_HOT, {}, {}, id="one-hot"),
    pytest.param(ONE_HOT, {"critic_loss": "huber"}, {}, id="huber"),
    pytest.param(ONE_HOT, {"conservative_weight": 3.0}, {}, id="very conservative"),
    pytest.param(ONE_HOT, {"conservative_weight": 0.0}, {}, id="double Q-learning"),
    pytest.param(STATES, {"conservative_weight": 1.0}, {}, id="states"),
    pytest.param(VECTORS, {"conservative_weight": 1.0}, {"m": 30}, id="vectors"),
    pytest.param(DEEP, {"conservative_weight": 1.0}, {"m": 30}, id="deep encoder"),
    pytest.param(IMAGES, {"conservative_weight": 1.0}, {}, id="images"),
    pytest.param(ONE_HOT, {"encoder": pretrained_encoder()}, {}, id="a frozen encoder"),
    pytest.param(
        ONE_HOT,
        {"encoder": pretrained_encoder(frozen=False)},
        {"n": 5},
        id="its encoder learns",
    ),
]


@pytest.mark.parametrize(("spec", "settings", "shape"), CASES)
def test_an_update_is_that_of_the_batch_written_out(
    spec: EncoderSpec, settings: dict[str, Any], shape: dict[str, int]
) -> None:
    learner = make_cql(spec, **settings)
    batch, returns, discounts = make_batch(spec, **shape)
    critics, targets = copy.deepcopy(learner.critics), copy.deepcopy(learner.target_critics)
    if learner.target_critics.encoder is learner.critics.encoder:
        targets.encoder = critics.encoder
    here, there = batch.observations[batch.index], batch.observations[batch.next_index]
    everyone = torch.arange(len(batch))
    best = critics(there).amin(dim=0).argmax(dim=1)
    y = (returns + discounts * targets(there).amin(dim=0)[everyone, best]).detach()
    q = critics(here)
    taken = q[:, everyone, batch.actions]
    distance = F.mse_loss if learner.config.critic_loss == "mse" else F.huber_loss
    td = distance(taken[0], y) + distance(taken[1], y)
    conservative = (q.logsumexp(dim=2) - taken).mean(dim=1).sum()
    loss = td + learner.config.conservative_weight * conservative
    loss.backward()

    metrics = learner.update(batch, returns, discounts)
    expected = (loss, td, conservative, taken.mean(), y.mean())
    for found, value in zip(list(vars(metrics).values())[:5], expected, strict=True):
        assert found == pytest.approx(value.item(), rel=1e-3, abs=1e-5)
    learning = [p for p in critics.parameters() if p.requires_grad]
    for (name, parameter), reference in zip(
        learner.critics.named_parameters(), critics.parameters(), strict=True
    ):
        if parameter.requires_grad:
            torch.testing.assert_close(
                parameter.grad,
                reference.grad,
                rtol=1e-3,
                atol=1e-5,
                msg=lambda m, n=name: f"{n} {m}",
            )
            reference.grad = parameter.grad
    torch.optim.Adam(learning, lr=learner.config.learning_rate).step()
    for parameter, reference in zip(
        learner.critics.parameters(), critics.parameters(), strict=True
    ):
        torch.testing.assert_close(parameter, reference, rtol=1e-5, atol=1e-6)


def test_actions_outside_the_data_are_held_down() -> None:
    """Action 0 is never taken; all others are worth 1."""
    values = {}
    for weight in (0.0, 0.5):
        learner = make_cql(conservative_weight=weight, learning_rate=3e-3, target_rate=0.05)
        batch, returns, discounts = make_batch(ONE_HOT, n=64)
        batch = changed(batch, actions=batch.actions.clamp(min=1))
        for _ in range(300):
            learner.update(batch, torch.ones_like(returns), 0.0 * discounts)
        values[weight] = learner.q_values(make_observations(ONE_HOT, 9)).mean(dim=(0, 1))
    assert (values[0.0][1:] - 1.0).abs().max() < 0.1
    assert values[0.5][0] < values[0.0][0] - 0.5
    assert (values[0.5][1:] > values[0.5][0] + 1.0).all()


def test_q_values_and_a_copy_of_the_critics() -> None:
    learner, observations = make_cql(), make_observations(ONE_HOT, 9)
    module, before = learner.q_module(), learner.q_values(observations)
    assert before.shape == (2, 9, N_ACTIONS)
    learner.update(*make_batch(ONE_HOT))
    assert torch.equal(module(observations), before)
    assert not torch.equal(learner.q_values(observations), before)
    assert not any(p.requires_grad for p in module.parameters())


@pytest.mark.parametrize(
    ("spec", "encoder"), [(ONE_HOT, None), (IMAGES, None), (ONE_HOT, pretrained_encoder())]
)
def test_a_restored_learner_continues_with_the_same_bits(spec: EncoderSpec, encoder: Any) -> None:
    first, second = make_cql(spec, encoder=encoder), make_cql(spec, encoder=encoder)
    keys = first.state().keys()
    stir(second, torch.Generator().manual_seed(9))
    for seed in range(3):
        batch, *rest = make_batch(spec, seed=seed, m=4 + seed)
        first.update(changed(batch, rows=torch.arange(4 + seed)), *rest)
    second.load_state(first.state())
    for seed in range(3, 6):
        batch, *rest = make_batch(spec, seed=seed)
        batch = changed(batch, rows=torch.arange(9))
        assert first.update(batch, *rest) == second.update(batch, *rest)
    assert_same_state(first, second)
    assert first.state().keys() == keys
    assert second.n_updates == 6


def test_only_a_new_encoder_is_centred() -> None:
    center, scale = np.full(4, 2.0), np.full(4, 0.5)
    learner = make_cql(VECTORS)
    learner.set_centering(center, scale)
    for owner in ("critics", "target_critics"):
        assert (learner.state()[f"{owner}.encoder.center"] == 2.0).all()
    learner = make_cql(VECTORS, encoder=pretrained_encoder(VECTORS))
    learner.set_centering(center, scale)
    assert (learner.state()["critics.encoder.center"] == 0.0).all()


def test_what_is_not_finite_changes_no_weight() -> None:
    learner = make_cql()
    batch, returns, discounts = make_batch(ONE_HOT)
    before = learner.state()
    for value, message in (
        (torch.nan, "update 1 of CQL has TD loss nan, .* 20 of 20 returns are not finite"),
        (1e30, "update 1 of CQL .* lower the learning rates"),
    ):
        with pytest.raises(NonFiniteError, match=message):
            learner.update(batch, torch.full_like(returns, value), discounts)
    for name, tensor in learner.state().items():
        assert torch.equal(tensor, before[name]), name


def test_refusals() -> None:
    learner = make_cql()
    batch, returns, discounts = make_batch(ONE_HOT)
    with pytest.raises(ConfigurationError, match="network without skills"):
        learner.update(changed(batch, skills=torch.zeros(20, 2)), returns, discounts)
    with pytest.raises(ConfigurationError, match=r"actions must lie in 0 … 2, got 2 … 4"):
        learner.update(changed(batch, actions=batch.actions + 2), returns, discounts)
    with pytest.raises(ArtefactError, match=r"lacks \['n_updates'\]"):
        learner.load_state({k: v for k, v in learner.state().items() if k != "n_updates"})
    spec = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=3)
    with pytest.raises(ConfigurationError, match="needs an 'mlp' or 'conv' encoder"):
        make_cql(spec)
