"""Problems whose outcomes are drawn, with their exact transition probabilities.

Queues, an inventory, a rental and machines as textbooks have them. A problem steps as an
environment, and says where every action leads: the best return of so many steps follows by backward
induction, and that of a policy without a single episode.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.stats import poisson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Move = Callable[[Ints, int, Any], tuple[Ints, Floats]]


class Problem(gym.Env[Any, np.int64]):
    """An environment of N states and A actions whose probabilities are known.

    Args:
        kernel: (N·A, N) P(s' | s, a), row s·A + a.
        rewards: (N, A) expected rewards.
        states: (N, d) whole numbers, the observations.

    Attributes:
        start: the state in which episodes begin.
        drawn: what a step draws, and where it leads from states with an action, with the rewards;
            None: the kernel says so, and rewards are the expected ones.
    """

    start = 0
    drawn: tuple[Callable[[np.random.Generator], Any], Move] | None = None

    def __init__(self, kernel: Floats | csr_array, rewards: Floats, states: Ints) -> None:
        self.kernel, self.rewards = csr_array(kernel), np.asarray(rewards, np.float64)
        self.states = states
        self.action_space = spaces.Discrete(self.rewards.shape[1])
        self.observation_space: Any = spaces.Box(states.min(0), states.max(0), dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.start
        return self.observations[self._at], {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.drawn is not None:
            draw, move = self.drawn
            to, earned = move(self.states[[self._at]], int(action), draw(self.np_random))
            self._at, reward = int(_numbers(to, self.states)[0]), float(earned[0])
        else:
            pair = self._at * self.rewards.shape[1] + int(action)
            begin, end = self.kernel.indptr[pair : pair + 2]
            total = self.kernel.data[begin:end].cumsum()
            chosen = np.searchsorted(total, self.np_random.random() * total[-1], side="right")
            self._at = int(self.kernel.indices[begin + min(chosen, len(total) - 1)])
            reward = float(self.rewards.ravel()[pair])
        return self.observations[self._at], reward, False, False, {}

    @cached_property
    def observations(self) -> NDArray[Any]:
        """Observations of all states."""
        return self.states.astype(self.observation_space.dtype)

    def best(self, steps: int) -> float:
        """The best expected return of so many steps, by backward induction."""
        values = np.zeros(len(self.rewards))
        for _ in range(steps):
            values = (self.rewards + (self.kernel @ values).reshape(self.rewards.shape)).max(axis=1)
        return float(values[self.start])

    def expected(self, probs: Floats, steps: int) -> float:
        """The expected return of so many steps of a policy (N, A)."""
        pairs = np.arange(probs.size + 1)
        choose = csr_array((probs.ravel(), pairs[:-1], pairs[:: probs.shape[1]]))
        moves, earned = choose @ self.kernel, (probs * self.rewards).sum(axis=1)
        values = np.zeros(len(probs))
        for _ in range(steps):
            values = earned + moves @ values
        return float(values[self.start])


def _grid(*sizes: int) -> Ints:
    """All combinations of numbers from 0, (N, d)."""
    return np.stack(np.unravel_index(np.arange(np.prod(sizes)), sizes), axis=1)


def _numbers(of: Ints, states: Ints) -> Ints:
    """Numbers (n,) of states (n, d) among all combinations of the numbers of each column."""
    spans = np.ptp(states, axis=0) + 1
    return np.asarray(np.ravel_multi_index(tuple((of - states[0]).T), tuple(spans)))


def _of_outcomes(
    states: Ints, n_actions: int, outcomes: Sequence[tuple[float, Any]], move: Move
) -> Problem:
    """The problem of outcomes with their probabilities, which are drawn alike in every state, and
    of where they lead."""
    n, parts, rewards = len(states), [], np.zeros((len(states), n_actions))
    for action in range(n_actions):
        for p, outcome in outcomes:
            to, reward = move(states, action, outcome)
            rewards[:, action] += p * reward
            pairs = np.arange(n) * n_actions + action
            parts.append((np.full(n, p), pairs, _numbers(to, states)))
    values, rows, columns = map(np.concatenate, zip(*parts, strict=True))
    made = Problem(csr_array((values, (rows, columns)), (n * n_actions, n)), rewards, states)
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


def queues(arrivals: Sequence[float], costs: Sequence[float], most: int, served: float) -> Problem:
    """Queues of up to `most` and one server, who serves the chosen one, or none."""
    states = _grid(*[most + 1] * len(costs))
    coins = [[(1.0 - p, 0), (p, 1)] for p in (*arrivals, served)]

    def move(at: Ints, action: int, outcome: Any) -> tuple[Ints, Floats]:
        to = at + np.array(outcome[:-1])
        if action < len(costs):
            to[:, action] -= outcome[-1]
        return np.clip(to, 0, most), -(at @ np.array(costs, np.float64))

    return _of_outcomes(states, len(costs) + 1, _products(*coins), move)


def machines(n: int = 10) -> Problem:
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
    made = Problem(np.stack(kernel, 1).reshape(-1, len(states)), np.stack(rewards, 1), states)
    made.observation_space, made.start = spaces.MultiBinary(n), len(states) - 1
    return made


def rental() -> Problem:
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

    def move(at: Ints, action: int, drawn: Any) -> tuple[Ints, Floats]:
        moved = np.clip(action - 5, -at[:, 1], at[:, 0])
        cars = np.minimum(at + np.stack([-moved, moved], axis=1), 20)
        rented = np.minimum(drawn[:2], cars)
        earned = 10.0 * rented.sum(axis=1) - 2.0 * np.abs(moved)
        return np.minimum(cars - rented + drawn[2:], 20), earned

    made = Problem(kernel.reshape(-1, len(states)), rewards, states)
    made.start, made.drawn = 10 * 21 + 10, (lambda rng: rng.poisson([3, 4, 3, 2]), move)
    return made


def inventory(most: int = 15) -> Problem:
    """One product of up to 15 units; sales are lost where the stock is empty (Puterman 1994)."""
    states = _grid(most + 1)

    def move(at: Ints, action: int, demand: Any) -> tuple[Ints, Floats]:
        held = np.minimum(at + 3 * action, most)
        sold = np.minimum(held, demand)
        cost = 4.0 * (action > 0) + 2.0 * (held - at) + held
        return held - sold, (8.0 * sold - cost)[:, 0]

    return _of_outcomes(states, 6, _poisson(4.0, 15), move)


def slippery_cliff() -> Problem:
    """The cliff walk of 4×12 cells in which a third of the steps slip to either side."""
    states, turns = _grid(4, 12), np.array([[-1, 0], [0, 1], [1, 0], [0, -1]])
    kernel, rewards = np.zeros((48, 4, 48)), np.full((48, 4), -1.0)
    for at, action, slip in itertools.product(range(48), range(4), (-1, 0, 1)):
        p, to = 1.0 / 3.0, np.clip(states[at] + turns[(action + slip) % 4], 0, [3, 11])
        falls = to[0] == 3 and 0 < to[1] < 11
        is_over = bool((states[at] == [3, 11]).all())
        kernel[at, action, 36 if falls or is_over else to[0] * 12 + to[1]] += p
        rewards[at, action] += p * (20.0 * is_over - 20.0 * (falls and not is_over))
    made = Problem(kernel.reshape(-1, 48), rewards, states)
    made.start = 36
    return made


PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "clinic": lambda: queues((0.25, 0.2, 0.15), (1, 2, 4), 15, 0.75),
    "machines": machines,
    "rental": rental,
    "two queues": lambda: queues((0.3, 0.3), (1, 3), 9, 0.8),
    "inventory": inventory,
    "cliff": slippery_cliff,
}
"""Problems by name."""
