"""Small learners of every kind, and batches for them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rover.data import Batch
from rover.features import Encoder, EncoderConfig, Observations, encoder_config, make_encoder
from rover.learners import (
    CQLConfig,
    DDPGConfig,
    DiscreteCQL,
    DiscreteDDPG,
    DiscreteSAC,
    PolicyNetwork,
    PolicyNetworkConfig,
    SACConfig,
)
from rover.operators import make_kernel
from rover.policies import CoveragePolicy

Learner = DiscreteDDPG | DiscreteSAC | DiscreteCQL
KINDS: dict[str, Any] = {
    "ddpg": (DiscreteDDPG, DDPGConfig),
    "sac": (DiscreteSAC, SACConfig),
    "cql": (DiscreteCQL, CQLConfig),
}
WITH_ACTOR = ["ddpg", "sac"]
N_ACTIONS = 3


def observed(shape: tuple[int, ...], dtype: str, width: int | None = 16, **known: Any) -> Any:
    """The encoder that learners put on such observations."""
    observations = Observations(shape, dtype, **known)
    return encoder_config(observations, architecture="learner", feature_dim=width)


ONE_HOT: EncoderConfig = observed((9,), "float32", one_hot=True)
STATES: EncoderConfig = observed((), "int64", n_states=9)
VECTORS: EncoderConfig = observed((4,), "float64")
DEEP = VECTORS.model_copy(update={"hidden_sizes": (12,)})
IMAGES: EncoderConfig = observed((12, 12, 3), "uint8", None).model_copy(
    update={"channels": (4, 4), "strides": (2, 2), "feature_dim": 16}
)


def make_observations(encoder: EncoderConfig, m: int = 9) -> Tensor:
    """The first m rows of one table."""
    generator = torch.Generator().manual_seed(7)
    if encoder.observation_shape == ():
        return torch.arange(m)
    if encoder.kind == "conv":
        return torch.randint(0, 256, (40, 12, 12, 3), generator=generator, dtype=torch.uint8)[:m]
    if encoder is ONE_HOT:
        return torch.eye(9)[:m]
    return torch.randn(40, 4, dtype=torch.float64, generator=generator)[:m]


def make_batch(
    encoder: EncoderConfig, *, m: int = 9, n: int = 20, skill_dim: int = 0, seed: int = 1
) -> tuple[Batch, Tensor, Tensor]:
    """A batch whose observations are known to be rows of a longer table; returns, discounts."""
    generator = torch.Generator().manual_seed(seed)
    batch = Batch(
        make_observations(encoder, m),
        torch.randint(0, m, (n,), generator=generator),
        torch.randint(0, N_ACTIONS, (n,), generator=generator),
        torch.randint(0, m, (n,), generator=generator),
        torch.randn(n, skill_dim, generator=generator) if skill_dim else None,
        rows=3 * torch.arange(m) + 1,
    )
    discounts = 0.9 * (torch.rand(n, generator=generator) < 0.8)
    return batch, torch.randn(n, generator=generator), discounts


def changed(batch: Batch, **fields: Any) -> Batch:
    return Batch(**{**vars(batch), **fields})


def make(kind: str, encoder: EncoderConfig = ONE_HOT, **options: Any) -> Any:
    """A learner: keywords of its configuration, and of the learner itself."""
    learner, config = KINDS[kind]
    settings = {k: options.pop(k) for k in list(options) if k in config.model_fields}
    settings = {"hidden_sizes": (16, 8), **settings}
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {"n_actions": N_ACTIONS, "generator": generator, **options}
    return learner(encoder, config=config(**settings), **given)


def stir(learner: Learner, seed: int = 1) -> None:
    """Bring a learner out of the nearly uniform start, and its targets away from the critics.

    Gradients of the actor are worth comparing then.
    """
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


def pretrained_encoder(encoder: EncoderConfig = ONE_HOT, *, frozen: bool = True) -> Encoder:
    """A deep encoder of vectors with features of width 6."""
    deep = {"hidden_sizes": (12,), "feature_dim": 6, "normalization": "l2"}
    made = make_encoder(encoder.model_copy(update=deep), torch.Generator().manual_seed(3))
    return made.frozen() if frozen else made


def coverage_policy(encoder: EncoderConfig = ONE_HOT, *, frozen: bool = True) -> CoveragePolicy:
    pretrained = pretrained_encoder(encoder, frozen=frozen)
    with torch.no_grad():
        basis = pretrained(make_observations(encoder, 7)).double()
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


def network() -> nn.Module:
    config = PolicyNetworkConfig(encoder=ONE_HOT, n_actions=N_ACTIONS, hidden_sizes=(8,))
    return drawn(PolicyNetwork(config, generator=torch.Generator()))


def partly_frozen() -> nn.Module:
    below = nn.Linear(9, 5).requires_grad_(False)
    return drawn(nn.Sequential(below, nn.Tanh(), nn.Linear(5, N_ACTIONS)))


ACTORS: dict[str, tuple[EncoderConfig, Callable[[], nn.Module]]] = {
    "coverage policy": (ONE_HOT, coverage_policy),
    "coverage policy, its encoder learns": (ONE_HOT, lambda: coverage_policy(frozen=False)),
    "coverage policy of vectors": (VECTORS, lambda: coverage_policy(VECTORS)),
    "linear": (ONE_HOT, lambda: drawn(nn.Linear(9, N_ACTIONS))),
    "linear in float64": (VECTORS, lambda: drawn(nn.Linear(4, N_ACTIONS).double())),
    "partly frozen": (ONE_HOT, partly_frozen),
    "network": (ONE_HOT, network),
}

# What learners begin with: what is observed, and the networks that are given.
_STARTS: dict[str, tuple[EncoderConfig, Callable[[], dict[str, Any]]]] = {
    "new": (ONE_HOT, dict),
    "images": (IMAGES, dict),
    "states, skills": (STATES, lambda: {"skill_dim": 3}),
    "frozen critics": (ONE_HOT, lambda: {"critic_encoder": pretrained_encoder()}),
    "frozen critics and policy": (
        ONE_HOT,
        lambda: {"critic_encoder": pretrained_encoder(), "actor": coverage_policy()},
    ),
    "nothing learns but critics": (
        ONE_HOT,
        lambda: {"actor": coverage_policy().requires_grad_(False)},
    ),
    **{
        name: (encoder, lambda build=build: {"actor": build()})
        for name, (encoder, build) in ACTORS.items()
    },
}
LEARNERS = [f"cql, {of}" for of in ("new", "images", "frozen critics")]
LEARNERS += [f"{kind}, {of}" for kind in WITH_ACTOR for of in _STARTS]
"""Names of learners of every kind."""


def named(name: str) -> tuple[EncoderConfig, Any]:
    """What a learner of these names observes, and the learner."""
    kind, _, start = name.partition(", ")
    encoder, options = _STARTS[start]
    return encoder, make(kind, encoder, **options())
