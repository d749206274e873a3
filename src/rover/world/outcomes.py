"""Drawn outcomes between states of whole numbers: P(s' | s, a) by forests over changes.

    P(s' | s, a) = Σ_j w_j(s, a) δ(s + change_j)

A conditional mean embedding whose kernel is learned: w_j is how often transition j shares a leaf
of extremely randomised trees (Geurts et al. 2006) with (s, a). Changes repeat where states do not:
whatever the level of a stock, two were sold. Where a pair was tried n times, its counts weigh n and
the forests κ: the posterior mean of a Dirichlet prior.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial import KDTree

from rover.arrays import BoolArray, FloatArray, IntArray, blocks
from rover.data import Buffer
from rover.world.counts import Rows
from rover.world.net import FIRST_UNITS, nearest

_TREES, _TREES_OF_A_CHOICE, _LEAVES = 32, 6, (2, 5, 12)
_PRUNED = 3.0, 12.0  # impurity that a split must remove, in units of a transition's
_WEIGHTS = 1e-9, 0.5, 2.0, 8.0, 32.0, 1e9  # κ; the first trusts counts alone, the last forests
_DEPENDENT = 5.0  # standard errors of a covariance from which on columns move together
_LEAST_PROBABILITY = 1e-3  # of outcomes that nothing predicted, in a log-likelihood
_MOST_NUMBERS, _MOST_CLASSES = 64, 128
_MOST_STATES = 16_000
_DRAWS, _ALL_DRAWS = (16, 64), 3_000_000  # of a pair, and of all pairs
_MOST_LEVELS = 1024  # of the columns of states together, at which rewards may step
_HELD_OUT = 50  # transitions that are held out together where episodes are few


class _Forest:
    """Expectations of targets (n, k) given inputs (n, d), by extremely randomised trees.

    Pruned trees choose the inputs `used`, since those that do not matter take data: what predicts
    each half of the transitions (`fold`) best from the other, as in `held_out` (n, k), by errors
    with weights (n,). The first input is a constant, with which a forest is left that splits
    nowhere.
    """

    def __init__(
        self, inputs: FloatArray, targets: FloatArray, fold: BoolArray, weights: FloatArray
    ) -> None:
        from sklearn.ensemble import ExtraTreesRegressor
        from sklearn.tree import DecisionTreeRegressor

        self.targets, spread, best = targets, float(targets.var(axis=0).mean()), np.inf
        learned = targets[:, 0] if targets.shape[1] == 1 else targets

        def grow(used: IntArray, leaf: int, trees: int, rows: BoolArray) -> None:
            model = ExtraTreesRegressor(trees, min_samples_leaf=leaf, random_state=0)
            self.used = used
            self._trees: list[Any] = model.fit(inputs[rows][:, used], learned[rows]).estimators_

        for pruned, leaf in product(_PRUNED, _LEAVES):
            tree = DecisionTreeRegressor(ccp_alpha=pruned * spread / len(targets), random_state=0)
            used = np.unique(np.maximum(tree.fit(inputs, targets).tree_.feature, 0))
            predicted = np.empty_like(targets)
            for rows in (fold, ~fold):
                grow(used, leaf, _TREES_OF_A_CHOICE, rows)
                predicted[~rows] = self.predict(inputs[~rows])
            error = float(weights @ ((predicted - targets) ** 2).mean(axis=1))
            if error < best:
                best, self.held_out, chosen = error, predicted, (used, leaf)
        # As many of all transitions fill the regions that were compared on halves of them.
        grow(chosen[0], 2 * chosen[1], _TREES, np.ones_like(fold))

    def predict(self, inputs: FloatArray) -> FloatArray:
        """Expectations (m, k) given inputs (m, d)."""
        return np.asarray(self.moments(inputs)[0])

    def moments(self, inputs: FloatArray) -> FloatArray:
        """Mean and variance (2, m, k) over the trees given inputs (m, d)."""
        first, inverse = _distinct(inputs[:, self.used])
        few = inputs[first][:, self.used].astype(np.float32)
        # Trees one by one: a call of scikit-learn's forest starts threads and checks its input.
        sums = np.zeros((2, len(few), self.targets.shape[1]))
        for tree in self._trees:
            found = tree.predict(few, check_input=False).reshape(len(few), -1)
            sums += found, found**2
        mean, squares = sums / len(self._trees)
        return np.stack([mean, np.maximum(squares - mean**2, 0.0)])[:, inverse]


class _Group(NamedTuple):
    """Columns (c,) of outcomes that are drawn together: classes (n,) of the transitions, their
    values (K, c), and a forest that predicts them."""

    columns: IntArray
    classes: IntArray
    values: FloatArray
    forest: _Forest


class Outcomes:
    """Outcomes of every action at states of whole numbers, by the transitions of a buffer; `ends`
    (n,) are those with which a task ends, by default those that terminated.

    Attributes:
        table: (N, d) the states of the buffer.
        groups: columns that move together; the last column says whether the episode ends.
        weight: κ.
        gain: mean log-likelihood of held-out transitions beyond that by counts alone.
    """

    def __init__(self, buffer: Buffer, ends: BoolArray | None = None) -> None:
        self.buffer, self.ends = buffer, buffer.terminated if ends is None else ends
        self.table = buffer.observations.rows.astype(np.float64)
        self._controls = np.column_stack([buffer.controls, np.arange(buffer.n_actions)])
        begins, after = self.table[buffer.inputs], self.table[buffer.successors]
        self._usual = np.maximum(np.abs(after - begins).mean(axis=0), 1e-9)
        given = self._controls[buffer.actions]
        self._inputs = np.column_stack([np.zeros(len(buffer)), begins, given])
        self._pairs = buffer.inputs * buffer.n_actions + buffer.actions
        # Plans ask for all pairs, however often each was tried.
        self._alike = 1.0 / np.bincount(self._pairs)[self._pairs]
        few = np.arange(len(buffer)) // _HELD_OUT
        self._fold = (buffer.episodes if buffer.n_episodes > 3 else few) % 2 == 0
        # Each number is predicted in the form that varies less: what it changes, or what it is.
        pairs = zip((after - begins).T, after.T, strict=True)
        self._changes = np.array([_impurity(change) <= _impurity(end) for change, end in pairs])
        outcomes = np.column_stack([after - self._changes * begins, self.ends])
        self.groups = self._grouped(outcomes)
        self.weight, self.gain = self._weighed()

    @classmethod
    def of(cls, buffer: Buffer) -> Self | None:
        """Outcomes of vectors of few whole numbers that vary, where held-out transitions are
        predicted better than by counts; None: counts stay."""
        table = buffer.observations.rows
        if table.shape[1] > _MOST_NUMBERS or len(buffer) < 2 * FIRST_UNITS:
            return None
        changes = table[buffer.successors].astype(np.float64) - table[buffer.inputs]
        if max(len(np.unique(column)) for column in changes.T) > _MOST_CLASSES:
            return None
        is_one_hot = bool(((table == 0) | (table == 1)).all() and (table.sum(axis=1) == 1).all())
        if is_one_hot or buffer.counts().outcome_variance == 0.0:
            return None
        outcomes = cls(buffer)
        return outcomes if outcomes.gain > 0.0 else None

    def _forest(self, targets: FloatArray) -> _Forest:
        """The forest of targets (n, k) of the transitions."""
        return _Forest(self._inputs, targets, self._fold, self._alike)

    def _grouped(self, outcomes: FloatArray) -> list[_Group]:
        """Columns of outcomes (n, d + 1), together where the residuals of their forests are
        correlated."""

        def group(columns: IntArray) -> _Group:
            values, index = np.unique(outcomes[:, columns], axis=0, return_inverse=True)
            classes = index.reshape(-1)
            # Beside classes what is at most each number, by which near numbers are alike.
            ranks = [column[:, None] <= np.unique(column)[:-1] for column in values.T]
            targets = np.concatenate([np.eye(len(values)), *ranks], axis=1)[classes]
            return _Group(columns, classes, values, self._forest(targets))

        single = [group(np.array([column])) for column in range(outcomes.shape[1])]
        left = [one.forest.targets - one.forest.held_out for one in single]
        label = np.arange(len(single))
        for i, rest in enumerate(left):
            for j, other in enumerate(left[:i]):
                errors = np.maximum(np.sqrt((rest**2).T @ other**2), 1e-6)
                if (np.abs(rest.T @ other) > _DEPENDENT * errors).any():
                    label[label == label[i]] = label[j]
        groups: list[_Group] = []
        for number in np.unique(label):
            columns = np.flatnonzero(label == number)
            n_classes = len(np.unique(outcomes[:, columns], axis=0))
            is_joint = len(columns) > 1 and n_classes <= _MOST_CLASSES
            groups += [group(columns)] if is_joint else [single[column] for column in columns]
        return groups

    def _weighed(self) -> tuple[float, float]:
        """κ by the log-likelihood of held-out transitions, each pair counting alike, and the gain
        over counts."""
        each = np.arange(len(self._pairs))
        hits = np.prod([one.forest.held_out[each, one.classes] for one in self.groups], axis=0)
        _, same = np.unique(
            np.stack([self._pairs, self.buffer.successors, self.ends]), axis=1, return_inverse=True
        )

        def others(names: IntArray) -> IntArray:
            half = 2 * names + self._fold
            return np.asarray(np.bincount(half, minlength=half.max() + 2)[half ^ 1])

        tried, met = others(self._pairs), others(same.reshape(-1))  # in the other half
        weights = np.array((0.0, *_WEIGHTS))[:, None]
        found = (met + weights * hits) / np.maximum(tried + weights, 1e-12)
        logs = np.log(np.maximum(found, _LEAST_PROBABILITY)) @ self._alike / self._alike.sum()
        best = int(np.argmax(logs[1:]))
        return _WEIGHTS[best], float(logs[1 + best] - logs[0])

    def _asked(self, states: FloatArray) -> FloatArray:
        """Inputs (m·A, z) of every action at states (m, d)."""
        begins = np.repeat(states, len(self._controls), axis=0)
        controls = np.tile(self._controls, (len(states), 1))
        return np.column_stack([np.zeros(len(begins)), begins, controls])

    def drawn(self, states: FloatArray) -> FloatArray:
        """Outcomes (m·A, S, d + 1) of every action at states (m, d), spread evenly over what each
        group does (Latin hypercubes), the same for all actions."""
        n_actions, inputs = self.buffer.n_actions, self._asked(states)
        rng = np.random.default_rng(0)
        n_draws = int(np.clip(_ALL_DRAWS // (_MOST_STATES * n_actions), *_DRAWS))
        after = np.empty((len(inputs), n_draws, states.shape[1] + 1))
        for group in self.groups:
            even = np.tile((np.arange(n_draws) + rng.random()) / n_draws, (len(states), 1))
            at = rng.permuted(even, axis=1).repeat(n_actions, axis=0)
            number = np.zeros(at.shape, np.int64)
            total = group.forest.predict(inputs)[:, : len(group.values) - 1].cumsum(axis=1)
            for part in total.T:
                number += at > part[:, None]
            after[:, :, group.columns] = group.values[number]
        after[:, :, :-1] += (np.repeat(states, n_actions, axis=0) * self._changes)[:, None]
        low, high = self.table.min(axis=0), self.table.max(axis=0)
        np.clip(after[:, :, :-1], low, high, out=after[:, :, :-1])
        return after

    @cached_property
    def states(self) -> FloatArray:
        """The states of the buffer, and the most frequent ones that they lead to, (m, d)."""
        known = len(self.table)
        reached = self.drawn(self.table)[:, :, :-1].reshape(-1, self.table.shape[1])
        first, inverse = _distinct(np.concatenate([self.table, reached]))
        order = np.argsort(-np.bincount(inverse), kind="stable")
        new = first[order][first[order] >= known] - known
        return np.concatenate([self.table, reached[new[: max(_MOST_STATES - known, 0)]]])

    def rows(self, states: FloatArray) -> Rows:
        """Rows of every action at states (m, d), the buffer's first."""
        buffer, usual = self.buffer, self._usual
        tree, size = KDTree(states / usual), len(states) * buffer.n_actions
        to, ends = list[IntArray](), list[BoolArray]()
        for some in blocks(len(states), 1024):
            after = self.drawn(states[some]).reshape(-1, states.shape[1] + 1)
            first, inverse = _distinct(after[:, :-1])
            to.append(nearest(tree, after[first, :-1] / usual, 1)[1][:, 0][inverse])
            ends.append(after[:, -1] > 0.5)
        column, ended = np.concatenate([*to, buffer.successors]), np.concatenate([*ends, self.ends])
        tried, tries = self._pairs, np.bincount(self._pairs, minlength=size)
        share = tries / (tries + self.weight)
        # Of an action that was never tried nothing is known; others do alike in other states.
        untried = np.bincount(buffer.actions, minlength=buffer.n_actions) == 0
        sink = np.tile(untried, len(states)) * (1.0 - share)
        n_draws = (len(column) - len(tried)) // size
        weights = np.repeat((1.0 - sink - share) / n_draws, n_draws)
        weights = np.append(weights, (share / np.maximum(tries, 1))[tried])
        pair = np.append(np.repeat(np.arange(size), n_draws), tried)
        onward, over = (
            csr_array((weights[some], (pair[some], column[some])), shape=(size, len(states)))
            for some in (~ended, ended)
        )
        begins, shares = buffer.starts()
        start = np.bincount(begins, shares, minlength=len(states))
        return Rows(onward, over, sink, start.astype(np.float64), np.empty((size, 0)))

    def rewards(self, rewards: FloatArray, rows: Rows) -> FloatArray:
        """Expected rewards (m·A, K) at :attr:`states`, by the rewards (n, K) of transitions.

        A sum of functions of single numbers before and after a step, and what that leaves of pairs,
        tried ones by their own means; what a step leads to is what rows say.
        """
        asked, columns = self._asked(self.states), self.states.T
        most = _MOST_LEVELS // len(columns)
        levels = (np.unique(column)[:-1] for column in columns)
        some = (each[:: max(1, -(-len(each) // most))] for each in levels)
        after = np.concatenate(
            [column[:, None] <= each for column, each in zip(columns, some, strict=True)], axis=1
        ).astype(np.float64)
        design = np.column_stack([self._inputs, self.ends, after[self.buffer.successors]])
        centred = design - design.mean(axis=0)
        slopes = np.linalg.solve(centred.T @ centred + np.eye(len(centred.T)), centred.T @ rewards)
        own, over, others = np.split(slopes, np.cumsum([self._inputs.shape[1], 1]))
        left = rewards - design @ slopes
        forest = self._forest(left)
        # Tries of a pair weigh by their noise, the forest by how much it is off and trees differ.
        sums = np.zeros((len(asked), left.shape[1]))
        np.add.at(sums, self._pairs, left)
        tries = np.bincount(self._pairs, minlength=len(asked))[:, None]
        again = len(left) - int(np.count_nonzero(tries))
        scatter = ((left - (sums / np.maximum(tries, 1.0))[self._pairs]) ** 2).sum(axis=0)
        error = ((left - forest.held_out) ** 2).mean(axis=0)
        noise = scatter / again if again else error
        mean, spread = forest.moments(asked)
        unsure = spread + np.maximum(error - noise, 0.0)
        weight = np.maximum(noise, 1e-12) / np.maximum(unsure, 1e-12)
        found = (sums + weight * mean) / (tries + weight)
        moved = (rows.onward + rows.ended) @ (after @ others) + rows.end[:, None] * over
        return np.asarray(asked @ own + moved + found)


def _impurity(numbers: FloatArray) -> float:
    """Gini impurity of numbers (n,)."""
    counts = np.unique(numbers, return_counts=True)[1]
    return float(1.0 - ((counts / len(numbers)) ** 2).sum())


def _distinct(rows: FloatArray) -> tuple[IntArray, IntArray]:
    """First index (q,) and inverse (n,) of distinct rows (n, d), by a number of each, since numbers
    are sorted faster."""
    names = rows @ np.random.default_rng(0).normal(size=rows.shape[1])
    _, first, inverse = np.unique(names, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)
