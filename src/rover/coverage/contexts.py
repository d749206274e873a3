"""Collect: where to go next where every episode has a context of its own, such as a new layout.

What is covered is the episode, J = E_c ‖μ_c(π)‖² over contexts c, and not the mixture of all
episodes. So the plan is made on the graph of this episode alone, and untried actions have
exploration values by a regression over all episodes (:mod:`rover.contexts.exploration_values`).

The reward of an arrival at an observation that is new to the episode is

    r = ½ e / (1 + e) + ½ l / (1 + l),

with e = φᵀ E⁻¹ φ its leverage among what the episode has shown and l that among all arrivals of the
run (elliptical bonuses; Henaff et al. 2022, 2023). The target of a try is y = r + β max_a q_a(x'),
fitted value iteration with the exploration value q as its fixed point.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.arrays import evenly_spaced
from rover.contexts.codes import (
    Array32,
    ObservationCodes,
    fit_codes,
    relevant_numbers,
)
from rover.contexts.exploration_values import (
    ExplorationValueModel,
    fold_in,
    leverage,
    ridge_inverse,
)
from rover.contexts.graph import MAX_TRIES
from rover.contexts.image_blocks import block_side, is_image
from rover.contexts.memory import EpisodeMemory
from rover.data import Buffer
from rover.errors import ConfigurationError
from rover.evaluation import aliasing_of
from rover.operators.support import FloatArray, IntArray
from rover.planning.net import MOST_ROWS
from rover.policies.contexts import ContextPolicy

EPISODE_DISCOUNT = 0.97
"""γ of plans on an episode's graph."""

_FIRST_FIT, _GROWTH = 200, 1.5
"""Steps before the first regression, and the factor after which it is made anew."""
_FITTED = 4000
"""Tries that features are chosen by."""
_VALUE_SWEEPS = 4
"""Fitted value iterations of a regression."""
EXPLORATION_RIDGE = 0.3
"""Ridge of the regression of exploration values."""
_NOVELTY_RIDGE = 0.1
_ONWARD = 0.9
_OPTIMISM = 3.0
_FEWEST_REPEATS = 5
"""Tries from which on their share of the first try's value is estimated."""
_TEMPERATURE = 0.1
"""Temperature of the policy without a memory, in units of exploration values."""
_TESTED = 250
_FEWEST_EPISODES = 3
_LARGEST_RECOGNISED, _LARGEST_LIST, _LARGEST_PICTURE = 1024, 4096, 65_536
"""Numbers of an observation up to which contexts are recognised, and can be asked for."""


def is_test_due(step: int) -> bool:
    """True after 500, 750, 1,000, 1,500, 2,000, 3,000, … steps, when contexts are looked for."""
    n, rest = divmod(step, _TESTED)
    return rest == 0 and n > 1 and n // (n & -n) in (1, 3)


def check_size(space: gym.Space[Any]) -> None:
    """Refuse observations that are too large, with a ConfigurationError."""
    shape = space.shape or ()
    size = math.prod(shape)
    largest = _LARGEST_LIST
    if space.dtype is not None and is_image(shape, space.dtype):
        largest = _LARGEST_PICTURE
    if size > largest:
        raise ConfigurationError(
            f"contexts=True needs lists of at most {_LARGEST_LIST:,} numbers, or images (height, "
            f"width, channels) uint8 of at most {_LARGEST_PICTURE:,}, and observations have "
            f"{size:,}: make them smaller, such as by gymnasium.wrappers.ResizeObservation"
        )


def changes_with_episodes(buffer: Buffer) -> bool:
    """True if the outcomes of actions follow the episode, and not the observation alone.

    Only of observations that are whole numbers: a layout that is seen as such, or drawn. What an
    action led to is repeated within its episode, and not in the next one, where layouts change and
    where states look alike; either way a plan belongs to its episode.
    """
    table = buffer.observations
    done = buffer.terminated | buffer.truncated
    is_listed = table.dtype.kind != "f" and (
        table.rows[0].size <= _LARGEST_RECOGNISED or is_image(table.shape, table.dtype)
    )
    if not is_listed or np.count_nonzero(done) < _FEWEST_EPISODES:
        return False
    return aliasing_of(buffer).is_aliased is True


