"""Updates of DDPG, SAC and CQL against autograd of the batch written out."""

import copy

import pytest
import torch
import torch.nn.functional as F
from small_learners import (
    ACTORS,
    DEEP,
    IMAGES,
    KINDS,
    N_ACTIONS,
    ONE_HOT,
    STATES,
    VECTORS,
    WITH_ACTOR,
    Learner,
    drawn,
    make,
    make_batch,
    make_observations,
    pretrained_encoder,
    stir,
)
from torch import Tensor, nn

from rover.data import Batch
from rover.learners import DiscreteCQL, DiscreteSAC, PolicyNetwork
from rover.learners.critics import critic_targets


def written_out(
    learner: Learner, batch: Batch, returns: Tensor, discounts: Tensor
) -> tuple[dict[str, Tensor], nn.Module, nn.Module | None]:
    """Metrics, and copies of critics and actor that have the gradients."""
    critics, targets = copy.deepcopy(learner.critics), copy.deepcopy(learner.target_critics)
    actor = None if isinstance(learner, DiscreteCQL) else copy.deepcopy(learner.actor)
    if learner.target_critics.encoder is learner.critics.encoder:
        targets.encoder = critics.encoder
    for parameter in (*critics.parameters(), *(actor.parameters() if actor else ())):
        parameter.grad = None
    here, there = batch.observations[batch.index], batch.observations[batch.next_index]
    skills, each = batch.skills, torch.arange(len(batch))

    def log_policy(observations: Tensor) -> Tensor:
        if isinstance(actor, PolicyNetwork) and learner.shares_encoder:
            features = critics.encoder(observations).detach().float()
            return F.log_softmax(actor.head(features, None, skills)[0], dim=1)
        inputs = (observations,) if skills is None else (observations, skills)
        return F.log_softmax(actor(*inputs), dim=1)

    q, least = critics(here, skills), targets(there, skills).amin(dim=0)
    taken = q[:, each, batch.actions]
    metrics = {"q_mean": taken.mean()}
    if isinstance(learner, DiscreteCQL):
        values = least[each, critics(there, skills).amin(dim=0).argmax(dim=1)]
        metrics["conservative_loss"] = (q.logsumexp(dim=2) - taken).mean(dim=1).sum()
        weight, of_actor = learner.config.conservative_weight, torch.zeros(())
    else:
        c, log_probs, following = learner.temperature, log_policy(here), log_policy(there)
        soft = least - (c if isinstance(learner, DiscreteSAC) else 0.0) * following
        values = (following.exp() * soft).sum(dim=1)
        of_actor = -(log_probs.exp() * (q.detach().amin(dim=0) - c * log_probs)).sum(dim=1).mean()
        metrics["actor_loss"], weight = of_actor, 0.0
        metrics["policy_entropy"] = -(log_probs.exp() * log_probs).sum(dim=1).mean()
    y = (returns + discounts * values).detach().float()
    td = F.mse_loss(taken[0], y) + F.mse_loss(taken[1], y)
    of_critics = td + weight * metrics.get("conservative_loss", torch.zeros(()))
    for loss in (of_critics, of_actor):
        if loss.requires_grad:
            loss.backward()
    return {**metrics, "critic_loss": of_critics, "target_mean": y.mean()}, critics, actor


def check_gradients(ours: nn.Module, reference: nn.Module) -> None:
    expected = dict(reference.named_parameters())
    for name, parameter in ours.named_parameters():
        found, other = parameter.grad, expected[name].grad
        if not parameter.requires_grad:
            assert other is None
            continue
        torch.testing.assert_close(
            found, other, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n} {m}"
        )


def check_update(learner: Learner, batch: Batch, *rest: Tensor) -> None:
    expected, critics, actor = written_out(learner, batch, *rest)
    targets, rate = copy.deepcopy(learner.target_critics), learner.config.target_rate
    metrics = learner.update(batch, *rest)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value.item(), rel=1e-3, abs=1e-5), name
    check_gradients(learner.critics, critics)
    if not isinstance(learner, DiscreteCQL):
        if isinstance(actor, PolicyNetwork) and learner.shares_encoder:
            check_gradients(learner.actor.head, actor.head)
        else:
            check_gradients(learner.actor, actor)
    for new, old, online in zip(
        learner.target_critics.heads.parameters(),
        targets.heads.parameters(),
        learner.critics.heads.parameters(),
        strict=True,
    ):
        torch.testing.assert_close(new, old + rate * (online - old))


