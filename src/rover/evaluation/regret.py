"""Expected returns of episodes where the dynamics are known, beside the best that there are."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array, eye_array, kron, vstack
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from rover.arrays import FloatArray, blocks
from rover.envs import FiniteDynamics, FiniteMDP, RewardFunction

_AT_ONCE = 128  # tasks on one chain, which then stays in the processor's cache
_LOOK_EVERY = 20  # steps


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
    if policies is not None:
        parts = blocks(len(policies), _AT_ONCE)
        found = [_followed(dynamics, tasks, policies, part, horizon, discount) for part in parts]
        return np.concatenate(found)
    # Action by action below each other, so that one product serves all actions and all tasks.
    transition = vstack(dynamics.transition)  # (A·S, S)
    n_states, n_tasks = tasks.terminal.shape
    values = np.zeros((n_states, n_tasks))
    for _ in range(horizon):
        # All tasks at once: one sparse product per step of the horizon.
        onward = discount * (transition @ np.where(tasks.terminal, 0.0, values))
        values = (tasks.rewards + onward).reshape(-1, n_states, n_tasks).max(axis=0)
    return np.asarray(dynamics.start @ values)


def _followed(
    dynamics: FiniteDynamics,
    tasks: FiniteTasks,
    policies: FloatArray,
    part: slice,
    horizon: int,
    discount: float,
) -> FloatArray:
    """Expected returns (k,) of the policies of some tasks, on one chain of all their states."""
    probs, going_on = policies[part], ~tasks.terminal[:, part].T
    n_tasks, n_states, n_actions = probs.shape
    earned = tasks.rewards[:, part].T.reshape(n_tasks, n_actions, n_states)
    reward = np.einsum("ksa,kas->ks", probs, earned).ravel()
    chain = csr_array((n_tasks * n_states,) * 2)
    for action, matrix in enumerate(dynamics.transition):
        chosen = diags_array(discount * probs[:, :, action].ravel())
        chain = chain + chosen @ kron(eye_array(n_tasks), matrix, format="csr")
    chain = csr_array(chain @ diags_array(going_on.ravel().astype(np.float64)))
    chain.eliminate_zeros()
    # What no episode comes to does not matter: a node more leads to where they begin.
    start = np.tile(dynamics.start, n_tasks)
    begins, ends = np.flatnonzero(start), [chain.nnz + np.count_nonzero(start)]
    graph = csr_array(
        (
            np.append(chain.data, start[begins]),
            np.append(chain.indices, begins),
            np.append(chain.indptr, ends),
        ),
        shape=(len(start) + 1,) * 2,
    )
    reached = breadth_first_order(graph, len(start), return_predecessors=False)[1:]
    chain, reward, start = chain[reached][:, reached], reward[reached], start[reached]
    before, values = np.zeros(len(reward)), reward
    for step in range(1, horizon):
        after = reward + chain @ values
        if step % _LOOK_EVERY == 0:
            # Changes only mix: where two are alike, so are all that follow, d, γ d, γ² d, …
            change, left = after - values, horizon - 1 - step
            if np.abs(change - discount * (values - before)).max() * (left + 1.0) ** 2 <= 1e-10:
                values = after + change * sum(discount**k for k in range(1, left + 1))
                break
        before, values = values, after
    sums = np.bincount(reached // n_states, start * values, minlength=n_tasks)
    return sums.astype(np.float64)


def shortest_returns(
    dynamics: FiniteDynamics, goals: NDArray[np.int64], horizon: int
) -> FloatArray:
    """The best returns (K,) of :func:`goal_tasks`, by shortest paths, where outcomes are certain;
    else by :func:`expected_returns`."""
    matrices = [csr_array(matrix) for matrix in dynamics.transition]
    if any((np.diff(matrix.indptr) != 1).any() for matrix in matrices):
        return expected_returns(dynamics, goal_tasks(dynamics, goals), horizon=horizon)
    begins = np.flatnonzero(dynamics.start)
    first, where = np.unique([matrix.indices[begins] for matrix in matrices], return_inverse=True)
    moves = matrices[0]
    for matrix in matrices[1:]:
        moves = moves + matrix
    steps = dijkstra(moves, indices=first, unweighted=True)[:, goals]
    best = np.minimum(steps, horizon)[where.reshape(len(matrices), -1)].min(axis=0)
    return np.asarray(-dynamics.start[begins] @ best)


class Regret(NamedTuple):
    """Expected undiscounted returns of episodes under K tasks, exactly.

    Attributes:
        returns: (K,) of the policies.
        best: (K,) the greatest possible; the regret is `best` − `returns`.
    """

    returns: FloatArray
    best: FloatArray

    @property
    def solved(self) -> int:
        """Tasks at the best possible return, but for rounding."""
        return int((self.returns >= self.best - 1e-9 * (1.0 + np.abs(self.best))).sum())
