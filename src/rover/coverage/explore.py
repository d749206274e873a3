"""Collect: choose actions by planning toward the least-visited parts of the transition model.

A plan maximises discounted novelty. In continuous spaces novelty depends on the density of the
data at the predicted end, and counts at every visit,

    V(x) = max_a [ (1 − γ) m(x, a) + γ Σ_x' P(x' | x, a) V(x') ].

Of exact states it is what the model leaves to the sink after n tries, m(x, a) = λ / (n + λ), and is
collected once, by optimal stopping on relative frequencies P̂,

    V(x) = max_a max( m(x, a), γ Σ_x' P̂(x' | x, a) V(x') ):

a reward, not a leak, because the mass that a plan loses does not depend on where it leads
(docs/deviations.md). λ is how random outcomes have proved to be. While every repetition ended in
the same state, λ = 0, what is novel is what was never tried, and the plan is the path with the most
worth for each of its steps. An episode that ends goes on where episodes begin, so that an end costs
the way back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from rover.arrays import FloatArray
from rover.contexts.explorer import ContextExplorer
from rover.contexts.memory import TIE
from rover.coverage.config import RoverConfig
from rover.coverage.represent import Representation, Slow
from rover.data import Buffer
from rover.world.counts import Counts
from rover.world.dynamics import ACTION_REPEAT, MISSED, STALE
from rover.world.lookahead import ActionSequence
from rover.world.model import LandmarkModel
from rover.world.rows import Rows, Values, exploration_values
from rover.world.sampled import ContactSearch
from rover.world.world import World


class _StateExploration(NamedTuple):
    """Settings of exploration on exact states.

    Attributes:
        discount: γ of a step.
        least_novelty: value below which a plan leads to nothing novel.
        tolerance, sweeps: of value iteration.
    """

    discount: float = 0.99
    least_novelty: float = 0.01
    tolerance: float = 1e-4
    sweeps: int = 1000


class _LandmarkExploration(NamedTuple):
    """Settings of exploration on landmarks.

    Attributes:
        discount: γ of a step.
        every: steps after which a plan is made anew.
        renewed: share of new transitions after which it is, where that is more, so that its cost
            does not grow.
        most_planned: dimensions up to which values between landmarks separate actions: in two,
            lookahead reaches MountainCar's flag later; in four, it explores a maze in a third fewer
            steps.
        followed: actions of a sequence that are followed before the next search.
        safe: probability that the episode goes on below which a single step is.
        tolerance, sweeps: of value iteration, begun with the values of the last plan.
    """

    discount: float = 0.98
    every: int = 20
    renewed: float = 0.01
    most_planned: int = 3
    followed: int = 2
    safe: float = 0.9
    tolerance: float = 1e-5
    sweeps: int = 150


class Explorer(Protocol):
    """Chooses actions; several are asked one after the other."""

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation, by its index; None: ask the next explorer."""
        ...

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        ...

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        ...


class _RandomExplorer:
    """Uniform actions in the first steps, and a share of them later."""

    def __init__(self, buffer: Buffer, *, first: int, share: float) -> None:
        self._buffer, self._first, self._share = buffer, first, share

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """A uniform action, where one is due."""
        if len(self._buffer) < self._first or (self._share > 0.0 and rng.random() < self._share):
            return int(rng.integers(self._buffer.n_actions))
        return None

    def observe(self, row: int, *, done: bool) -> None:
        """Do nothing."""

    def forget_plan(self) -> None:
        """Do nothing."""


