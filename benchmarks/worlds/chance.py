"""Problems whose outcomes are drawn, with their exact transition probabilities.

Queues, stocks, a rental and machines as textbooks have them, and one each of Gymnasium,
gym-classics2 and pymdptoolbox. A problem steps as an environment, and says where every action
leads: the best return of so many steps follows by backward induction, and that of a policy without
a single episode.
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

from rover.envs import FiniteDynamics, FiniteMDP

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Act = Callable[[NDArray[Any]], Floats]
"""From observations (n, …) to action probabilities (n, A)."""
Move = Callable[[Ints, int, Any], tuple[Ints, Floats]]
"""From states, an action and an outcome to next states and rewards."""


class Problem(gym.Env[Any, np.int64]):
    """An environment of N states and A actions whose probabilities are known.

    Args:
        kernel: (N·A, N) P(s' | s, a), row s·A + a.
        rewards: (N, A) expected rewards.
        states: (N, d) whole numbers, the observations; None: the numbers of the states.

    Attributes:
        start: the state in which episodes begin.
        drawn: where a step from a state (1, d) with an action leads, and its reward; None: the
            kernel says so, and rewards are the expected ones.
        env: the environment of a package; None: the problem itself.
    """

    start = 0
    drawn: Callable[[np.random.Generator, Ints, int], tuple[Ints, Floats]] | None = None
    env: gym.Env[Any, Any] | None = None

    def __init__(
        self, kernel: Floats | csr_array, rewards: Floats, states: Ints | None = None
    ) -> None:
        self.kernel, self.rewards = csr_array(kernel), np.asarray(rewards, np.float64)
        self.states = np.arange(len(rewards)) if states is None else states
        self.action_space = spaces.Discrete(self.rewards.shape[1])
        self.observation_space: Any = spaces.Discrete(len(rewards))
        if states is not None:
            self.observation_space = spaces.Box(states.min(0), states.max(0), dtype=np.int64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._at = self.start
        return self.observations[self._at], {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.drawn is not None:
            to, earned = self.drawn(self.np_random, self.states[[self._at]], int(action))
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

    @property
    def exact(self) -> FiniteMDP:
        """The probabilities, by which coverage is measured."""
        n_actions, start = self.rewards.shape[1], np.zeros(len(self.rewards))
        start[self.start] = 1.0
        matrices = tuple(csr_array(self.kernel[a::n_actions]) for a in range(n_actions))
        return FiniteMDP(FiniteDynamics(matrices, start, start < 0.0), self.observations)

    def acted(self, act: Act, many: int = 2000) -> Floats:
        """Action probabilities (N, A) of a policy in all states."""
        seen = self.observations
        return np.concatenate([act(seen[i : i + many]) for i in range(0, len(seen), many)])

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
    states: Ints, n_actions: int, outcomes: Sequence[tuple[Any, Any]], move: Move
) -> Problem:
    """The problem of outcomes with their probabilities, a number or one in each state (N,), and of
    where they lead."""
    n, parts, rewards = len(states), [], np.zeros((len(states), n_actions))
    for action in range(n_actions):
        for p, outcome in outcomes:
            to, reward = move(states, action, outcome)
            rewards[:, action] += p * reward
            pairs = np.arange(n) * n_actions + action
            parts.append((np.broadcast_to(p, n), pairs, _numbers(to, states)))
    values, rows, columns = map(np.concatenate, zip(*parts, strict=True))
    made = Problem(csr_array((values, (rows, columns)), (n * n_actions, n)), rewards, states)
    total = np.cumsum([np.broadcast_to(p, n) for p, _ in outcomes], axis=0)

    def drawn(rng: np.random.Generator, at: Ints, action: int) -> tuple[Ints, Floats]:
        place = np.searchsorted(total[:-1, _numbers(at, states)[0]], rng.random())
        return move(at, action, outcomes[place][1])

    made.drawn = drawn
    return made


def _products(*parts: Sequence[tuple[Any, int]]) -> list[tuple[Any, tuple[int, ...]]]:
    """Independent draws together: (probability, numbers)."""
    together = itertools.product(*parts)
    return [(np.prod([p for p, _ in one], axis=0), tuple(x for _, x in one)) for one in together]


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

    def drawn(rng: np.random.Generator, at: Ints, action: int) -> tuple[Ints, Floats]:
        customers = rng.poisson([3, 4, 3, 2])
        moved = np.clip(action - 5, -at[:, 1], at[:, 0])
        cars = np.minimum(at + np.stack([-moved, moved], axis=1), 20)
        rented = np.minimum(customers[:2], cars)
        earned = 10.0 * rented.sum(axis=1) - 2.0 * np.abs(moved)
        return np.minimum(cars - rented + customers[2:], 20), earned

    made = Problem(kernel.reshape(-1, len(states)), rewards, states)
    made.start, made.drawn = 10 * 21 + 10, drawn
    return made


def stock() -> Problem:
    """Two products with backlog; demand follows the weekday, and orders arrive a day later.

    States are both levels, from −4 to 8, the weekday, and what was ordered of each; 14,196.
    """
    orders = np.array(list(itertools.product((0, 2, 4, 6), (0, 3, 6))))
    states = _grid(13, 13, 7, 4, 3) - [4, 4, 0, 0, 0]
    is_weekend = states[:, 2] >= 5
    demands = []
    for weekday, weekend in ((1.0, 2.5), (1.5, 3.0)):
        both = zip(_poisson(weekday, 6), _poisson(weekend, 6), strict=True)
        demands.append([(np.where(is_weekend, q, p), sold) for (p, sold), (q, _) in both])

    def move(at: Ints, action: int, demand: Any) -> tuple[Ints, Floats]:
        arrived = at[:, :2] + at[:, 3:] * [2, 3]
        level = np.clip(arrived - demand, -4, 8)
        costs = np.where(level > 0, 0.5 * level, -4.0 * level)
        earned = (6.0 * np.minimum(demand, arrived + 4) - costs).sum(axis=1)
        ordered = np.tile(orders[action] // [2, 3], (len(at), 1))
        after = np.column_stack([level, (at[:, 2] + 1) % 7, ordered])
        return after, earned - 2.0 * orders[action].sum()

    made = _of_outcomes(states, len(orders), _products(*demands), move)
    made.start = int(_numbers(np.array([[4, 4, 0, 0, 0]]), states)[0])
    return made


def river_swim() -> Problem:
    """Six places in a river (Strehl and Littman 2008): the best reward lies upstream."""
    kernel, rewards = np.zeros((6, 2, 6)), np.zeros((6, 2))
    for at in range(6):
        kernel[at, 0, max(at - 1, 0)] = 1.0
        kernel[at, 1, [max(at - 1, 0), at, min(at + 1, 5)]] = 0.05, 0.6, 0.35
    kernel[0, 1, :2] = kernel[5, 1, 4:] = 0.4, 0.6
    rewards[0, 0], rewards[5, 1] = 0.005, 1.0
    return Problem(kernel.reshape(12, 6), rewards)


def replacement(n: int = 20) -> Problem:
    """A machine that wears, by its age: keep it, mend it, or replace it."""
    kernel, rewards = np.zeros((n, 3, n)), np.zeros((n, 3))
    for at in range(n):
        for worn, p in enumerate((0.4, 0.4, 0.2)):
            kernel[at, 0, min(at + worn, n - 1)] += p
            kernel[at, 1, min(max(at - 5, 0) + worn, n - 1)] += p
        kernel[at, 2, 0] = 1.0
        rewards[at] = 10.0 - 0.05 * at**2, 6.0 - 0.05 * at**2, -6.0
    return Problem(kernel.reshape(-1, n), rewards)


def garnet(n: int = 60, n_actions: int = 4, branching: int = 3) -> Problem:
    """A drawn problem (Archibald et al. 1995): each pair leads to three states."""
    rng, kernel = np.random.default_rng(0), np.zeros((n * n_actions, n))
    for row in kernel:
        row[rng.choice(n, branching, replace=False)] = rng.dirichlet(np.ones(branching))
    return Problem(kernel, rng.random((n, n_actions)) * (rng.random((n, 1)) < 0.1))


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


def of_package(env: gym.Env[Any, Any], outcomes: Any, start: int) -> Problem:
    """The problem of a package's environment, by outcomes (p, state, reward, end) of each state and
    action; behind its states is the end."""
    size, n_actions = env.observation_space.n, env.action_space.n  # type: ignore[attr-defined]
    kernel, rewards = np.zeros((size + 1, n_actions, size + 1)), np.zeros((size + 1, n_actions))
    kernel[size, :, size] = 1.0
    for at, action in itertools.product(range(size), range(n_actions)):
        for p, to, reward, is_end in outcomes(at, action):
            kernel[at, action, size if is_end else to] += p
            rewards[at, action] += p * reward
    made = Problem(kernel.reshape(-1, size + 1), rewards)
    made.start, made.env = start, env
    return made


def frozen_lake() -> Problem:
    """Gymnasium's slippery lake of 8×8 cells."""
    env = gym.make("FrozenLake-v1", map_name="8x8").unwrapped
    return of_package(env, lambda at, action: env.P[at][action], 0)  # type: ignore[attr-defined]


def textbook_grid() -> Problem:
    """The noisy grid of 4×3 cells (Russell and Norvig), as in gym-classics2."""
    import gym_classics2  # no dependency of the benchmarks

    gym_classics2.register("gymnasium")
    env: Any = gym.make("ClassicGridworld-v1").unwrapped
    start = env.state2id(env.start_states[0])

    def outcomes(at: int, action: int) -> Any:
        to, rewards, ends, chances = env.model(at, action)
        return zip(chances, to, rewards, ends, strict=True)

    return of_package(env, outcomes, start)


def forest() -> Problem:
    """A forest of twenty ages that is cut or left to the fires, as in pymdptoolbox."""
    from mdptoolbox.example import forest as made  # no dependency of the benchmarks

    kernel, rewards = made(S=20)
    return Problem(kernel.transpose(1, 0, 2).reshape(-1, 20), rewards)


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
    "frozen lake": frozen_lake,
    "textbook grid": textbook_grid,
    "forest": forest,
}
"""Problems by name."""
