"""The replay buffer: every distinct observation once, every transition as indices.

Grid worlds revisit a hundred states for thousands of steps, so observations are interned: equal
bytes share one row of a table, and a transition is (x, a, x', terminated, truncated) in indices.
84×84 images of Multi-Rooms thus take 2.3 MB whatever the number of steps, batches arrive merged,
and the operator core gets its counts without looking at an observation. Where observations never
repeat the table simply has as many rows as there were steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, StorageError
from rover.operators.support import FloatArray, IntArray, TransitionCounts

_FIRST_CAPACITY = 1024


class GrowingArray:
    """An array that grows at its end in amortised constant time.

    Attributes:
        rows: view of what has been appended so far, (n, *row_shape).
    """

    def __init__(self, row_shape: tuple[int, ...], dtype: np.dtype[Any] | type) -> None:
        self._storage: NDArray[Any] = np.empty((_FIRST_CAPACITY, *row_shape), dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def rows(self) -> NDArray[Any]:
        """View (n, *row_shape); invalid after the next append."""
        return self._storage[: self._length]

    def append(self, row: Any) -> int:
        """Append one row; returns its index."""
        if self._length == len(self._storage):
            grown = np.empty(
                (2 * len(self._storage), *self._storage.shape[1:]), self._storage.dtype
            )
            grown[: self._length] = self._storage
            self._storage = grown
        self._storage[self._length] = row
        self._length += 1
        return self._length - 1

    def replace(self, rows: NDArray[Any]) -> None:
        """Hold `rows` (n, *row_shape) and nothing else."""
        capacity = max(_FIRST_CAPACITY, len(rows))
        self._storage = np.empty((capacity, *self._storage.shape[1:]), self._storage.dtype)
        self._storage[: len(rows)] = rows
        self._length = len(rows)


class ObservationTable:
    """Distinct observations, found again by their bytes.

    Args:
        shape: shape of one observation, () for a discrete state.
        dtype: dtype of the observations.
        max_bytes: memory that the table may take; more raises StorageError.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, max_bytes: int = 8 * 2**30
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.max_bytes = max_bytes
        self._rows = GrowingArray(shape, self.dtype)
        self._index: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def rows(self) -> NDArray[Any]:
        """All distinct observations in order of first sight, (N, *shape)."""
        return self._rows.rows

    def intern(self, observation: Any) -> int:
        """Index of `observation` (*shape), which becomes a new row if it was never seen.

        Zeros of either sign are the same number and share a row.

        Raises:
            ConfigurationError: an observation that its space does not hold, by shape or dtype.
            NonFiniteError: NaN or infinity in the observation.
            StorageError: the table would outgrow its memory limit.
        """
        row = np.asarray(observation)
        if row.shape != self.shape or (self.dtype.kind in "iu" and row.dtype.kind not in "iub"):
            raise ConfigurationError(
                f"the environment returned an observation of shape {row.shape} and dtype "
                f"{row.dtype}, but its observation space says {self.shape} and {self.dtype}; mend "
                "the environment or wrap it"
            )
        row = row.astype(self.dtype, copy=False)
        if self.dtype.kind == "f":
            row = row + self.dtype.type(0)  # turns −0.0 into 0.0
        key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        found = self._index.get(key)
        if found is not None:
            return found
        if self.dtype.kind == "f" and not np.isfinite(row).all():
            raise NonFiniteError(
                f"the environment returned an observation with NaN or infinity: {row!r}; "
                "mend the environment or wrap it"
            )
        needed = (len(self) + 1) * row.nbytes
        if needed > self.max_bytes:
            raise StorageError(
                f"{len(self)} distinct observations of {row.nbytes} bytes fill the buffer's "
                f"limit of {self.max_bytes} bytes; run fewer steps or make observations smaller"
            )
        index = self._rows.append(row)
        self._index[key] = index
        return index

    def replace(self, rows: NDArray[Any]) -> None:
        """Hold `rows` (N, *shape), which must be distinct."""
        self._rows.replace(rows)
        self._index = {
            hashlib.blake2b(row.tobytes(), digest_size=16).digest(): i
            for i, row in enumerate(self.rows)
        }
        if len(self._index) != len(rows):
            raise ArtefactError("the observations of a stored buffer are not distinct")


_COLUMNS: Mapping[str, type] = {
    "inputs": np.int64,
    "actions": np.int64,
    "successors": np.int64,
    "terminated": np.bool_,
    "truncated": np.bool_,
}


