"""The replay buffer: every distinct observation once, every transition as indices.

Grid worlds revisit a hundred states for thousands of steps, so observations are interned: equal
bytes share one row of a table, and a transition is (x, a, x', terminated, truncated) in indices.
84×84 images of Multi-Rooms thus take 2.3 MB whatever the number of steps, batches arrive merged,
and the operator core gets its counts without looking at an observation. Where observations never
repeat the table simply has as many rows as there were steps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rover.arrays import BoolArray, FloatArray, IntArray
from rover.envs.spaces import Spaces
from rover.errors import ArtefactError, ConfigurationError, StorageError
from rover.storage import fitting, read_tensors, write_tensors
from rover.transitions import TransitionCounts, merge_transitions

_FIRST_CAPACITY = 1024


class ObservationTable:
    """Distinct observations, found again by their bytes.

    Args:
        shape: shape of one observation, () for a discrete state.
        dtype: dtype of the observations.
        max_bytes: memory that the table may take; more raises StorageError.

    Attributes:
        rows: (N, *shape) all distinct observations in order of first sight; a view that is replaced
            whenever there is a new one.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], *, max_bytes: int = 8 * 2**30
    ) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.max_bytes = max_bytes
        self._storage = self.rows = np.empty((0, *shape), self.dtype)
        self._index: dict[bytes, int] = {}

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
        # Digests instead of the bytes themselves: an index of images would hold them twice.
        key = hashlib.blake2b(row.tobytes(), digest_size=16).digest()
        index = self._index.get(key)
        if index is not None:
            return index
        needed = (len(self._index) + 1) * row.nbytes
        if needed > self.max_bytes:
            raise StorageError(
                f"{len(self)} distinct observations of {row.nbytes} bytes fill the buffer's "
                f"limit of {self.max_bytes} bytes; run fewer steps or make observations smaller"
            )
        index = self._index[key] = len(self._index)
        # Doubled, so that a run of n steps copies each row a constant number of times.
        if index == len(self._storage):
            self._storage = np.resize(self._storage, (2 * index or _FIRST_CAPACITY, *self.shape))
        self._storage[index] = row
        self.rows = self._storage[: index + 1]
        self.rows.flags.writeable = False
        return index

    def replace(self, rows: NDArray[Any]) -> None:
        """Hold `rows` (N, *shape), which must be distinct."""
        self._storage, self._index = rows.astype(self.dtype), {}
        self.rows = self._storage[:0]
        for row in self._storage:
            self.intern(row)
        if len(self) != len(rows):
            raise ArtefactError("the observations of a stored buffer are not distinct")


