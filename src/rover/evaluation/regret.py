"""Returns of episodes: expected where the dynamics are known, beside the best, or played."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import scipy  # its parts are imported on first use
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack
from scipy.sparse.csgraph import breadth_first_order, dijkstra

from rover.arrays import FloatArray, blocks
from rover.data import RunningEpisode, as_reward
from rover.envs import (
    FiniteDynamics,
    FiniteMDP,
    RewardFunction,
    Spaces,
    horizon_of,
    reward_function,
)
from rover.errors import ConfigurationError, require_finite, warn
from rover.evaluation.finite import PolicyChain
from rover.features import as_tensor

# Probability of calling a policy worse than random actions that is as good.
_LEVEL = 0.01

_AT_ONCE = 128  # tasks on one chain, which then stays in the processor's cache
_LOOK_EVERY = 20  # steps

_MAX_STEPS, _UNLIMITED_STEPS = 100_000, 10_000
"""Steps after which an episode is cut, where the environment has a time limit and where not."""


class FiniteTasks(NamedTuple):
    """K tasks on S states.

    Attributes:
        rewards: (A·S, K) expected reward of each action, row a·S + x.
        terminal: (S, K) states in which the task ends.
    """

    rewards: FloatArray
    terminal: NDArray[np.bool_]

    @classmethod
    def of_goals(cls, dynamics: FiniteDynamics, goals: NDArray[np.int64]) -> FiniteTasks:
        """Arrive at each of K states: −1 per step, 0 on arrival. A state that ends the episode is
        never left, and goes on to cost −1 per step."""
        arrived = np.zeros((dynamics.n_states, len(goals)), np.bool_)
        # One column a task: many goals cost one sparse product a step.
        arrived[goals, np.arange(len(goals))] = True
        return cls(vstack(dynamics.transition) @ (arrived.astype(np.float64) - 1.0), arrived)

    @classmethod
    def of_reward(cls, problem: FiniteMDP, reward: RewardFunction) -> FiniteTasks:
        """The task of a reward function, evaluated on every transition that the dynamics have."""
        dynamics, observations = problem.dynamics, problem.observations
        terminal, expected = dynamics.terminal.copy(), []
        for action, matrix in enumerate(dynamics.transition):
            # The reward is asked once for each transition that can happen, not for S² pairs.
            moves = matrix.tocoo()
            going_on = ~dynamics.terminal[moves.row]
            begin, end, share = moves.row[going_on], moves.col[going_on], moves.data[going_on]
            actions = np.full(len(begin), action)
            rewards, ends = reward(observations[begin], actions, observations[end])
            # A task may end where the environment goes on; its values stop there all the same.
            terminal[end[ends]] = True
            expected.append(np.bincount(begin, share * rewards, minlength=len(terminal)))
        return cls(np.concatenate(expected)[:, None].astype(np.float64), terminal[:, None])


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
        found = []
        for part in blocks(len(policies), _AT_ONCE):
            some = FiniteTasks(tasks.rewards[:, part], tasks.terminal[:, part])
            found.append(_followed(dynamics, some, policies[part], horizon, discount))
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
    horizon: int,
    discount: float,
) -> FloatArray:
    """Expected returns (K,) of the policies of a few tasks, on one chain of all their states."""
    (n_tasks, n_states, n_actions), going_on = policies.shape, ~tasks.terminal.T.ravel()
    earned = tasks.rewards.T.reshape(n_tasks, n_actions, n_states)
    reward = np.einsum("ksa,kas->ks", policies, earned).ravel()
    chain = PolicyChain(dynamics, policies).matrix
    begins = chain.indptr[-2]  # of the last row, in which an episode may begin in any state
    chain.data[:begins] *= going_on[chain.indices[:begins]]
    chain.eliminate_zeros()
    # What no episode comes to does not matter.
    square = csr_array((chain.data, chain.indices, chain.indptr), shape=(len(reward) + 1,) * 2)
    reached = breadth_first_order(square, len(reward), return_predecessors=False)[1:]
    start = square[[-1]].toarray()[0, reached]
    chain, reward = discount * chain[reached][:, reached], reward[reached]
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


def best_return(env: gym.Env[Any, Any], problem: FiniteMDP | None) -> tuple[float | None, bool]:
    """The greatest expected undiscounted return of an episode, exactly, where dynamics (`problem`)
    and rewards are known, else None; and True if a deterministic policy is known to play one and
    the same episode every time."""
    if problem is None:
        return None, False
    dynamics = problem.dynamics
    # One start, and one outcome of every action: rewards follow from states, so these decide.
    likeliest = vstack(dynamics.transition).max(axis=1).toarray().min()
    is_one = bool(dynamics.start.max() == likeliest == 1.0)
    try:
        task = FiniteTasks.of_reward(problem, reward_function(env))
    except ConfigurationError:  # no reward that is known as a function of observations
        return None, is_one
    return float(expected_returns(dynamics, task, horizon=horizon_of(env))[0]), is_one


def shortest_returns(
    dynamics: FiniteDynamics, goals: NDArray[np.int64], horizon: int
) -> FloatArray:
    """The best returns (K,) of :meth:`FiniteTasks.of_goals`, by shortest paths where outcomes are
    certain; else by :func:`expected_returns`."""
    matrices = [csr_array(matrix) for matrix in dynamics.transition]
    if any((np.diff(matrix.indptr) != 1).any() for matrix in matrices):
        return expected_returns(dynamics, FiniteTasks.of_goals(dynamics, goals), horizon=horizon)
    begins = np.flatnonzero(dynamics.start)
    first, where = np.unique([matrix.indices[begins] for matrix in matrices], return_inverse=True)
    moves = matrices[0]
    for matrix in matrices[1:]:
        moves = moves + matrix
    steps = dijkstra(moves, indices=first, unweighted=True)[:, goals]
    best = np.minimum(steps, horizon)[where.reshape(len(matrices), -1)].min(axis=0)
    return np.asarray(-dynamics.start[begins] @ best)


def greedy_episodes(
    env: gym.Env[Any, Any],
    policy: Callable[..., Any],
    *,
    seed: int,
    n_episodes: int,
    has_memory: bool = False,
    draws: bool = False,
) -> FloatArray:
    """Undiscounted returns (n_episodes,) of greedy episodes, or of ones whose actions are drawn.

    Args:
        env: the task's environment, which nothing else steps.
        policy: logits (n, A) of raw observations (n, *shape), whose greatest is taken.
        seed: of the episodes' resets; the same seed plays the same episodes.
        n_episodes: how many.
        has_memory: `policy` draws from a generator the policy of one episode, which is asked for
            each of its observations in order, (1, *shape), and returns (1, A) numbers.
        draws: these are probabilities by which actions are drawn.

    Warns:
        RoverWarning: an episode that does not end; the returns are those so far.
    """
    limit = _MAX_STEPS if env.spec and env.spec.max_episode_steps else _UNLIMITED_STEPS
    returns, spaces = np.zeros(n_episodes), Spaces.of(env)
    chosen: dict[bytes, int] = {}  # episodes repeat most of their observations
    for number in range(n_episodes):
        # A seed for each episode and not one stream: the third is the same whatever the second did.
        episode = RunningEpisode(env, seed=seed, number=number, spaces=spaces)
        rng = np.random.default_rng([seed, number])
        followed = policy(rng) if has_memory else policy
        observation, is_over = episode.observation, False
        while not is_over and episode.n_steps < limit:
            key = observation.tobytes()
            if has_memory or key not in chosen:
                with torch.no_grad():
                    scores = followed(as_tensor(observation[None]))
                require_finite(scores, "the policy's logits", "look at the observations")
                if draws:  # logarithms with Gumbel noise are greatest at a draw
                    scores = np.log(np.maximum(scores, 1e-300)) + rng.gumbel(size=scores.shape)
                chosen[key] = int(scores.argmax())
            observation, reward, terminated, truncated = episode.step(chosen[key])
            returns[number] += as_reward(reward, episode)
            is_over = terminated or truncated
        if not is_over:
            # What was planned or learned is worth more than a figure of it: nothing is lost.
            warn(
                f"an episode of the policy did not end within {limit:,} steps, so its return is "
                "over these steps, and no further episode was played: wrap the environment in "
                "gymnasium.wrappers.TimeLimit",
                stacklevel=2,
            )
            return returns[: number + 1]
    return returns


def is_less(means: tuple[float, float], errors: Sequence[float], n: int) -> bool:
    """Evidence that the first of two means is less, by their standard errors and n ≥ 2 samples of
    each, or more: Welch's test, one-sided, at the level 1%, with its fewest degrees of freedom."""
    # n − 1 is the least that Welch and Satterthwaite allow: the test errs to silence.
    quantile = float(scipy.special.stdtrit(n - 1, 1.0 - _LEVEL))
    return bool(means[1] - means[0] > quantile * math.hypot(*errors))


def warn_if_worse(returns: FloatArray, random: FloatArray) -> None:
    """Warn of returns (k,), k ≥ 2, of a plan that are evidently less than uniformly random
    actions', (m,), m ≥ k."""
    means = returns.mean(), random.mean()
    errors = [one.std(ddof=1) / len(one) ** 0.5 for one in (returns, random)]
    if is_less(means, errors, len(returns)):
        warn(
            f"the plan earns {means[0]:.3g}, less than the {means[1]:.3g} of uniformly "
            "random actions: collect more steps; let observations show all that matters, such as "
            "the last few of them (gymnasium.wrappers.FrameStackObservation); or learn the task "
            "(rover.finetune)",
            stacklevel=4,
        )


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
