"""Windows of consecutive transitions from the replay buffer, for n-step returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rover.data.buffer import ReplayBuffer
from rover.data.labelling import LabelledTransitions
from rover.errors import ConfigurationError
from rover.operators.support import IntArray
from rover.types import Batch

# A table up to so many times as long as the batch is merged by marking its rows, not by sorting.
_MARKING_LIMIT = 8


@dataclass(frozen=True)
class NStepWindows:
    """n windows of up to k consecutive transitions of one episode and one skill.

    Attributes:
        rows: (n, k) int64, rows of the buffer; past the end of a window its last row is repeated.
        lengths: (n,) int64 in 1 … k, transitions of each window.
        terminated: (n, k) bool, whether the row ended its episode by termination.
        truncated: (n, k) bool, whether the window ends after the row for any other reason: a time
            limit, the end of what was recorded, a change of skill.
        batch: n transitions from the window's first observation, by its first action, to where
            its last row leads.
        steps: all n·k rows as transitions, window after window, over the same observations: what
            one-step rewards are computed on.
    """

    rows: IntArray
    lengths: IntArray
    terminated: Tensor
    truncated: Tensor
    batch: Batch
    steps: Batch


class NStepSampler:
    """Draws windows that never cross the end of an episode.

    Every recorded transition is the first of a window with equal probability; windows that meet
    an end are shorter. Under the labels of a task, windows hold usable transitions only and end
    where the task terminates; where the recorded episode ended and the task does not, they are cut.

    Args:
        buffer: where transitions are recorded.
        n_steps: k, the greatest length of a window.
        n_streams: environments that record in turn, so that the rows of one are that far apart.
        labels: of all the buffer's transitions, to take the place of what was recorded; None for
            the recorded terminations.

    Raises:
        ConfigurationError: `n_steps` or `n_streams` below 1.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        *,
        n_steps: int = 1,
        n_streams: int = 1,
        labels: LabelledTransitions | None = None,
    ) -> None:
        if n_steps < 1 or n_streams < 1:
            raise ConfigurationError(
                f"n_steps={n_steps} and n_streams={n_streams} must both be at least 1"
            )
        self._buffer = buffer
        self.n_steps = n_steps
        self.n_streams = n_streams
        self._labels = labels
        self._usable_rows = None if labels is None else np.flatnonzero(labels.usable)

    def sample(
        self,
        n: int,
        rng: np.random.Generator,
        *,
        skills: NDArray[np.float32] | None = None,
    ) -> NStepWindows:
        """Draw `n` windows with replacement.

        Args:
            n: number of windows.
            rng: source of randomness.
            skills: (N, d) skill that was followed at each of the buffer's transitions; a window
                ends where it changes.

        Raises:
            ConfigurationError: `n` below 1, an empty buffer or none of it usable, or skills or
                labels of another length.
        """
        usable = self._usable_rows
        size = len(self._buffer) if usable is None else len(usable)
        if n < 1 or size == 0:
            raise ConfigurationError(
                f"cannot draw {n} windows from {size} {'' if usable is None else 'usable '}"
                "transitions: collect first, and draw at least one"
            )
        drawn = rng.integers(size, size=n)
        return self.windows(drawn if usable is None else usable[drawn], skills=skills)

    def windows(
        self, starts: IntArray, *, skills: NDArray[np.float32] | None = None
    ) -> NStepWindows:
        """The windows that begin in rows `starts` (n,) of the buffer.

        Raises:
            ConfigurationError: a row that the buffer does not have or that is not usable, or
                skills or labels of another length.
        """
        buffer, size = self._buffer, len(self._buffer)
        terminates = self._terminations()
        if len(starts) == 0 or starts.min() < 0 or starts.max() >= size:
            raise ConfigurationError(
                f"windows begin in rows 0 … {size - 1} of the buffer, at least one of them"
            )
        if self._labels is not None and not self._labels.usable[starts].all():
            raise ConfigurationError(
                "a window begins in a row that is not usable, where the task has ended already: "
                "leave out the rows whose label says so"
            )
        if skills is not None and (skills.ndim != 2 or len(skills) != size):
            raise ConfigurationError(
                f"skills of shape {skills.shape} for {size} transitions: pass one row for each"
            )
        rows = starts[:, None] + self.n_streams * np.arange(self.n_steps)  # (n, k)
        terminated = terminates[np.minimum(rows, size - 1)]
        cut = self._cuts(rows, skills)
        going_on = ~(terminated | cut)[:, :-1]
        lengths = 1 + np.logical_and.accumulate(going_on, axis=1).sum(axis=1)
        last = starts + self.n_streams * (lengths - 1)  # (n,)
        rows = np.minimum(rows, last[:, None])
        flat = rows.reshape(-1)
        used, index = self._merge(np.concatenate([buffer.inputs[flat], buffer.successors[flat]]))
        begins = index[: len(flat)].reshape(rows.shape)
        ends = index[len(flat) :].reshape(rows.shape)
        observations = torch.from_numpy(buffer.observations.rows[used])
        table_rows = torch.from_numpy(used)
        window_actions, step_actions = buffer.actions[starts], buffer.actions[flat]
        arrived = ends[np.arange(len(starts)), lengths - 1]
        return NStepWindows(
            rows=rows,
            lengths=lengths,
            # Looked up again, so that a repeated row is marked like the row that it repeats.
            terminated=torch.from_numpy(terminates[rows]),
            truncated=torch.from_numpy(self._cuts(rows, skills)),
            batch=Batch(
                observations,
                torch.from_numpy(begins[:, 0].copy()),
                torch.from_numpy(window_actions),
                torch.from_numpy(arrived),
                None if skills is None else torch.from_numpy(skills[starts]),
                table_rows,
            ),
            steps=Batch(
                observations,
                torch.from_numpy(begins.reshape(-1)),
                torch.from_numpy(step_actions),
                torch.from_numpy(ends.reshape(-1)),
                None if skills is None else torch.from_numpy(skills[flat]),
                table_rows,
            ),
        )

    def _terminations(self) -> NDArray[np.bool_]:
        """(N,) whether each row terminates: as recorded, or as the labels say."""
        if self._labels is None:
            return self._buffer.terminated
        if len(self._labels) != len(self._buffer):
            raise ConfigurationError(
                f"labels of {len(self._labels)} transitions for a buffer of {len(self._buffer)}: "
                "label it again, after the last transition was recorded"
            )
        return self._labels.terminated

    def _cuts(self, rows: IntArray, skills: NDArray[np.float32] | None) -> NDArray[np.bool_]:
        """Whether a window must end after each of `rows` (n, k), although nothing terminated."""
        buffer, size = self._buffer, len(self._buffer)
        following = rows + self.n_streams
        known, after = np.minimum(rows, size - 1), np.minimum(following, size - 1)
        cut: NDArray[np.bool_] = buffer.truncated[known] | (following >= size)
        if self._labels is not None:
            cut |= buffer.terminated[known] | ~self._labels.usable[after]
        if skills is not None:
            cut |= (skills[known] != skills[after]).any(axis=2)
        return cut & ~self._terminations()[known]

    def _merge(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """``np.unique(indices, return_inverse=True)`` of rows of the observation table."""
        table = len(self._buffer.observations)
        if table > _MARKING_LIMIT * len(indices):
            used, index = np.unique(indices, return_inverse=True)
            return used, index
        marked = np.zeros(table, np.bool_)
        marked[indices] = True
        used = np.flatnonzero(marked)
        place = np.empty(table, np.int64)
        place[used] = np.arange(len(used))
        return used, place[indices]
