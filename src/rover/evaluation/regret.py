"""Expected returns of episodes where the dynamics are known, beside the best that there are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from rover.arrays import FloatArray
from rover.envs import FiniteDynamics, FiniteMDP, RewardFunction


class FiniteTasks(NamedTuple):
    """K tasks on S states.

    Attributes:
        rewards: (A·S, K) expected reward of each action, row a·S + x.
        terminal: (S, K) states in which the task ends.
    """

    rewards: FloatArray
    terminal: NDArray[np.bool_]


def goal_tasks(dynamics: FiniteDynamics, goals: NDArray[np.int64]) -> FiniteTasks:
    """The tasks to arrive at each of K states: −1 per step, 0 on arrival. A state that ends the
    episode is never left, and goes on to cost −1 per step."""
    arrived = np.zeros((dynamics.n_states, len(goals)), np.bool_)
    # One column a task: many goals cost one sparse product a step.
    arrived[goals, np.arange(len(goals))] = True
    rewards = vstack(dynamics.transition) @ (arrived.astype(np.float64) - 1.0)
    return FiniteTasks(rewards, arrived)


def reward_task(problem: FiniteMDP, reward: RewardFunction) -> FiniteTasks:
    """The task of a reward function, evaluated on every transition that the dynamics have."""
    dynamics, observations = problem.dynamics, problem.observations
    terminal = dynamics.terminal.copy()
    expected = []
    for action, matrix in enumerate(dynamics.transition):
        # The reward is asked once for each transition that can happen, not for S² pairs.
        moves = matrix.tocoo()
        going_on = ~dynamics.terminal[moves.row]
        begin, end, share = moves.row[going_on], moves.col[going_on], moves.data[going_on]
        actions = np.full(len(begin), action)
        rewards, ends = reward(observations[begin], actions, observations[end])
        # A task may end where the environment goes on; its values stop there all the same.
        terminal[end[ends]] = True
        sums = np.bincount(begin, share * rewards, minlength=dynamics.n_states)
        expected.append(sums.astype(np.float64))
    return FiniteTasks(np.concatenate(expected)[:, None], terminal[:, None])


def expected_returns(
    dynamics: FiniteDynamics,
    tasks: FiniteTasks,
    *,
    horizon: int,
    policies: FloatArray | None = None,
    discount: float = 1.0,
) -> FloatArray:
    """Expected returns (K,) of episodes under K tasks, by backward induction.

        V_k(x) = Σ_a π(a|x) ( r(x, a) + γ Σ_y P(y|x, a) [y not terminal] V_{k−1}(y) )

    with the greatest action in place of π where no policies are given.

    Args:
        dynamics, tasks: the finite problem over S states, and rewards and ends.
        horizon: steps after which an episode is truncated.
        policies: (K, S, A) the stationary policy of each task; None: the best that there is.
        discount: γ in (0, 1].
    """
    # Action by action below each other, so that one product serves all actions and all tasks.
    transition = vstack(dynamics.transition)  # (A·S, S)
    n_states, n_tasks = tasks.terminal.shape
    probs = None if policies is None else policies.transpose(2, 1, 0)  # (A, S, K)
    values = np.zeros((n_states, n_tasks))
    for _ in range(horizon):
        # All tasks at once: one sparse product per step of the horizon.
        onward = discount * (transition @ np.where(tasks.terminal, 0.0, values))
        action_values = (tasks.rewards + onward).reshape(-1, n_states, n_tasks)
        values = action_values.max(axis=0) if probs is None else (probs * action_values).sum(axis=0)
    return np.asarray(dynamics.start @ values)


class Regret(NamedTuple):
    """Expected undiscounted returns of episodes under K tasks, exactly.

    Attributes:
        returns: (K,) of the policies.
        best: (K,) the greatest possible; the regret is `best` − `returns`.
    """

    returns: FloatArray
    best: FloatArray

    @classmethod
    def of(
        cls, dynamics: FiniteDynamics, tasks: FiniteTasks, policies: FloatArray, *, horizon: int
    ) -> Regret:
        """The regret of stationary policies (K, S, A), each in its own one of K tasks."""
        best = expected_returns(dynamics, tasks, horizon=horizon)
        return cls(expected_returns(dynamics, tasks, horizon=horizon, policies=policies), best)

    @property
    def solved(self) -> int:
        """Tasks at the best possible return, but for rounding."""
        return int((self.returns >= self.best - 1e-9 * (1.0 + np.abs(self.best))).sum())
