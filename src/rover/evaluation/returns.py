"""Returns of episodes: expected and best ones where the dynamics are known, else sampled ones."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import vstack

from rover.envs import FiniteDynamics, FiniteMDP, RewardFunction, Spaces
from rover.errors import RoverWarning
from rover.evaluation.optimum import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

    from rover.evaluation.rollouts import SampleComponent

MAX_EPISODE_STEPS, _UNLIMITED_STEPS = 100_000, 10_000
"""Steps after which an episode is cut, where the environment has a time limit and where not."""


class FiniteTasks(NamedTuple):
    """K tasks on S states.

    Attributes:
        rewards: (A·S, K) expected reward of each action, row a·S + x.
        terminal: (S, K) states in which the task ends.
    """

    rewards: FloatArray
    terminal: NDArray[np.bool_]


def goal_tasks(dynamics: FiniteDynamics, goals: NDArray[np.int64]) -> FiniteTasks:
    """The tasks to arrive at each of K states: −1 per step, 0 on arrival.

    A state that ends the episode is never left, and goes on to cost −1 per step.
    """
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
        dynamics: the finite problem over S states.
        tasks: rewards and ends.
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


def greedy_episodes(
    env: gym.Env[Any, Any],
    logits: Callable[[Tensor], Tensor],
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Undiscounted returns (n_episodes,) and the observations of all decisions (m, *shape).

    Args:
        env: the task's environment, which nothing else steps.
        logits: the policy: logits (n, A) of raw observations (n, *shape); the likeliest action is
            taken.
        seed: of the episodes' resets; the same seed plays the same episodes.
        n_episodes: how many.

    Warns:
        RoverWarning: an episode that does not end; the returns are those so far.
    """
    import torch  # with what follows: the other figures do without

    from rover.features.networks import as_tensor
    from rover.operators.kernels import require_finite

    chosen: dict[bytes, int] = {}  # episodes repeat most of their observations

    def greedy(observation: NDArray[Any]) -> int:
        key = observation.tobytes()
        if key not in chosen:
            with torch.no_grad():
                scores = logits(as_tensor(observation[None]))
            require_finite(scores, "the policy's logits", "look at the observations")
            chosen[key] = int(scores.argmax())
        return chosen[key]

    return _play(env, lambda _: greedy, seed=seed, n_episodes=n_episodes)


def followed_episodes(
    env: gym.Env[Any, Any],
    sample_component: SampleComponent,
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns and decisions, as of :func:`greedy_episodes`, of a policy with a memory.

    Args:
        env, seed, n_episodes: as of :func:`greedy_episodes`.
        sample_component: the policy of one episode, asked for each of its observations in order.

    Warns:
        RoverWarning: an episode that does not end; the returns are those so far.
    """

    def begin(number: int) -> Callable[[NDArray[Any]], int]:
        probs = sample_component(np.random.default_rng([seed, number]))
        return lambda observation: int(probs(observation[None]).argmax())

    return _play(env, begin, seed=seed, n_episodes=n_episodes)


def _play(
    env: gym.Env[Any, Any],
    begin: Callable[[int], Callable[[NDArray[Any]], int]],
    *,
    seed: int,
    n_episodes: int,
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Returns of episodes and the observations of all decisions.

    Args:
        env, seed, n_episodes: as of :func:`greedy_episodes`.
        begin: what acts in the episode of a number: an action for each observation (*shape).
    """
    from rover.data import ObservationTable

    own = Spaces.of(env)
    limit = MAX_EPISODE_STEPS if env.spec and env.spec.max_episode_steps else _UNLIMITED_STEPS
    table, returns = ObservationTable(own.shape, own.dtype), np.zeros(n_episodes)
    decisions: list[int] = []

    def begin_noting(number: int) -> Callable[[NDArray[Any]], int]:
        act = begin(number)

        def noting(observation: NDArray[Any]) -> int:
            decisions.append(table.intern(observation))
            return act(table.rows[decisions[-1]])

        return noting

    played = played_episodes(env, begin_noting, seed=seed, longest=limit)
    for number, episode in zip(range(n_episodes), played, strict=False):
        returns[number] = episode.earned
        if not episode.is_over:
            # What was planned or learned is worth more than a figure of it: nothing is lost.
            warnings.warn(
                f"an episode of the policy did not end within {limit:,} steps, so its return is "
                "over these steps, and no further episode was played: wrap the environment in "
                "gymnasium.wrappers.TimeLimit",
                RoverWarning,
                stacklevel=3,
            )
            returns = returns[: number + 1]
            break
    return returns, table.rows[decisions]


class PlayedEpisode(NamedTuple):
    """The undiscounted return of an episode, its steps, and whether it ended."""

    earned: float
    n_steps: int
    is_over: bool


def played_episodes(
    env: gym.Env[Any, Any],
    begin: Callable[[int], Callable[[NDArray[Any]], int]],
    *,
    seed: int,
    longest: int,
) -> Iterator[PlayedEpisode]:
    """Play one episode after the other, as many as are asked for.

    Args:
        env, seed: as of :func:`greedy_episodes`.
        begin: from the number of an episode to its policy, an action for an observation (*shape).
        longest: steps after which an episode is left.
    """
    from rover.data import RunningEpisode, as_reward, episode_seed

    for number in itertools.count():
        # A seed for each episode and not one stream: the third is the same whatever the second did.
        episode = RunningEpisode(env, seed=episode_seed(seed, number), number=number)
        observation, act = episode.observation, begin(number)
        earned, n_steps, is_over = 0.0, 0, False
        while not is_over and n_steps < longest:
            observation, reward, terminated, truncated = episode.step(act(observation))
            earned += as_reward(reward, episode)
            n_steps, is_over = n_steps + 1, terminated or truncated
        yield PlayedEpisode(earned, n_steps, is_over)
