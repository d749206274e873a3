"""DDPG and SAC from any actor and encoder, against autograd of the batch written out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_actors import ACTORS, Partly, coverage_policy, drawn, network, pretrained_encoder
from small_batches import (
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
from torch import Tensor, nn

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError
from rover.features import EncoderSpec, make_encoder
from rover.learners import (
    DiscreteDDPG,
    DiscreteSAC,
    PolicyNetwork,
    RegressorActor,
    make_ddpg_config,
    make_sac_config,
)
from rover.types import Batch

Learner = DiscreteDDPG | DiscreteSAC
SIZES = {"hidden_sizes": (16, 8)}
KINDS = ["ddpg", "sac"]


def make(
    kind: str, spec: EncoderSpec = ONE_HOT, *, settings: dict[str, Any] | None = None, **given: Any
) -> Learner:
    generator = torch.Generator().manual_seed(0)
    options: dict[str, Any] = {"n_actions": N_ACTIONS, "generator": generator, **given}
    chosen = SIZES | (settings or {})
    if kind == "sac":
        return DiscreteSAC(spec, config=make_sac_config("fast", **chosen), **options)
    return DiscreteDDPG(spec, config=make_ddpg_config("fast", **chosen), **options)


def batch_of(
    spec: EncoderSpec, *, m: int = 9, n: int = 20, seed: int = 1, skill_dim: int = 0
) -> tuple[Batch, Tensor, Tensor]:
    """A batch whose observations are known to be rows of a longer table."""
    batch, returns, discounts = make_batch(spec, m=m, n=n, seed=seed, skill_dim=skill_dim)
    return changed(batch, rows=3 * torch.arange(m) + 1), returns, discounts


def written_out(
    learner: Learner, batch: Batch, returns: Tensor, discounts: Tensor
) -> tuple[Tensor, Tensor, nn.Module, nn.Module]:
    """Losses of critics and actor, differentiated, and the copies that have the gradients."""
    critics, actor = copy.deepcopy(learner.critics), copy.deepcopy(learner.actor)
    targets, skills = copy.deepcopy(learner.target_critics), batch.skills
    if learner.target_critics.encoder is learner.critics.encoder:
        targets.encoder = critics.encoder
    for parameter in (*critics.parameters(), *actor.parameters()):
        parameter.grad = None
    here, there = batch.observations[batch.index], batch.observations[batch.next_index]

    def log_policy(observations: Tensor) -> Tensor:
        if isinstance(actor, PolicyNetwork) and learner.shares_encoder:
            features = critics.encoder(observations).detach()
            return F.log_softmax(actor.head(features, None, skills)[0], dim=1)
        inputs = (observations,) if skills is None else (observations, skills)
        return F.log_softmax(actor(*inputs), dim=1)

    c = learner.temperature if isinstance(learner, DiscreteSAC) else 0.0
    if isinstance(learner, DiscreteDDPG):
        c = learner.config.entropy_coefficient
    bonus = c if isinstance(learner, DiscreteSAC) else 0.0
    following = log_policy(there)
    soft_q = targets(there, skills).amin(dim=0) - bonus * following
    y = (returns + discounts * (following.exp() * soft_q).sum(dim=1)).detach().float()
    q = critics(here, skills)
    taken = q[:, torch.arange(len(batch)), batch.actions]
    distance = F.mse_loss if learner.config.critic_loss == "mse" else F.huber_loss
    of_critics = distance(taken[0], y) + distance(taken[1], y)
    log_probs = log_policy(here)
    soft = q.detach().amin(dim=0) - c * log_probs
    of_actor = -(log_probs.exp() * soft).sum(dim=1).mean()
    for loss in (of_critics, of_actor):
        if loss.requires_grad:
            loss.backward()
    return of_critics, of_actor, critics, actor


def assert_gradients(ours: nn.Module, reference: nn.Module, what: str) -> None:
    expected = dict(reference.named_parameters())
    for name, parameter in ours.named_parameters():
        if not parameter.requires_grad:
            assert expected[name].grad is None
            continue
        torch.testing.assert_close(
            parameter.grad,
            expected[name].grad,
            rtol=1e-3,
            atol=1e-5,
            msg=lambda m, n=name: f"{what} {n} {m}",
        )


def check_update(learner: Learner, batch: Batch, *rest: Tensor) -> None:
    before = {k: v.clone() for k, v in learner.actor.named_parameters()}
    of_critics, of_actor, critics, actor = written_out(learner, batch, *rest)
    metrics = learner.update(batch, *rest)
    assert metrics.critic_loss == pytest.approx(of_critics.item(), rel=1e-4)
    assert metrics.actor_loss == pytest.approx(of_actor.item(), rel=1e-4)
    assert_gradients(learner.critics, critics, "critics")
    if isinstance(actor, PolicyNetwork) and learner.shares_encoder:
        assert_gradients(learner.actor.get_submodule("head"), actor.head, "actor")
        return
    assert_gradients(learner.actor, actor, "actor")
    for name, parameter in learner.actor.named_parameters():
        assert torch.equal(parameter, before[name]) != parameter.requires_grad, name
    if learner.n_updates > 1:
        return
    # The first step of Adam, from the gradients that were just compared.
    learning = [p for p in actor.parameters() if p.requires_grad]
    for own, theirs in zip(learner.actor.parameters(), actor.parameters(), strict=True):
        theirs.grad = own.grad if theirs.requires_grad else None
    torch.optim.Adam(learning, lr=learner.config.actor_learning_rate).step()
    for own, theirs in zip(learner.actor.parameters(), actor.parameters(), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ACTORS)
@pytest.mark.parametrize("m", [4, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_an_actor_that_was_given_learns_as_by_autograd(kind: str, m: int, name: str) -> None:
    """With more transitions than observations, and with fewer."""
    spec, make_actor = ACTORS[name]
    settings = {"entropy_coefficient": 0.2} if kind == "ddpg" and m == 9 else {}
    learner = make(kind, spec, actor=make_actor(), settings=settings)
    stir(learner, torch.Generator().manual_seed(1))
    for seed in (1, 2):
        check_update(learner, *batch_of(spec, m=m, n=6, seed=seed))


SAC_CASES = [
    pytest.param(ONE_HOT, {}, {}, id="one-hot"),
    pytest.param(ONE_HOT, {"critic_loss": "huber"}, {"skill_dim": 5}, id="one-hot, skills, huber"),
    pytest.param(ONE_HOT, {"share_encoder": True}, {}, id="one-hot, shared"),
    pytest.param(STATES, {}, {}, id="states"),
    pytest.param(VECTORS, {}, {"m": 30}, id="vectors, more observations than transitions"),
    pytest.param(IMAGES, {}, {}, id="images"),
    pytest.param(IMAGES, {"share_encoder": False}, {"skill_dim": 2}, id="images, not shared"),
]


@pytest.mark.parametrize(("spec", "settings", "shape"), SAC_CASES)
def test_sac_with_a_new_actor_learns_as_by_autograd(
    spec: EncoderSpec, settings: dict[str, Any], shape: dict[str, int]
) -> None:
    learner = make("sac", spec, settings=settings, skill_dim=shape.get("skill_dim", 0))
    stir(learner, torch.Generator().manual_seed(1))
    check_update(learner, *batch_of(spec, **shape))


@pytest.mark.parametrize("settings", [{}, {"share_encoder": True}])
@pytest.mark.parametrize("frozen", [True, False])
def test_critics_stand_on_an_encoder_that_was_given(
    frozen: bool, settings: dict[str, bool]
) -> None:
    encoder = pretrained_encoder(frozen=frozen)
    learner = make("ddpg", critic_encoder=encoder, settings=settings)
    stir(learner, torch.Generator().manual_seed(1))
    own = learner.critics.encoder
    assert own is not encoder
    if frozen:
        assert learner.target_critics.encoder is own
        expected = encoder(make_observations(ONE_HOT, 9))
    for seed in (1, 2):
        check_update(learner, *batch_of(ONE_HOT, seed=seed))
    if frozen:
        learner.load_state(make("ddpg", critic_encoder=encoder, settings=settings).state())
        assert torch.equal(own(make_observations(ONE_HOT, 9)), expected)


def test_part_of_an_encoder_learns() -> None:
    encoder = pretrained_encoder(frozen=False)
    first = next(encoder.parameters()).requires_grad_(False)
    learner = make("ddpg", critic_encoder=encoder, settings={"target_rate": 1.0})
    check_update(learner, *batch_of(ONE_HOT))
    assert torch.equal(next(learner.critics.encoder.parameters()), first)
    for online, target in zip(
        learner.critics.parameters(), learner.target_critics.parameters(), strict=True
    ):
        torch.testing.assert_close(online, target)
    learner.load_state(learner.state())


def test_states_as_they_are_can_stand_below_critics() -> None:
    spec = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=9)
    identity = make_encoder(spec, torch.Generator())
    check_update(make("sac", STATES, critic_encoder=identity), *batch_of(STATES))


def every_kind(kind: str) -> dict[str, Learner]:
    encoder = pretrained_encoder()
    made = {name: make(kind, s, actor=build()) for name, (s, build) in ACTORS.items()}
    return made | {
        "new": make(kind),
        "images": make(kind, IMAGES),
        "frozen critics": make(kind, critic_encoder=encoder),
        "frozen critics and policy": make(kind, critic_encoder=encoder, actor=coverage_policy()),
        "nothing learns but critics": make(kind, actor=coverage_policy().requires_grad_(False)),
    }


@pytest.mark.parametrize("name", every_kind("ddpg"))
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_learner_continues_with_the_same_bits(kind: str, name: str) -> None:
    first, second = every_kind(kind)[name], every_kind(kind)[name]
    spec = IMAGES if name == "images" else ACTORS.get(name, (ONE_HOT, None))[0]
    stir(second, torch.Generator().manual_seed(2))
    second.update(*batch_of(spec))  # something to forget
    keys = first.state().keys()
    for seed in range(3):
        first.update(*batch_of(spec, seed=seed, m=4 + seed))
    second.load_state(first.state())
    for seed in range(3, 6):
        batch = batch_of(spec, seed=seed)
        assert first.update(*batch) == second.update(*batch)
    assert_same_state(first, second)
    assert first.state().keys() == keys
    assert second.n_updates == 6


@pytest.mark.parametrize("name", ["coverage policy", "frozen critics", "frozen critics and policy"])
def test_remembered_features_change_no_bit(name: str) -> None:
    with_rows, without = every_kind("sac")[name], every_kind("sac")[name]
    for seed in range(4):  # ever more of a growing table
        batch, *rest = batch_of(ONE_HOT, m=3 + 2 * seed, seed=seed)
        assert with_rows.update(batch, *rest) == without.update(changed(batch, rows=None), *rest)
    assert_same_state(with_rows, without)


def test_what_is_fixed_is_evaluated_once_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = coverage_policy()
    assert isinstance(policy, RegressorActor)
    learner = make("ddpg", actor=policy, critic_encoder=policy.encoder)
    seen: list[int] = []
    original = type(policy.encoder).forward

    def counted(self: nn.Module, observations: Tensor) -> Tensor:
        seen.append(len(observations))
        result: Tensor = original(self, observations)
        return result

    monkeypatch.setattr(type(policy.encoder), "forward", counted)
    for m in (4, 9, 6, 9):
        learner.update(*batch_of(ONE_HOT, m=m))
    # Actor and critics each evaluate 9 rows, one by one; once more to see whether it learns.
    assert seen == [1] * 19


@pytest.mark.parametrize("name", every_kind("ddpg"))
@pytest.mark.parametrize("kind", KINDS)
def test_a_warm_up_of_the_critics_leaves_the_actor_alone(kind: str, name: str) -> None:
    learner = every_kind(kind)[name]
    spec = IMAGES if name == "images" else ACTORS.get(name, (ONE_HOT, None))[0]
    learner.update(*batch_of(spec, seed=4))
    before = learner.state()
    metrics = learner.update(*batch_of(spec), train_actor=False)
    assert metrics.actor_grad_norm == 0.0
    assert metrics.critic_grad_norm > 0.0
    after = learner.state()
    stays = [k for k in before if "actor" in k or "temperature" in k]
    assert stays
    for key in stays:
        assert torch.equal(before[key], after[key]), key
    assert not torch.equal(before["critics.heads.biases.0"], after["critics.heads.biases.0"])
    assert learner.n_updates == 2


def test_an_actor_without_gradients_is_never_trained() -> None:
    learner = make("sac", actor=coverage_policy().requires_grad_(False))
    before = learner.policy_logits(make_observations(ONE_HOT, 9))
    metrics = learner.update(*batch_of(ONE_HOT))
    assert metrics.actor_grad_norm == 0.0
    assert torch.equal(learner.policy_logits(make_observations(ONE_HOT, 9)), before)


def test_what_was_given_is_copied_in_and_out() -> None:
    policy = coverage_policy()
    weights = policy.weights.detach().clone()
    learner = make("ddpg", actor=policy)
    observations = make_observations(ONE_HOT, 9)
    assert torch.equal(learner.policy_logits(observations), policy(observations))
    handed_over = learner.policy_module()
    learner.update(*batch_of(ONE_HOT))
    assert torch.equal(policy.weights, weights)
    assert torch.equal(handed_over(observations), policy(observations))
    assert not torch.equal(learner.policy_logits(observations), policy(observations))
    trained = learner.policy_module()
    assert torch.equal(trained(observations), learner.policy_logits(observations))
    assert [p.requires_grad for p in trained.parameters()] == [
        p.requires_grad for p in policy.parameters()
    ]
    assert not trained.training


def test_drop_out_draws_nothing() -> None:
    module = nn.Sequential(nn.Dropout(0.5), drawn(nn.Linear(9, N_ACTIONS))).train()
    learner = make("ddpg", actor=module)
    state = torch.get_rng_state()
    check_update(learner, *batch_of(ONE_HOT))
    assert torch.equal(torch.get_rng_state(), state)
    assert module.training


def test_only_new_networks_are_centred() -> None:
    center, scale = torch.full((4,), 2.0).numpy(), torch.full((4,), 0.5).numpy()
    encoder = pretrained_encoder(VECTORS, frozen=False)
    learner = make("ddpg", VECTORS, critic_encoder=encoder)
    learner.set_centering(center, scale)
    assert (learner.state()["actor.encoder.center"] == 2.0).all()
    assert (learner.state()["critics.encoder.center"] == 0.0).all()
    learner = make("ddpg", VECTORS, actor=coverage_policy(VECTORS))
    learner.set_centering(center, scale)
    assert (learner.state()["actor.encoder.center"] == 0.0).all()
    for owner in ("critics", "target_critics"):
        assert (learner.state()[f"{owner}.encoder.center"] == 2.0).all()


def test_large_logits_keep_their_differences() -> None:
    module = drawn(nn.Linear(4, N_ACTIONS).double())
    shifted = copy.deepcopy(module)
    with torch.no_grad():
        shifted.get_parameter("bias").add_(2.0**40)
    batch = batch_of(VECTORS, m=9, n=6)
    expected = make("sac", VECTORS, actor=module).update(*batch)
    found = make("sac", VECTORS, actor=shifted).update(*batch)
    for name, value in vars(expected).items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-2, abs=1e-4), name


class Wrong(nn.Module):
    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result = result

    def forward(self, observations: Tensor) -> Any:
        return self.result


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (torch.zeros(9, 2), r"returned torch.float32 of shape \(9, 2\) .* of shape \(9, 3\)"),
        (torch.zeros(9), r"returned torch.float32 of shape \(9,\)"),
        (torch.zeros(9, 3, dtype=torch.int64), r"returned torch.int64 of shape \(9, 3\)"),
        ((torch.zeros(9, 3), None), "the actor returned tuple for observations"),
    ],
)
def test_actors_that_return_no_logits_are_refused(result: Any, message: str) -> None:
    learner = make("ddpg", actor=Wrong(result))
    with pytest.raises(ConfigurationError, match=message):
        learner.update(*batch_of(ONE_HOT))
    with pytest.raises(ConfigurationError, match=message):
        learner.policy_logits(make_observations(ONE_HOT, 9))


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        ({"skill_dim": 2}, {}, "skill_dim=2 and share_encoder=None"),
        ({}, {"share_encoder": True}, "reads observations alone: leave both out"),
    ],
)
def test_an_actor_that_was_given_shares_nothing(
    given: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make("sac", actor=network(), settings=settings, **given)


def test_skills_are_refused_by_an_actor_without() -> None:
    with pytest.raises(ConfigurationError, match=r"skills of shape \(9, 2\) .* leave them out"):
        make("ddpg", actor=network()).policy_logits(
            make_observations(ONE_HOT, 9), torch.zeros(9, 2)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_new_networks_need_weights_to_learn(kind: str) -> None:
    spec = EncoderSpec(kind="identity", observation_shape=(), observation_dtype="int64", n_states=9)
    identity = make_encoder(spec, torch.Generator())
    with pytest.raises(ConfigurationError, match="needs an 'mlp' or 'conv' encoder"):
        make(kind, spec, actor=network())
    with pytest.raises(ConfigurationError, match="needs an 'mlp' or 'conv' encoder"):
        make(kind, spec, critic_encoder=identity)


@pytest.mark.parametrize("kind", KINDS)
def test_an_actor_that_breaks_down_is_named_and_changes_nothing(kind: str) -> None:
    module = drawn(nn.Linear(9, N_ACTIONS))
    with torch.no_grad():
        module.get_parameter("bias").fill_(torch.nan)
    learner = make(kind, actor=module)
    before = learner.state()
    message = f"update 1 of {kind.upper()} has critic loss nan, actor loss nan, gradient norm"
    with pytest.raises(NonFiniteError, match=message):
        learner.update(*batch_of(ONE_HOT))
    for name, tensor in learner.state().items():
        torch.testing.assert_close(tensor, before[name], rtol=0, atol=0, equal_nan=True)


def test_the_state_of_another_actor_is_refused() -> None:
    state = make("ddpg", actor=drawn(Partly())).state()
    with pytest.raises(ArtefactError, match=r"lacks \['actor.basis'"):
        make("ddpg", actor=coverage_policy()).load_state(state)


def test_only_a_new_actor_has_a_specification() -> None:
    assert make("sac").policy_spec.n_actions == N_ACTIONS
    with pytest.raises(ConfigurationError, match="is a CoveragePolicy that was given"):
        _ = make("sac", actor=coverage_policy()).policy_spec


@pytest.mark.parametrize("kind", KINDS)
def test_a_parameter_of_the_actor_may_have_a_rate_of_its_own(kind: str) -> None:
    """Adam's first step is its rate times the gradient's sign, whatever the gradient's size."""
    actor = coverage_policy(ONE_HOT)
    actor.requires_grad_(True)
    rates = {"weights": 0.05}
    learner = make(
        kind, actor=actor, actor_learning_rates=rates, settings={"actor_learning_rate": 1e-3}
    )
    learner.update(*batch_of(ONE_HOT))
    for name, before in actor.named_parameters():
        moved = (dict(learner.actor.named_parameters())[name] - before).abs()
        rate = rates.get(name, 1e-3)
        assert moved.max().item() == pytest.approx(rate, rel=1e-2)
    with pytest.raises(ConfigurationError, match="a learning rate was given for 'weight', but"):
        make(kind, actor=actor, actor_learning_rates={"weight": 0.05})
