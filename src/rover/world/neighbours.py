"""Transitions near a point, and rows of a dynamics model that take care of what they show.

A smooth dynamics model passes walls, and knows nothing of where there is no data. The transitions
near by show both. Where most of them contradict a prediction a wall is met, and the nearest one is
repeated; where they are far, the row leads to the sink in part, so that plans follow the data; and
where some contradict it, a policy had better draw its action now and then.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from scipy.sparse import csr_array, eye_array
from scipy.spatial import KDTree

from rover.arrays import SAMPLE, BoolArray, FloatArray, IntArray, evenly_spaced
from rover.operators.values import gaussian_weights
from rover.world.counts import Rows
from rover.world.dynamics import ACTION_REPEAT, MOST_COMPARED
from rover.world.model import LandmarkModel
from rover.world.net import Net, between, nearest, sparse_rows
from rover.world.regression import Fit, contact_weights, usual_error

NEIGHBOURS = 8
"""Landmarks that a point between them is interpolated from, and transitions near a point."""

SPACING = 0.2
"""Distance of the landmarks of plans for rewards, in units of what five steps change."""

_USUAL_RIDGE = 0.02  # λ, where no other is asked for
_HALF = 0.3  # distance at which a transition supports by a half, in units of what five steps change
# Without it OGBench giant's seed 12 succeeds in 0.96 of its attempts, and not in all.
_HIDDEN = 0.03  # share of uniform actions where a wall may be one that nothing foresees
_FINEST, _MOST_OUTCOMES = 0.02, 120_000  # distance of landmarks, and drawn outcomes of a plan
_MOST_DRAWN, _LITTLE_CHANCE = 6, 0.05  # numbers, and unexplained share up to which none are drawn

MAX_SOLVED_LANDMARKS = 10_000
"""Most landmarks, where more would be needed spacings grow."""


class Neighbours:
    """The transitions of a model, found again by where an action was taken and by where it ended.
    `usual` is the median length of a change."""

    def __init__(self, model: LandmarkModel) -> None:
        self.model, buffer = model, model.buffer
        begins, actions, changes = model.units.moves(buffer, slice(None))
        self._begins, self._changes = begins, changes
        # Of each action that was taken its transitions, and a tree of where they began.
        rows = {action: np.flatnonzero(actions == action) for action in np.unique(actions).tolist()}
        self._tried = {action: (mine, KDTree(begins[mine])) for action, mine in rows.items()}
        self._landed = KDTree(model.units.points(buffer.successors))
        self.usual = float(np.median(np.linalg.norm(changes, axis=1)))

    def near(self, action: int, points: FloatArray) -> tuple[IntArray, FloatArray]:
        """The k = 8 transitions (q, k) with an action that began nearest to points (q, z), or all,
        and how far from them, (q, k)."""
        rows, tree = self._tried[action]
        distance, index = nearest(tree, points, NEIGHBOURS)
        return rows[index], distance

    @cached_property
    def contacts(self) -> BoolArray:
        """Mask (n,) of the transitions that contradict the dynamics model where they began: they
        met a wall, fell or were clipped.

        By far more than noise does: by what the errors of two that began side by side, with the
        same action, usually differ.
        """
        law = self.model.dynamics.displacements
        predicted = law.changes(self._begins, self.model.buffer.actions)
        errors = torch.from_numpy(self._changes - predicted)
        noise = usual_error((errors - errors[self._begun]) / math.sqrt(2.0))
        weights = contact_weights(errors, noise, Fit().far).numpy()
        return self._differ(predicted, self._changes[:, None])[:, 0] & (weights < 0.25)

    def contradict(self, change: FloatArray, transitions: IntArray) -> BoolArray:
        """Mask (q, k) of the transitions (q, k) that are contacts which changes (q, z) miss."""
        return self._differ(change, self._changes[transitions]) & self.contacts[transitions]

    def _differ(self, change: FloatArray, others: FloatArray) -> BoolArray:
        """Mask (q, k) of changes (q, k, z) that differ from one (q, z) by half of the larger.

        A fifth of a usual change is the least that counts as one: near where a system rests all
        moves are small.
        """
        missed = np.linalg.norm(others - change[:, None], axis=2)
        size = np.maximum(np.linalg.norm(others, axis=2), np.linalg.norm(change, axis=1)[:, None])
        return np.asarray(missed > 0.5 * np.maximum(size, 0.2 * self.usual))

    def follow_arrivals(self, columns: FloatArray) -> BoolArray:
        """Mask (K,) of the columns (n, K) that where transitions end predicts at least as well as
        where they begin and their actions, each by the nearest other transition."""
        others = self._begun, _others(self._landed)
        begun, ended = (((columns[other] - columns) ** 2).sum(axis=0) for other in others)
        return np.asarray(ended <= begun)

    @cached_property
    def _begun(self) -> IntArray:
        """The other transition of its action that began nearest to each, (n,)."""
        begun = np.arange(len(self._changes))
        for rows, tree in self._tried.values():
            if tree.n > 1:
                begun[rows] = rows[_others(tree)]
        return begun

    def repeat(
        self, landmarks: FloatArray, distance: float = math.inf
    ) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
        """Repeat each action that was ever taken from each landmark (p, z), until it is `distance`
        from it: longer straight ways leap over corners.

        Transitions (2, T, p·A) that are passed, as of :class:`~rover.world.counts.Rows`; ends (p·A,
        z); the least support (p·A,) of a step; and the share (p·A,) of the transitions near by that
        contradict the first step.
        """
        where = np.repeat(landmarks[None], self.model.buffer.n_actions, axis=0)  # (A, p, z)
        shape = where.shape[:2]
        passed = np.full((2, ACTION_REPEAT, *shape), -1)
        support, contact = np.full(shape, np.inf), np.ones(shape)
        here = np.ones(shape, np.bool_)
        for number in range(ACTION_REPEAT):
            changes = self.model.dynamics.step(where)[0] - where
            for action in self._tried:
                mine = np.flatnonzero(here[action])
                if not len(mine):
                    continue
                transitions, apart = self.near(action, where[action, mine])
                change, reach = changes[action, mine], np.maximum(apart[:, -1:], 1e-9)
                contradicts = self.contradict(change, transitions)
                probability = (gaussian_weights(apart / reach) * contradicts).sum(axis=1)
                # The mean of passing and standing still creeps through a wall in small steps:
                # where most contradict it, the nearest one is taken.
                is_met = probability > 0.5
                change[is_met] = self._changes[transitions[is_met, 0]]
                # Heavy tails: dynamics that hold for all the data are not lost as soon as an action
                # was not taken near by, or no plan would turn round.
                near = (1.0 / (1.0 + (apart / _HALF) ** 2)).sum(axis=1)
                support[action, mine] = np.minimum(support[action, mine], near)
                where[action, mine] += change
                landed = nearest(self._landed, where[action, mine], 1)[1][:, 0]
                passed[:, number, action, mine] = transitions[:, 0], landed
                if number == 0:
                    contact[action] = probability
                left = np.linalg.norm(where[action, mine] - landmarks[mine], axis=1)
                here[action, mine[left >= distance]] = False
        passed = np.swapaxes(passed, 2, 3).reshape(2, ACTION_REPEAT, -1)
        ends = np.swapaxes(where, 0, 1).reshape(-1, landmarks.shape[1])
        return passed, ends, support.T.ravel(), contact.T.ravel()

    def come_back(self) -> bool:
        """True if half of the transitions began within a landmark's radius of another. Otherwise
        nearly all moves lie along single paths, and show no wall between two of them."""
        some = evenly_spaced(len(self._begins), MOST_COMPARED)
        apart = nearest(KDTree(self._begins), self._begins[some], 2)[0][:, -1]
        return float(np.median(apart)) <= SPACING

    def within_moves(
        self, net: Net, begins: FloatArray, index: IntArray, weights: FloatArray
    ) -> tuple[IntArray, FloatArray]:
        """Landmarks (E, q) of a net and weights of outcomes that begin at points (E, z), without
        those that are many observed moves away, either way: behind a wall."""
        begun = nearest(net.tree, self._begins, 1)[1][:, 0]
        ended = nearest(net.tree, self._begins + self._changes, 1)[1][:, 0]
        size = len(net)
        moves = csr_array((np.ones(len(begun)), (begun, ended)), (size, size))
        once = moves + moves.T + eye_array(size)
        within = once
        for _ in range(7):  # up to eight moves
            within = within @ once
            within.data[:] = 1.0
        within.sort_indices()  # pairs are then found by bisection
        own = nearest(net.tree, begins, 1)[1]
        are_near = within[np.broadcast_to(own, index.shape).ravel(), index.ravel()] > 0.0
        weights = np.where(are_near.reshape(index.shape), weights, 0.0)
        total = weights.sum(axis=1, keepdims=True)
        # Where nothing is left of an outcome it stays.
        index, weights = np.column_stack([index, own]), np.column_stack([weights, total == 0.0])
        return index, weights / np.where(total == 0.0, 1.0, total)

    def rows_of(self, ridge: float | None) -> Rows:
        """Rows of repeated actions on a net of landmarks.

        A pair leads to the sink with probability λ / (n + λ), with the support n, and λ is `ridge`
        (None: 0.02), but at most such that three quarters of the pairs lose a sixtieth of their
        mass: data may be thin everywhere.
        """
        net = Net.over(self._begins, SPACING, largest=MAX_SOLVED_LANDMARKS)
        passed, ends, support, contact = self.repeat(net.landmarks, 3.0 * net.radius)
        n_actions = self.model.buffer.n_actions
        tried = np.tile(np.isin(np.arange(n_actions), list(self._tried)), len(net))
        # A loss of mass that is equal everywhere does not change a choice.
        ridge = _USUAL_RIDGE if ridge is None else ridge
        ridge = min(ridge, float(np.quantile(support[tried], 0.25)) / 60.0)
        sink = np.where(tried, ridge / np.maximum(support + ridge, 1e-300), 1.0)
        index, weights = between(net.tree, ends, NEIGHBOURS)
        if self.contacts.any() and self.come_back():
            begins = np.repeat(net.landmarks, n_actions, axis=0)
            index, weights = self.within_moves(net, begins, index, weights)
        onward = sparse_rows(index, (1.0 - sink)[:, None] * weights, len(net))
        return Rows(
            onward=onward,
            ended=csr_array(onward.shape),
            sink=sink,
            start=self.model.start(net),
            ahead=ends,
            landmarks=net.landmarks,
            passed=passed,
            uniform=np.maximum(contact, _HIDDEN * self.contacts.any()),
        )

    @cached_property
    def are_drawn(self) -> bool:
        """True if changes of other tries near by predict most transitions better than the dynamics
        model, by the energy score (Gneiting and Raftery 2007), least for the true distribution: for
        few numbers, badly explained, and where not all that was repeated came out the same."""
        dynamics, buffer, gains = self.model.dynamics, self.model.buffer, [0.0]
        is_few = buffer.observations.rows.ndim == 2 and self._begins.shape[1] <= _MOST_DRAWN
        if not is_few or dynamics.unexplained <= _LITTLE_CHANCE:
            return False
        counts = buffer.counts()
        if counts.n_pairs < len(self._begins) and counts.outcome_variance == 0.0:
            return False
        for action, (rows, _) in self._tried.items():
            some = rows[evenly_spaced(len(rows), SAMPLE)]
            begins, changes = self._begins[some], self._changes[some]
            drawn = self._changes[self.near(action, begins)[0][:, 1:]]  # the first is itself
            if drawn.shape[1]:
                off = np.linalg.norm(drawn - changes[:, None], axis=2).mean(axis=1)
                apart = np.linalg.norm(drawn[:, :, None] - drawn[:, None], axis=3).mean(axis=(1, 2))
                actions = np.full(len(some), action)
                missed = dynamics.displacements.left_out(begins, actions, changes)
                gains += (np.linalg.norm(missed, axis=1) - off + apart / 2.0).tolist()
        return float(np.median(gains)) > 0.0  # a few that are far off decide nothing

    def drawn_rows(self, rewards: FloatArray, ends: BoolArray) -> tuple[Rows, FloatArray]:
        """Rows of single steps on m landmarks, and their expected rewards (m·A, K), by the rewards
        (n, K) of the transitions and those (n,) with which a task ends.

            P(s' | s, a) = 1/k Σ_j δ(s + change_j)

        over the nearest tries of a: kernel-based reinforcement learning (Ormoneit and Sen 2002)
        with changes in place of ends. Where a step ended, what it changed and the action predict
        rewards and ends, by one forest: no reward is earned again where the task has ended.
        """
        from sklearn.ensemble import ExtraTreesRegressor

        buffer, every = self.model.buffer, self.model.units.points
        largest = max(1, _MOST_OUTCOMES // (NEIGHBOURS * buffer.n_actions))
        net = Net.over(every(np.arange(len(buffer.observations))), _FINEST, largest=largest)
        changes = np.zeros((len(net), buffer.n_actions, NEIGHBOURS, self._changes.shape[1]))
        for action in self._tried:
            tries = self.near(action, net.landmarks)[0]
            changes[:, action] = self._changes[tries[:, np.arange(NEIGHBOURS) % tries.shape[1]]]
        begins, controls = net.landmarks[:, None, None], buffer.controls
        given = np.broadcast_to(controls[:, None], (*changes.shape[:3], controls.shape[1]))
        asked = np.concatenate([begins + changes, changes, given], axis=3)
        arrivals = every(buffer.successors)
        inputs = np.column_stack([arrivals, self._changes, controls[buffer.actions]])
        targets = np.column_stack([rewards, ends])
        scale = np.maximum(targets.std(axis=0), 1e-12)
        forest = ExtraTreesRegressor(32, min_samples_leaf=2, random_state=0)
        forest.fit(inputs, targets / scale)
        found = scale * forest.predict(asked.reshape(-1, asked.shape[3]))
        sink = np.tile(~np.isin(np.arange(buffer.n_actions), list(self._tried)), len(net))
        index, weights = between(net.tree, (begins + changes).reshape(len(found), -1), NEIGHBOURS)
        weights *= (~sink / NEIGHBOURS).repeat(NEIGHBOURS)[:, None]
        onward, over = (
            sparse_rows(index.reshape(len(sink), -1), part.reshape(len(sink), -1), len(net))
            for part in (weights * (1.0 - found[:, -1:]), weights * found[:, -1:])
        )
        lost, start = sink.astype(np.float64), self.model.start(net)
        rows = Rows(onward, over, lost, start, np.empty((len(sink), 0)), net.landmarks)
        return rows, found[:, :-1].reshape(len(sink), NEIGHBOURS, -1).mean(axis=1)


def _others(tree: KDTree) -> IntArray:
    """The nearest other point of a tree to each of its points, (n,)."""
    index = nearest(tree, np.asarray(tree.data), 2)[1]
    itself = index[:, 0] == np.arange(tree.n)  # else another lies at the same point
    return np.where(itself, index[:, 1], index[:, 0])
