"""Laws of every learner: merged batches, states, warm-ups, copies, refusals, and a chain."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from rover.data import Batch
from rover.errors import NonFiniteError
from rover.features import Encoder, Observations, encoder_config, make_encoder
from rover.learners import CQLConfig, DDPGConfig, DiscreteCQL, DiscreteDDPG, SACConfig
from rover.operators import make_kernel
from rover.policies import CoveragePolicy

KINDS: dict[str, Any] = {
    "ddpg": (DiscreteDDPG, DDPGConfig),
    "sac": (DiscreteDDPG, SACConfig),
    "cql": (DiscreteCQL, CQLConfig),
}
N_ACTIONS = 3


ONE_HOT = Observations((9,), "float32", one_hot=True)
STATES = Observations((), "int64", n_states=9)
VECTORS = Observations((4,), "float64")
IMAGES = Observations((12, 12, 3), "uint8")


def make_observations(seen: Observations, m: int = 9) -> Tensor:
    """The first m rows of one table."""
    generator = torch.Generator().manual_seed(7)
    if seen is STATES:
        return torch.arange(m)
    if seen is ONE_HOT:
        return torch.eye(9)[:m]
    if seen is IMAGES:
        return torch.randint(0, 256, (40, 12, 12, 3), generator=generator, dtype=torch.uint8)[:m]
    return torch.randn(40, 4, dtype=torch.float64, generator=generator)[:m]


def make_batch(
    seen: Observations, *, m: int = 9, n: int = 20, skill_dim: int = 0, seed: int = 1
) -> tuple[Batch, Tensor, Tensor]:
    """A batch whose observations are known to be rows of a longer table; returns, discounts."""
    generator = torch.Generator().manual_seed(seed)
    batch = Batch(
        make_observations(seen, m),
        torch.randint(0, m, (n,), generator=generator),
        torch.randint(0, N_ACTIONS, (n,), generator=generator),
        torch.randint(0, m, (n,), generator=generator),
        torch.randn(n, skill_dim, generator=generator) if skill_dim else None,
        rows=3 * torch.arange(m) + 1,
    )
    discounts = 0.9 * (torch.rand(n, generator=generator) < 0.8)
    return batch, torch.randn(n, generator=generator), discounts


def make(kind: str, seen: Observations = ONE_HOT, **options: Any) -> Any:
    """A learner: keywords of its configuration, and of the learner itself."""
    learner, config = KINDS[kind]
    settings = {k: options.pop(k) for k in list(options) if k in config.model_fields}
    settings = {"hidden_sizes": (16, 8), **settings}
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {"n_actions": N_ACTIONS, "generator": generator, **options}
    return learner(seen, config=config(**settings), **given)


def stir(learner: Any, seed: int = 1) -> None:
    """Move a learner away from the nearly uniform start, and its targets from the critics."""
    generator = torch.Generator().manual_seed(seed)
    state = learner.state()
    for name, tensor in state.items():
        if not name.startswith("optimizer.") and tensor.ndim >= 2 and "weight" in name:
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
    learner.load_state(state)


def assert_same_state(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, err_msg=name)


def pretrained_encoder(seen: Observations = ONE_HOT, *, frozen: bool = True) -> Encoder:
    """A deep encoder of vectors with features of width 6."""
    deep: dict[str, Any] = {"hidden_sizes": (12,), "feature_dim": 6, "normalization": "l2"}
    made = make_encoder(encoder_config(seen, **deep), torch.Generator().manual_seed(3))
    return made.frozen() if frozen else made


def coverage_policy(seen: Observations = ONE_HOT, *, frozen: bool = True) -> CoveragePolicy:
    pretrained = pretrained_encoder(seen, frozen=frozen)
    with torch.no_grad():
        basis = pretrained(make_observations(seen, 7)).double()
    generator = torch.Generator().manual_seed(4)
    weights = torch.randn(7, N_ACTIONS, dtype=torch.float64, generator=generator)
    return CoveragePolicy(pretrained, make_kernel("gaussian", bandwidth=0.5), basis, weights)


def drawn(module: nn.Module) -> nn.Module:
    """The module with weights from a seed of its own."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return module


# What learners observe and begin with.
STARTS: dict[str, tuple[Any, Any]] = {
    "new": (ONE_HOT, dict),
    "images": (IMAGES, dict),
    "states, skills": (STATES, lambda: {"skill_dim": 3}),
    "frozen critics": (ONE_HOT, lambda: {"critic_encoder": pretrained_encoder()}),
    "an encoder that learns": (
        ONE_HOT,
        lambda: {"critic_encoder": pretrained_encoder(frozen=False)},
    ),
    "rover's policy": (VECTORS, lambda: {"actor": coverage_policy(VECTORS)}),
    "rover's policy learns": (ONE_HOT, lambda: {"actor": coverage_policy(frozen=False)}),
    "own module": (VECTORS, lambda: {"actor": drawn(nn.Linear(4, N_ACTIONS).double())}),
    "only critics": (ONE_HOT, lambda: {"actor": coverage_policy().requires_grad_(False)}),
}
CASES = [
    (kind, start)
    for kind in KINDS
    for start, (_, options) in STARTS.items()
    if kind != "cql" or "actor" not in options()
]


