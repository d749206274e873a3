"""Collect: where to go next, from the state the agent stands on, when states repeat.

The transition model of exact states (Dirac kernel) leaves m(x, a) = λ / (n + λ) of a pair's mass to
the sink after n tries: 1 for a pair that was never tried. The exploration plan heads for the
largest such novelty, the sooner the better,

    V(x) = max_a max( m(x, a), γ Σ_x' P̂(x' | x, a) V(x') ),

an optimal stopping problem on the renormalised model P̂ (relative frequencies). Novelty is a reward
that is collected once, not a leak: mass that a plan loses on its way says nothing of where it leads
(docs/deviations.md). λ is how random outcomes have proved to be.

While every repetition ended in the same state, λ = 0 and what is novel is what was never tried.
What an action does there is half known from where it was tried: with p(a), the share of its first
tries that led to another state, such a pair is worth w(a) = (1 + p(a)) / 2, and the plan is the
path with the most worth for each of its steps.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rover.data import Buffer
from rover.operators.support import FloatArray, IntArray

LEAST_NOVELTY = 0.01
"""Value below which an exploration plan leads to nothing novel."""

MOST_NEW = 0.75
"""Distinct observations per step up to which states are taken to repeat."""

_FEW = 40  # observations that say nothing yet of whether states repeat
_TIE = 1e-9
_TOLERANCE = 1e-4
_SMALLEST_RIDGE = 1e-12
_MAX_SWEEPS = 1000


def states_repeat(buffer: Buffer) -> bool:
    """Whether the environment's states come back, so that each may stand for itself alone."""
    return len(buffer.observations) <= max(_FEW, MOST_NEW * len(buffer))


