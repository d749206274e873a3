"""What a batch must be before a learner computes with it, and what it must not lead to."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rover.errors import ConfigurationError, NonFiniteError
from rover.types import Batch


def check_batch(
    batch: Batch, returns: Tensor, discounts: Tensor, *, n_actions: int, skill_dim: int
) -> None:
    """Refuse a batch whose lengths, indices or skills do not fit.

    Raises:
        ConfigurationError: the message names what does not fit.
    """
    n = len(batch)
    rows = (batch.index, batch.actions, batch.next_index, returns, discounts)
    if n == 0 or any(row.shape != (n,) for row in rows):
        raise ConfigurationError(
            "an update needs at least one transition, and index, actions, next_index, returns "
            f"and discounts of the same length, got shapes {[tuple(r.shape) for r in rows]}"
        )
    for name, index, size in (
        ("index", batch.index, len(batch.observations)),
        ("next_index", batch.next_index, len(batch.observations)),
        ("actions", batch.actions, n_actions),
    ):
        low, high = (int(bound) for bound in torch.aminmax(index))
        if low < 0 or high >= size:
            raise ConfigurationError(
                f"{name} must lie in 0 … {size - 1}, got {low} … {high}: number the rows of "
                "the batch's own observations, and the actions from 0"
            )
    check_skills(batch.skills, n, skill_dim=skill_dim)
    _check_rows(batch.rows, len(batch.observations))


def _check_rows(rows: Tensor | None, m: int) -> None:
    if rows is None:
        return
    if rows.shape != (m,) or rows.dtype != torch.int64 or int(rows.min()) < 0:
        raise ConfigurationError(
            f"rows must be {m} numbers of type int64 from 0, one for each of the batch's "
            f"observations, got {rows.dtype} of shape {tuple(rows.shape)}: pass the rows of the "
            "buffer's table, or None"
        )


def check_skills(skills: Tensor | None, n: int, *, skill_dim: int) -> None:
    """Refuse skills that are missing, superfluous, or not of shape (n, skill_dim).

    Raises:
        ConfigurationError: as said.
    """
    if skill_dim == 0 and skills is not None:
        raise ConfigurationError(
            f"skills of shape {tuple(skills.shape)} were given to a network without skills: "
            "leave them out, or build it with skill_dim"
        )
    if skill_dim > 0 and (skills is None or skills.shape != (n, skill_dim)):
        given = "none" if skills is None else f"shape {tuple(skills.shape)}"
        raise ConfigurationError(
            f"the network needs skills of shape ({n}, {skill_dim}) and was given {given}"
        )


def check_finite(update: str, figures: Mapping[str, float], returns: Tensor) -> None:
    """Refuse an update with a loss or gradient norm that is not finite.

    Args:
        update: which update of which learner, for the message.
        figures: losses and norms of gradients, by name.
        returns: (n,) n-step returns, which are often the reason.

    Raises:
        NonFiniteError: as said; the message names the figures and what to do.
    """
    if all(map(math.isfinite, figures.values())):
        return
    bad = int((~torch.isfinite(returns)).sum())
    reason = (
        f"{bad} of {len(returns)} returns are not finite: look at the rewards"
        if bad
        else "lower the learning rates or the scale of the rewards, and check that the "
        "observations are finite"
    )
    listed = ", ".join(f"{name} {value}" for name, value in figures.items())
    raise NonFiniteError(f"{update} has {listed}; {reason}")