def started(kind: str, start: str) -> tuple[Any, Any, dict[str, int]]:
    """A learner that is no longer nearly uniform, its observations, and the form of its batches."""
    seen, options = STARTS[start]
    learner = make(kind, seen, **options())
    stir(learner)
    return learner, seen, {"skill_dim": 3} if "skills" in start else {}


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_the_formulas(kind):
    """Soft actor-critic, without entropy as DDPG, and conservative double Q-learning."""
    options = {"sac": {"initial_temperature": 0.3}, "cql": {"conservative_weight": 0.7}}
    learner = make(kind, **options.get(kind, {}))
    stir(learner)
    batch, returns, discounts = make_batch(ONE_HOT, n=40)
    actor = None if kind == "cql" else copy.deepcopy(learner.actor)
    critics, targets = copy.deepcopy((learner.critics, learner.target_critics))
    here, there = batch.observations[batch.index], batch.observations[batch.next_index]
    q, next_q = critics(here), targets(there).amin(dim=0).detach()
    taken = q[:, torch.arange(40), batch.actions]
    if actor is None:
        values = next_q[torch.arange(40), critics(there).amin(dim=0).argmax(dim=1)]
        rest = 0.7 * (q.logsumexp(dim=2) - taken).mean(dim=1).sum()
    else:
        alpha = 0.3 if kind == "sac" else 0.0
        log_probs, after = (actor(seen).log_softmax(dim=1) for seen in (here, there))
        values = (after.exp() * (next_q - alpha * after)).sum(dim=1).detach()
        least = q.amin(dim=0).detach()
        rest = (log_probs.exp() * (alpha * log_probs - least)).sum(dim=1).mean()
    squares = (taken - (returns + discounts * values)).square().mean(dim=1).sum()
    (squares + rest).backward()
    figures = learner.update(batch, returns, discounts)
    name = "td_loss" if kind == "cql" else "critic_loss"
    assert figures[name] == pytest.approx(squares.item(), rel=1e-5)
    assert figures["target_mean"] == pytest.approx((returns + discounts * values).mean().item())
    pairs = [(learner.critics, critics)] + ([] if actor is None else [(learner.actor, actor)])
    for found, expected in pairs:
        for one, other in zip(found.parameters(), expected.parameters(), strict=True):
            assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("m", [5, 9])
@pytest.mark.parametrize(("kind", "start"), CASES)
def test_equal_rows_are_merged_without_changing_the_update(kind, start, m):
    """Each transition with rows of its own, with fewer and with more transitions than rows."""
    (merged, seen, skills), (apart, *_) = started(kind, start), started(kind, start)
    batch, *rest = make_batch(seen, m=m, n=7, **skills)
    every = torch.cat([batch.observations[batch.index], batch.observations[batch.next_index]])
    own = torch.arange(7)
    alone = replace(batch, observations=every, index=own, next_index=own + 7, rows=None)
    for _ in range(2):
        found, expected = merged.update(batch, *rest), apart.update(alone, *rest)
        assert found == pytest.approx(expected, rel=1e-3, abs=1e-5)
    for name, tensor in apart.state().items():
        assert_close(merged.state()[name], tensor, rtol=1e-2, atol=2e-4, msg=name)


@pytest.mark.parametrize("start", ["frozen critics", "rover's policy"])
def test_known_features_change_no_bit(start):
    (with_rows, seen, _), (without, *_) = started("ddpg", start), started("ddpg", start)
    for seed in range(4):  # ever more of a growing table
        batch, *rest = make_batch(seen, m=3 + 2 * seed, seed=seed)
        expected = without.update(replace(batch, rows=None), *rest)
        assert with_rows.update(batch, *rest) == expected
        # A learner that is restored has nothing cached, and goes on with the same bits.
        restored, *_ = started("ddpg", start)
        restored.load_state(with_rows.state())
        with_rows = restored
    assert_same_state(with_rows.state(), without.state())


@pytest.mark.parametrize("start", ["new", "images", "rover's policy"])
@pytest.mark.parametrize("kind", ["ddpg", "sac"])
def test_a_warm_up_of_the_critics_leaves_the_actor_alone(kind, start):
    learner, seen, _ = started(kind, start)
    learner.update(*make_batch(seen, seed=4))
    before = learner.state()
    learner.update(*make_batch(seen), train_actor=False)
    after = learner.state()
    stays = [k for k in before if ("actor" in k or "temperature" in k) and ".encoder." not in k]
    assert stays
    assert_same_state({k: after[k] for k in stays}, {k: before[k] for k in stays})
    assert not torch.equal(before["critics.heads.biases.0"], after["critics.heads.biases.0"])