class Buffer:
    """All transitions in the order in which they were made, and their counts.

    Args:
        observation_shape: shape of one observation.
        observation_dtype: its dtype.
        n_actions: A, ≤ 65,536.
        rewards: whether there is a column of rewards; reward-free pretraining has none.
        skill_dim: width k of the column of skills; 0: no such column.
        action_set: (A, *action shape), what the actions are where the environment takes numbers;
            None: they are Discrete.

    Attributes:
        observations: the table of distinct observations.
        inputs: (n,) int64, observation index of x for each transition. This and the other columns
            are views of what is there, replaced with every transition.
        actions: (n,) int64.
        successors: (n,) int64, observation index of x'.
        terminated: (n,) bool, whether the transition ended its episode by termination.
        truncated: (n,) bool, whether it was the last before a time limit.
        rewards: (n,) float64, or None in a buffer without rewards.
        skills: (n, k) float32, the skill that was followed, or None in a buffer without skills.
    """

    inputs: IntArray
    actions: IntArray
    successors: IntArray
    terminated: BoolArray
    truncated: BoolArray
    rewards: FloatArray | None
    skills: NDArray[np.float32] | None

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        observation_dtype: DTypeLike,
        n_actions: int,
        *,
        rewards: bool = False,
        skill_dim: int = 0,
        action_set: NDArray[Any] | None = None,
    ) -> None:
        self.observations = ObservationTable(observation_shape, np.dtype(observation_dtype))
        self.n_actions = n_actions
        self.skill_dim = skill_dim
        self.action_set = None if action_set is None else action_set.copy()
        if self.action_set is not None:
            self.action_set.flags.writeable = False
        self._columns: dict[str, NDArray[Any]] = {
            **dict.fromkeys(("inputs", "actions", "successors"), np.empty(0, np.int64)),
            **dict.fromkeys(("terminated", "truncated"), np.empty(0, np.bool_)),
        }
        self.rewards = self.skills = None
        if rewards:
            self._columns["rewards"] = np.empty(0, np.float64)
        if skill_dim:
            self._columns["skills"] = np.empty((0, skill_dim), np.float32)
        self._starts: list[int] = []
        self._length = 0
        self._set_views()
        self._derived_columns: dict[str, NDArray[Any]] = {
            "is_end": np.empty(0, np.bool_),
            **dict.fromkeys(("episodes", "previous", "following"), np.empty(0, np.int64)),
        }
        self._n_derived = self._n_merged = 0
        self._merged: TransitionCounts | None = None

    @classmethod
    def of(cls, spaces: Spaces, *, rewards: bool = False, skill_dim: int = 0) -> Buffer:
        """An empty buffer of the observations and actions of an environment."""
        return cls(
            spaces.shape,
            spaces.dtype,
            spaces.n_actions,
            rewards=rewards,
            skill_dim=skill_dim,
            action_set=spaces.actions,
        )

    def emptied(self, *, rewards: bool = False) -> Buffer:
        """A buffer without transitions of the same observations and actions, without skills."""
        table = self.observations
        return Buffer(
            table.shape, table.dtype, self.n_actions, rewards=rewards, action_set=self.action_set
        )

    @classmethod
    def merged(cls, buffers: Sequence[Buffer]) -> Buffer:
        """The transitions of several buffers of one environment, one buffer after the other; else
        ConfigurationError.

        The last episode of each counts as truncated, since nothing follows its last step; rewards
        and skills are left out.
        """
        if not buffers:
            raise ConfigurationError("there is nothing to merge: give at least one buffer")
        whole = buffers[0].emptied()
        parts: list[dict[str, NDArray[Any]]] = []
        for number, buffer in enumerate(buffers):
            table, wanted = buffer.observations, whole.observations
            fits = (table.shape, table.dtype) == (wanted.shape, wanted.dtype)
            fits &= buffer.n_actions == whole.n_actions
            if not fits or buffer.action_details != whole.action_details:
                raise ConfigurationError(
                    f"source {number} holds observations of shape {table.shape}, dtype "
                    f"{table.dtype}, and {buffer.n_actions} actions, others than source 0: merge "
                    "runs of one environment with one observation option"
                )
            index = np.array([whole.observations.intern(row) for row in table.rows], np.int64)
            columns = buffer.state()
            columns["truncated"] |= (buffer.following < 0) & ~columns["terminated"]
            for name in ("inputs", "successors", "starts"):
                columns[name] = index[columns[name]]
            # A start whose episode has no step yet is left out.
            columns["starts"] = columns["starts"][: buffer.n_episodes]
            parts.append(columns)
        joined = {name: np.concatenate([part[name] for part in parts]) for name in whole.state()}
        whole.load_state({**joined, "observations": whole.observations.rows.copy()})
        return whole

    def _set_views(self) -> None:
        for name, column in self._columns.items():
            view = column[: self._length]
            view.flags.writeable = False
            setattr(self, name, view)

    def __len__(self) -> int:
        return self._length

    def add_start(self, observation: int) -> None:
        """Record that an episode began in this observation."""
        self._starts.append(observation)

    def add(
        self,
        observation: int,
        action: int,
        successor: int,
        terminated: bool,
        truncated: bool,
        *,
        reward: float | None = None,
        skill: NDArray[np.float32] | None = None,
    ) -> None:
        """Record one transition between observation indices; `reward` and `skill` where kept."""
        row = self._length
        if row == len(self._columns["inputs"]):
            for name, column in self._columns.items():
                shape = (2 * row or _FIRST_CAPACITY, *column.shape[1:])
                self._columns[name] = np.resize(column, shape)
        # In the order of the columns.
        optional = [x for x in (reward, skill) if x is not None]
        values = [observation, action, successor, terminated, truncated, *optional]
        for column, value in zip(self._columns.values(), values, strict=True):
            column[row] = value
        self._length += 1
        self._set_views()

    @property
    def episode_starts(self) -> IntArray:
        """Observation index in which each episode began, in order, (e,)."""
        return np.array(self._starts, np.int64)

    @property
    def is_end(self) -> BoolArray:
        """Mask (n,) of the transitions that ended their episode: terminated or truncated."""
        return self._derived("is_end")

    @property
    def episodes(self) -> IntArray:
        """Number (n,) of the episode that each transition is of, from 0."""
        return self._derived("episodes")

    @property
    def previous(self) -> IntArray:
        """Row (n,) of the transition before each one within its episode, −1 of the first."""
        return self._derived("previous")

    @property
    def following(self) -> IntArray:
        """Row (n,) of the transition after each one within its episode, −1 of the latest."""
        return self._derived("following")

    def _derived(self, name: str) -> NDArray[Any]:
        """A column that follows from the others, of all transitions.

        Nothing but this and :meth:`rows_of` relies on the order of the rows: a transition follows
        the one in the row before, unless that one ended its episode.
        """
        known, n = self._n_derived, self._length
        columns = self._derived_columns
        if known < n:
            capacity = len(self._columns["inputs"])
            for each, column in columns.items():
                columns[each] = np.resize(column, capacity) if len(column) < capacity else column
            columns["is_end"][known:n] = self.terminated[known:] | self.truncated[known:]
            rows = np.arange(known, n)
            begins = columns["is_end"][rows - 1]
            begins[rows == 0] = True
            columns["previous"][known:n] = np.where(begins, -1, rows - 1)
            columns["following"][known:n] = -1
            columns["following"][rows[~begins] - 1] = rows[~begins]
            latest = columns["episodes"][known - 1] if known else -1
            columns["episodes"][known:n] = latest + np.cumsum(begins)
            self._n_derived = n
        view = columns[name][:n]
        view.flags.writeable = False
        return view

    def rows_of(self, episode: int) -> IntArray:
        """Rows of the transitions of an episode, in the order in which they were made."""
        return np.arange(*np.searchsorted(self.episodes, [episode, episode + 1]))

    @property
    def n_episodes(self) -> int:
        """Number of episodes with at least one transition."""
        return int(self.episodes.max(initial=-1)) + 1

    @property
    def longest_episode(self) -> int:
        """Steps of the longest episode, be it finished or not; 0 of an empty buffer."""
        return int(np.bincount(self.episodes).max(initial=0))

    def taken(self, actions: IntArray) -> NDArray[Any]:
        """Actions (n,) as the environment takes them: (n, *action shape) of its set."""
        return actions.copy() if self.action_set is None else self.action_set[actions]

    @property
    def action_details(self) -> dict[str, Any]:
        """Entry of a policy's details that says what the actions are, where they are numbers."""
        return {} if self.action_set is None else {"action_set": self.action_set.tolist()}

    @property
    def controls(self) -> FloatArray:
        """Numeric actions (A, k), displacements being affine in them: the set's actions, in units
        of the largest; or one-hot rows for each part, where actions are names."""
        if self.action_set is None:
            return np.eye(self.n_actions)
        controls = self.action_set.reshape(self.n_actions, -1)
        if controls.dtype.kind != "f":
            each = [column[:, None] == np.unique(column) for column in controls.T]
            return np.concatenate(each, axis=1).astype(np.float64)
        controls = controls.astype(np.float64)
        return np.asarray(controls / np.maximum(np.abs(controls).max(axis=0), 1e-300))

    def starts(self) -> tuple[IntArray, FloatArray]:
        """Distinct initial observations (q,) and how often episodes began there (q,)."""
        states, counts = np.unique(self.episode_starts, return_counts=True)
        return states, counts.astype(np.float64)

    def counts(self, rows: IntArray | slice | None = None) -> TransitionCounts:
        """Distinct transitions with counts, sorted by (x, a, x', terminated), of `rows` (n,), which
        may name one more than once; None: all."""
        if rows is not None:
            return merge_transitions(
                self.inputs[rows], self.actions[rows], self.successors[rows], self.terminated[rows]
            )
        # Only what is new is merged: the distinct transitions are far fewer than all.
        if self._merged is None or self._n_merged < self._length:
            fresh = self.counts(slice(self._n_merged, self._length))
            self._merged = fresh if self._merged is None else self._merged + fresh
            self._n_merged = self._length
        return self._merged

    def visits(self) -> IntArray:
        """Arrivals in each observation, episode starts included, (N,)."""
        size = len(self.observations)
        # A reset is an arrival too: the state that an episode begins in is visited.
        arrivals = np.bincount(self.successors, minlength=size)
        return arrivals + np.bincount(self.episode_starts, minlength=size)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything, as named arrays: what a checkpoint or an export stores."""
        return {
            # Copies, since further steps are written into the same columns.
            "observations": self.observations.rows.copy(),
            "starts": self.episode_starts,
            **{name: column[: self._length].copy() for name, column in self._columns.items()},
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replace the contents by what :meth:`state` returned.

        Raises:
            ArtefactError: it is not the state of such a buffer, or not a consistent one.
        """
        self._check(state)
        self.observations.replace(state["observations"])
        self._starts = state["starts"].tolist()
        self._length = len(state["inputs"])
        self._columns = {name: state[name].copy() for name in self._columns}
        self._set_views()
        self._n_derived = self._n_merged = 0
        self._merged = None

    def _check(self, state: Mapping[str, Any]) -> None:
        """Refuse what is not the state of a buffer like this one."""
        table, known = self.observations, {"observations", "starts", *self._columns}
        fits = {*state} == known
        if fits:
            stored = state["observations"]
            fits = (stored.shape[1:], stored.dtype) == (table.shape, table.dtype)
            # Columns of different lengths would shift transitions against each other.
            fits &= len({len(state[name]) for name in self._columns}) == 1
            fits &= all(state[name].dtype == own.dtype for name, own in self._columns.items())
        if not fits:
            raise ArtefactError(
                f"a stored buffer does not fit one of observations {table.shape} of {table.dtype} "
                f"with the columns {', '.join(self._columns)}: build it with the settings it was "
                "saved with"
            )

    def save(self, path: str | Path) -> None:
        """Write the buffer to one file, atomically."""
        own = {} if self.action_set is None else {"action_set": self.action_set}
        content = {"n_actions": self.n_actions, "columns": self.state(), **own}
        write_tensors(Path(path), content, kind="buffer")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a buffer from its file, the ``buffer.safetensors`` of a run.

        ArtefactError: it is missing, damaged, of another kind or a newer version, or without a
        transition.
        """
        stored = read_tensors(Path(path), kind="buffer")
        with fitting(f"{path} is not the buffer of a run; restore it from a copy"):
            columns, observations = stored["columns"], stored["columns"]["observations"]
            buffer = cls(
                observations.shape[1:],
                observations.dtype,
                stored["n_actions"],
                rewards="rewards" in columns,
                skill_dim=columns["skills"].shape[1] if "skills" in columns else 0,
                action_set=stored.get("action_set"),
            )
            buffer.load_state(columns)
        if len(buffer) == 0:
            raise ArtefactError(f"{path} holds no transitions; make a run of at least one step")
        return buffer
