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
from rover.operators.support import FloatArray
from rover.planning.counts import UNTRIED, Counts
from rover.planning.model import PlaceModel, Rows
from rover.planning.values import iterate, stopping_values

LEAST_NOVELTY = 0.01
"""Value below which an exploration plan leads to nothing novel."""

_TIE = 1e-9
_TOLERANCE = 1e-4
_SMALLEST_RIDGE = 1e-12
_SWEEPS = 1000
_EQUAL = 1e-12
_STALE = 0.02  # share of new transitions from which on rows are made anew
_PLACES_TOLERANCE, _PLACES_SWEEPS = 1e-5, 150


class StateExplorer:
    """Plans over the distinct observations of a buffer, from counts that grow with it.

    Args:
        buffer: the transitions; those that it holds already are taken in.
        discount: γ in (0, 1).
        variance_ridge: λ per unit of the observed outcome variance, ≥ 0.
    """

    def __init__(self, buffer: Buffer, *, discount: float, variance_ridge: float) -> None:
        self._buffer = buffer
        self._counts = Counts(buffer)
        self._discount = discount
        self._variance_ridge = variance_ridge
        self._path: list[int] = []
        self._values: FloatArray | None = None  # (N, A) of the current plan, where outcomes vary
        self._novelty: FloatArray | None = None
        self._exhausted = False

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        self._extend()
        is_new = self._counts.add(row)
        x, action = self._buffer.inputs[row], self._buffer.actions[row]
        if is_new or self._collects(int(x), int(action)):
            self._values = None
        if is_new or done:
            self._exhausted = False
            self._path.clear()

    def _extend(self) -> None:
        if self._counts.extend():
            self._values, self._exhausted = None, False

    def _collects(self, observation: int, action: int) -> bool:
        """True if the plan stops with this action: what it headed for is then less novel."""
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
        varies = self._counts.varies()
        if not varies and not self._path and not self._exhausted:
            self._path = self._most_novel_path(observation, rng)
            self._exhausted = not self._path
        if self._path:
            return self._path.pop()
        # Where outcomes are certain, only the draw of a start can lead to what no path leads to.
        if not varies and not self._counts.ends:
            return None
        if self._values is None:
            self._values = self._plan()
        values = self._values[observation]
        best = float(values.max())
        if best < LEAST_NOVELTY:
            return None
        return int(rng.choice(np.flatnonzero(values >= best * (1.0 - _TIE))))

    def _most_novel_path(self, begin: int, rng: np.random.Generator) -> list[int]:
        """Actions, the last one first, to the untried pair (x, a) with the largest w(a) / steps.

        Breadth first, until no action could be worth the steps; ties by a drawn order.
        """
        counts, n_actions = self._counts, self._buffer.n_actions
        following, order = counts.following, rng.permutation(n_actions).tolist()
        tries = zip(counts.departures, counts.first_tries, strict=True)
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
                if following[first + action] == UNTRIED and weights[action] > best * steps:
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

    def _plan(self) -> FloatArray:
        """Action values (N, A) of a new plan."""
        tries = np.array(self._counts.tries, np.float64)
        variance = self._counts.outcome_variance
        ridge = max(self._variance_ridge * variance, _SMALLEST_RIDGE)
        self._novelty = (ridge / (tries + ridge)).reshape(-1, self._buffer.n_actions)
        pairs, to, counts = self._counts.outcomes()
        starts, weights = self._buffer.starts()
        return stopping_values(
            self._novelty,
            (pairs, to, counts / tries[pairs]),
            (starts, weights / weights.sum()),
            discount=self._discount,
            tolerance=_TOLERANCE,
            sweeps=_SWEEPS,
        )


class PlaceExplorer:
    """Plans over the places of a model, to where the data is thin.

    A step's novelty is priced at the place that it is predicted to reach, by the density ρ of what
    was visited, 1 / (1 + ρ), which falls where ‖μ‖² of the data's own occupancy grows. From there
    on it is worth what the best action is: V = max_a E[novelty + γ V]. An episode that ends goes on
    where episodes begin, so that an end costs the way back.

    Args:
        model: of the buffer's transitions.
        buffer: the transitions.
        discount: γ in (0, 1).
        every: steps after which the plan is made anew.

    Attributes:
        model: the model.
    """

    def __init__(self, model: PlaceModel, buffer: Buffer, *, discount: float, every: int) -> None:
        self.model = model
        self._buffer = buffer
        self._discount = discount
        self._every = every
        self.forget_plan()

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._rows: Rows | None = None
        self._values: FloatArray = np.zeros(0)
        self._n_planned = self._n_fitted = 0

    def observe(self, row: int, *, done: bool) -> None:
        """The plan looks at the buffer when it is made anew."""

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The action at an observation, by its index, with the largest value; ties drawn."""
        n, n_actions = len(self._buffer), self._buffer.n_actions
        if not self.model.is_ready:
            return int(rng.integers(n_actions))
        if self._rows is None or n >= self._n_planned + self._every:
            self._plan()
        point = self.model.points(np.array([observation]))
        ends, terminates, _ = self.model.predict(point)
        weights, near = self.model.on_places(ends[0])
        onward = (weights * self._values[near]).sum(axis=1)
        onward += terminates[0] * (self._begin - onward)
        values = self._novelty(self._density(ends[0])) + self._discount * onward
        return int(rng.choice(np.flatnonzero(values >= values.max() - _EQUAL)))

    def _density(self, points: FloatArray) -> FloatArray:
        return self.model.density(points, self.model.net.places, self.model.arrivals)

    def _novelty(self, density: FloatArray) -> FloatArray:
        return np.asarray((1.0 - self._discount) / (1.0 + density))

    def _plan(self) -> None:
        """Values from the rows of a model that is as old as a fiftieth of the data at most."""
        model, n = self.model, len(self._buffer)
        if self._rows is None or n >= self._n_fitted * (1.0 + _STALE):
            net = None if self._rows is None else model.net
            model.fit()
            self._rows, self._n_fitted = model.rows(), n
            model.sharpen(self._rows.ahead)
            self._ahead = self._density(self._rows.ahead)
            known = self._values if net is model.net else np.zeros(0)
            self._values = np.zeros(len(model.net))
            self._values[: len(known)] = known
        else:
            fresh = model.points(self._buffer.successors[self._n_planned : n])
            ones = np.ones(len(fresh))
            self._ahead += model.density(self._rows.ahead, fresh, ones)
            model.arrivals += np.bincount(
                model.net.nearest(fresh, 1)[1][:, 0], minlength=len(model.arrivals)
            )
        rows = self._rows
        novelty = self._novelty(self._ahead).reshape(len(rows.start), -1)
        self._values = iterate(
            lambda values: novelty + self._discount * rows.expected(values),
            self._values,
            tolerance=_PLACES_TOLERANCE,
            sweeps=_PLACES_SWEEPS,
        ).states
        self._begin = float(rows.start @ self._values)
        self._n_planned = n
