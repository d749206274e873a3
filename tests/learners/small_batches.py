"""Small batches of every kind of observation, and learners out of their uniform start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from rover.features import EncoderSpec
from rover.learners import learner_encoder_spec
from rover.types import Batch

N_ACTIONS = 3
ONE_HOT = learner_encoder_spec((9,), observation_dtype="float32", one_hot=True, width=16)
STATES = learner_encoder_spec((), observation_dtype="int64", n_states=9, width=16)
VECTORS = learner_encoder_spec((4,), observation_dtype="float64", width=16)
DEEP = VECTORS.model_copy(update={"hidden_sizes": (12,)})
IMAGES = learner_encoder_spec((12, 12, 3), observation_dtype="uint8", width=16).model_copy(
    update={"channels": (4, 4), "strides": (2, 2), "feature_dim": 16}
)


def make_observations(spec: EncoderSpec, m: int) -> Tensor:
    generator = torch.Generator().manual_seed(7)
    if spec.observation_shape == ():
        return torch.arange(m)
    if spec.kind == "conv":
        return torch.randint(0, 256, (m, 12, 12, 3), generator=generator, dtype=torch.uint8)
    if spec is ONE_HOT:
        return torch.eye(9)[:m]
    return torch.randn(m, 4, dtype=torch.float64, generator=generator)


def make_batch(
    spec: EncoderSpec, *, m: int = 9, n: int = 20, skill_dim: int = 0, seed: int = 1
) -> tuple[Batch, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    batch = Batch(
        make_observations(spec, m),
        torch.randint(0, m, (n,), generator=generator),
        torch.randint(0, N_ACTIONS, (n,), generator=generator),
        torch.randint(0, m, (n,), generator=generator),
        torch.randn(n, skill_dim, generator=generator) if skill_dim else None,
    )
    discounts = 0.9 * (torch.rand(n, generator=generator) < 0.8)
    return batch, torch.randn(n, generator=generator), discounts


def changed(batch: Batch, **fields: Any) -> Batch:
    return Batch(**{**vars(batch), **fields})


class Learner(Protocol):
    def state(self) -> dict[str, Tensor]: ...

    def load_state(self, state: Mapping[str, Tensor]) -> None: ...


def stir(learner: Learner, generator: torch.Generator) -> None:
    """Bring a learner out of the nearly uniform start, and its targets away from the critics.

    Gradients of the actor are worth comparing then.
    """
    state = learner.state()
    for name, tensor in state.items():
        if not name.startswith("optimizer.") and tensor.ndim >= 2 and "weight" in name:
            tensor += 0.1 * torch.randn(tensor.shape, generator=generator)
    learner.load_state(state)


def assert_same_state(first: Learner, second: Learner) -> None:
    expected = first.state()
    assert expected.keys() == second.state().keys()
    for name, tensor in second.state().items():
        assert torch.equal(tensor, expected[name]), name
