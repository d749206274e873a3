"""Problems whose outcomes are drawn, with their exact transition probabilities.

Queues, stocks, rentals and machines as textbooks have them. A problem steps as an environment, and
says where every action leads: the best return of so many steps follows by backward induction, and
that of a policy without a single episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import poisson

Floats = NDArray[np.float64]
Move = Callable[[NDArray[np.int64], int, Any], tuple[NDArray[np.int64], Floats]]


class Problem(gym.Env[Any, np.int64]):
    """An environment of N states and A actions whose probabilities are known.

    Attributes:
        states: (N, d) whole numbers; observations are its rows, or their numbers where d is 0.
        kernel: (N·A, N) P(s' | s, a), row s·A + a.
        rewards: (N, A) expected rewards.
        start: the state in which episodes begin.
        drawn: what a step draws, and where it leads from states with an action, with the rewards;
            None: the kernel says so, and rewards are the expected ones.
    """

    states: NDArray[np.int64]
    kernel: csr_array
    rewards: Floats
    start = 0
    drawn: tuple[Callable[[np.random.Generator], Any], Move] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self._at = self.start
        return self._observed(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step."""
        if self.drawn is not None:
            draw, move = self.drawn
            here = self.states[self._at][None]
            to, reward = move(here, int(action), draw(self.np_random))
            self._at = int(self.index(to)[0])
            return self._observed(), float(reward[0]), False, False, {}
        pair = self._at * self.rewards.shape[1] + int(action)
        begin, end = self.kernel.indptr[pair : pair + 2]
        total = self.kernel.data[begin:end].cumsum()
        chosen = np.searchsorted(total, self.np_random.random() * total[-1], side="right")
        self._at = int(self.kernel.indices[begin + min(chosen, len(total) - 1)])
        return self._observed(), float(self.rewards.ravel()[pair]), False, False, {}

    def _observed(self) -> Any:
        row = self.states[self._at].astype(self.observation_space.dtype)
        return row if row.size else np.int64(self._at)

    def index(self, states: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of states (…, d) among all combinations of the numbers of each column."""
        spans = np.ptp(self.states, axis=0) + 1
        return np.asarray(np.ravel_multi_index(tuple((states - self.states[0]).T), tuple(spans)))

    def best(self, steps: int = 100) -> float:
        """The best expected return of so many steps, by backward induction."""
        values = np.zeros(len(self.rewards))
        for _ in range(steps):
            values = (self.rewards + (self.kernel @ values).reshape(self.rewards.shape)).max(axis=1)
        return float(values[self.start])

    def expected(self, probs: Floats, steps: int = 100) -> float:
        """The expected return of so many steps of a policy (N, A)."""
        n, n_actions = probs.shape
        choose = csr_array(
            (probs.ravel(), np.arange(probs.size), np.arange(0, probs.size + 1, n_actions))
        )
        moves, earned, values = (
            choose @ self.kernel,
            (probs * self.rewards).sum(axis=1),
            np.zeros(n),
        )
        for _ in range(steps):
            values = earned + moves @ values
        return float(values[self.start])


class Drawn(Problem):
    """A problem that its probabilities say whole.

    Args:
        kernel: (N·A, N).
        rewards: (N, A).
        states: (N, d); None: Discrete observations.
    """

    def __init__(
        self, kernel: Floats | csr_array, rewards: Floats, states: NDArray[np.int64] | None = None
    ) -> None:
        self.kernel, self.rewards = csr_array(kernel), np.asarray(rewards, np.float64)
        self.action_space = spaces.Discrete(self.rewards.shape[1])
        if states is None:
            self.states = np.zeros((len(rewards), 0), np.int64)
            self.observation_space: Any = spaces.Discrete(len(rewards))
        else:
            self.states = states
            self.observation_space = spaces.Box(states.min(0), states.max(0), dtype=np.int64)


def _grid(*sizes: int) -> NDArray[np.int64]:
    """All combinations of numbers from 0, (N, d)."""
    return np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)


def _of_outcomes(
    states: NDArray[np.int64], n_actions: int, outcomes: Sequence[tuple[float, Any]], move: Move
) -> Drawn:
    """The problem of outcomes with their probabilities, which are drawn alike in every state, and
    of where they lead."""
    n, parts, rewards = len(states), [], np.zeros((len(states), n_actions))
    spans = tuple(np.ptp(states, axis=0) + 1)
    for action in range(n_actions):
        for p, outcome in outcomes:
            to, reward = move(states, action, outcome)
            rewards[:, action] += p * reward
            number = np.ravel_multi_index(tuple((to - states[0]).T), spans)
            parts.append((np.full(n, p), np.arange(n) * n_actions + action, number))
    values, rows, columns = map(np.concatenate, zip(*parts, strict=True))
    made = Drawn(csr_array((values, (rows, columns)), (n * n_actions, n)), rewards, states)
    total = np.cumsum([p for p, _ in outcomes])
    made.drawn = lambda rng: outcomes[np.searchsorted(total[:-1], rng.random())][1], move
    return made


def _products(*parts: Sequence[tuple[float, int]]) -> list[tuple[float, tuple[int, ...]]]:
    """Independent draws together: (probability, numbers)."""
    together = itertools.product(*parts)
    return [(float(np.prod([p for p, _ in one])), tuple(x for _, x in one)) for one in together]


def _poisson(mean: float, most: int) -> list[tuple[float, int]]:
    """Probabilities of 0 to `most` or more."""
    p = poisson.pmf(np.arange(most + 1), mean)
    p[-1] += 1.0 - p.sum()
    return [(float(x), k) for k, x in enumerate(p)]


def queues(arrivals: Sequence[float], costs: Sequence[float], most: int, served: float) -> Drawn:
    """Queues of up to `most` and one server, who serves the chosen one, or none."""
    states = _grid(*[most + 1] * len(costs))
    coins = [[(1.0 - p, 0), (p, 1)] for p in (*arrivals, served)]

    def move(at: NDArray[np.int64], action: int, outcome: Any) -> tuple[NDArray[np.int64], Floats]:
        to = at + np.array(outcome[:-1])
        if action < len(costs):
            to[:, action] -= outcome[-1]
        return np.clip(to, 0, most), -(at @ np.array(costs, np.float64))

    return _of_outcomes(states, len(costs) + 1, _products(*coins), move)


def machines(n: int = 10) -> Drawn:
    """A ring of computers, one of which may be restarted a step; one whose neighbour is down fails
    sooner (SysAdmin, Guestrin et al. 2003)."""
    states = _grid(*[2] * n)
    up = np.where(states == 1, 0.45 + 0.25 * (1 + np.roll(states, 1, axis=1)), 0.05)
    kernel, rewards = [], []
    for action in range(n + 1):
        chances = up.copy()
        if action < n:
            chances[:, action] = 1.0
        each = [np.stack([1.0 - p, p], axis=1) for p in chances.T]
        kernel.append(reduce(lambda a, b: (a[:, :, None] * b[:, None]).reshape(len(a), -1), each))
        rewards.append(states.sum(axis=1) - 0.75 * (action < n))
    made = Drawn(np.stack(kernel, 1).reshape(-1, len(states)), np.stack(rewards, 1), states)
    made.observation_space, made.start = spaces.MultiBinary(n), len(states) - 1
    return made


def rental() -> Drawn:
    """Jack's car rental (Sutton and Barto, example 4.2): 20 cars at either place, up to 5 moved."""
    each, paid = [], []
    for requests, returns in ((3, 3), (4, 2)):
        matrix, money = np.zeros((21, 21)), np.zeros(21)
        for cars in range(21):
            for p, (asked, back) in _products(_poisson(requests, 15), _poisson(returns, 15)):
                rented = min(asked, cars)
                money[cars] += 10.0 * p * rented
                matrix[cars, min(cars - rented + back, 20)] += p
        each.append(matrix)
        paid.append(money)
    states = _grid(21, 21)
    kernel, rewards = np.zeros((len(states), 11, len(states))), np.zeros((len(states), 11))
    for action in range(11):
        moved = np.clip(action - 5, -states[:, 1], states[:, 0])
        first, second = np.minimum(states[:, 0] - moved, 20), np.minimum(states[:, 1] + moved, 20)
        there = each[0][first][:, :, None] * each[1][second][:, None]
        kernel[:, action] = there.reshape(len(states), -1)
        rewards[:, action] = paid[0][first] + paid[1][second] - 2.0 * np.abs(moved)

    def move(at: NDArray[np.int64], action: int, drawn: Any) -> tuple[NDArray[np.int64], Floats]:
        moved = np.clip(action - 5, -at[:, 1], at[:, 0])
        cars = np.minimum(at + np.stack([-moved, moved], axis=1), 20)
        rented = np.minimum(drawn[:2], cars)
        earned = 10.0 * rented.sum(axis=1) - 2.0 * np.abs(moved)
        return np.minimum(cars - rented + drawn[2:], 20), earned

    made = Drawn(kernel.reshape(-1, len(states)), rewards, states)
    made.start, made.drawn = 10 * 21 + 10, (lambda rng: rng.poisson([3, 4, 3, 2]), move)
    return made


def stock() -> Drawn:
    """Two products with backlog; demand follows the weekday, and orders arrive a day later.

    States are both levels, from −4 to 8, the weekday, and what was ordered of each; 14,196.
    """
    orders = list(itertools.product((0, 2, 4, 6), (0, 3, 6)))
    states = _grid(13, 13, 7, 4, 3) - [4, 4, 0, 0, 0]
    means = np.array([(1.0, 1.5)] * 5 + [(2.5, 3.0)] * 2)

    def sold(at: NDArray[np.int64], demand: Any) -> tuple[NDArray[np.int64], Floats]:
        arrived = at[:, :2] + at[:, 3:] * [2, 3]
        level = np.clip(arrived - demand, -4, 8)
        costs = np.where(level > 0, 0.5 * level, -4.0 * level)
        return level, (6.0 * np.minimum(demand, arrived + 4) - costs).sum(axis=1)

    def move(at: NDArray[np.int64], action: int, uniform: Any) -> tuple[NDArray[np.int64], Floats]:
        level, earned = sold(at, np.minimum(poisson.ppf(uniform, means[at[:, 2]]), 6).astype(int))
        first, second = orders[action]
        ordered = np.tile([first // 2, second // 3], (len(at), 1))
        return np.c_[level, (at[:, 2:3] + 1) % 7, ordered], earned - 2.0 * (first + second)

    parts, rewards = [], np.zeros(len(states))
    for day in range(7):
        here = np.flatnonzero(states[:, 2] == day)
        for p, demand in _products(*[_poisson(mean, 6) for mean in means[day]]):
            level, earned = sold(states[here], np.array(demand))
            rewards[here] += p * earned
            to = np.ravel_multi_index(
                (*(level + 4).T, np.full(len(here), (day + 1) % 7)), (13, 13, 7)
            )
            parts.append((np.full(len(here), p), here, to))
    values, rows, columns = map(np.concatenate, zip(*parts, strict=True))
    levels = csr_array((values, (rows, columns)), (len(states), 13 * 13 * 7)).tocoo()
    pairs = np.add.outer(12 * levels.row, np.arange(12)).ravel()
    to = np.add.outer(12 * levels.col, np.arange(12)).ravel()
    kernel = csr_array((np.repeat(levels.data, 12), (pairs, to)), (12 * len(states), len(states)))
    made = Drawn(kernel, rewards[:, None] - 2.0 * np.sum(orders, axis=1), states)
    start = np.array([[4, 4, 0, 0, 0]])
    made.start, made.drawn = int(made.index(start)[0]), (lambda rng: rng.random(2), move)
    return made


def river_swim() -> Drawn:
    """Six places in a river (Strehl and Littman 2008): the best reward lies upstream."""
    kernel, rewards = np.zeros((6, 2, 6)), np.zeros((6, 2))
    for at in range(6):
        kernel[at, 0, max(at - 1, 0)] = 1.0
        kernel[at, 1, [max(at - 1, 0), at, min(at + 1, 5)]] += [0.05, 0.6, 0.35]
    kernel[0, 1], kernel[5, 1] = 0.0, 0.0
    kernel[0, 1, :2], kernel[5, 1, 4:] = [0.4, 0.6], [0.4, 0.6]
    rewards[0, 0], rewards[5, 1] = 0.005, 1.0
    return Drawn(kernel.reshape(12, 6), rewards)


def inventory(most: int = 15) -> Drawn:
    """One product of up to 15 units; sales are lost where the stock is empty (Puterman 1994)."""
    states = _grid(most + 1)

    def move(at: NDArray[np.int64], action: int, demand: Any) -> tuple[NDArray[np.int64], Floats]:
        held = np.minimum(at + 3 * action, most)
        sold = np.minimum(held, demand)
        cost = 4.0 * (action > 0) + 2.0 * (held - at) + held
        return held - sold, (8.0 * sold - cost)[:, 0]

    return _of_outcomes(states, 6, _poisson(4.0, 15), move)


def replacement(n: int = 20) -> Drawn:
    """A machine that wears, by its age: keep it, mend it, or replace it."""
    kernel, rewards = np.zeros((n, 3, n)), np.zeros((n, 3))
    for at in range(n):
        for worn, p in enumerate((0.4, 0.4, 0.2)):
            kernel[at, 0, min(at + worn, n - 1)] += p
            kernel[at, 1, min(max(at - 5, 0) + worn, n - 1)] += p
        kernel[at, 2, 0] = 1.0
        rewards[at] = 10.0 - 0.05 * at**2, 6.0 - 0.05 * at**2, -6.0
    return Drawn(kernel.reshape(-1, n), rewards)


def slippery_cliff() -> Drawn:
    """The cliff walk of 4×12 cells in which a third of the steps slip to either side."""
    states, turns = _grid(4, 12), np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
    kernel, rewards = np.zeros((48, 4, 48)), np.full((48, 4), -1.0)
    for at, action, slip in itertools.product(range(48), range(4), (-1, 0, 1)):
        p, to = 1.0 / 3.0, np.clip(states[at] + turns[(action + slip) % 4], 0, [3, 11])
        falls = to[0] == 3 and 0 < to[1] < 11
        is_over = bool((states[at] == [3, 11]).all())
        kernel[at, action, 36 if falls or is_over else to[0] * 12 + to[1]] += p
        rewards[at, action] += p * (20.0 * is_over - 20.0 * (falls and not is_over))
    made = Drawn(kernel.reshape(-1, 48), rewards, states)
    made.start = 36
    return made


def garnet(n: int = 60, n_actions: int = 4, branching: int = 3) -> Drawn:
    """A drawn problem (Archibald et al. 1995): each pair leads to three states."""
    rng, kernel = np.random.default_rng(0), np.zeros((n * n_actions, n))
    for row in kernel:
        row[rng.choice(n, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    return Drawn(kernel, rng.random((n, n_actions)) * (rng.random((n, 1)) < 0.1))


PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "clinic": lambda: queues((0.25, 0.2, 0.15), (1, 2, 4), 15, 0.75),
    "machines": machines,
    "stock": stock,
    "rental": rental,
    "two queues": lambda: queues((0.3, 0.3), (1, 3), 9, 0.8),
    "inventory": inventory,
    "cliff": slippery_cliff,
    "river swim": river_swim,
    "replacement": replacement,
    "garnet": garnet,
}
"""Problems by name."""