class StateExplorer:
    """Plans over exact states to what is novel. Only what contradicts a plan makes it anew.

    Args:
        model: counts of the buffer's transitions.
        buffer: the transitions.
    """

    settings = _StateExploration()

    def __init__(self, model: Counts, buffer: Buffer) -> None:
        self.model, self._buffer = model, buffer
        self.forget_plan()

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._plan: Values | None = None
        self._path: list[int] = []
        self._exhausted = False

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        self._make_room()
        is_news = self.model.add(row)
        x, action = self._buffer.inputs[row], self._buffer.actions[row]
        # A plan stops with a transition that it headed for, which is then less novel.
        if is_news or (
            self._plan is not None and self._novelty[x, action] >= self._plan.actions[x].max()
        ):
            self._plan = None
        if is_news or done:
            self._exhausted = False
            self._path.clear()

    def _make_room(self) -> None:
        if self.model.extend():
            self._plan, self._exhausted = None, False

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation, by its index; None: nothing novel can be reached."""
        self._make_room()
        if self.model.is_certain and not self._path and not self._exhausted:
            self._path = self.model.most_novel_path(observation, rng)
            self._exhausted = not self._path
        if self._path:
            return self._path.pop()
        # Only the draw of a start can lead to what no path leads to, and by chance a second try.
        settings = self.settings
        if self._plan is None:
            self._novelty = self.model.novelty()
            self._plan = exploration_values(
                self._novelty,
                self.model.rows(),
                discount=settings.discount,
                once=True,
                tolerance=settings.tolerance,
                sweeps=settings.sweeps,
            )
        values = self._plan.actions[observation]
        if float(values.max()) < settings.least_novelty:
            return None
        return _drawn_best(values, rng)


class LandmarkExplorer:
    """Plans over the landmarks of a dynamics model to what is novel.

    Args:
        model: of the buffer's transitions.
        buffer: the transitions.
        search: whether to look ahead from the current state; None: where states have more than
            three dimensions.
        contacts: searches for contacts, which go before; None: none are looked for.
    """

    settings = _LandmarkExploration()

    def __init__(
        self,
        model: LandmarkModel,
        buffer: Buffer,
        *,
        search: bool | None = None,
        contacts: ContactSearch | None = None,
    ) -> None:
        self.model, self._buffer = model, buffer
        self._search, self._contacts = search, contacts
        self._discount = self.settings.discount**ACTION_REPEAT  # of a plan's step
        self.forget_plan()

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._plan: Values | None = None
        self._rows: Rows | None = None
        self._n_planned = self._n_fitted = 0
        self._begin_episode()

    def _begin_episode(self) -> None:
        self._path: list[int] = []
        self._sequence: ActionSequence | None = None
        if self._contacts is not None:
            self._contacts.forget_plan()

    def observe(self, row: int, *, done: bool) -> None:
        """Take note of the transition in row `row` of the buffer; `done` if its episode ended."""
        if done:
            self._begin_episode()

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The next action at an observation, by its index."""
        if not self.model.is_ready:
            return int(rng.integers(self._buffer.n_actions))
        if self._contacts is not None and not self._path:
            action = self._contacts.act(observation, rng)
            if action is not None:
                return action
        (plan, rows), most = self._current_plan(), self.settings.most_planned
        if self._search or (self._search is None and len(self.model.kept) > most):
            self._look_ahead(observation, plan, rows)
            return self._path.pop()
        onward, novelty = self.model.ahead(observation, rows, plan.states)
        return _drawn_best((1.0 - self._discount) * novelty + self._discount * onward, rng)

    def _look_ahead(self, observation: int, plan: Values, rows: Rows) -> None:
        """Search for an action sequence where there is none, or its first action led elsewhere."""
        point, settings = self.model.point(observation), self.settings
        if len(self._path) == ACTION_REPEAT and self._sequence is not None:
            # Points of other features, or in other units, are missed as well.
            expected = self._sequence.points[0]
            if len(expected) != len(point) or np.abs(point - expected).max() > MISSED:
                self._path.clear()
        if not self._path:
            self._sequence = self.model.most_novel_sequence(
                observation, rows, plan.states, self._discount
            )
            actions = self._sequence.actions[settings.followed - 1 :: -1]
            self._path = np.repeat(actions, ACTION_REPEAT).tolist()
            if self._sequence.alive < settings.safe:  # averted step by step, not three at a time
                del self._path[:-1]

    def _current_plan(self) -> tuple[Values, Rows]:
        """The plan and its rows, made anew when due, from the last one's values where its landmarks
        go on; rows are a fiftieth of the data old at most, novelty is up to date."""
        settings, latest, rows, n = self.settings, self._plan, self._rows, len(self._buffer)
        is_due = n - self._n_planned >= max(settings.every, settings.renewed * self._n_planned)
        if rows is None or latest is None or is_due:
            if rows is None or n >= self._n_fitted * (1.0 + STALE):
                self.model.fit()
                self._rows, self._n_fitted, before = self.model.rows(), n, rows
                rows = self._rows
                if before is not None and not rows.continues(before):
                    latest = None
            novelty = self.model.novelty(rows.ahead).reshape(len(rows.start), -1)
            begin = np.zeros(len(novelty))
            if latest is not None:
                begin[: len(latest.states)] = latest.states
            self._plan = latest = exploration_values(
                (1.0 - self._discount) * novelty,
                rows,
                discount=self._discount,
                once=False,
                values=begin,
                tolerance=settings.tolerance,
                sweeps=settings.sweeps,
            )
            self._n_planned = n
        return latest, rows


def _drawn_best(values: FloatArray, rng: np.random.Generator) -> int:
    """One of the actions with the largest of their values (A,), drawn."""
    return int(rng.choice(np.flatnonzero(values >= values.max() * (1.0 - TIE))))


def explorers_of(
    latest: Sequence[Explorer], world: World, representation: Representation, config: RoverConfig
) -> list[Explorer]:
    """The explorers of a world of this kind, the latest ones where they still fit.

    Args:
        latest: explorers so far.
        world: of the buffer.
        representation: the points that landmarks lie in.
        config: resolved settings.
    """
    buffer, first, share = world.buffer, config.seed_steps, config.exploration_epsilon
    chance: list[Explorer] = []
    if first or share:
        chance = [_RandomExplorer(buffer, first=first, share=share)]
    if config.collect != "plan":
        return chance
    explorer = latest[-1] if latest else None
    if world.kind == "contexts":
        if not isinstance(explorer, ContextExplorer):
            explorer = ContextExplorer(buffer)
    elif world.kind == "states":
        counts = world.counts
        if isinstance(explorer, StateExplorer):
            explorer.forget_plan()
        else:
            explorer = StateExplorer(counts, buffer)
    else:
        model = representation.landmarks(config.n_landmarks)
        if not (isinstance(explorer, LandmarkExplorer) and explorer.model is model):
            search = config.search
            if search is None and isinstance(representation, Slow):
                search = False  # which finds nothing sooner in images, at twice the time
            contacts = _contact_search(buffer, representation, config)
            explorer = LandmarkExplorer(model, buffer, search=search, contacts=contacts)
    return [*chance, explorer]


def _contact_search(
    buffer: Buffer, representation: Representation, config: RoverConfig
) -> ContactSearch | None:
    """The search for contacts of still features of vectors, by default all; None of others."""
    is_plain = not representation.learns and buffer.observations.rows.ndim == 2
    if not is_plain or config.cover == "custom":
        return None
    return ContactSearch(buffer, None if config.cover is None else np.array(config.cover))
