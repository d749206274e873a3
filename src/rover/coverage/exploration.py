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

import numpy as np

from rover.contexts.memory import TIE
from rover.data import Buffer
from rover.operators.support import FloatArray
from rover.planning.contact import ContactSearch
from rover.planning.counts import Counts
from rover.planning.dynamics_model import MISSED
from rover.planning.lookahead import ActionSequence
from rover.planning.model import LandmarkModel
from rover.planning.values import Values, exploration_values

_LEAST_NOVELTY = 0.01
"""Value below which a plan that collects novelty once leads to nothing novel."""

_RENEWED = 0.01
"""Share of new transitions after which a plan is made anew, so that its cost does not grow."""

_MOST_PLANNED = 3
"""Dimensions up to which values between landmarks separate actions: in two, lookahead reaches
MountainCar's flag later; in four, it explores a maze in a third fewer steps."""

_FOLLOWED = 2
"""Actions of a sequence that are followed before the next search."""

_SAFE = 0.9
"""Probability that the episode goes on below which a single step is."""

_TOLERANCE, _SWEEPS = 1e-4, 1000
_OFTEN_TOLERANCE, _OFTEN_SWEEPS = 1e-5, 150  # begun with the values of the last plan


class Explorer:
    """Plans over the landmarks of a transition model to what is novel.

    Args:
        model: of the buffer's transitions.
        buffer: the transitions.
        discount: γ in (0, 1) of an environment step.
        every: steps after which a plan is made anew, or a hundredth of all where that is more.
        search: whether to look ahead from the current state; None: where states do not
            repeat and have more than three dimensions.
        contacts: searches for contacts, which go before; None: none are looked for.

    Attributes:
        model: the model.
    """

    def __init__(
        self,
        model: Counts | LandmarkModel,
        buffer: Buffer,
        *,
        discount: float,
        every: float,
        search: bool | None = None,
        contacts: ContactSearch | None = None,
    ) -> None:
        self.model = model
        self._buffer = buffer
        self._search, self._contacts = search, contacts
        self._discount = discount**model.action_repeat  # of a plan's step
        self._every = every
        self.forget_plan()

    def forget_plan(self) -> None:
        """Plan anew before the next action: nothing that is not in the buffer is kept."""
        self._plan: Values | None = None
        self._latest: FloatArray | None = None  # (m,) values to begin the next plan with
        self._n_planned = 0
        self._path: list[int] = []
        self._sequence: ActionSequence | None = None
        self._exhausted = False
        if self._contacts is not None:
            self._contacts.forget_plan()

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        self._extend()
        is_news = self.model.add(row)
        x, action = self._buffer.inputs[row], self._buffer.actions[row]
        # A plan stops with a transition that it headed for, which is then less novel.
        if is_news or (
            self._plan is not None
            and self.model.once
            and self._novelty[x, action] >= self._plan.actions[x].max()
        ):
            self._plan = None
        if is_news or done:
            self._exhausted = False
            self._path.clear()
        if done and self._contacts is not None:
            self._contacts.forget_plan()

    def _extend(self) -> None:
        if self.model.extend():
            self._plan, self._exhausted = None, False

    def act(self, observation: int, rng: np.random.Generator) -> int | None:
        """The next action at an observation, by its index; None: nothing novel can be reached."""
        model = self.model
        if not model.is_ready:
            return int(rng.integers(self._buffer.n_actions))
        self._extend()
        if self._contacts is not None and not self._path:
            action = self._contacts.act(observation, rng)
            if action is not None:
                return action
        if model.is_certain and not self._path and not self._exhausted:
            self._path = model.most_novel_path(observation, rng)
            self._exhausted = not self._path
        if isinstance(model, LandmarkModel) and self._search is not False:
            self._current_plan()  # sets the dimensions
            if self._search or model.n_dimensions > _MOST_PLANNED:
                self._look_ahead(model, observation)
        if self._path:
            return self._path.pop()
        # Only the draw of a start can lead to what no path leads to, and by chance a second try.
        values = self._action_values(observation)
        best = float(values.max())
        if model.once and best < _LEAST_NOVELTY:
            return None
        return int(rng.choice(np.flatnonzero(values >= best * (1.0 - TIE))))

    def _look_ahead(self, model: LandmarkModel, observation: int) -> None:
        """Search for an action sequence where there is none, or its first action led elsewhere."""
        point = model.point(observation)
        if len(self._path) == model.action_repeat and self._sequence is not None:
            # Points of other features, or in other units, are missed as well.
            expected = self._sequence.points[0]
            if len(expected) != len(point) or np.abs(point - expected).max() > MISSED:
                self._path.clear()
        if not self._path:
            plan = self._current_plan()
            self._sequence = model.most_novel_sequence(observation, plan.states, self._discount)
            actions = self._sequence.actions[_FOLLOWED - 1 :: -1]
            self._path = np.repeat(actions, model.action_repeat).tolist()
            if self._sequence.alive < _SAFE:  # a fall is averted step by step, not three at a time
                del self._path[:-1]

    def _current_plan(self) -> Values:
        """The plan, made anew when due."""
        n_new = len(self._buffer) - self._n_planned
        if self._plan is None or n_new >= max(self._every, _RENEWED * self._n_planned):
            self._plan = self._planned()
            self._n_planned = len(self._buffer)
        return self._plan

    def _action_values(self, observation: int) -> FloatArray:
        """Values (A,) of the actions at an observation."""
        plan = self._current_plan()
        ahead = self.model.ahead(observation, plan.states)
        if ahead is None:
            return np.asarray(plan.actions[observation])
        onward, novelty = ahead
        return (1.0 - self._discount) * novelty + self._discount * onward

    def _planned(self) -> Values:
        """Values of a new plan."""
        rows, self._novelty, continues = self.model.novelty_rows()
        once, begin = self.model.once, np.zeros(len(self._novelty))
        if continues and self._latest is not None:
            begin[: len(self._latest)] = self._latest
        plan = exploration_values(
            self._novelty if once else (1.0 - self._discount) * self._novelty,
            rows,
            discount=self._discount,
            once=once,
            values=begin,
            tolerance=_TOLERANCE if once else _OFTEN_TOLERANCE,
            sweeps=_SWEEPS if once else _OFTEN_SWEEPS,
        )
        self._latest = plan.states
        return plan
