"""Distinct observations, each stored once."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.errors import ArtefactError, StorageError

FIRST_CAPACITY = 1024
_MOST_BYTES = 8 * 2**30


class ObservationTable:
    """Distinct observations, found again by their bytes.

    Args:
        shape: shape of one observation, () for a discrete state.
        dtype: dtype of the observations.

    Attributes:
        rows: (N, *shape) all distinct observations in order of first sight; a view that is replaced
            whenever there is a new one.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self._storage = self.rows = np.empty((0, *shape), self.dtype)
        self._index: dict[bytes, int] = {}

    @staticmethod
    def name_of(row: NDArray[Any]) -> bytes:
        """Sixteen bytes that identify an observation (*shape) without negative zeros."""
        # Digests instead of the bytes themselves: an index of images would hold them twice.
        return hashlib.blake2b(row.tobytes(), digest_size=16).digest()

    def __len__(self) -> int:
        return len(self._index)

    def intern(self, observation: Any) -> int:
        """Index of `observation` (*shape), which becomes a new row if it was never seen.

        Zeros of either sign are the same number and share a row. StorageError: the table would
        outgrow its memory limit.
        """
        row = np.asarray(observation, self.dtype)
        if self.dtype.kind == "f":
            row = row + self.dtype.type(0)  # turns −0.0 into 0.0
        key = self.name_of(row)
        index = self._index.get(key)
        if index is not None:
            return index
        needed = (len(self._index) + 1) * row.nbytes
        if needed > _MOST_BYTES:
            raise StorageError(
                f"{len(self)} distinct observations of {row.nbytes} bytes fill the buffer's "
                f"limit of {_MOST_BYTES} bytes; run fewer steps or make observations smaller"
            )
        index = self._index[key] = len(self._index)
        # Doubled, so that a run of n steps copies each row a constant number of times.
        if index == len(self._storage):
            self._storage = np.resize(self._storage, (2 * index or FIRST_CAPACITY, *self.shape))
        self._storage[index] = row
        self.rows = self._storage[: index + 1]
        self.rows.flags.writeable = False
        return index

    @property
    def names(self) -> NDArray[np.uint8]:
        """The names (N, 16) of all observations, as of :meth:`name_of`."""
        return np.frombuffer(b"".join(self._index), np.uint8).reshape(-1, 16)

    def replace(self, rows: NDArray[Any]) -> None:
        """Hold `rows` (N, *shape), which must be distinct."""
        self._storage, self._index = rows.astype(self.dtype), {}
        self.rows = self._storage[:0]
        for row in self._storage:
            self.intern(row)
        if len(self) != len(rows):
            raise ArtefactError("the observations of a stored buffer are not distinct")