class ReplayBuffer:
    """All transitions in the order in which they were made, and their counts.

    Args:
        observation_shape: shape of one observation.
        observation_dtype: its dtype.
        n_actions: A.
    """

    def __init__(
        self, observation_shape: tuple[int, ...], observation_dtype: np.dtype[Any], n_actions: int
    ) -> None:
        self.observations = ObservationTable(observation_shape, observation_dtype)
        self.n_actions = n_actions
        self._columns = {name: GrowingArray((), dtype) for name, dtype in _COLUMNS.items()}
        self._starts = GrowingArray((), np.int64)
        self._counts: dict[tuple[int, int, int, bool], int] = {}
        self._pairs: set[tuple[int, int]] = set()
        self._merged: TransitionCounts | None = None

    def __len__(self) -> int:
        return len(self._columns["inputs"])

    @property
    def inputs(self) -> IntArray:
        """Observation index of x for each transition, (n,)."""
        return self._columns["inputs"].rows

    @property
    def actions(self) -> IntArray:
        """Action of each transition, (n,)."""
        return self._columns["actions"].rows

    @property
    def successors(self) -> IntArray:
        """Observation index of x' for each transition, (n,)."""
        return self._columns["successors"].rows

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """Whether the transition ended its episode by termination, (n,)."""
        return self._columns["terminated"].rows

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """Whether the transition was the last before a time limit, (n,)."""
        return self._columns["truncated"].rows

    def add_start(self, observation: int) -> None:
        """Record that an episode began in this observation."""
        self._starts.append(observation)

    def add(
        self, observation: int, action: int, successor: int, terminated: bool, truncated: bool
    ) -> None:
        """Record one transition between observation indices."""
        for name, value in zip(
            _COLUMNS, (observation, action, successor, terminated, truncated), strict=True
        ):
            self._columns[name].append(value)
        key = (observation, action, successor, terminated)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._pairs.add((observation, action))
        self._merged = None

    @property
    def episode_starts(self) -> IntArray:
        """Observation index in which each episode began, in order, (e,)."""
        return self._starts.rows

    @property
    def latest_start(self) -> int:
        """Observation index in which the latest episode began.

        Raises:
            ArtefactError: no episode has begun.
        """
        if len(self._starts) == 0:
            raise ArtefactError("the buffer knows of no episode: a stored one lacks its starts")
        return int(self._starts.rows[-1])

    def starts(self) -> tuple[IntArray, FloatArray]:
        """Distinct initial observations (q,) and how often episodes began there (q,)."""
        states, counts = np.unique(self._starts.rows, return_counts=True)
        return states, counts.astype(np.float64)

    def counts(self) -> TransitionCounts:
        """Distinct transitions with counts, sorted by (x, a, x', terminated)."""
        if self._merged is None:
            keys = np.array(list(self._counts), np.int64).reshape(-1, 4)
            order = np.lexsort(keys.T[::-1])
            keys = keys[order]
            self._merged = TransitionCounts(
                inputs=keys[:, 0],
                actions=keys[:, 1],
                successors=keys[:, 2],
                terminated=keys[:, 3].astype(np.bool_),
                counts=np.fromiter(self._counts.values(), np.float64)[order],
            )
        return self._merged

    @property
    def n_pairs(self) -> int:
        """Number of distinct pairs (x, a) that were ever tried."""
        return len(self._pairs)

    def visits(self) -> IntArray:
        """How often each observation was arrived in, episode starts included, (N,)."""
        size = len(self.observations)
        arrivals = np.bincount(self.successors, minlength=size)
        return arrivals + np.bincount(self._starts.rows, minlength=size)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything, as named arrays: what a checkpoint or an export stores."""
        columns = {name: column.rows.copy() for name, column in self._columns.items()}
        return {
            "observations": self.observations.rows.copy(),
            "starts": self._starts.rows.copy(),
            **columns,
        }

    def load_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the contents by what :meth:`arrays` returned.

        Raises:
            ArtefactError: arrays missing, of unequal length, or with indices out of range.
        """
        missing = [k for k in ("observations", "starts", *_COLUMNS) if k not in arrays]
        if missing:
            raise ArtefactError(f"a stored buffer lacks {', '.join(missing)}")
        observations = arrays["observations"]
        if (observations.shape[1:], observations.dtype) != (
            self.observations.shape,
            self.observations.dtype,
        ):
            raise ArtefactError(
                f"a stored buffer holds observations {observations.shape[1:]} of "
                f"{observations.dtype}, this environment has {self.observations.shape} of "
                f"{self.observations.dtype}"
            )
        for name, dtype in {"starts": np.int64, **_COLUMNS}.items():
            if arrays[name].ndim != 1 or arrays[name].dtype != dtype:
                raise ArtefactError(
                    f"a stored buffer's {name} are {arrays[name].dtype} of shape "
                    f"{arrays[name].shape}; they should be {np.dtype(dtype)} in one dimension"
                )
        if len({len(arrays[name]) for name in _COLUMNS}) != 1:
            raise ArtefactError("the columns of a stored buffer differ in length")
        for name, limit in (
            ("inputs", len(observations)),
            ("successors", len(observations)),
            ("starts", len(observations)),
            ("actions", self.n_actions),
        ):
            values = arrays[name]
            if len(values) and not (values.min() >= 0 and values.max() < limit):
                raise ArtefactError(f"a stored buffer's {name} are not all in 0..{limit - 1}")
        self.observations.replace(observations)
        self._starts.replace(arrays["starts"])
        for name, column in self._columns.items():
            column.replace(arrays[name])
        self._counts = {}
        for key in zip(
            self.inputs.tolist(),
            self.actions.tolist(),
            self.successors.tolist(),
            self.terminated.tolist(),
            strict=True,
        ):
            self._counts[key] = self._counts.get(key, 0) + 1
        self._pairs = {(observation, action) for observation, action, _, _ in self._counts}
        self._merged = None