@pytest.mark.parametrize("name", ACTORS)
@pytest.mark.parametrize("m", [4, 9])
@pytest.mark.parametrize("kind", WITH_ACTOR)
def test_an_actor_that_was_given_learns_as_by_autograd(kind, m, name):
    """With more transitions than observations, and with fewer."""
    encoder, make_actor = ACTORS[name]
    settings = {"entropy_coefficient": 0.2} if kind == "ddpg" and m == 9 else {}
    learner = make(kind, encoder, actor=make_actor(), **settings)
    stir(learner)
    for seed in (1, 2):
        check_update(learner, *make_batch(encoder, m=m, n=6, seed=seed))


@pytest.mark.parametrize(
    ("encoder", "settings", "shape"),
    [
        pytest.param(ONE_HOT, {}, {}, id="one-hot"),
        pytest.param(ONE_HOT, {}, {"n": 5}, id="fewer transitions than observations"),
        pytest.param(ONE_HOT, {}, {"skill_dim": 5}, id="skills"),
        pytest.param(ONE_HOT, {"hidden_sizes": (16,)}, {}, id="no hidden layer in the heads"),
        pytest.param(STATES, {}, {}, id="states"),
        pytest.param(VECTORS, {}, {"m": 30}, id="vectors, more observations than transitions"),
        pytest.param(VECTORS, {}, {"m": 30, "skill_dim": 2}, id="vectors, skills"),
        pytest.param(DEEP, {}, {}, id="deep encoder"),
        pytest.param(IMAGES, {}, {}, id="images"),
        pytest.param(IMAGES, {}, {"skill_dim": 2}, id="images, skills"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_new_networks_learn_as_by_autograd(kind, encoder, settings, shape):
    if kind == "cql":
        settings = {"conservative_weight": 1.0, **settings}
    elif kind == "ddpg":
        settings = {"entropy_coefficient": 0.2, **settings}
    learner = make(kind, encoder, skill_dim=shape.get("skill_dim", 0), **settings)
    stir(learner)
    check_update(learner, *make_batch(encoder, **shape))


@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("kind", ["ddpg", "cql"])
def test_critics_stand_on_an_encoder_that_was_given(kind, frozen):
    encoder = pretrained_encoder(frozen=frozen)
    learner = make(kind, critic_encoder=encoder)
    stir(learner)
    own, observations = learner.critics.encoder, make_observations(ONE_HOT)
    assert own is not encoder
    # A new actor reads the critics' features, and so do the targets.
    assert (learner.target_critics.encoder is own) == (frozen or kind == "ddpg")
    for seed in (1, 2):
        check_update(learner, *make_batch(ONE_HOT, n=5, seed=seed))
    if frozen:
        learner.load_state(make(kind, critic_encoder=encoder).state())
        assert torch.equal(own(observations), encoder(observations))


def test_part_of_an_encoder_learns():
    encoder = pretrained_encoder(frozen=False)
    first = next(encoder.parameters()).requires_grad_(False)
    learner = make("ddpg", critic_encoder=encoder, target_rate=1.0)
    check_update(learner, *make_batch(ONE_HOT))
    assert torch.equal(next(learner.critics.encoder.parameters()), first)
    for online, target in zip(
        learner.critics.parameters(), learner.target_critics.parameters(), strict=True
    ):
        torch.testing.assert_close(online, target)
    learner.load_state(learner.state())


def test_drop_out_draws_nothing():
    module = nn.Sequential(nn.Dropout(0.5), drawn(nn.Linear(9, N_ACTIONS))).train()
    learner = make("ddpg", actor=module)
    state = torch.get_rng_state()
    check_update(learner, *make_batch(ONE_HOT))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training


def test_large_logits_keep_their_differences():
    module = drawn(nn.Linear(4, N_ACTIONS).double())
    shifted = copy.deepcopy(module)
    with torch.no_grad():
        shifted.get_parameter("bias").add_(2.0**40)
    batch = make_batch(VECTORS, m=9, n=6)
    expected = make("sac", VECTORS, actor=module).update(*batch)
    found = make("sac", VECTORS, actor=shifted).update(*batch)
    assert found == pytest.approx(expected, rel=1e-2, abs=1e-4)


def test_an_action_that_is_impossible_has_no_part_in_the_targets():
    log_probs = torch.tensor([[0.0, -torch.inf]])
    targets = critic_targets(torch.ones(1), torch.ones(1), log_probs, torch.ones(2, 1, 2))
    assert targets.tolist() == [2.0]
