"""Batches of transitions for learners: each distinct observation once, n-step returns.

A window is up to k consecutive transitions of one episode and one skill. It makes one n-step
transition: from its first observation, by its first action, to where its last transition leads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from rover.arrays import IntArray
from rover.data.buffer import Buffer

_LARGEST_CACHE = 2**30  # bytes; what is beyond is evaluated anew each time


@dataclass(frozen=True)
class Batch:
    """Transitions over a table of distinct observations, so that each is encoded once.

    Attributes:
        observations: (m, *shape) distinct raw observations.
        index: (n,) int64, row of `observations` where each transition begins.
        actions: (n,) int64.
        next_index: (n,) int64, row of `observations` where it leads.
        skills: (n, k) float32, the skill that was followed, or None.
        valued: (n,) int64, row of `observations` whose reward is asked for, where rewards are of
            observations; None: where each transition leads.
        rows: (m,) int64 ≥ 0, row of the buffer's table of observations that each of `observations`
            is, or None: the key of caches of a frozen encoder's outputs.
        steps: (n,) int64, row of the buffer of each transition, or None.
    """

    observations: Tensor
    index: Tensor
    actions: Tensor
    next_index: Tensor
    skills: Tensor | None = None
    rows: Tensor | None = None
    valued: Tensor | None = None
    steps: Tensor | None = None

    @property
    def valued_index(self) -> Tensor:
        """Row of `observations` whose reward is asked for, (n,)."""
        return self.next_index if self.valued is None else self.valued

    def __len__(self) -> int:
        return len(self.actions)

    def cached(self, function: Callable[[Tensor], Tensor], known: dict[int, Tensor]) -> Tensor:
        """A function without anything to learn of the distinct observations (m, q), each evaluated
        once and then read from `known`, by rows of the buffer's table.

        Each is evaluated by itself: the last digits of a product depend on how many rows it has,
        and a resumed run begins with nothing known.
        """
        outputs = []
        rows = [-1] * len(self.observations) if self.rows is None else self.rows.tolist()
        for number, row in enumerate(rows):
            output = known.get(row)
            if output is None:
                # A copy, so that every observation is aligned in memory as any other.
                output = function(self.observations[number : number + 1].clone())
                if row >= 0 and len(known) * output.nbytes < _LARGEST_CACHE:
                    known[row] = output
            outputs.append(output)
        return torch.cat(outputs)

    def to(self, device: torch.device | str) -> Self:
        """The batch with its tensors on a device; those that are there already are not copied."""
        held = {field.name: getattr(self, field.name) for field in fields(self)}
        moved = {name: x.to(device) for name, x in held.items() if x is not None}
        return replace(self, **moved)


def draw_transitions(
    buffer: Buffer, n: int, draw: Literal["transitions", "episodes"], rng: np.random.Generator
) -> IntArray:
    """Rows (n,) of a buffer of N ≥ 1 transitions.

    `draw` is "transitions", each of them alike; or "episodes", first an episode, of the finished
    ones while there are any, and then one of its transitions.
    """
    if draw == "transitions":
        return rng.integers(0, len(buffer), size=n)
    order = buffer.by_episode
    begins = np.flatnonzero(np.diff(buffer.episodes[order], prepend=-1))
    behind = np.append(begins[1:], len(order))
    # An unfinished episode would be drawn from more often than its length deserves.
    finished = buffer.is_end[order[behind - 1]]
    if finished.any():
        begins, behind = begins[finished], behind[finished]
    episode = rng.integers(len(begins), size=n)
    return order[rng.integers(begins[episode], behind[episode])]


def sample_windows(
    buffer: Buffer, n: int, rng: np.random.Generator, *, n_steps: int = 1
) -> tuple[IntArray, IntArray]:
    """Draw `n` windows that never cross the end of an episode or a change of skill.

    Every transition is the first of a window with equal probability; windows that meet an end are
    shorter than k = `n_steps`.

    Returns:
        rows (n, k) of the buffer, the last one of a short window repeated, and lengths (n,) in 1 …
        k.
    """
    # The first transition is drawn, and not the window: windows near an end are as likely.
    skills, following = buffer.skills, buffer.following
    row = rng.integers(len(buffer), size=n)
    rows, lengths = np.empty((n, n_steps), np.int64), np.zeros(n, np.int64)
    goes_on = np.ones(n, np.bool_)
    for step in range(n_steps):
        rows[:, step] = row
        lengths += goes_on
        after = following[row]
        goes_on &= after >= 0
        if skills is not None:
            goes_on &= (skills[row] == skills[after]).all(axis=1)
        row = np.where(goes_on, after, row)
    return rows, lengths


def gather(buffer: Buffer, rows: IntArray, successors: IntArray | None = None) -> Batch:
    """The transitions in `rows` (n,) of the buffer, or from where these begin to `successors`."""
    following = buffer.successors[rows] if successors is None else successors
    # Inputs and successors in one table: in an episode most observations are both. As np.unique
    # with its inverse, but linear in the table: 9 µs in place of 120 for a batch of 512.
    ends = np.concatenate([buffer.inputs[rows], following])
    is_used = np.zeros(len(buffer.observations), np.bool_)
    is_used[ends] = True
    used = np.flatnonzero(is_used)
    place = np.empty(len(is_used), np.int64)
    place[used] = np.arange(len(used))
    index, skills = place[ends], buffer.skills
    return Batch(
        torch.from_numpy(buffer.observations.rows[used]),
        torch.from_numpy(index[: len(rows)]),
        torch.from_numpy(buffer.actions[rows]),
        torch.from_numpy(index[len(rows) :]),
        None if skills is None else torch.from_numpy(skills[rows]),
        torch.from_numpy(used),
        steps=torch.from_numpy(rows),
    )


def n_step_batch(
    buffer: Buffer, rows: IntArray, lengths: IntArray, rewards: Tensor, *, discount: float
) -> tuple[Batch, Tensor, Tensor]:
    """The n-step transitions of windows, and what a critic's target is made of.

    R = Σ_{i<l} γ^i r_i, and the value of where the window leads counts γ^l, or 0 where its last
    transition terminated (Sutton and Barto 2018, section 7.1).

    Args:
        buffer: the transitions.
        rows: (n, k) of :func:`sample_windows`; `lengths` (n,) of the same.
        rewards: (n, k) of the transitions in `rows`; those beyond the end of a window are ignored.
        discount: γ in [0, 1].

    Returns:
        The batch, returns R (n,) and discounts (n,) float32.
    """
    k = rows.shape[1]
    last = rows[:, -1]
    powers = discount ** np.arange(k + 1)
    # By where and not by a product: a reward beyond the end may be anything, NaN included.
    inside = torch.from_numpy(np.arange(k) < lengths[:, None])
    weights = torch.from_numpy(powers[:-1]).to(rewards.dtype)
    returns = (torch.where(inside, rewards, 0.0) * weights).sum(dim=1)
    # Truncation is no end of the task, so the value behind it counts (Pardo et al. 2018).
    discounts = np.where(buffer.terminated[last], 0.0, powers[lengths])
    batch = gather(buffer, rows[:, 0], buffer.successors[last])
    return batch, returns.float(), torch.from_numpy(discounts).float()
