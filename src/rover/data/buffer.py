"""The replay buffer: every distinct observation once, every transition as indices.

Grid worlds revisit a hundred states for thousands of steps, so observations are interned: equal
bytes share one row of a table, and a transition is (x, a, x', terminated, truncated) in indices.
84×84 images of Multi-Rooms thus take 2.3 MB whatever the number of steps, batches arrive merged,
and the operator core gets its counts without looking at an observation. Where observations never
repeat the table simply has as many rows as there were steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from gymnasium.spaces import Dict, Tuple
from numpy.typing import DTypeLike, NDArray

from rover.arrays import BoolArray, FloatArray, IntArray, signed
from rover.data.kinds import _jumping
from rover.data.table import FIRST_CAPACITY, ObservationTable
from rover.envs.spaces import (
    Spaces,
    StoredForm,
    described_space,
    description_of,
    spaces_of_arrays,
)
from rover.errors import ArtefactError, ConfigurationError, NonFiniteError, warn
from rover.storage import fitting, read_tensors, write_tensors
from rover.transitions import TransitionCounts, merge_transitions


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
        form: of the observations, where they are stored in another form than they are returned.
        interleaved: whether several episodes are in progress at once; else one follows the other.

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
        is_end: (n,) bool, whether it ended its episode: terminated or truncated.
        episodes: (n,) int64, number of its episode, from 0.
        previous: (n,) int64, row of the transition before it within its episode, −1 of the first.
        following: (n,) int64, row of the one after it within its episode, −1 of the latest.
        latest: latest row of each episode in progress that has any, by the episode's number.
    """

    inputs: IntArray
    actions: IntArray
    successors: IntArray
    terminated: BoolArray
    truncated: BoolArray
    rewards: FloatArray | None
    skills: NDArray[np.float32] | None
    is_end: BoolArray
    episodes: IntArray
    previous: IntArray
    following: IntArray
    latest: dict[int, int]
    _merged: TransitionCounts | None

    def __init__(
        self,
        observation_shape: tuple[int, ...],
        observation_dtype: DTypeLike,
        n_actions: int,
        *,
        rewards: bool = False,
        skill_dim: int = 0,
        action_set: NDArray[Any] | None = None,
        form: StoredForm | None = None,
        interleaved: bool = False,
    ) -> None:
        self.form = form
        self.observations = ObservationTable(observation_shape, np.dtype(observation_dtype))
        self.n_actions = n_actions
        self.skill_dim = skill_dim
        self.action_set = None if action_set is None else action_set.copy()
        if self.action_set is not None:
            self.action_set.flags.writeable = False
        recorded: dict[str, NDArray[Any]] = {
            **dict.fromkeys(("inputs", "actions", "successors"), np.empty(0, np.int64)),
            **dict.fromkeys(("terminated", "truncated"), np.empty(0, np.bool_)),
        }
        self.rewards = self.skills = None
        if rewards:
            recorded["rewards"] = np.empty(0, np.float64)
        if skill_dim:
            recorded["skills"] = np.empty((0, skill_dim), np.float32)
        if interleaved:
            recorded["episodes"] = np.empty(0, np.int64)
        self._recorded = tuple(recorded)
        self._starts: list[int] = []
        self._hold(recorded)

    @classmethod
    def of(cls, spaces: Spaces, **columns: Any) -> Buffer:
        """An empty buffer of the observations and actions of an environment; `rewards`,
        `skill_dim` and `interleaved` as of the class."""
        return cls(
            spaces.shape,
            spaces.dtype,
            spaces.n_actions,
            action_set=spaces.actions,
            form=spaces.form if isinstance(spaces.observed, Dict | Tuple) else None,
            **columns,
        )

    @classmethod
    def from_arrays(
        cls,
        observations: Any,
        actions: Any,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        *,
        env: Any = None,
        episode_length: int | None = None,
    ) -> Buffer:
        """The n transitions that someone recorded, episode after episode.

        Args:
            observations: (n + e, *shape) of e episodes: each has one more of them than steps, the
                one that its last step led to. Of Dict and Tuple spaces an array for each part, or
                a list of elements.
            actions: (n, *action shape), as the environment took them; continuous ones that are
                not of the set that ROVER makes of their space are the buffer's own, at most 256.
            rewards: (n,) finite, or None: none are stored.
            terminated, truncated: (n,) bool. Where neither ends the last episode it is truncated.
            env: what has the spaces of observations and actions; None: whole numbers from 0 to
                the largest, unbounded observations, and actions within the recorded ones.
            episode_length: steps after which a recorded episode is another one, though nothing
                ended: the transition into it never happened, and is left out.

        Raises:
            ConfigurationError: lengths that disagree, observations or actions that are not of
                their spaces.
            UnsupportedSpaceError: spaces that ROVER cannot handle.
            NonFiniteError: NaN or infinity among observations or rewards.

        Warns:
            RoverWarning: episodes look glued together, or actions were rounded to 256.

        Example:
            >>> buffer = Buffer.from_arrays(seen, taken, earned, terminated, truncated)
            >>> policy = rover.solve(buffer, reward=buffer.rewards)
        """
        spaces = Spaces.of(spaces_of_arrays(observations, actions) if env is None else env)
        seen, flags = spaces.listed(observations), np.array([terminated, truncated])
        spaces, numbers = spaces.numbered(actions)
        columns = {"actions": numbers}
        if rewards is not None:
            columns["rewards"] = np.asarray(rewards, np.float64)
        buffer = cls.of(spaces, rewards=rewards is not None)
        buffer._take_in(seen, columns, flags, spaces, episode_length)
        if message := _jumping(buffer)[1]:
            warn(message, stacklevel=2)
        return buffer

    def _take_in(
        self,
        seen: Sequence[Any],
        columns: dict[str, NDArray[Any]],
        flags: NDArray[Any],
        spaces: Spaces,
        episode_length: int | None,
    ) -> None:
        """Hold n transitions that someone recorded, as of :meth:`from_arrays`, of flags (2, n)."""
        n, rewards = flags.shape[-1], columns.get("rewards", np.zeros(flags.shape[-1]))
        if n == 0 or flags.shape != (2, n) or flags.dtype != bool or len(columns["actions"]) != n:
            raise ConfigurationError(
                f"{len(columns['actions'])} actions and flags {flags.shape} of {flags.dtype} are "
                "no transitions: give actions and two arrays of bool (n,), n > 0"
            )
        if rewards.shape != (n,) or not np.isfinite(rewards).all():
            raise NonFiniteError(f"rewards must be {n} finite numbers: some are NaN or infinite")
        ended, cut = flags
        cut[-1] |= not ended[-1]
        over: BoolArray = ended | cut
        if len(seen) != n + over.sum():
            raise ConfigurationError(
                f"{len(seen)} observations of {n} steps in {over.sum()} episodes are no "
                "transitions: each episode has one observation more than steps"
            )
        intern = self.observations.intern
        index = np.array([intern(spaces.read(x, f"observation {k}")) for k, x in enumerate(seen)])
        # Behind each end there is an observation more than steps.
        rows, begins = np.arange(n), np.append(True, over[:-1])
        place = rows + np.cumsum(begins) - 1
        kept = np.ones(n, np.bool_)
        if episode_length is not None:
            age = rows - np.maximum.accumulate(np.where(begins, rows, 0))
            kept = over | (age % episode_length != episode_length - 1)
            cut[:-1] |= ~kept[1:] & ~over[:-1]
            begins[1:] |= ~kept[:-1]
        columns |= {"terminated": ended, "truncated": cut}
        columns |= {"inputs": index[place], "successors": index[place + 1]}
        state = {name: column[kept] for name, column in columns.items()}
        starts = index[place[begins & kept]]
        self.load_state({**state, "starts": starts, "observations": self.observations.rows})

    def emptied(self, *, rewards: bool = False) -> Buffer:
        """A buffer without transitions of the same observations and actions, without skills."""
        own: Any = {"action_set": self.action_set, "form": self.form, "rewards": rewards}
        table = self.observations
        return Buffer(table.shape, table.dtype, self.n_actions, **own)

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
            for name in buffer._recorded:
                columns[name] = columns[name][buffer.by_episode]
            for name in ("inputs", "successors", "starts"):
                columns[name] = index[columns[name]]
            # A start whose episode has no step yet is left out.
            columns["starts"] = columns["starts"][: buffer.n_episodes]
            parts.append(columns)
        joined = {name: np.concatenate([part[name] for part in parts]) for name in whole.state()}
        whole.load_state({**joined, "observations": whole.observations.rows.copy()})
        return whole

    def _hold(self, recorded: Mapping[str, NDArray[Any]]) -> None:
        """Hold recorded columns, and those that follow from them.

        Nothing but this and :meth:`add` relies on the order of the rows: unless there is a column
        of episodes, a transition follows the one in the row before, if that did not end its own.
        """
        self._length = n = len(recorded["inputs"])
        is_end = recorded["terminated"] | recorded["truncated"]
        episodes = recorded.get("episodes", np.cumsum(np.append(False, is_end)[:n]))
        order = np.argsort(episodes, kind="stable")
        goes_on = np.diff(episodes[order]) == 0
        before, after = order[:-1][goes_on], order[1:][goes_on]
        previous, following = np.full((2, n), -1)
        previous[after], following[before] = before, after
        # Recorded columns first, in their order.
        follow = {"is_end": is_end, "episodes": episodes, "previous": previous}
        self._columns = {**recorded, **follow, "following": following}
        open_ends = np.flatnonzero((following < 0) & ~is_end)
        self.latest = dict(zip(episodes[open_ends].tolist(), open_ends.tolist(), strict=True))
        self._n_merged, self._merged = 0, None
        for name, column in self._columns.items():
            view = column[:]
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
        episode: int | None = None,
    ) -> None:
        """Record one transition between observation indices; `reward` and `skill` where kept, and
        number of its `episode` where several are in progress."""
        row, columns = self._length, self._columns
        if row == len(columns["inputs"]):
            for name, column in columns.items():
                columns[name] = np.resize(column, (2 * row or FIRST_CAPACITY, *column.shape[1:]))
        if episode is None:
            episode = int(columns["episodes"][row - 1] + columns["is_end"][row - 1]) if row else 0
        is_end, before = terminated or truncated, self.latest.pop(episode, -1)
        if before >= 0:
            columns["following"][before] = row
        if not is_end:
            self.latest[episode] = row
        values: dict[str, Any] = {"inputs": observation, "actions": action, "successors": successor}
        values |= {"terminated": terminated, "truncated": truncated, "is_end": is_end}
        values |= {"rewards": reward, "skills": skill, "episodes": episode}
        values |= {"previous": before, "following": -1}
        for name, column in columns.items():
            column[row] = values[name]
            view = column[: row + 1]
            view.flags.writeable = False
            setattr(self, name, view)
        self._length += 1

    @property
    def repeats(self) -> bool:
        """True where observations come back, so that they are compared as names."""
        return 2 * len(self.observations) <= len(self)

    @property
    def episode_starts(self) -> IntArray:
        """Observation index in which each episode began, in order, (e,)."""
        return np.array(self._starts, np.int64)

    def rows_of(self, episode: int) -> IntArray:
        """Rows of the transitions of an episode, in the order in which they were made."""
        if "episodes" in self._recorded:
            return np.flatnonzero(self.episodes == episode)
        return np.arange(*np.searchsorted(self.episodes, [episode, episode + 1]))

    @property
    def by_episode(self) -> IntArray:
        """All rows (n,), one episode after the other."""
        return np.argsort(self.episodes, kind="stable")

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

    def elements(self, rows: NDArray[Any]) -> Any:
        """Observations (n, *shape) as functions of the user get them, who may change them: of Dict
        and Tuple spaces an array for each part."""
        return signed(rows) if self.form is None else self.form.elements(rows)

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

    def starts(self, *, unseen: bool = False) -> tuple[IntArray, FloatArray]:
        """Start distribution: distinct observations (q,) and their weights (q,), sum 1.

        Starts that were not seen yet, if they are asked for, get the mass that Good and Turing
        estimate for them (Good 1953), the share of episodes whose start was seen once, spread
        evenly over the observations in which something was done. One episode alone gives no
        estimate.
        """
        states, counts = np.unique(self.episode_starts, return_counts=True)
        n_episodes, once = len(self.episode_starts), int(np.count_nonzero(counts == 1))
        mass = once / n_episodes if unseen and n_episodes > 1 else 0.0
        if mass == 0.0:
            return states, counts / n_episodes
        acted = np.unique(self.inputs)
        weights = np.concatenate(
            [(1.0 - mass) * counts / n_episodes, np.full(len(acted), mass / len(acted))]
        )
        everything, index = np.unique(np.concatenate([states, acted]), return_inverse=True)
        return everything, np.bincount(index, weights).astype(np.float64)

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
            **{name: self._columns[name][: self._length].copy() for name in self._recorded},
        }

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replace the contents by what :meth:`state` returned.

        Raises:
            ArtefactError: it is not the state of such a buffer, or not a consistent one.
        """
        table, known = self.observations, {"observations", "starts", *self._recorded}
        fits = {*state} == known
        if fits:
            stored = state["observations"]
            fits = (stored.shape[1:], stored.dtype) == (table.shape, table.dtype)
            # Columns of different lengths would shift transitions against each other.
            fits &= len({len(state[name]) for name in self._recorded}) == 1
            fits &= all(state[name].dtype == self._columns[name].dtype for name in self._recorded)
        if not fits:
            raise ArtefactError(
                f"a stored buffer does not fit one of observations {table.shape} of {table.dtype} "
                f"with the columns {', '.join(self._recorded)}: build it with the settings it was "
                "saved with"
            )
        table.replace(state["observations"])
        self._starts = state["starts"].tolist()
        self._hold({name: state[name].copy() for name in self._recorded})

    def save(self, path: str | Path) -> None:
        """Write the buffer to one file, atomically."""
        content: dict[str, Any] = {"n_actions": self.n_actions, "columns": self.state()}
        if self.action_set is not None:
            content["action_set"] = self.action_set
        if self.form is not None:
            content["observation_space"] = description_of(self.form.observed)
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
            described = stored.get("observation_space")
            buffer = cls(
                observations.shape[1:],
                observations.dtype,
                stored["n_actions"],
                rewards="rewards" in columns,
                skill_dim=columns["skills"].shape[1] if "skills" in columns else 0,
                action_set=stored.get("action_set"),
                form=None if described is None else StoredForm.of(described_space(described)),
                interleaved="episodes" in columns,
            )
            buffer.load_state(columns)
        if len(buffer) == 0:
            raise ArtefactError(f"{path} holds no transitions; make a run of at least one step")
        return buffer
