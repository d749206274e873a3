"""Losses of DDPG, SAC and CQL against those of torchrl, where it is installed.

torchrl's critics are separate networks, ours stand on one encoder: the gradient of the encoder is
the sum of theirs.
"""

import math
import warnings
from typing import Any

import pytest
import torch
from small_learners import N_ACTIONS, ONE_HOT, make, make_batch, stir
from torch import Tensor, nn

from rover.features import Encoder
from rover.learners import DiscreteCQL
from rover.policies import TwinCritics

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pytest.importorskip("torchrl")
DISCOUNT = 0.9


def perceptron(encoder: Encoder, heads: Any, number: int) -> nn.Sequential:
    """One head on a copy of the encoder, as ordinary layers."""
    first = nn.Linear(9, 16, bias=False)
    second, third = nn.Linear(16, 8), nn.Linear(8, N_ACTIONS)
    with torch.no_grad():
        first.weight.copy_(encoder.get_parameter("layers.0.weight"))
        for layer, weight, bias in zip((second, third), heads.weights, heads.biases, strict=True):
            layer.weight.copy_(weight[number])
            layer.bias.copy_(bias[number, 0])
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third)


def pair_of(critics: TwinCritics) -> list[nn.Sequential]:
    return [perceptron(critics.encoder, critics.heads, number) for number in range(2)]


def data() -> tuple[Any, Tensor, Tensor, Tensor]:
    """A batch of one-step returns, and which transitions terminated."""
    batch, rewards, discounts = make_batch(ONE_HOT, n=40)
    terminated = discounts == 0.0
    assert 0 < terminated.sum() < len(batch)
    return batch, rewards, DISCOUNT * ~terminated, terminated


def as_tensordict(batch: Any, rewards: Tensor, terminated: Tensor) -> Any:
    from tensordict import TensorDict

    return TensorDict(
        {
            "observation": batch.observations[batch.index],
            "action": batch.actions,
            "next": TensorDict(
                {
                    "observation": batch.observations[batch.next_index],
                    "reward": rewards[:, None],
                    "done": terminated[:, None],
                    "terminated": terminated[:, None],
                },
                [len(batch)],
            ),
        },
        [len(batch)],
    )


def torchrl_sac(learner: Any, *, alpha: float) -> tuple[Any, nn.Sequential, list[nn.Sequential]]:
    from tensordict.nn import (
        ProbabilisticTensorDictModule,
        ProbabilisticTensorDictSequential,
        TensorDictModule,
    )
    from torchrl.objectives import DiscreteSACLoss

    policy = perceptron(learner.actor.encoder, learner.actor.head, 0)
    critics, targets = pair_of(learner.critics), pair_of(learner.target_critics)
    actor = ProbabilisticTensorDictSequential(
        TensorDictModule(policy, ["observation"], ["logits"]),
        ProbabilisticTensorDictModule(
            in_keys=["logits"],
            out_keys=["action"],
            distribution_class=torch.distributions.Categorical,
        ),
    )
    loss = DiscreteSACLoss(
        actor,
        [TensorDictModule(q, ["observation"], ["action_value"]) for q in critics],
        action_space="categorical",
        num_actions=N_ACTIONS,
        loss_function="l2",
        alpha_init=alpha,
        target_entropy_weight=0.2,
    )
    loss.make_value_estimator(gamma=DISCOUNT)
    for number, target in enumerate(targets):
        stacked = dict(loss.target_qvalue_network_params.flatten_keys(".").items())
        for name, value in target.named_parameters():
            stacked[f"module.{name}"].data[number].copy_(value.detach())
    return loss, policy, critics


def gradient(module: nn.Module, name: str) -> Tensor:
    found = module.get_parameter(name).grad
    assert found is not None
    return found


@pytest.mark.parametrize("kind", ["ddpg", "sac"])
def test_actor_critic_losses_are_those_of_torchrl(kind):
    alpha = 0.3 if kind == "sac" else 1e-12  # DDPG is soft actor-critic without entropy
    learner = make(kind, **({"initial_temperature": alpha} if kind == "sac" else {}))
    stir(learner)
    batch, rewards, discounts, terminated = data()
    loss, _, _ = torchrl_sac(learner, alpha=alpha)
    losses = loss(as_tensordict(batch, rewards, terminated))
    (losses["loss_actor"] + losses["loss_qvalue"] + losses["loss_alpha"]).backward()
    metrics = learner.update(batch, rewards, discounts)
    assert metrics["critic_loss"] == pytest.approx(losses["loss_qvalue"].item(), rel=1e-5)
    assert metrics["actor_loss"] == pytest.approx(losses["loss_actor"].item(), rel=1e-5)
    assert metrics["policy_entropy"] == pytest.approx(losses["entropy"].item(), rel=1e-5)

    actor = {k: v.grad for k, v in loss.actor_network_params.flatten_keys(".").items()}
    name = "module.0.module"
    torch.testing.assert_close(
        gradient(learner.actor, "head.weights.0")[0], actor[f"{name}.2.weight"]
    )
    torch.testing.assert_close(
        gradient(learner.actor, "encoder.layers.0.weight"), actor[f"{name}.0.weight"]
    )
    critics = {k: v.grad for k, v in loss.qvalue_network_params.flatten_keys(".").items()}
    torch.testing.assert_close(
        gradient(learner.critics, "heads.weights.0"), critics["module.2.weight"]
    )
    torch.testing.assert_close(
        gradient(learner.critics, "encoder.layers.0.weight"),
        critics["module.0.weight"].sum(dim=0),
    )
    if kind == "sac":
        assert loss.target_entropy.item() == pytest.approx(0.2 * math.log(N_ACTIONS))
        of_alpha = metrics["policy_entropy"] - 0.2 * math.log(N_ACTIONS)
        assert loss.log_alpha.grad.item() == pytest.approx(of_alpha, rel=1e-5)


def cql_with_two_equal_heads(**settings: Any) -> DiscreteCQL:
    learner = make("cql", conservative_weight=0.7, **settings)
    stir(learner)
    state = learner.state()
    for name, tensor in state.items():
        if "critics.heads" in name and not name.startswith("optimizer"):
            tensor[1] = tensor[0]
    learner.load_state(state)
    return learner


def test_the_conservative_loss_is_that_of_torchrl():
    """torchrl has one critic, no double Q-learning, and half of the squared error."""
    from torchrl.objectives import DiscreteCQLLoss

    learner = cql_with_two_equal_heads()
    state = learner.state()
    for name in list(state):
        if name.startswith("target_critics."):
            state[name] = state[name.removeprefix("target_")]
    learner.load_state(state)
    batch, rewards, discounts, terminated = data()
    loss = DiscreteCQLLoss(pair_of(learner.critics)[0], action_space="categorical")
    loss.make_value_estimator(gamma=DISCOUNT)
    losses = loss(as_tensordict(batch, rewards, terminated))
    metrics = learner.update(batch, rewards, discounts)
    assert metrics["td_loss"] == pytest.approx(2 * 2.0 * losses["loss_qvalue"].item(), rel=1e-5)
    assert metrics["conservative_loss"] == pytest.approx(2 * losses["loss_cql"].item(), rel=1e-5)
    assert metrics["target_mean"] == pytest.approx(losses["target_value"].item(), rel=1e-4)
