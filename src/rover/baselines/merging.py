"""Equal transitions of a batch as one row with a count, so that networks see each once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rover.errors import ConfigurationError
from rover.types import Batch


@dataclass(frozen=True)
class MergedTransitions:
    """The distinct transitions of a batch.

    Attributes:
        index: (p,) int64, row of the batch's observations where each begins.
        actions: (p,) int64; zero where actions were left out.
        next_index: (p,) int64, row where each leads.
        counts: (p,) int64, positive, how often each occurs.
        inverse: (n,) int64, which of them each transition of the batch is.
    """

    index: Tensor
    actions: Tensor
    next_index: Tensor
    counts: Tensor
    inverse: Tensor


def merge_transitions(batch: Batch, *, n_actions: int) -> MergedTransitions:
    """Merge equal triples (x, a, x'); with ``n_actions=0`` equal pairs (x, x').

    Raises:
        ConfigurationError: the batch is empty, or an index or action is out of range.
    """
    check_batch(batch)
    m = len(batch.observations)
    key = batch.index * m + batch.next_index  # (n,)
    if n_actions > 0:
        low, high = (int(bound) for bound in torch.aminmax(batch.actions))
        if low < 0 or high >= n_actions:
            raise ConfigurationError(
                f"actions of the batch span {low} … {high}, but must lie in 0 … {n_actions - 1}: "
                "make the intrinsic reward with the environment's number of actions"
            )
        key = key + batch.actions * (m * m)
    distinct, inverse, counts = torch.unique(key, return_inverse=True, return_counts=True)
    return MergedTransitions(
        index=distinct.remainder(m * m).div(m, rounding_mode="floor"),
        actions=distinct.div(m * m, rounding_mode="floor"),
        next_index=distinct.remainder(m),
        counts=counts,
        inverse=inverse,
    )


def next_observation_counts(batch: Batch) -> Tensor:
    """How many transitions lead to each row of the batch's observations, (m,) int64.

    Raises:
        ConfigurationError: the batch is empty, or an index is out of range.
    """
    check_batch(batch)
    return torch.bincount(batch.next_index, minlength=len(batch.observations))


def check_batch(batch: Batch) -> None:
    """Check that there is a transition and that all lie on the table of observations.

    Raises:
        ConfigurationError: the batch is empty, or an index is out of range.
    """
    n, m = len(batch), len(batch.observations)
    if n == 0 or batch.index.shape != (n,) or batch.next_index.shape != (n,):
        raise ConfigurationError(
            "a batch needs at least one transition, and index, actions and next_index of the same "
            f"length, got shapes {tuple(batch.index.shape)}, {tuple(batch.actions.shape)} and "
            f"{tuple(batch.next_index.shape)}"
        )
    for name, index in (("index", batch.index), ("next_index", batch.next_index)):
        low, high = (int(bound) for bound in torch.aminmax(index))
        if low < 0 or high >= m:
            raise ConfigurationError(
                f"{name} of the batch spans {low} … {high}, but must lie in 0 … {m - 1}, the rows "
                "of its observations"
            )
