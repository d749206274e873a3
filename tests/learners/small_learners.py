"""Small learners of every kind, and batches for them."""

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
    SACConfig,
)
from rover.operators import make_kernel
from rover.policies import CoveragePolicy

KINDS: dict[str, Any] = {
    "ddpg": (DiscreteDDPG, DDPGConfig),
    "sac": (DiscreteSAC, SACConfig),
    "cql": (DiscreteCQL, CQLConfig),
}
N_ACTIONS = 3


def observed(shape: tuple[int, ...], dtype: str, width: int | None = 16, **known: Any) -> Any:
    """The encoder that learners put on such observations."""
    observations = Observations(shape, dtype, **known)
    return encoder_config(observations, architecture="learner", feature_dim=width)


ONE_HOT: EncoderConfig = observed((9,), "float32", one_hot=True)
STATES: EncoderConfig = observed((), "int64", n_states=9)
VECTORS: EncoderConfig = observed((4,), "float64")
IMAGES: EncoderConfig = observed((12, 12, 3), "uint8", None).model_copy(
    update={"channels": (4, 4), "strides": (2, 2), "feature_dim": 16}
)


def make_observations(encoder: EncoderConfig, m: int = 9) -> Tensor:
    """The first m rows of one table."""
    generator = torch.Generator().manual_seed(7)
    if encoder is STATES:
        return torch.arange(m)
    if encoder is ONE_HOT:
        return torch.eye(9)[:m]
    if encoder is IMAGES:
        return torch.randint(0, 256, (40, 12, 12, 3), generator=generator, dtype=torch.uint8)[:m]
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


def make(kind: str, encoder: EncoderConfig = ONE_HOT, **options: Any) -> Any:
    """A learner: keywords of its configuration, and of the learner itself."""
    learner, config = KINDS[kind]
    settings = {k: options.pop(k) for k in list(options) if k in config.model_fields}
    settings = {"hidden_sizes": (16, 8), **settings}
    generator = torch.Generator().manual_seed(0)
    given: dict[str, Any] = {"n_actions": N_ACTIONS, "generator": generator, **options}
    return learner(encoder, config=config(**settings), **given)


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