class StateExplorer:
    """Plans over the distinct observations of a buffer, from counts that grow with it.

    Args:
        buffer: the transitions; those that it holds already are taken in.
        discount: γ in (0, 1).
        variance_ridge: λ per unit of the observed outcome variance, ≥ 0.
    """

    def __init__(self, buffer: Buffer, *, discount: float, variance_ridge: float) -> None:
        self._buffer = buffer
        self._discount = discount
        self._variance_ridge = variance_ridge
        # Entry i: pair x·A + a led to state `to` (−1: the episode terminated) `count` times.
        self._entry: dict[tuple[int, int], int] = {}
        self._pairs: list[int] = []
        self._to: list[int] = []
        self._count: list[int] = []
        self._tries: list[int] = []  # of every pair
        self._square: list[int] = []  # Σ count² of every pair
        self._next: list[int] = []  # the only outcome of every pair so far; −2 if never tried
        self._first_tries = [0] * buffer.n_actions  # of pairs, by action
        self._departures = [0] * buffer.n_actions  # those of them that led to another state
        self._variance = self._freedom = 0.0
        self._path: list[int] = []
        self._values: FloatArray | None = None  # (N, A) of the current plan, where outcomes vary
        self._novelty: FloatArray | None = None
        self._exhausted = False
        self._extend()
        for row in range(len(buffer)):
            self._count_transition(row)

    def _extend(self) -> None:
        missing = len(self._buffer.observations) * self._buffer.n_actions - len(self._tries)
        if missing > 0:
            self._values, self._exhausted = None, False
            self._tries += [0] * missing
            self._square += [0] * missing
            self._next += [-2] * missing

    def _count_transition(self, row: int) -> bool:
        """Take a transition in; whether it has another outcome than those that were known."""
        buffer = self._buffer
        pair = int(buffer.inputs[row]) * buffer.n_actions + int(buffer.actions[row])
        to = -1 if buffer.terminated[row] else int(buffer.successors[row])
        entry = self._entry.get((pair, to))
        tries, square = self._tries[pair], self._square[pair]
        before = tries - square / tries if tries else 0.0
        if entry is None:
            self._entry[pair, to] = len(self._pairs)
            self._pairs.append(pair)
            self._to.append(to)
            self._count.append(1)
            square += 1
            self._next[pair] = to
            if not tries:
                self._first_tries[buffer.actions[row]] += 1
                self._departures[buffer.actions[row]] += to != int(buffer.inputs[row])
        else:
            square += 2 * self._count[entry] + 1
            self._count[entry] += 1
        self._tries[pair], self._square[pair] = tries + 1, square
        self._freedom += float(tries > 0)
        self._variance += tries + 1 - square / (tries + 1) - before
        return entry is None

    @property
    def outcome_variance(self) -> float:
        """1 − Σ_x' p(x'|x, a)², pooled over the pairs seen more than once, without bias."""
        return self._variance / self._freedom if self._freedom else 0.0

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        self._extend()
        is_new = self._count_transition(row)
        x, action = self._buffer.inputs[row], self._buffer.actions[row]
        if is_new or self._collects(int(x), int(action)):
            self._values = None
        if is_new or done:
            self._exhausted = False
            self._path.clear()

    def _collects(self, observation: int, action: int) -> bool:
        """Whether the plan stops with this action: what it headed for is then less novel."""
        if self._values is None or self._novelty is None:
            return False
        return bool(self._novelty[observation, action] >= self._values[observation].max())

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._values, self._exhausted = None, False
        self._path.clear()

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation, by its index; None: nothing novel can be reached."""
        self._extend()
        if self._variance == 0.0 and not self._path and not self._exhausted:
            self._path = self._most_novel_path(observation, rng)
            self._exhausted = not self._path
        if self._path:
            return self._path.pop()
        # Where outcomes are certain, only the draw of a start can lead to what no path leads to.
        if self._variance == 0.0 and -1 not in self._to:
            return None
        if self._values is None:
            self._values = self._value_iteration()
        values = self._values[observation]
        best = float(values.max())
        if best < LEAST_NOVELTY:
            return None
        return int(rng.choice(np.flatnonzero(values >= best * (1.0 - _TIE))))

    def _most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """Actions, the last one first, to the untried pair (x, a) with the largest w(a) / steps.

        Breadth first, until no action could be worth the steps; ties by a drawn order.
        """
        n_actions, following = self._buffer.n_actions, self._next
        order = rng.permutation(n_actions).tolist()
        tries = zip(self._departures, self._first_tries, strict=True)
        weights = [0.5 + 0.5 * (1.0 + departed) / (1.0 + tried) for departed, tried in tries]
        largest, best, end = max(weights), 0.0, (-1, -1)
        came: dict[int, tuple[int, int]] = {begin: (-1, -1)}
        queue = deque([(begin, 1)])
        while queue:
            state, steps = queue.popleft()
            if largest <= best * steps:
                break
            first = state * n_actions
            for action in order:
                if following[first + action] == -2 and weights[action] > best * steps:
                    best, end = weights[action] / steps, (state, action)
            for action in order:
                to = following[first + action]
                if to >= 0 and to not in came:
                    came[to] = state, action
                    queue.append((to, steps + 1))
        path = []
        while end[1] >= 0:
            path.append(end[1])
            end = came[end[0]]
        return path

    def _value_iteration(self) -> FloatArray:
        """Action values (N, A) of a new plan."""
        shape = len(self._buffer.observations), self._buffer.n_actions
        tries = np.array(self._tries, np.float64)
        ridge = max(self._variance_ridge * self.outcome_variance, _SMALLEST_RIDGE)
        pairs = np.array(self._pairs)
        starts, weights = self._buffer.starts()
        self._novelty = (ridge / (tries + ridge)).reshape(shape)
        return _stopping_values(
            self._novelty,
            pairs,
            np.array(self._to),
            np.array(self._count) / tries[pairs],
            (starts, weights / weights.sum()),
            discount=self._discount,
        )


def _stopping_values(
    novelty: FloatArray,
    pairs: IntArray,
    to: IntArray,
    share: FloatArray,
    start: tuple[IntArray, FloatArray],
    *,
    discount: float,
) -> FloatArray:
    """Q(x, a) = max( m(x, a), γ Σ_x' P̂(x' | x, a) max_a' Q(x', a') ) by value iteration, (N, A).

    It begins from zero, so that the first sweeps reach what is nearest and values only grow.

    Args:
        novelty: (N, A) m, ≥ 0.
        pairs: (r,) x·A + a of each entry of P̂.
        to: (r,) x', or −1 where the episode terminates and another one begins.
        share: (r,) P̂(x' | x, a).
        start: states (q,) in which episodes begin, and their probabilities (q,).
        discount: γ in (0, 1).
    """
    n_states = len(novelty)
    values = np.zeros(n_states + 1)
    action_values = novelty
    for _ in range(_MAX_SWEEPS):
        values[-1] = (start[1] * values[start[0]]).sum()  # the last one: where episodes begin
        expected = np.bincount(pairs, share * values[to], minlength=novelty.size)
        action_values = np.maximum(novelty, discount * expected.reshape(novelty.shape))
        better = action_values.max(axis=1)
        change = float(np.max(better - values[:-1]))
        values[:-1] = better
        if change <= _TOLERANCE * float(better.max()):
            break
    return action_values
