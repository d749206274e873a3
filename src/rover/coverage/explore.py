"""Collect: choose actions by planning toward the least-visited parts of the transition model.

A plan maximises discounted novelty, as of :func:`~rover.world.counts.exploration_values`. On
landmarks novelty depends on the density of the data at the predicted end, and counts at every
visit. Of exact states it is what the model leaves to the sink after n tries, λ / (n + λ), and is
collected once: a reward, not a leak, because the mass that a plan loses does not depend on where it
leads (docs/deviations.md). λ is how random outcomes have proved to be. While every repetition ended
in the same state, λ = 0, what is novel is what was never tried, and the plan is the path with the
most worth for each of its steps. An episode that ends goes on where episodes begin, so that an end
costs the way back.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import FloatArray
from rover.contexts.explorer import ContextExplorer
from rover.data import Buffer
from rover.data.copies import Episodic
from rover.data.histories import Histories
from rover.errors import warn
from rover.operators.values import TIE, Values
from rover.world.counts import Counts, Rows, exploration_values
from rover.world.dynamics import ACTION_REPEAT, MISSED, STALE
from rover.world.model import MOST_LANDMARKS, ActionSequence, LandmarkModel, Sums
from rover.world.net import FIRST_UNITS
from rover.world.sampled import ContactSearch
from rover.world.world import World

# Landmarks: with 0.97 and 0.99 PointMaze took longer, and one run was stuck.
_STATE_DISCOUNT, _LANDMARK_DISCOUNT = 0.99, 0.98  # γ of a step
_LEAST_NOVELTY = 0.01  # value below which a plan over states leads to nothing novel

_MOST_PLANNED = 3
"""Dimensions up to which values between landmarks separate actions: in two, lookahead reaches
MountainCar's flag later; in four, it explores a maze in a third fewer steps."""


class _StateExplorer(Episodic):
    """Plans over exact states, counted in `model`, to what is novel. Only what contradicts a plan
    makes it anew. Of several episodes in progress each heads for another pair, if there are any.

    Once histories matter they are the states: what did nothing is tried again after other steps.
    """

    _of_episode = "_path", "_exhausted", "_end"

    def __init__(self, model: Counts, buffer: Buffer) -> None:
        self.model, self._buffer, self._histories = model, buffer, Histories(buffer)
        self.forget_plan()
        self._remember()

    def _remember(self) -> bool:
        """Take in the histories of outcomes that vary; True if they are the states from now on."""
        if self.model.varied or self._histories.matter:
            self._histories.take_in()
        if not self._histories.matter or self._buffer is self._histories.buffer:
            return False
        self._buffer = self._histories.buffer
        self.model = Counts(self._buffer, changes=True)
        self.forget_plan()
        return True

    def forget_plan(self) -> None:
        self._plan: Values | None = None
        self.forget_episodes()

    def _begin_episode(self) -> None:
        self._path: list[int] = []
        self._exhausted, self._end = False, -1

    def observe(self, row: int, *, done: bool) -> None:
        if self._remember():
            warn(
                f"step {row + 1}: outcomes depend on earlier actions, not on observations alone; "
                "actions that did nothing are tried again after others. The policy does not see "
                "what is hidden, such as a heading or an open door: add it to the observation",
                stacklevel=5,
            )
            return
        self.turn_to(int(self._buffer.episodes[row]))
        # Predictions on a lattice may change with a transition, wherever it happened (D48).
        has_grown = self.model.extend()
        is_news = self.model.add(row) or has_grown
        x, action = self._buffer.inputs[row], self._buffer.actions[row]
        # A plan stops with a transition that it headed for, which is then less novel.
        if is_news or (
            self._plan is not None and self._novelty[x, action] >= self._plan.actions[x].max()
        ):
            self._plan = None
        if is_news:
            self._begin_episode()
            # Others go on to what they head for.
            self._held = {other: [path, False, end] for other, (path, _, end) in self._held.items()}
        if done:
            self.end_episode()

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        if self._histories.matter:
            observation = self._histories.at(observation, self._turned_to)
        if self.model.extend():
            self._plan, self._exhausted = None, False
        if self._path and self.model.tries[self._end]:
            self._path = []  # another one was there first
        if not (self.model.varied or self._path or self._exhausted):
            others = {end for *_, end in self._held.values()}
            age = len(self._buffer.rows_of(self._turned_to))
            self._path, self._end = self.model.most_novel_path(observation, rng, age, others)
            if others and not self._path:
                self._path, self._end = self.model.most_novel_path(observation, rng, age)
            self._exhausted = not self._path
        if self._path:
            return self._path.pop()
        if self._histories.matter:
            return int(rng.integers(self._buffer.n_actions))
        # Only the draw of a start can lead to what no path leads to, and by chance a second try.
        if self._plan is None:
            self._novelty, rows = self.model.novelty(), self.model.rows()
            self._plan = exploration_values(
                self._novelty, rows, discount=_STATE_DISCOUNT, once=True, tolerance=1e-4
            )
        values = self._plan.actions[observation]
        return _drawn_best(values, rng) if values.max() >= _LEAST_NOVELTY else None