def test_what_was_given_is_copied_in_and_out_and_draws_nothing():
    policy = coverage_policy()
    weights, observations = policy.weights.detach().clone(), make_observations(ONE_HOT)
    module = nn.Sequential(nn.Dropout(0.5), drawn(nn.Linear(9, N_ACTIONS))).train()
    learner, other, critics = make("ddpg", actor=policy), make("ddpg", actor=module), make("cql")
    handed_over, values = learner.policy_module(), critics.policy_module()
    before, random = values(observations), torch.get_rng_state()
    for each in (learner, other, critics):
        each.update(*make_batch(ONE_HOT))
    assert torch.equal(torch.get_rng_state(), random)
    assert module.training
    assert torch.equal(policy.weights, weights)
    assert torch.equal(handed_over(observations), policy(observations))
    assert torch.equal(values(observations), before)
    assert not torch.equal(critics.critics(observations), before)
    trained = learner.policy_module()
    assert not torch.allclose(trained(observations), policy(observations))
    assert not trained.training
    new = make("ddpg").policy_module()
    assert not any(p.requires_grad for p in (*values.parameters(), *new.parameters()))
    uniform = torch.full((9, N_ACTIONS), 1 / 3)
    assert_close(new(observations).softmax(dim=1), uniform, atol=0.01, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_only_new_networks_are_centred(kind):
    given = make(kind, VECTORS, critic_encoder=pretrained_encoder(VECTORS, frozen=False))
    cases = [(make(kind, VECTORS), 2.0, 2.0), (given, 0.0, 0.0 if given.shares_encoder else 2.0)]
    if kind != "cql":
        cases.append((make(kind, VECTORS, actor=coverage_policy(VECTORS)), 2.0, 0.0))
    for learner, of_critics, of_actor in cases:
        learner.centre(np.array([[2.0] * 4, [2.5] * 4]))
        for name, tensor in learner.state().items():
            if name.endswith("encoder.center"):
                assert (tensor == (of_actor if name.startswith("actor") else of_critics)).all()
    batch = make_batch(VECTORS)
    assert cases[0][0].update(*batch) != make(kind, VECTORS).update(*batch)


def test_the_temperature_follows_the_entropy_at_the_rate_of_adam():
    """Adam's first step of log α is its rate, down where the entropy is above its target."""
    certain = drawn(nn.Linear(9, N_ACTIONS))
    with torch.no_grad():
        certain.get_parameter("bias")[0] += 30.0
    for actor, step in ((None, -0.01), (certain, 0.01)):
        learner = make("sac", actor=actor, temperature_learning_rate=0.01)
        assert learner.log_temperature.exp().item() == pytest.approx(0.1, rel=1e-15)
        learner.update(*make_batch(ONE_HOT))
        assert learner.log_temperature.item() - math.log(0.1) == pytest.approx(step, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_changes_no_weight(kind):
    module = drawn(nn.Linear(9, N_ACTIONS))
    with torch.no_grad():
        module.get_parameter("bias").fill_(torch.nan)
    cases: list[tuple[dict[str, Any], float]] = [({}, torch.nan), ({}, 1e30)]
    cases += [] if kind == "cql" else [({"actor": module}, 0.0)]
    for options, value in cases:
        learner = make(kind, **options)
        batch, returns, discounts = make_batch(ONE_HOT)
        before = learner.state()
        message = f"update 1 of {kind.upper()} has .*critic_loss.* rewards and observations are fin"
        with pytest.raises(NonFiniteError, match=message):
            learner.update(batch, torch.full_like(returns, value), discounts)
        assert_same_state(learner.state(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_is_solved(kind):
    """One of three actions leads on, to a reward at the end; the others lead back to the start."""
    rates = {"critic_learning_rate": 2e-3, "target_rate": 0.1, "hidden_sizes": (32, 32)}
    rates |= {"ddpg": {"entropy_coefficient": 0.03}, "sac": {"initial_temperature": 0.03}}.get(
        kind, {}
    )
    learner = make(kind, **rates)
    states, actions = (
        x.flatten() for x in torch.meshgrid(*map(torch.arange, (8, 3)), indexing="ij")
    )
    following = torch.where(actions == states % 3, states + 1, 0)
    batch = replace(make_batch(ONE_HOT)[0], index=states, actions=actions, next_index=following)
    rewards = (following == 8).float()
    for _ in range(500):
        learner.update(batch, rewards, 0.9 * (1.0 - rewards))
    observations = make_observations(ONE_HOT)[:8]
    q = learner.critics(observations).amin(dim=0)
    best = learner.policy_module()(observations) if kind != "cql" else q
    assert torch.equal(best.argmax(dim=1), torch.arange(8) % 3)
    if kind == "cql":
        assert_close(q.amax(dim=1), 0.9 ** torch.arange(7.0, -1.0, -1.0), atol=0.1, rtol=0)
