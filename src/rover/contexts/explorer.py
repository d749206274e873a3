"""Collect: where to go next where every episode has a context of its own, such as a new layout.

What is covered is the episode, J = E_c ‖μ_c(π)‖² over contexts c, and not the mixture of all
episodes. So the plan is made on the graph of this episode alone, and untried actions have
exploration values by a regression over all episodes (:mod:`rover.contexts.memory`).

The reward of an arrival at an observation that is new to the episode is

    r = ½ e / (1 + e) + ½ l / (1 + l),

with its leverage e = φᵀ E⁻¹ φ among the observations of the episode and l among all arrivals of the
run (elliptical bonuses; Henaff et al. 2022, 2023). The target of a try is y = r + β max_a q_a(x'),
fitted value iteration with the exploration value q as its fixed point.
"""

from __future__ import annotations

import numpy as np

from rover.arrays import FloatArray
from rover.contexts.codes import ObservationCodes, relevant_numbers
from rover.contexts.memory import (
    MOST_TRIES,
    EpisodeMemory,
    ExplorationValueModel,
    action_inverses,
    fitted_iteration,
    fold_in,
    leverage,
    ridge_inverse,
)
from rover.data import Buffer
from rover.data.copies import Episodic
from rover.world.net import MOST_ROWS

_FIRST_FIT, _GROWTH = 200, 1.5
"""Steps before the first regression, and factor of the steps after which it is made anew."""

_NOVELTY_RIDGE = 0.1  # λ of leverages

# 0.95 finds KeyCorridor's key no more often beyond the noise of four seeds (D40).
_ONWARD = 0.9  # β, share of the next observation's value in a target
_FEWEST_REPEATS = 5  # tries from which on their share of the first try's value is estimated


class ContextExplorer(Episodic):
    """Plans on the graph of the episode, with exploration values from all episodes.

    It is a function of the buffer alone: one that is made later learns from the stored transitions,
    row by row, and ends in the same bits.

    Attributes:
        model: the regression; None before the first one.
        memory: of the episode; None between two.
    """

    _of_episode = "memory", "_covariance"

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.model: ExplorationValueModel | None = None
        self.forget_episodes()
        self._tries: list[tuple[int, float]] = []
        """First tries of each episode: row, and the novelty of the arrival within the episode."""
        self._repeats: FloatArray = np.zeros((MOST_TRIES + 1, 3))
        """Number, sum of targets and sum of exploration values of n-th tries."""
        self._n_seen = 0
        self._due = float(_FIRST_FIT)
        while self._n_seen < len(buffer):
            self._take_in()

    @property
    def kept(self) -> FloatArray:
        """κ (n + 1,), n = 5: targets of n-th tries of a pair, over their exploration values."""
        number, targets, predicted = self._repeats.T
        measured = targets / np.maximum(predicted, 1e-6)
        unknown = 1.0 / (1.0 + np.arange(MOST_TRIES + 1))
        kept = np.where(number >= _FEWEST_REPEATS, measured, unknown)
        kept[0] = 1.0
        return np.asarray(np.minimum.accumulate(kept.clip(0.0, 1.0)))

    def forget_plan(self) -> None:
        """Do nothing: everything follows from the buffer."""

    def observe(self, row: int, *, done: bool) -> None:
        """Learn from the transition in row `row` of the buffer; `done` if its episode ended."""
        self._take_in()

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The action at an observation, by its index, with the largest value; ties drawn."""
        return (self.memory or self._begin(observation)).act(self.kept, rng)

    def _begin_episode(self) -> None:
        self.memory: EpisodeMemory | None = None
        self._covariance = np.empty((0, 0), np.float32)  # inverse, of its arrivals

    def _begin(self, observation: int) -> EpisodeMemory:
        """A memory of the episode that begins in an observation."""
        self.memory = memory = EpisodeMemory(self._buffer.n_actions, self.model)
        if self.model is not None:
            unit = np.eye(len(self.model.weights), dtype=np.float32)
            self._covariance = unit / np.float32(_NOVELTY_RIDGE)
        memory.node, _ = memory.see(self._buffer.observations.rows[observation])
        return memory

    def _take_in(self) -> None:
        """Learn from the next transition of the buffer, and fit anew when that is due."""
        buffer, row = self._buffer, self._n_seen
        self.turn_to(int(buffer.episodes[row]))
        action, ends = int(buffer.actions[row]), bool(buffer.terminated[row])
        memory = self.memory or self._begin(int(buffer.inputs[row]))
        node = memory.node
        reached, is_new = memory.see(buffer.observations.rows[buffer.successors[row]])
        n_tries = min(int(memory.tries[node, action]), MOST_TRIES)
        target = within = float(is_new or ends)
        if self.model is not None:
            if is_new or ends:
                features = memory.features[reached]
                within = 1.0 - 1.0 / fold_in(self._covariance, features)[1]
                marked = np.append(features, np.float32(ends))
                target = 0.5 * within + 0.5 * (1.0 - 1.0 / fold_in(self._arrivals, marked)[1])
                if not ends:
                    target += _ONWARD * float(memory.exploration_values(reached).max())
            self._repeats[n_tries] += 1.0, target, memory.exploration_values(node)[action]
            if n_tries == 0:
                memory.learn(node, action, target)
        if n_tries == 0:
            self._tries.append((row, within))
        memory.move(action, reached, is_new=is_new, ends=ends)
        self._n_seen += 1
        if ends or buffer.truncated[row]:
            self.end_episode()
        if self._n_seen >= self._due:
            self._due = self._n_seen * _GROWTH
            self._fit()

    def _fit(self) -> None:
        """Choose the features and make the regression anew from all tries, in closed form."""
        buffer, (tried, novelties) = self._buffer, zip(*self._tries[-MOST_ROWS:], strict=True)
        rows, within = np.array(tried), np.array(novelties, np.float32)
        x, y, actions, ends = (
            column[rows]
            for column in (buffer.inputs, buffer.successors, buffer.actions, buffer.terminated)
        )
        distinct, index = np.unique([x, y], return_inverse=True)
        before, after = index.reshape(2, -1)
        observations = buffer.observations.rows[distinct]
        numbers = observations.reshape(len(observations), -1)
        relevant = relevant_numbers(numbers[before], actions, (x != y) | ends, buffer.n_actions)
        codes = ObservationCodes.fit(numbers, relevant)
        features, new = codes(numbers), within > 0.0
        reached = np.column_stack([features[after], ends.astype(np.float32)])
        self._arrivals = ridge_inverse(reached[new], _NOVELTY_RIDGE)
        # The leverage h of a member counts itself: h / (1 + h) is 1 − 1 / (1 + h) as online.
        lifelong = leverage(self._arrivals, reached)
        rewards = new * (0.5 * within + 0.5 * lifelong / (1.0 + lifelong))
        inverses = action_inverses(features, before, actions, buffer.n_actions)
        none = np.zeros((features.shape[1], buffer.n_actions), np.float32)
        self.model = model = ExplorationValueModel(codes, inverses, none)
        sinks = model.sinks(features)
        model.weights, _ = fitted_iteration(
            features,
            (before, actions, after),
            inverses,
            lambda weights: model.values(features @ weights, sinks).max(axis=1),
            rewards,
            _ONWARD * (new & ~ends),
            sweeps=4,
        )
        for episode in [*self._held, self._turned_to]:
            self.turn_to(episode)
            if self.memory is not None:
                self._covariance = ridge_inverse(self.memory.renew(model), _NOVELTY_RIDGE)
