"""Returns of episodes that are played, of policies and of random actions."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rover.envs import Spaces
from rover.errors import RoverWarning
from rover.evaluation.rollouts import Probs, draw, is_less

if TYPE_CHECKING:
    from torch import Tensor

    from rover.evaluation.rollouts import SampleComponent
    from rover.policies import Policy, ValuePolicy

MAX_EPISODE_STEPS, _UNLIMITED_STEPS = 100_000, 10_000
"""Steps after which an episode is cut, where the environment has a time limit and where not."""

_STEPS, _FEWEST_EPISODES, _EPISODES = 1000, 3, 30
"""Steps beside random actions after which no other episode begins, and fewest and most episodes:
each is cut after an equal share of the steps."""

_MAX_UNSEEN = 0.3  # share of decisions at unseen observations
_SEED = 7  # of these episodes: a policy and random actions play the same ones


class FunctionReward(gym.Wrapper[Any, Any, Any, Any]):
    """An environment with the reward of a function (as of :func:`rover.solve`, asked for one
    transition at a time) in place of its own, which may end its episodes, too."""

    def __init__(self, env: gym.Env[Any, Any], reward: Callable[..., Any]) -> None:
        super().__init__(env)
        self._function, self._spaces = reward, Spaces.of(env)

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        self._seen, info = self.env.reset(**options)
        return self._seen, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Make a step, which earns what the function says."""
        # Copies: the environment may change its arrays, and the function what it is given.
        begin, taken = self._read(), np.array([action])
        self._seen, _, terminated, truncated, info = self.env.step(action)
        returned = self._function(begin, taken, self._read())
        rewards, ends = returned if isinstance(returned, tuple) else (returned, [False])
        return self._seen, float(rewards[0]), terminated or bool(ends[0]), truncated, info

    def _read(self) -> NDArray[Any]:
        row: NDArray[Any] = self._spaces.read(self._seen, "the environment")[None]
        return row


def warn_of_unseen(share: float, policy: ValuePolicy) -> None:
    """Warn if more than three tenths of a policy's decisions, the `share`, were made at
    observations that no distance relates to others: every action is taken alike there."""
    if share > _MAX_UNSEEN and not policy.has_metric:
        warnings.warn(
            f"{share:.0%} of the decisions were made at observations that the data never had, "
            "where every action is taken alike: pretrain for more steps, or show the environment's "
            "state as a vector of floats, in which near observations are alike",
            RoverWarning,
            stacklevel=3,
        )


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
    """Returns and decisions, as of :func:`greedy_episodes`, of a policy with a memory:
    `sample_component` draws the policy of one episode, asked for each of its observations in
    order."""

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
    """Returns of episodes and the observations of all decisions, by what `begin` makes of the
    number of an episode: an action for each observation (*shape)."""
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

    played = _played(env, begin_noting, seed=seed, longest=limit)
    for number, (earned, _, is_over) in zip(range(n_episodes), played, strict=False):
        returns[number] = earned
        if not is_over:
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


def _played(
    env: gym.Env[Any, Any],
    begin: Callable[[int], Callable[[NDArray[Any]], int]],
    *,
    seed: int,
    longest: int,
) -> Iterator[tuple[float, int, bool]]:
    """Undiscounted return of each episode, its steps, and whether it ended within the `longest`."""
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
        yield earned, n_steps, is_over


def warn_if_worse_than_random(policy: Policy, env: gym.Env[Any, Any]) -> None:
    """Warn of a policy for one task, whose environment nothing else steps, that earns less than
    uniformly random actions: by a thousand steps of each, Welch's one-sided test at the level 1%.
    """
    uniform = np.full((1, policy.n_actions), 1.0 / policy.n_actions)
    ours = _sampled_returns(env, lambda seen: policy.tables(seen).mean(axis=0))
    random = _sampled_returns(env, lambda _: uniform)
    means = float(np.mean(ours)), float(np.mean(random))
    errors = [float(np.std(one, ddof=1)) / math.sqrt(len(one)) for one in (ours, random)]
    if is_less(means, errors, min(len(ours), len(random))):
        warnings.warn(
            f"the plan earns less than uniformly random actions: {means[0]:.2f} ± {errors[0]:.2f} "
            f"in {len(ours)} episodes, random actions {means[1]:.2f} ± {errors[1]:.2f}. Collect "
            "more steps; let observations show all that matters, such as the last few of them "
            "(gymnasium.wrappers.FrameStackObservation); or learn the task (rover.finetune)",
            RoverWarning,
            stacklevel=2,
        )


def _sampled_returns(env: gym.Env[Any, Any], probs: Probs) -> list[float]:
    """Returns of episodes of about a thousand steps together, three at least, each within 333."""
    known: dict[bytes, NDArray[np.float64]] = {}  # episodes repeat some of their observations
    rng = np.random.default_rng(_SEED)

    def act(observation: NDArray[Any]) -> int:
        key = observation.tobytes()
        if key not in known:
            known[key] = probs(observation[None])[0].cumsum()
        return draw(known[key], rng)

    returns: list[float] = []
    n_steps = 0
    for earned, steps, _ in _played(
        env, lambda _: act, seed=_SEED, longest=_STEPS // _FEWEST_EPISODES
    ):
        returns.append(earned)
        n_steps += steps
        if len(returns) == _EPISODES or (n_steps >= _STEPS and len(returns) >= _FEWEST_EPISODES):
            break
    return returns