class ContextExplorer:
    """Plans on the graph of the episode, with exploration values from all episodes.

    It is a function of the buffer alone: one that is made later takes in what is there, row by row,
    and ends in the same bits.

    Args:
        buffer: the transitions.

    Attributes:
        codes: features of observations; None before the first regression.
        model: the regression.
        memory: of the episode; None between two.
    """

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self.codes: ObservationCodes | None = None
        self.model: ExplorationValueModel | None = None
        self.memory: EpisodeMemory | None = None
        self._nodes: list[int] = []
        """Observations of the episode's nodes, by their index in the buffer."""
        self._tries: list[tuple[int, int, int, float, bool]] = []
        """First tries of each episode: x, a, x', the novelty of the arrival within the episode, and
        True if it ended that."""
        self._targets, self._predicted, self._repeats = np.zeros((3, MAX_TRIES + 1))
        self._n_seen = 0
        self._due = float(_FIRST_FIT)
        while self._n_seen < len(buffer):
            self._take_in()

    def policy(self, *, has_memory: bool) -> ContextPolicy | None:
        """The policy of the regression as it is now; None before the first one."""
        if self.codes is None or self.model is None:
            return None
        codes = self.codes.without_spare()
        return ContextPolicy(
            codes,
            self.model.first(codes.dim),
            self.kept,
            observation_shape=self._buffer.observations.shape,
            discount=EPISODE_DISCOUNT,
            temperature=_TEMPERATURE,
            has_memory=has_memory,
        )

    def figures(self) -> dict[str, Any]:
        """Figures of the regression, for a metrics line."""
        assert self.codes is not None
        relevant = [int(number) for number in self.codes.relevant]
        return {"contexts": True, "relevant_numbers": relevant}

    @property
    def kept(self) -> FloatArray:
        """κ (MAX_TRIES + 1,): targets of n-th tries of a pair, over their exploration values."""
        measured = self._targets / np.maximum(self._predicted, 1e-6)
        known = self._repeats >= _FEWEST_REPEATS
        kept = np.where(known, measured, 1.0 / (1.0 + np.arange(MAX_TRIES + 1)))
        kept[0] = 1.0
        return np.asarray(np.minimum.accumulate(kept.clip(0.0, 1.0)))

    def forget_plan(self) -> None:
        """Do nothing: all that is kept follows from the buffer."""

    def observe(self, row: int, *, done: bool) -> None:
        """Take in the transition in row `row` of the buffer; `done` if its episode ended."""
        self._take_in()

    def act(self, observation: int, rng: np.random.Generator) -> int:
        """The action at an observation, by its index, with the largest value; ties drawn."""
        memory = self.memory or self._begin(observation)
        return memory.act(self.kept, rng)

    def _begin(self, observation: int) -> EpisodeMemory:
        """A memory of the episode that begins in an observation."""
        self.memory = memory = EpisodeMemory(
            self._buffer.n_actions, discount=EPISODE_DISCOUNT, codes=self.codes, model=self.model
        )
        self._nodes = []
        if self.codes is not None:
            self._episode = np.eye(self.codes.dim, dtype=np.float32) / np.float32(_NOVELTY_RIDGE)
        memory.node, _ = self._see(memory, observation)
        return memory

    def _see(self, memory: EpisodeMemory, observation: int) -> tuple[int, bool]:
        """The node of an observation by its index, and whether it is new to the episode."""
        node, is_new = memory.see(self._buffer.observations.rows[observation], extend=True)
        if is_new:
            self._nodes.append(observation)
        return node, is_new

    def _take_in(self) -> None:
        """Learn from the next transition of the buffer, and fit anew when that is due."""
        buffer, row = self._buffer, self._n_seen
        x, action, y = (int(c[row]) for c in (buffer.inputs, buffer.actions, buffer.successors))
        ends = bool(buffer.terminated[row])
        memory = self.memory or self._begin(x)
        node = memory.node
        reached, is_new = self._see(memory, y)
        target = within = 0.0
        if is_new or ends:
            target = within = 1.0
            if self.model is not None:
                within, target = self._arrival(memory, reached, ends=ends)
        n_tries = min(int(memory.graph.tries[node, action]), MAX_TRIES)
        if self.model is not None:
            self._repeats[n_tries] += 1.0
            self._targets[n_tries] += target
            self._predicted[n_tries] += memory.exploration_values(node)[action]
        if n_tries == 0:
            self._tries.append((x, action, y, within, ends))
            if self.model is not None:
                memory.learn(node, action, target)
        memory.move(action, reached, is_new=is_new, ends=ends)
        self._n_seen += 1
        if ends or buffer.truncated[row]:
            self.memory = None
        if self._n_seen >= self._due:
            self._due = self._n_seen * _GROWTH
            self._fit()

    def _arrival(self, memory: EpisodeMemory, node: int, *, ends: bool) -> tuple[float, float]:
        """Novelty within the episode of an arrival that is new, and the target of its try."""
        assert self.codes is not None
        features = memory.features(node)
        scale = fold_in(self._episode, features).scale
        within = 1.0 - 1.0 / scale
        marked = np.append(features, np.float32(ends))
        target = 0.5 * within + 0.5 * (1.0 - 1.0 / fold_in(self._arrivals, marked).scale)
        if not ends:
            target += _ONWARD * float(memory.exploration_values(node).max())
        return within, target

    def _fit(self) -> None:
        """Choose the features and make the regression anew from all tries, in closed form."""
        rows = self._buffer.observations.rows
        tries = self._tries[-MOST_ROWS:]
        x, actions, y = np.array([t[:3] for t in tries], np.int64).T
        within = np.array([t[3] for t in tries], np.float32)
        ends = np.array([t[4] for t in tries], np.bool_)
        some = evenly_spaced(len(tries), _FITTED)
        effects = (x != y) | ends
        n_actions = self._buffer.n_actions
        seen = rows[np.unique([x[some], y[some]])]
        side = block_side(seen)
        relevant = relevant_numbers(
            rows[x[some]], actions[some], effects[some], n_actions, side=side
        )
        self.codes = fit_codes(seen, relevant, side=side)
        distinct, index = np.unique([x, y], return_inverse=True)
        features = self.codes(rows[distinct], extend=True)
        before, after = index.reshape(2, -1)
        self.model = self._priced(features, before, actions, after, within, ends)
        if self.memory is not None:
            self._renew(self.memory, self.codes, self.model)

    def _priced(
        self,
        features: Array32,
        before: IntArray,
        actions: IntArray,
        after: IntArray,
        within: Array32,
        ends: NDArray[np.bool_],
    ) -> ExplorationValueModel:
        """The regression by fitted value iteration, and the leverage of arrivals."""
        n_actions, width = self._buffer.n_actions, features.shape[1]
        new = within > 0.0
        reached = np.column_stack([features[after], ends.astype(np.float32)])
        self._arrivals = ridge_inverse(reached[new], _NOVELTY_RIDGE)
        # The leverage of a member counts itself: h / (1 − h) is that before it came, as online.
        lifelong = leverage(self._arrivals, reached)
        rewards = new * (0.5 * within + 0.5 * lifelong / (1.0 + lifelong))
        inverses = np.stack(
            [
                ridge_inverse(features[before[actions == a]], EXPLORATION_RIDGE)
                for a in range(n_actions)
            ]
        )
        weights = np.zeros((width, n_actions), np.float32)
        model = ExplorationValueModel(
            inverses, weights, ridge=EXPLORATION_RIDGE, optimism=_OPTIMISM
        )
        sinks = model.sinks(features)
        onward = _ONWARD * (new & ~ends)
        for _ in range(_VALUE_SWEEPS):
            values = model.values(model.means(features), sinks).max(axis=1)
            targets = (rewards + onward * values[after]).astype(np.float32)
            for a in range(n_actions):
                mine = actions == a
                weights[:, a] = inverses[a] @ (features[before[mine]].T @ targets[mine])
        return model

    def _renew(
        self, memory: EpisodeMemory, codes: ObservationCodes, model: ExplorationValueModel
    ) -> None:
        """Give the nodes of an episode in progress the features and values of a new fit."""
        memory.renew(codes, model, self._buffer.observations.rows[self._nodes])
        n = memory.graph.n
        features = np.stack([memory.features(node) for node in range(n)])
        self._episode = ridge_inverse(features, _NOVELTY_RIDGE)
