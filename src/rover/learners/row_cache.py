"""What a network with nothing to learn makes of an observation, computed once.

The last digits of a product of matrices depend on how many rows it has, so a result that was
computed in one batch is not what another batch would have given, and a run that is resumed with an
empty memory would go another way. Here every observation is evaluated by itself: its result
depends on nothing else, whether it is remembered or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from rover.errors import SlowPathWarning

_FIRST_CAPACITY = 64


class RowCache:
    """Remembers a function of single observations by their row in the buffer's table.

    The observation is kept beside its result and compared: a row that holds another observation
    than before, because the batches now come from another buffer, is computed anew.

    Args:
        function: observations (n, *shape) → (n, q), row by row and without anything to learn.
        max_bytes: memory that may be taken; observations beyond it are evaluated anew each time.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], *, max_bytes: int = 2**30) -> None:
        self._function = function
        self._max_bytes = max_bytes
        self.clear()

    def clear(self) -> None:
        """Forget everything: the function has changed."""
        self._slots = torch.zeros(0, dtype=torch.int64)  # of each row; −1: not remembered
        self._stored: tuple[Tensor, Tensor] | None = None  # observations and results by slot
        self._n_slots = 0
        self._has_warned = False

    def __call__(self, observations: Tensor, rows: Tensor | None) -> Tensor:
        """The function (m, q) of `observations` (m, *shape), which are `rows` (m,) of a table.

        Without rows nothing is remembered, and the result is the same to the bit.

        Warns:
            SlowPathWarning: the memory is full.
        """
        if rows is None:
            return self._evaluate(observations)
        known = self._is_known(observations, rows)
        if self._stored is not None and bool(known.all()):
            return self._stored[1][self._slots[rows]]
        missing = torch.nonzero(~known).squeeze(1)
        fresh = self._evaluate(observations[missing])
        result = fresh.new_empty((len(rows), *fresh.shape[1:]))
        if self._stored is not None:
            result[known] = self._stored[1][self._slots[rows[known]]]
        result[missing] = fresh
        self._remember(rows[missing], observations[missing], fresh)
        return result

    @torch.no_grad()
    def _evaluate(self, observations: Tensor) -> Tensor:
        # Copies, so that every observation is aligned in memory as any other.
        return torch.cat([self._function(row[None].clone()) for row in observations])

    def _is_known(self, observations: Tensor, rows: Tensor) -> Tensor:
        """Whether each of `rows` (m,) is remembered, and with this observation."""
        beyond = int(rows.max()) + 1 - len(self._slots)
        if beyond > 0:
            self._slots = torch.cat([self._slots, torch.full((beyond,), -1)])
        slots = self._slots[rows]
        if self._stored is None:
            return slots >= 0
        same = self._stored[0][slots.clamp(min=0)] == observations
        return (slots >= 0) & same.reshape(len(rows), -1).all(dim=1)

    def _remember(self, rows: Tensor, observations: Tensor, results: Tensor) -> None:
        new = rows[self._slots[rows] < 0]
        limit = max(1, self._max_bytes // (_row_bytes(observations) + _row_bytes(results)))
        room = limit - self._n_slots
        if len(new) > room and not self._has_warned:
            warnings.warn(
                f"features of {self._n_slots + room} observations fill the {self._max_bytes} bytes "
                "set aside for them: those of further ones are computed anew in every update. "
                "Narrower features, or a policy that stands on fewer states, take less",
                SlowPathWarning,
                stacklevel=2,
            )
            self._has_warned = True
        new = new[:room]
        self._slots[new] = torch.arange(self._n_slots, self._n_slots + len(new))
        self._n_slots += len(new)
        old = (None, None) if self._stored is None else self._stored
        stored = (
            _with_room(old[0], observations, self._n_slots, limit=limit),
            _with_room(old[1], results, self._n_slots, limit=limit),
        )
        kept = self._slots[rows] >= 0
        slots = self._slots[rows[kept]]
        stored[0][slots], stored[1][slots] = observations[kept], results[kept]
        self._stored = stored


def _row_bytes(rows: Tensor) -> int:
    return rows[:1].numel() * rows.element_size()


def _with_room(storage: Tensor | None, rows: Tensor, n: int, *, limit: int) -> Tensor:
    """`storage` (capacity, …) if it has room for `n` rows like `rows`, else a larger copy of it.

    The copy has room for at most `limit` ≥ n rows.
    """
    capacity = 0 if storage is None else len(storage)
    if storage is not None and n <= capacity:
        return storage
    wanted = min(limit, max(n, 2 * capacity, _FIRST_CAPACITY))
    grown = rows.new_empty((wanted, *rows.shape[1:]))
    if storage is not None:
        grown[:capacity] = storage
    return grown