class LandmarkExplorer(Episodic):
    """Plans over the landmarks of a dynamics model, at most so many, to what is novel.

    The model is made of `sums`, as of :meth:`~rover.world.world.World.landmarks`. A search from the
    current state, by default in more than three dimensions, chooses in place of the plan, and one
    for contacts before both. Where other episodes in progress head for counts as visited.
    """

    _of_episode = "_path", "_sequence", "_ahead"

    def __init__(
        self,
        world: World,
        sums: Sums | None = None,
        most: int = MOST_LANDMARKS,
        *,
        search: bool | None = None,
        contacts: ContactSearch | None = None,
    ) -> None:
        self._world, self._buffer, self.sums, self._most = world, world.buffer, sums, most
        self._search, self._contacts = search, contacts
        self._discount = _LANDMARK_DISCOUNT**ACTION_REPEAT  # of a plan's step
        self.forget_plan()

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._plan: Values | None = None
        self._known: tuple[LandmarkModel, Rows] | None = None
        self._n_planned = self._n_fitted = 0
        self.forget_episodes()
        if self._contacts is not None:
            self._contacts.forget_episodes()

    def turn_to(self, episode: int) -> None:
        """Go on with an episode, by its number."""
        super().turn_to(episode)
        if self._contacts is not None:
            self._contacts.turn_to(episode)

    def _begin_episode(self) -> None:
        self._path: list[int] = []
        self._sequence: ActionSequence | None = None
        self._ahead: FloatArray | None = None

    def observe(self, row: int, *, done: bool) -> None:
        """Take note of the transition in row `row` of the buffer; `done` if its episode ended."""
        if done:
            self.turn_to(int(self._buffer.episodes[row]))
            self.end_episode()
            if self._contacts is not None:
                self._contacts.end_episode()

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The next action at an observation, by its index."""
        if len(self._buffer) < FIRST_UNITS:
            return int(rng.integers(self._buffer.n_actions))
        if self._contacts is not None and not self._path:
            action = self._contacts.act(observation, rng)
            if action is not None:
                return action
        plan, model, rows = self._current_plan()
        is_wide = len(model.units.kept) > _MOST_PLANNED
        if self._search or (self._search is None and is_wide):
            self._look_ahead(observation, plan, model, rows)
            return self._path.pop()
        ahead, onward, novelty = model.ahead(observation, rows, plan.states, self._others(model))
        values = (1.0 - self._discount) * novelty + self._discount * onward
        action = _drawn_best(values, rng)
        self._ahead = ahead[action : action + 1]
        return action

    def _others(self, model: LandmarkModel) -> FloatArray:
        """Points (t, d) that other episodes in progress head for."""
        d = len(model.units.kept)
        points = [ahead for *_, ahead in self._held.values() if ahead is not None]
        return np.concatenate([np.empty((0, d)), *(p for p in points if p.shape[1] == d)])

    def _look_ahead(self, observation: int, plan: Values, model: LandmarkModel, rows: Rows) -> None:
        """Search for an action sequence where there is none, or its first action led elsewhere."""
        point = model.point(observation)
        if len(self._path) == ACTION_REPEAT and self._sequence is not None:
            # Points of other features, or in other units, are missed as well.
            expected = self._sequence.points[0]
            if len(expected) != len(point) or np.abs(point - expected).max() > MISSED:
                self._path.clear()
        if not self._path:
            self._sequence = model.most_novel_sequence(
                observation, rows, plan.states, self._discount, self._others(model)
            )
            self._ahead = self._sequence.points
            # Two actions are followed, in reverse: the last is popped first.
            self._path = np.repeat(self._sequence.actions[1::-1], ACTION_REPEAT).tolist()
            if self._sequence.alive < 0.9:  # an end is averted step by step, not three at a time
                del self._path[:-1]

    def _current_plan(self) -> tuple[Values, LandmarkModel, Rows]:
        """The plan, its model and rows, made anew when due, from the last one's values where its
        landmarks go on; rows are a fiftieth of the data old at most, novelty is up to date."""
        latest, known, n = self._plan, self._known, len(self._buffer)
        is_due = n - self._n_planned >= max(20, 0.01 * self._n_planned)  # so that costs do not grow
        if known is None or latest is None or is_due:
            if known is None or n >= self._n_fitted * (1.0 + STALE):
                model, before = self._world.landmarks(self.sums), known
                self._known, self._n_fitted = known, _ = (model, model.rows(self._most)), n
                if before is not None and not known[1].continues(before[1]):
                    latest = None
            model, rows = known
            novelty = model.novelty(rows.ahead).reshape(len(rows.start), -1)
            begin = np.zeros(len(novelty))
            if latest is not None:
                begin[: len(latest.states)] = latest.states
            self._plan = latest = exploration_values(
                (1.0 - self._discount) * novelty,
                rows,
                discount=self._discount,
                once=False,
                values=begin,
                tolerance=1e-5,
                sweeps=150,
            )
            self._n_planned = n
        return latest, *known


def _drawn_best(values: FloatArray, rng: np.random.Generator) -> int:
    """One of the actions with the largest of their values (A,), drawn."""
    return int(rng.choice(np.flatnonzero(values >= values.max() * (1.0 - TIE))))


Explorer = _StateExplorer | LandmarkExplorer | ContextExplorer
"""Chooses actions by what is novel: None where nothing novel can be reached."""
